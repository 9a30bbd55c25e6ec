"""Which files a TRACE is: of a run, of all runs of a topology, of all traces, or what an analysis has curated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import msgspec

from headgate.dashboards.analytics import trace_runs
from headgate.dashboards.analytics.data_places import DataPlace, place
from headgate.dashboards.analytics.judging import Segment, judged
from headgate.dashboards.analytics.manifest import Manifest, folder_of
from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.analytics.trace_runs import TraceRun, run_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.trace_tables import TABLES


@dataclass(frozen=True)
class RunFiles:
    """The Parquet files of a run by table; begin_us, end_us: times of its first and last row."""

    run: TraceRun
    files: Mapping[str, tuple[str, ...]]
    begin_us: int | None
    end_us: int | None


def found(trace: str) -> tuple[list[RunFiles], list[LeftOut]]:
    """(runs in order of their names, what is left out). Raises InvalidInput."""
    folder = place(trace)
    if not folder.local:
        raise InvalidInput(
            f"{trace} is not on this machine", hint="`headgate analyze` reads it there, with Spark"
        )
    if not folder.is_folder():
        raise InvalidInput(
            f"{trace}: there is no such folder", hint="headgate sql traces/TOPOLOGY/RUN --tables"
        )
    curated = folder / trace_runs.MADE
    runs, left = _of_analysis(curated) if curated.is_folder() else _of_traces(trace)
    return sorted(runs, key=lambda one: one.run.key), left


def without(runs: Sequence[RunFiles], damaged: set[str]) -> list[RunFiles]:
    """The same without these files."""
    return [
        replace(one, files={t: tuple(f for f in files if f not in damaged) for t, files in one.files.items()})
        for one in runs
    ]


def damaged(runs: Sequence[RunFiles]) -> list[LeftOut]:
    """Files whose footers are fine and whose pages are not: every page is read for it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    bad = []
    for file in (file for one in runs for files in one.files.values() for file in files):
        try:
            for _ in pq.ParquetFile(file).iter_batches():
                pass
        except (OSError, pa.ArrowException) as error:
            bad.append(LeftOut(file, "unreadable", str(error).splitlines()[0], None))
    return bad


def _of_traces(trace: str) -> tuple[list[RunFiles], list[LeftOut]]:
    runs, left = trace_runs.find([trace])
    of = []
    for run in runs:
        segments, why = judged(run)
        left += why
        of.append(_of_segments(run, segments))
    return of, left


def _of_segments(run: TraceRun, segments: Sequence[Segment]) -> RunFiles:
    files = {table: tuple(s.place.path for s in segments if s.table == table) for table in TABLES}
    begin_us = min((s.begin_us for s in segments), default=None)
    return RunFiles(run, files, begin_us, max((s.end_us for s in segments), default=None))


def _of_analysis(curated: DataPlace) -> tuple[list[RunFiles], list[LeftOut]]:
    """The parts that manifests name. What only a run's head says (VMs, tasks, models) is not there."""
    runs, left = [], []
    why = "an analysis keeps no heads of runs: VMs, tasks, models, plans and decisions are unknown"
    for folder, is_folder in (curated / "_manifests").children():
        for file, _ in folder.children() if is_folder else []:
            topology, name = unquote(folder.name), unquote(file.name.removesuffix(".json"))
            run = replace(run_of(curated, {}), topology=topology, name=name)
            try:
                found = msgspec.json.decode(file.read(), type=Manifest)
            except (OSError, msgspec.DecodeError) as error:
                left.append(LeftOut(file.uri, "unreadable", str(error), None))
                continue
            runs.append(_of_parts(curated, replace(run, started_us=found.started_us), found))
            left.append(LeftOut(file.uri, "models", why, None))
    if not runs:
        raise InvalidInput(f"{curated.path} names no run", hint="`headgate analyze` makes it again")
    return runs, left


def _of_parts(curated: DataPlace, run: TraceRun, found: Manifest) -> RunFiles:
    files = {
        table: tuple(
            (folder_of(curated, table, run) / f"date={part.date}" / part.file).path
            for part in found.parts
            if part.table == table
        )
        for table in TABLES
    }
    spans = [span for of in files.values() for file in of if (span := _span(file))]
    begin_us = min((begin for begin, _ in spans), default=None)
    return RunFiles(run, files, begin_us, max((end for _, end in spans), default=None))


def _span(file: str) -> tuple[int, int] | None:
    """Times of its first and last row in µs."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    times = pq.read_table(file, columns=["time"], partitioning=None)["time"]
    ends: Any = pc.min_max(times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    return None if ends["min"].as_py() is None else (ends["min"].as_py(), ends["max"].as_py())
