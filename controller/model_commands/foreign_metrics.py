"""What another system measured of an operator, and the model that follows from it. Pure.

These systems tell for how long an operator was busy and how many rows it took. Rows per busy second of one thread is
the rate that one thread carries, whatever the load was. What CPU and memory a thread takes they do not tell; both are
assumed.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headgate.controller.models.task_models import Model, ModelSlot, Point, Spread
from headgate.topology_runtime.wording import NAME, shown, significant

LITTLE_BUSY = 0.05  # of the time: what is seen below is far from what it is used for


class Observed(NamedTuple):
    """An operator that took `rows_tps` with `threads`, which were busy for `busy` of the time. each_tps: rows per busy
    second of each thread, where that is known; rounding: by what part a rate may be off because figures are rounded."""

    name: str
    threads: int
    rows_tps: float
    busy: float
    each_tps: tuple[float, ...] = ()
    rounding: float = 0.0

    @property
    def rate_tps(self) -> float:
        """What one thread carries."""
        return self.rows_tps / (self.busy * self.threads)


@dataclass
class Metrics:
    """What a document tells: operators, what is wrong with others, and those that take no rows from any other."""

    seen: list[Observed] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=dict)  # operator (or "") → faults
    sources: list[str] = field(default_factory=list)

    def fault(self, name: str, text: str) -> None:
        self.faults.setdefault(name, []).append(text)


class ThreadUse(NamedTuple):
    """Fractions of a slot that one busy thread takes; None: not known, a whole core and no memory."""

    cpu: float | None = None
    memory: float | None = None


def number_of(data: Mapping[str, Any], key: str) -> tuple[float, str | None]:
    """(number, fault) of a figure that must be finite and not negative; these systems write many as text."""
    if key not in data or data[key] is None:
        return 0.0, f"{key} is missing"
    value = data[key]
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return 0.0, f"{key}: expected a number, got {shown(value)}"
    if not math.isfinite(number):
        return 0.0, f"{key} is {value}: it was not measured"
    return (number, None) if number >= 0 else (0.0, f"{key}: {number:g} is negative")


def observed(
    name: str, threads: int, rows_tps: float, busy_threads: float, each_tps: tuple[float, ...] = ()
) -> tuple[Observed | None, str | None]:
    """(what was seen, fault). busy_threads: busy time per time, of all threads together."""
    if threads < 1:
        return None, "it has no threads"
    if rows_tps == 0:
        return None, "it took no rows, so nothing is known of what it can take"
    if busy_threads == 0:
        return None, f"it took {significant(rows_tps)} rows/s in no busy time that was measured"
    if busy_threads > threads * 1.02:
        return None, f"it was busy for {busy_threads:.4g} s in each second, with only {threads} to be so"
    return Observed(name, threads, rows_tps, min(1.0, busy_threads / threads), each_tps), None


def task_name(operator: str) -> str | None:
    """A task's name made of an operator's (`Sink: out` → `out`), None when nothing is left of it."""
    plain = re.sub(r"\b(Source|Sink): ", "", operator)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain.replace("->", " ")).strip("_")[:64]
    return name if NAME.fullmatch(name) else None


def model_from(task: str, system: str, seen: Sequence[Observed], use: ThreadUse) -> Model:
    """One point for one thread; as many as share a slot by what was given of CPU and memory make another."""
    busy = sum(one.busy * one.threads for one in seen)
    rate_tps = sum(one.rows_tps for one in seen) / busy
    cpu, memory = 1.0 if use.cpu is None else use.cpu, use.memory or 0.0
    spread = _spread(rate_tps, seen)
    most = max(1, math.floor(1 / max(cpu, memory) + 1e-9))
    points = [
        Point(count, count * rate_tps, count * cpu, count * memory, spread) for count in sorted({1, most})
    ]
    more = {
        "measured_by": system,
        "threads_seen": [one.threads for one in seen],
        "busy_seen": [round(one.busy, 4) for one in seen],
        "assumed": assumptions(system, use),
    }
    return Model(task, ModelSlot(cores=1.0), tuple(points), more)


def assumptions(system: str, use: ThreadUse) -> list[str]:
    """What such models do not know, in sentences."""
    notes = ["Rates are rows per busy second of one thread, extrapolated from the load that there was."]
    notes.append(
        f"{system} reports busy time, not CPU: a busy thread is assumed to take a whole core (--thread-cpu)."
        if use.cpu is None
        else f"That a busy thread takes {use.cpu:g} of a slot's CPU was given, not measured."
    )
    notes.append(
        f"{system} reports no operator's memory: none is assumed, so memory limits nothing (--thread-memory)."
        if use.memory is None
        else f"That a thread takes {use.memory:g} of a slot's memory was given, not measured."
    )
    notes.append(
        "That threads in one slot do not disturb each other is assumed; `model profile` measures it."
    )
    return notes


def _spread(rate_tps: float, seen: Sequence[Observed]) -> Spread | None:
    """Half of what threads, or files, differ by, and no less than what rounding hides."""
    rates = [rate for one in seen for rate in (one.each_tps or (one.rate_tps,))]
    half = (max(rates) - min(rates)) / 2 / rate_tps
    relative = min(1.0, max(half, *(one.rounding for one in seen), 0.0))
    return Spread(relative=round(relative, 4)) if relative else None


# ── What Flink's REST interface tells of a job's vertices. Pure. Two documents are read: ───
#
# - `GET /jobs/JOB` as it is: rows and busy time since the vertices began;
# - `{"job": …that…, "metrics": {"VERTEX ID": …}}`, with for each vertex what `GET
# /jobs/JOB/vertices/VERTEX/subtasks/metrics?get=busyTimeMsPerSecond,numRecordsInPerSecond` tells of all
# subtasks, or `…/VERTEX/metrics?get=0.busyTimeMsPerSecond,…` of each: rows of the last minute, busy time of
# the last second.

BUSY, ROWS = "busyTimeMsPerSecond", "numRecordsInPerSecond"
LIFE_BUSY, LIFE_ROWS = "accumulated-busy-time", "read-records"


def flink_metrics(data: object) -> Metrics:
    """Its vertices; sources, which take no rows, by name."""
    found = Metrics()
    job = data.get("job", data) if isinstance(data, dict) else None
    vertices = job.get("vertices") if isinstance(job, dict) else None
    if (
        not isinstance(data, dict)
        or not isinstance(job, dict)
        or not isinstance(vertices, list)
        or not vertices
    ):
        found.fault("", "expected what `GET /jobs/JOB` answers, with `vertices`")
        return found
    metrics = data.get("metrics") if "job" in data else None
    if metrics is not None and not isinstance(metrics, dict):
        found.fault("", f"metrics: expected an object by ids of vertices, got {shown(metrics)}")
        return found
    reading = _inputs(job)
    for place, vertex in enumerate(vertices):
        if not isinstance(vertex, dict) or not isinstance(vertex.get("name"), str):
            found.fault("", f"vertices[{place}]: expected an object with a name, got {shown(vertex)}")
            continue
        name = html.unescape(vertex["name"])
        if not reading.get(str(vertex.get("id")), not name.startswith("Source: ")):
            found.sources.append(name)
        elif metrics is None:
            _of_life(found, name, vertex)
        else:
            _of_last_minute(found, name, vertex, metrics.get(str(vertex.get("id"))))
    return found


def _inputs(job: Mapping[str, Any]) -> dict[str, bool]:
    """Vertex id → does it read from another? As far as the job has its plan."""
    plan = job.get("plan")
    nodes = plan.get("nodes") if isinstance(plan, dict) else None
    return {
        str(node.get("id")): bool(node.get("inputs"))
        for node in (nodes if isinstance(nodes, list) else ())
        if isinstance(node, dict)
    }


def _threads(found: Metrics, name: str, vertex: Mapping[str, Any]) -> int | None:
    value, fault = number_of(vertex, "parallelism")
    if fault is not None:
        found.fault(name, fault)
        return None
    return int(value)


def _of_life(found: Metrics, name: str, vertex: Mapping[str, Any]) -> None:
    threads = _threads(found, name, vertex)
    own = vertex.get("metrics")
    own = own if isinstance(own, dict) else {}
    (rows, no_rows), (busy_ms, no_busy) = number_of(own, LIFE_ROWS), number_of(own, LIFE_BUSY)
    duration_ms, no_time = number_of(vertex, "duration")
    if no_time is None and duration_ms == 0:
        no_time = "duration is 0: it did not begin"
    faults = [fault for fault in (no_rows, no_busy, no_time) if fault is not None]
    for fault in faults:
        found.fault(name, fault)
    if not faults and threads is not None:
        _add(found, name, observed(name, threads, rows * 1000 / duration_ms, busy_ms / duration_ms))


def _of_last_minute(found: Metrics, name: str, vertex: Mapping[str, Any], listed: object) -> None:
    threads = _threads(found, name, vertex)
    if not isinstance(listed, list):
        found.fault(name, f"metrics has no list of {vertex.get('id')}")
        return
    by_id = {str(one.get("id")): one for one in listed if isinstance(one, dict)}
    subtasks = sorted({key.split(".", 1)[0] for key in by_id if key.endswith((f".{BUSY}", f".{ROWS}"))})
    places = [f"{subtask}." for subtask in subtasks] or [""]
    field = "value" if subtasks else "sum"
    rows_tps = busy_threads = 0.0
    each: list[float] = []
    faults: list[str] = []
    for place in places:
        rows, no_rows = _figure(by_id, f"{place}{ROWS}", field)
        busy_ms, no_busy = _figure(by_id, f"{place}{BUSY}", field)
        faults += [fault for fault in (no_rows, no_busy) if fault is not None]
        rows_tps, busy_threads = rows_tps + rows, busy_threads + busy_ms / 1000
        if subtasks and rows and busy_ms:
            each.append(rows * 1000 / busy_ms)
    if subtasks and threads is not None and len(subtasks) != threads:
        faults.append(f"metrics of {len(subtasks)} subtasks, but its parallelism is {threads}")
    for fault in faults:
        found.fault(name, fault)
    if not faults and threads is not None:
        _add(found, name, observed(name, threads, rows_tps, busy_threads, tuple(each)))


def _figure(by_id: Mapping[str, Any], key: str, field: str) -> tuple[float, str | None]:
    """The figure `key` of a list of metrics."""
    return number_of({key: by_id[key].get(field)} if key in by_id else {}, key)


def _add(found: Metrics, name: str, made: Any) -> None:
    seen, fault = made
    if fault is not None:
        found.fault(name, fault)
    else:
        found.seen.append(seen)


# ── What Storm's UI tells of a topology's bolts. Pure. Two documents are read: `GET /api/v1/topology/ID`,
# all bolts, and `GET /api/v1/topology/ID/component/BOLT`, one of them with each of its executors.

ROUNDED_MS = 0.0005  # latencies come with three digits


def storm_metrics(data: object) -> Metrics:
    """Its bolts; spouts by name."""
    found = Metrics()
    if isinstance(data, dict) and isinstance(data.get("bolts"), list):
        for place, bolt in enumerate(data["bolts"]):
            if not isinstance(bolt, dict) or not isinstance(bolt.get("boltId"), str):
                found.fault("", f"bolts[{place}]: expected an object with a boltId, got {shown(bolt)}")
            else:
                _bolt(found, bolt["boltId"], bolt, _window_s(data))
        spouts = data.get("spouts")
        found.sources += [str(one.get("spoutId")) for one in spouts or () if isinstance(one, dict)]
    elif isinstance(data, dict) and isinstance(data.get("executorStats"), list):
        _component(found, data)
    else:
        found.fault("", "expected what `GET /api/v1/topology/ID` answers, with `bolts`, or …/component/BOLT")
    return found


def _window_s(data: Mapping[str, Any]) -> tuple[float, str | None]:
    """(seconds that counts are of, fault): the window, but no longer than the topology is up."""
    uptime_s, no_uptime = number_of(data, "uptimeSeconds")
    if no_uptime is None and uptime_s == 0:
        no_uptime = "uptimeSeconds is 0: it has just started"
    if data.get("window") == ":all-time":
        return uptime_s, no_uptime
    window_s, fault = number_of(data, "window")
    if fault is None and window_s == 0:
        fault = "window is 0"
    return (min(window_s, uptime_s) if no_uptime is None else window_s), fault


def _bolt(found: Metrics, name: str, bolt: Mapping[str, Any], window: tuple[float, str | None]) -> None:
    threads, no_threads = number_of(bolt, "executors")
    rows, no_rows = number_of(bolt, "executed")
    latency_ms, no_latency = _latency(bolt)
    window_s, no_window = window
    faults = [fault for fault in (no_threads, no_rows, no_latency, no_window) if fault is not None]
    if not faults:
        rows_tps = rows / window_s
        seen, fault = observed(name, int(threads), rows_tps, rows_tps * latency_ms / 1000)
        if seen is not None:
            found.seen.append(seen._replace(rounding=ROUNDED_MS / latency_ms))
        faults += [fault] if fault is not None else []
    for fault in faults:
        found.fault(name, fault)


def _latency(stats: Mapping[str, Any]) -> tuple[float, str | None]:
    latency_ms, fault = number_of(stats, "executeLatency")
    if fault is None and latency_ms == 0 and number_of(stats, "executed")[0]:
        fault = "executeLatency is 0.000: rows take less than Storm can report (half a microsecond)"
    return latency_ms, fault


def _component(found: Metrics, data: Mapping[str, Any]) -> None:
    """One bolt, executor by executor; counts are of the window, but no longer than an executor is up."""
    name = str(data.get("id"))
    if str(data.get("componentType", "bolt")).lower() == "spout":
        found.sources.append(name)
        return
    parts: list[Observed] = []
    for place, stats in enumerate(data["executorStats"]):
        own = Metrics()
        given = stats if isinstance(stats, dict) else {}
        window = _window_s({"window": data.get("window"), "uptimeSeconds": given.get("uptimeSeconds")})
        _bolt(own, name, {**given, "executors": 1}, window)
        for fault in own.faults.get(name, ()):
            found.fault(name, f"executorStats[{place}]: {fault}")
        parts += own.seen
    if name in found.faults or not parts:
        if name not in found.faults:
            found.fault(name, "executorStats is empty")
        return
    rows_tps, busy = sum(one.rows_tps for one in parts), sum(one.busy for one in parts)
    rates = tuple(one.rate_tps for one in parts)
    worst = max(one.rounding for one in parts)
    found.seen.append(Observed(name, len(parts), rows_tps, busy / len(parts), rates, worst))
