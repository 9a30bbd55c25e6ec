"""What Flink's REST interface tells of a job's vertices. Pure. Two documents are read:

- `GET /jobs/JOB` as it is: rows and busy time since the vertices began;
- `{"job": …that…, "metrics": {"VERTEX ID": …}}`, with for each vertex what
  `GET /jobs/JOB/vertices/VERTEX/subtasks/metrics?get=busyTimeMsPerSecond,numRecordsInPerSecond` tells of all subtasks,
  or `…/VERTEX/metrics?get=0.busyTimeMsPerSecond,…` of each: rows of the last minute, busy time of the last second.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from headgate.controller.offline.elsewhere.measured import Metrics, number_of, observed
from headgate.topology_runtime.faults.words import shown

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
