"""Models that were corrected by what the prediction ledger says: which model they come from, and by how much. Pure.

A corrected model is another version: its points are those of the model it comes from, with

    rate ÷ time        a row takes so many times as long as that model says
    CPU × cpu ÷ time   and so many times the CPU: CPU / rate, what a row needs, is × cpu

and its file tells so under `corrected`. A further correction counts from the first model again, so that all that was
ever measured of any version speaks of one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headgate.controller.knowledge.model_data import MAX_FRACTION
from headgate.controller.knowledge.models import Model, Point
from headgate.topology_runtime.topology import digest_of

KEY = "corrected"
_WAKE = "wake_cpu"
FACTORS = (1e-3, 1e3)  # anything else in a file is none of ours


class Correction(NamedTuple):
    """of: the version that `time` and `cpu` count from."""

    of: str
    time: float = 1.0
    cpu: float = 1.0


def version_of(model: Model) -> str:
    """Names what a model says of rates and CPU, in slots of whatever memory."""
    points = [(point.threads, point.rate_tps, point.cpu) for point in model.points]
    return digest_of(msgspec.json.encode((model.task, points, model.wake.cpu)))


def correction_of(model: Model) -> Correction:
    """What it is corrected by; a model that is not comes from itself."""
    told = model.more.get(KEY)
    if isinstance(told, dict) and isinstance(told.get("of"), str):
        time, cpu = _factor(told.get("time")), _factor(told.get("cpu"))
        if time is not None and cpu is not None:
            return Correction(told["of"], time, cpu)
    return Correction(version_of(model))


def corrected(model: Model, time: float, cpu: float, provenance: dict[str, Any]) -> Model:
    """The model that it comes from, corrected by these; `provenance`: what else its file tells of it."""
    before = correction_of(model)
    slower, dearer = time / before.time, cpu / before.cpu
    more = {**model.more, KEY: {"of": before.of, "time": time, "cpu": cpu, **provenance}}
    if model.wake.cpu:
        more[_WAKE] = model.wake.cpu * dearer
    points = tuple(_moved(point, slower, dearer) for point in model.points)
    return replace(model, points=points, more=more)


def _moved(point: Point, slower: float, dearer: float) -> Point:
    spread = point.spread
    if spread is not None and spread.rate_tps is not None:
        spread = replace(spread, rate_tps=spread.rate_tps / slower)
    cpu = min(MAX_FRACTION, point.cpu * dearer / slower)
    return replace(point, rate_tps=point.rate_tps / slower, cpu=cpu, spread=spread)


def _factor(value: Any) -> float | None:
    """A key that whoever reads models does not check."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if FACTORS[0] <= value <= FACTORS[1] else None
