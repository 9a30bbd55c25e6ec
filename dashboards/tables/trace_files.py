"""Which files a TRACE is: of a run, of all runs of a topology, of all traces, or what an analysis has curated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec

from headgate.dashboards.analytics.curation.trace_segments import Segment, Shape, judged, judged_file
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.result_tables import LeftOut, RunFigures
from headgate.dashboards.analytics.storage.trace_runs import (
    PublishedViews,
    TraceRun,
    epochs_of,
    lines_of,
    reserved_of,
    run_of,
    view_parts,
    weights_of,
)
from headgate.dashboards.tables.table_catalogue import TraceTable, needed, tables
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import (
    DECISIONS,
    NUMBER,
    PLANS,
    PREDICTED_LATENCY,
    RUN_FILE,
    TABLES,
    VIEWS,
)
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa


NOT_FINITE = "not-finite"  # kind of what is left out
FAULTS_SHOWN = 20


@dataclass(frozen=True)
class RunFiles:
    """The Parquet files of a run that can be used."""

    run: TraceRun
    segments: tuple[Segment, ...]

    def files(self, table: str) -> list[str]:
        """As a path, or as a URI where they are not on this machine."""
        return [segment.place.uri for segment in self.segments if segment.table == table]

    def alike(self, table: str) -> list[tuple[set[str], list[str]]]:
        """(names of columns, files) of those that have the same columns: no engine has to make one of several."""
        found: dict[Shape, list[str]] = {}
        for segment in self.segments:
            if segment.table == table:
                found.setdefault(segment.shape, []).append(segment.place.uri)
        return [({name for name, _ in shape}, files) for shape, files in found.items()]

    @property
    def begin_us(self) -> int | None:
        """Time of the first row."""
        return min((segment.begin_us for segment in self.segments), default=None)

    @property
    def end_us(self) -> int | None:
        """Time of the last one."""
        return max((segment.end_us for segment in self.segments), default=None)


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
        replace(one, segments=tuple(s for s in one.segments if s.place.uri not in damaged)) for one in runs
    ]


def damaged(runs: Sequence[RunFiles]) -> list[LeftOut]:
    """Files whose footers are fine and whose pages are not: every page is read for it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    bad = []
    for segment in (segment for one in runs for segment in one.segments):
        file = segment.place
        try:
            with file.files().open_input_file(file.path) as stream:
                for _ in pq.ParquetFile(stream).iter_batches():
                    pass
        except (OSError, pa.ArrowException) as error:
            why = f"cannot be read: {type(error).__name__}: {error}".splitlines()[0]
            bad.append(LeftOut(file.uri, "unreadable", why, None))
    return bad


class LeftOutColumn(LeftOut, frozen=True):
    """Values of a column of a file that are null in every table."""

    column: str


def not_finite(runs: Sequence[RunFiles], wanted: Collection[str]) -> list[LeftOut]:
    """NaN and infinities in the files of these tables: each such column once, with its rows. Reads these columns whole;
    a file whose pages cannot be read says so where it is asked."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: list[LeftOut] = []
    for segment in (segment for one in runs for segment in one.segments if segment.table in wanted):
        there = [name for name, _ in segment.shape if TABLES[segment.table].get(name) == NUMBER]
        bad: Counter[str] = Counter()
        try:
            with segment.place.files().open_input_file(segment.place.path) as stream:
                for batch in pq.ParquetFile(stream).iter_batches(columns=there):
                    for name in there:
                        values = batch[name].cast(pa.float64())
                        finite = pc.sum(pc.is_finite(values)).as_py() or 0
                        bad[name] += len(values) - values.null_count - finite
        except (OSError, pa.ArrowException):
            continue
        for name, many in bad.items():
            if many:
                every = counted(segment.rows, "value")
                why = f"{many:,} of {every} of {name} are NaN or infinite: null in every table"
                found.append(LeftOutColumn(segment.place.uri, NOT_FINITE, why, many, name))
    return found


def read_by(query: str) -> set[str]:
    """The tables of files in which a query reads values: those of `left_out` are all of them."""
    names = needed(query)
    return set(TABLES) if "left_out" in names else names & TABLES.keys()


def refuse_incomplete(runs: Sequence[RunFiles], left: Sequence[LeftOut]) -> None:
    """Raises InvalidInput when anything is missing; a file without rows is complete, and so is a run without models."""
    heads = {(one.run.place / RUN_FILE).uri for one in runs if one.run.weights}
    missing = [why for why in left if why.rows != 0 and not (why.kind == "models" and why.file in heads)]
    if missing:
        raise InvalidInput(
            f"{counted(len(missing), 'part')} of the trace left out",
            cause="with strict=yes an answer has to be of all of it",
            hint="without strict=yes the answer is of what is there; `select * from left_out` lists what is not",
            faults=[f"{why.file}: {why.kind}: {why.reason}" for why in missing[:FAULTS_SHOWN]],
        )


def _of_traces(trace: str) -> tuple[list[RunFiles], list[LeftOut]]:
    runs, left = trace_runs.find([trace])
    of = []
    for run in runs:
        segments, why = judged(run)
        left += why
        of.append(RunFiles(run, tuple(segments)))
    return of, left


def _of_analysis(curated: DataPlace) -> tuple[list[RunFiles], list[LeftOut]]:
    """Its files by their folders. What only a run's head says (VMs, tasks, models) is not there."""
    found: dict[tuple[str, str], list[Segment]] = {}
    left = []
    why = "an analysis keeps no heads of runs: VMs, tasks, models, plans and decisions are unknown"
    for table in TABLES:
        for folder in _inside(curated / table, 3):
            topology, name = (
                unquote(of.name.partition("=")[2]) for of in (folder.parent.parent, folder.parent)
            )
            for file, is_folder in folder.children():
                segment = judged_file(table, file)[0] if not is_folder else None
                if segment is not None:
                    found.setdefault((topology, name), []).append(segment)
    if not found:
        raise InvalidInput(f"{curated.path} holds no run", hint="`headgate analyze` makes it again")
    runs, started_us = [], _started(curated)
    for (topology, name), segments in found.items():
        run = replace(run_of(curated, {}), topology=topology, name=name)
        run = replace(run, started_us=started_us.get(run.key))
        runs.append(RunFiles(run, tuple(segments)))
        left.append(LeftOut(f"{curated.uri}/*/topology={topology}/run={name}", "models", why, None))
    return runs, left


def _started(curated: DataPlace) -> dict[str, int | None]:
    """When each run began, by what the analysis says of it; nothing where it did not get so far."""
    try:
        rows = msgspec.json.decode(
            (curated.parent / "results" / "run_figures.json").read(), type=list[RunFigures]
        )
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    return {row.run: row.started_us for row in rows}


def _inside(folder: DataPlace, deep: int) -> list[DataPlace]:
    """The folders so far below it: of a table, a topology, a run, a date."""
    if not deep:
        return [folder]
    return [
        place for child, is_folder in folder.children() if is_folder for place in _inside(child, deep - 1)
    ]


# ── How long the stretches are that rows are summed over ────────────────────────────────────────────────

WINDOWS_S = ((600, 5), (86_400, 10), (float("inf"), 60))  # runs of so many seconds at most → their window
FINE_BIN_S, COARSE_BIN_S, FINE_RUN_S = 1, 15, 3 * 3600
JUDGED_S = 15  # as the controller judges


class StretchWidths(NamedTuple):
    """window_s: of samples, slots and rates; bin_s: of latency; judged_s: in which latency must not grow."""

    window_s: int
    bin_s: int
    judged_s: int


def widths_of(runs: Sequence[RunFiles]) -> StretchWidths:
    """By the longest of them."""
    spans = [(one.end_us - one.begin_us) / 1e6 for one in runs if one.begin_us is not None and one.end_us]
    span_s = max(spans, default=0.0)
    window_s = next(seconds for most_s, seconds in WINDOWS_S if span_s <= most_s)
    return StretchWidths(window_s, FINE_BIN_S if span_s <= FINE_RUN_S else COARSE_BIN_S, JUDGED_S)


# ── What a trace has as JSON, as rows of the raw tables: its head, decisions, plans and what the controller
# counted

Rows = list[dict[str, Any]]


def head_tables(runs: Sequence[RunFiles], left: Sequence[LeftOut], wanted: set[str]) -> dict[str, pa.Table]:
    """Those of the wanted raw tables that are no Parquet files; what cannot be read of them is added to `left_out`."""
    rows, more = _head_rows(runs, wanted)
    rows["left_out"] = [_left_row(runs, why) for why in (*left, *more)]
    return {name: _arrow(tables()[name], of) for name, of in rows.items() if name in wanted}


def torn(runs: Sequence[RunFiles], wanted: set[str]) -> list[LeftOut]:
    """What cannot be read of the JSON that these tables come of."""
    return _head_rows(runs, wanted)[1]


def _head_rows(runs: Sequence[RunFiles], wanted: set[str]) -> tuple[dict[str, Rows], list[LeftOut]]:
    more: list[LeftOut] = []
    rows: dict[str, Rows] = {
        name: [] for name in tables() if tables()[name].sql is None and name not in TABLES
    }
    for one in runs:
        for name, of in _of_run(one, wanted, more).items():
            rows[name] += [{**row, "run": one.run.key} for row in of]
    rows["widths"] = [{"run": one.run.key, **widths_of(runs)._asdict()} for one in runs]
    return rows, more


def _left_row(runs: Sequence[RunFiles], why: LeftOut) -> dict[str, Any]:
    run = next((one.run.key for one in runs if why.file.startswith(one.run.place.uri + "/")), None)
    column = getattr(why, "column", None)
    return {
        "run": run,
        "file": why.file,
        "column_name": column,
        "kind": why.kind,
        "reason": why.reason,
        "rows": why.rows,
    }


def _of_run(one: RunFiles, wanted: set[str], left: list[LeftOut]) -> dict[str, Rows]:
    head = _head(one.run.place)
    found = {
        "runs": [_run_row(one, head)],
        "tasks": _tasks(head),
        "edges": _edges(head),
        "models": _models(head),
    }
    plans: Rows = []
    if wanted & {"plan_slots", "vms"}:
        plans = list(_lines(one.run.place / PLANS, lambda raw: msgspec.json.decode(raw)["plan"], left))
    found["vms"] = _vms([head, *plans])
    found["plan_slots"] = [row for plan in plans for row in _plan_slots(plan)]
    if "decisions" in wanted:
        found["decisions"] = _decisions(list(_lines(one.run.place / DECISIONS, _object, left)))
    if "predicted_latency" in wanted:
        found["predicted_latency"] = _predicted_latency(one.run.place / PREDICTED_LATENCY, left)
    if "counts" in wanted:
        found["counts"] = _counts(one.run.place, left)
    return found


def _head(run: DataPlace) -> dict[str, Any]:
    """{} where there is none that can be read; that it is missing was said when the run was found."""
    try:
        head = json.loads((run / RUN_FILE).read())
    except (OSError, ValueError):
        return {}
    return head if isinstance(head, dict) else {}


def _object(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw, type=dict[str, Any])


def _lines(file: DataPlace, decode: Callable[[bytes], Any], left: list[LeftOut]) -> Iterator[Any]:
    """What each line says. A torn one is said once."""
    try:
        content = file.read()
    except FileNotFoundError:
        left.append(LeftOut(file.uri, "missing", "there is no such file", None))
        return
    torn = 0
    for raw in content.splitlines():
        try:
            yield decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            torn += 1
    if torn:
        left.append(_torn(file.uri, torn))


def _torn(uri: str, lines: int) -> LeftOut:
    return LeftOut(uri, "truncated", f"cannot be read: {counted(lines, 'line')}", lines)


def _run_row(one: RunFiles, head: dict[str, Any]) -> dict[str, Any]:
    settings = head.get("settings") or {}
    spare = settings.get("spare") or {}
    return {
        **settings,
        **{f"spare_{name}": value for name, value in spare.items()},
        "topology": one.run.topology,
        "name": one.run.name,
        "headgate": head.get("headgate"),
        "started": _of_us(one.run.started_us),
        "begun": _of_us(one.begin_us if one.run.started_us is None else one.run.started_us),
        "ended": _of_us(one.end_us),
    }


def _vms(documents: Sequence[dict[str, Any]]) -> Rows:
    """Each once, as it was named first."""
    every = [vm for document in documents for vm in document.get("vms") or []]
    return list({vm["vm"]: vm for vm in reversed(every)}.values())


def _tasks(head: dict[str, Any]) -> Rows:
    topology = head.get("topology") or {}
    sources, weights = weights_of(topology)
    senders = {edge["from"] for edge in topology.get("edges") or []}
    return [
        {
            "task": task["name"],
            "kind": task.get("kind") or ("map" if task["name"] in senders else "sink"),
            "code": task.get("run"),
            "static": bool(task.get("static")),
            "static_cpu": reserved_of(task),
            "weight": weights.get(task["name"]),
            "is_source": task["name"] in sources,
            "is_sink": task["name"] not in senders,
        }
        for task in topology.get("tasks") or []
    ]


def _edges(head: dict[str, Any]) -> Rows:
    return [
        {
            "from_task": edge["from"],
            "to_task": edge["to"],
            "grouping": edge.get("grouping", "shuffle"),
            "selectivity": float(edge.get("selectivity", 1.0)),
        }
        for edge in (head.get("topology") or {}).get("edges") or []
    ]


def _models(head: dict[str, Any]) -> Rows:
    return [
        {**point, "task": model.get("task")}
        for model in head.get("models") or []
        for point in model.get("points") or []
    ]


def _plan_slots(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    told = (plan.get("prediction") or {}).get("shares") or []
    shares = {(one.get("vm"), one.get("slot"), one.get("task")): one.get("share") for one in told}
    for slot in plan.get("placement") or []:
        for task, threads in (slot.get("threads") or {}).items():
            share = shares.get((slot.get("vm"), slot.get("slot"), task))
            yield {**slot, "plan": plan["id"], "task": task, "threads": threads, "share": share}


def _decisions(lines: Sequence[dict[str, Any]]) -> Rows:
    rows: Rows = []
    plans = [line for line in lines if line.get("action") == "plan" and isinstance(line.get("epoch"), int)]
    own_of = dict(zip(map(id, plans), epochs_of([line["epoch"] for line in plans]), strict=True))
    for number, line in enumerate(lines, 1):
        plan, came = line.get("plan") or {}, line.get("enacted") or {}
        rows.append(
            {
                **came,
                **plan,
                **line,
                "number": number,
                "time": _of_text(line.get("time")),
                "plan_epoch": own_of.get(id(line)),
                "evidence": json.dumps(line.get("evidence") or {}, sort_keys=True),
                "plan": plan.get("id"),
                "enacted_epoch": came.get("epoch"),
            }
        )
    return rows


class _SinkLatency(msgspec.Struct):
    sink: str
    p50_ms: float
    p95_ms: float
    p99_ms: float


class _PredictedLatency(msgspec.Struct):
    """A line of predicted_latency.jsonl."""

    time: str
    epoch: int
    plan: str
    settled_in_s: float
    rate_tps: float | None
    sinks: list[_SinkLatency]

    def rows(self, number: int) -> Rows:
        """One for each sink; one without a sink where the plan does not carry the rate."""
        line: dict[str, Any] = {"number": number, "time": _of_text(self.time), "epoch": self.epoch}
        line |= {"plan": self.plan, "settled_in_s": self.settled_in_s, "rate_tps": self.rate_tps}
        sinks = [
            {"sink": of.sink, "p50_s": of.p50_ms / 1e3, "p95_s": of.p95_ms / 1e3, "p99_s": of.p99_ms / 1e3}
            for of in self.sinks
        ]
        return [line | sink for sink in sinks or [{}]]


def _predicted_latency(file: DataPlace, left: list[LeftOut]) -> Rows:
    """Nothing of a run without any: of an earlier version, or too short."""
    if not file.is_file():
        return []
    lines = _lines(file, msgspec.json.Decoder(_PredictedLatency).decode, left)
    return [row for number, line in enumerate(lines, 1) for row in line.rows(number)]


def _counts(run: DataPlace, left: list[LeftOut]) -> Rows:
    """A row for each line of the views, of all their parts, that says something of tuples. Torn ones are said once."""
    if not view_parts(run):
        left.append(LeftOut((run / VIEWS).uri, "missing", "there is no such file", None))
    rows: Rows = []
    views = PublishedViews(lines_of(run))
    for view in views:
        if view.counts:
            rows.append({**(view.tuples or {}), "number": len(rows) + 1, "time": _of_text(view.now)})
    if views.torn:
        left.append(_torn((run / VIEWS).uri, views.torn))
    return rows


def _of_us(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1e6, UTC)


def _of_text(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


def _arrow(table: TraceTable, rows: Rows) -> pa.Table:
    """The table's columns of these rows; a value that is not of its column's kind is null."""
    import pyarrow as pa

    kinds: dict[str, tuple[Any, tuple[type, ...]]] = {
        "timestamp": (pa.timestamp("us", tz="UTC"), (datetime,)),
        "string": (pa.string(), (str,)),
        "bigint": (pa.int64(), (int,)),
        "double": (pa.float64(), (int, float)),
        "boolean": (pa.bool_(), (bool,)),
    }
    arrays, fields = [], []
    for column in table.columns:
        kind, allowed = kinds[column.type]
        values = [row.get(column.name) for row in rows]
        arrays.append(pa.array([v if isinstance(v, allowed) else None for v in values], kind))
        fields.append((column.name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
