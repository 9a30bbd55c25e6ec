"""What `headgate analyze` reads and writes, told as OpenLineage has it: START, then COMPLETE, FAIL or ABORT.

Off unless OpenLineage's own settings say where to (OPENLINEAGE_URL, OPENLINEAGE_CONFIG, OPENLINEAGE__TRANSPORT…, or a
file `openlineage.yml` here or in `~/.openlineage`). Its client sends, from a thread of its own: it tries for nine
seconds where nobody answers. What cannot be told is said on stderr, and ends no analysis.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.topology_runtime.traces.trace_tables import TABLES
from headgate.topology_runtime.wire.wire_version import VERSION
from headgate.topology_runtime.wording import one_line

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Dataset, RunEvent, RunState


CONFIG = "openlineage.yml"
PRODUCER = f"urn:headgate:{VERSION}"
NAMESPACE = "headgate"  # of the job, unless OPENLINEAGE_NAMESPACE says otherwise
LAST_S = 10.0  # for the last event; the client gives up before
CURATED, RESULTS = "curated", "results"
LOGS = ("openlineage", "urllib3.connectionpool")  # what they would print is said here, once


def wanted(environment: Mapping[str, str], folders: Sequence[Path]) -> bool:
    """Do OpenLineage's own settings say where events go? folders: where its file may be."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    names = [name for name, value in environment.items() if value]
    told = {"OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"}.intersection(names)
    return (
        bool(told)
        or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in names)
        or any((folder / CONFIG).is_file() for folder in folders)
    )


@contextmanager
def lineage(traces: Sequence[str], to: str) -> Iterator[None]:
    """Tell of the analysis of these traces into this folder that is made within."""
    if not wanted(os.environ, (Path.cwd(), Path.home() / ".openlineage")):
        yield
        return
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        click.echo("no lineage is told: pip install 'headgate[openlineage]'", err=True)
        yield
        return
    try:
        client = OpenLineageClient()
    except Exception as error:  # of whatever is wrong with its settings
        click.echo(f"no lineage is told: {_words(error)}", err=True)
        yield
        return
    with _told(client, traces, place(to)):
        yield


@contextmanager
def _told(client: OpenLineageClient, traces: Sequence[str], to: DataPlace) -> Iterator[None]:
    from openlineage.client.event_v2 import RunState

    run, sending = AnalysisLineage(traces, to), Sending(client)
    sending.send(run.event(RunState.START))
    try:
        yield
    except BaseException as error:
        ended = RunState.FAIL if isinstance(error, Exception) else RunState.ABORT
        sending.send(run.event(ended, error))
        raise
    else:
        sending.send(run.event(RunState.COMPLETE))
    finally:
        sending.close()


class AnalysisLineage:
    """One run of the job `analyze`, or `analyze.TOPOLOGY` where all traces are of one topology."""

    def __init__(self, traces: Sequence[str], to: DataPlace) -> None:
        from openlineage.client.event_v2 import Job
        from openlineage.client.facet_v2 import job_type_job, processing_engine_run
        from openlineage.client.uuid import generate_new_uuid

        self._to = to
        self._runs = trace_runs.find(traces)[0]
        topologies = {run.topology for run in self._runs}
        name = "analyze" + (f".{topologies.pop()}" if len(topologies) == 1 else "")
        kind = job_type_job.JobTypeJobFacet("BATCH", "HEADGATE", "ANALYSIS", producer=PRODUCER)
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or NAMESPACE
        self._job = Job(namespace, name, facets={"jobType": kind})
        engine = processing_engine_run.ProcessingEngineRunFacet(VERSION, "headgate", producer=PRODUCER)
        self._id, self._facets = str(generate_new_uuid()), {"processing_engine": engine}

    def event(self, state: RunState, error: BaseException | None = None) -> RunEvent:
        from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run

        facets: dict[str, Any] = dict(self._facets)
        if error is not None:
            words = error_message_run.ErrorMessageRunFacet(_words(error), "Python", producer=PRODUCER)
            facets["errorMessage"] = words
        inputs = [
            _dataset(InputDataset, run.place / table, table)
            for run in self._runs
            for table in TABLES
            if (run.place / table).is_folder()
        ]
        outputs = self._outputs(OutputDataset) if state == RunState.COMPLETE else []
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return RunEvent(
            eventTime=now,
            producer=PRODUCER,
            run=Run(self._id, facets=facets),
            job=self._job,
            eventType=state,
            inputs=inputs,
            outputs=outputs,
        )

    def _outputs(self, kind: type[Dataset]) -> list[Any]:
        curated, results = self._to / CURATED, self._to / RESULTS
        tables = [_dataset(kind, curated / table, table) for table in TABLES if (curated / table).is_folder()]
        return tables + [_dataset(kind, file, None) for file, folder in results.children() if not folder]


def _dataset(kind: type[Dataset], at: DataPlace, table: str | None) -> Any:
    """By OpenLineage's names; with the columns of one of our tables."""
    from openlineage.client.facet_v2 import schema_dataset

    from headgate.topology_runtime.traces.arrow_schema import arrow_schema

    namespace, name = named(at)
    if table is None:
        return kind(namespace, name)
    fields = [schema_dataset.SchemaDatasetFacetFields(one.name, str(one.type)) for one in arrow_schema(table)]
    return kind(
        namespace, name, facets={"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)}
    )


def named(at: DataPlace) -> tuple[str, str]:
    """(namespace, name) of a folder or file, as OpenLineage's naming has it.

    >>> named(place("s3a://bucket/traces/demo"))
    ('s3://bucket', 'traces/demo')
    """
    if at.local:
        return "file", at.path
    scheme, _, rest = at.uri.partition("://")
    authority, _, path = rest.partition("/")
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return f"{scheme}://{authority}", f"/{path}" if scheme in ("hdfs", "abfs", "abfss") else path


class Sending:
    """Sends events in their order, by a thread of its own; after the first that nobody takes, none."""

    def __init__(self, client: OpenLineageClient) -> None:
        self._client = client
        self._events: SimpleQueue[RunEvent | None] = SimpleQueue()
        for name in LOGS:
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.addHandler(logging.NullHandler())
        self._thread = threading.Thread(target=self._work, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent) -> None:
        self._events.put(event)

    def close(self) -> None:
        """When all is sent, or it has taken too long."""
        self._events.put(None)
        self._thread.join(LAST_S)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # of whatever transport is set
                click.echo(f"no lineage is told: {_words(error)}", err=True)
                return
        self._client.close()


def _words(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}")
