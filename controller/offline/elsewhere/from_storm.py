"""What Storm's UI tells of a topology's bolts. Pure. Two documents are read: `GET /api/v1/topology/ID`, all bolts, and
`GET /api/v1/topology/ID/component/BOLT`, one of them with each of its executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.controller.offline.elsewhere.measured import Metrics, Observed, number_of, observed
from headgate.topology_runtime.faults.words import shown

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
        no_uptime = "uptimeSeconds is 0: it has just begun"
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
        fault = "executeLatency is 0.000: rows take less than Storm tells (half a microsecond)"
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
