"""`--from-trace TRACE`: traffic, sizes of rows, selectivities and CPU as a recorded run measured them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headgate.controller.models.plans import EdgeEnds, MeasuredTraffic
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import LEDGER, RUN_FILE
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from headgate.controller.models.plans import ErrorSpread
    from headgate.controller.models.task_models import Model
    from headgate.topology_runtime.api.topology import Topology

LEAST_ROWS = 100  # of a whole run: fewer say nothing
HINT = "name the folder of one run, recorded by `headgate up` or `controller run --trace-dir`"


class RecordedTraffic:
    """Of a whole run. rows, wire_rows, wire_bytes: by edge; only rows between slots have bytes. cpu_s: by task, at
    speed 1. emitted: rows by source. seconds: how long it was sampled."""

    def __init__(self) -> None:
        self.rows: Counter[EdgeEnds] = Counter()
        self.wire_rows: Counter[EdgeEnds] = Counter()
        self.wire_bytes: Counter[EdgeEnds] = Counter()
        self.cpu_s: Counter[str] = Counter()
        self.emitted: Counter[str] = Counter()
        self.seconds = 0.0

    @property
    def input_rows(self) -> float:
        """At the input rate, of which each source takes all."""
        return sum(self.emitted.values()) / max(1, len(self.emitted))

    def traffic(self) -> MeasuredTraffic:
        return MeasuredTraffic(
            self.seconds,
            {ends: rows / self.input_rows for ends, rows in self.rows.items()},
            {ends: self.wire_bytes[ends] / rows for ends, rows in self.wire_rows.items()},
            {task: cpu / self.input_rows for task, cpu in self.cpu_s.items()},
        )

    def selectivities(self, topology: Topology) -> dict[EdgeEnds, float]:
        """Rows on an edge for each that its sender took. Edges to `all` count copies, so theirs are as they were said,
        and so are those over which nothing went."""
        taken: Counter[str] = Counter(self.emitted)
        for (_, target), rows in self.rows.items():
            taken[target] += rows
        return {
            (edge.source, edge.target): self.rows[edge.source, edge.target] / taken[edge.source]
            for edge in topology.edges
            if edge.grouping != "all" and self.rows[edge.source, edge.target] and taken[edge.source]
        }


def with_traffic(topology: Topology, trace: Path) -> tuple[Topology, MeasuredTraffic]:
    """(the topology with measured selectivities, the traffic). Raises InvalidInput where the trace cannot say."""
    recorded = recorded_traffic(trace)
    known = {(edge.source, edge.target) for edge in topology.edges}
    faults = [
        f"no task {source!r} → {target!r} in it"
        for source, target in recorded.rows
        if (source, target) not in known
    ]
    if faults:
        what = f"{trace} is of another topology than {topology.name!r}"
        raise InvalidInput(what, faults=faults, hint="name a trace of this topology, or its own file")
    measured = recorded.selectivities(topology)
    edges = tuple(
        replace(edge, selectivity=measured.get((edge.source, edge.target), edge.selectivity))
        for edge in topology.edges
    )
    return replace(topology, edges=edges), recorded.traffic()


def recorded_traffic(trace: Path) -> RecordedTraffic:
    """Raises InvalidInput for a folder that is no trace, or has no links or too few rows in it."""
    try:
        run = json.loads((trace / RUN_FILE).read_bytes())
        speeds = {vm["vm"]: float(vm.get("speed", 1.0)) for vm in run.get("vms", ())}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"invalid trace {trace}", cause=f"{RUN_FILE}: {error}", hint=HINT) from error
    found = RecordedTraffic()
    ends: set[int] = set()
    for at, source, target, tuples, size in _rows(
        trace, "links", "time", "from_task", "to_task", "tuples", "bytes"
    ):
        if source and target and tuples:
            ends.add(at)
            found.rows[source, target] += tuples
            if size:
                found.wire_rows[source, target] += tuples
                found.wire_bytes[source, target] += size
    for source, emitted in _rows(trace, "rates", "source", "emitted"):
        found.emitted[source] += emitted or 0
    for vm, task, cpu_s in _rows(trace, "samples", "vm", "task", "cpu_s"):
        found.cpu_s[task] += cpu_s * speeds.get(vm, 1.0)
    if not found.rows:
        raise InvalidInput(
            f"no links in {trace}", cause="what tasks send each other was not recorded", hint=HINT
        )
    if found.input_rows < LEAST_ROWS:
        emitted = counted(int(found.input_rows), "row")
        raise InvalidInput(
            f"too few rows in {trace}",
            cause=f"{emitted} say nothing of selectivities",
            hint="record a longer run",
        )
    found.seconds = (max(ends) - min(ends)) / 1e6
    return found


def _rows(trace: Path, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
    """These columns of all finished segments; times in µs. Segments without one of them are refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in sorted((trace / table).glob("[!_]*.parquet")):
        try:
            read = pq.read_table(file, columns=list(names))
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            raise InvalidInput(f"cannot read {file}", cause=str(error).splitlines()[0]) from error
        if absent := [name for name in names if name not in read.column_names]:
            raise InvalidInput(
                f"missing columns in {file}: {', '.join(absent)}",
                hint="record a new run: an older headgate wrote this one",
            )
        columns = [read[name].cast(pa.int64()) if name == "time" else read[name] for name in names]
        yield from zip(*(column.to_pylist() for column in columns), strict=True)


# ── What the prediction ledger says of models, for commands that plan without a cluster ─────────────────

TRACES = Path("traces")


def learned_for(
    topology: Topology, models: dict[str, Model], named: str | None
) -> tuple[dict[str, Model], ErrorSpread, list[str]]:
    """(the models, corrected where they are surely off; by how much plans err; both in words). Raises InvalidInput when
    the ledger that is named is not there."""
    from headgate.controller.analyze.model_bias import corrections, spread_of
    from headgate.controller.recording.prediction_ledger_file import read_ledger, speaking_of
    from headgate.topology_runtime.errors import InvalidInput

    place = Path(named) if named is not None else TRACES
    path = place / topology.name / LEDGER if place.is_dir() else place
    if named is not None and not path.is_file():
        raise InvalidInput(f"no prediction ledger {str(path)!r}", hint="record one with `headgate up`")
    read = read_ledger(path)
    entries = speaking_of(read.entries, topology.name, models.values())
    used = {task.model_name for task in topology.tasks if task.static is None}
    notes = [*read.faults]
    for model, words in corrections({name: models[name] for name in used if name in models}, entries):
        models = {**models, model.task: model}
        notes.append(f"by {path}: {words}; corrected")
    spread = spread_of({name: models[name] for name in used if name in models}, entries)
    if spread.models:
        notes.append(f"errors of {', '.join(sorted(spread.models))}: learned, {path}")
    else:
        notes.append(
            f"errors: {spread.slot:.1%} each slot and {spread.together:.1%} together, as in trials "
            "(docs/explanation/models-and-planning.md); the ledger knows too few runs of these models"
        )
    return models, spread, notes
