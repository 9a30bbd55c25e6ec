"""Does a model that was refitted from the trace of a run say something else than the one in force, and surely? Pure.

A refitted model has the numbers of threads that were seen at their peak, seldom more than one or two, so it takes no
model's place: the model in force is scaled by what was measured / said at these, as the prediction ledger's corrections
scale it (`knowledge/corrections.py`). Of n windows with half a distance s of the quartiles the median errs by
1.86 s / √n (normal errors); what all windows of one run share, the mood of its machine, is `bias.SPREAD`
besides. What is less than two such errors off is what the model says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.controller.analyze.bias import MOST, ROWS_LEAST, SPREAD
from headgate.controller.knowledge.models import Model, Point, cpu, half_widths, peak_rate
from headgate.topology_runtime.faults.words import counted, significant

SECONDS_LEAST = 30.0  # that a number of threads was at its peak
AGAIN = 2.0  # times what was seen when a model was refitted last, before it is refitted again
SURE = 2.0  # errors apart
QUARTILES = 1.2533 * 2 / 1.349  # error of a median of n values, × √n / half the distance of their quartiles


@dataclass(frozen=True, slots=True)
class RefitFound:
    """A row takes `time` times as long as the model in force says, and `cost` times the CPU; error: of ln of both.
    seconds: at the peak, of all numbers of threads. text: which numbers, from what."""

    time: float
    cost: float
    error: float
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class _PointFound:
    """ln of time and cost of a row, measured / said, at one number of threads; error: of its median alone."""

    time: float
    cost: float
    error: float
    seconds: float
    text: str


def refit_of(model: Model, offered: Model, before_s: float) -> RefitFound | str:
    """By how much it is off, or why it is left as it is. before_s: seen when it was refitted last, 0: it never was."""
    window_s = _number(offered.more.get("window_s"))
    kept = offered.more.get("points", [])
    found = [
        _point_found(model, point, _number(more.get("windows")), window_s)
        for point, more in zip(offered.points, [*kept, *[{}] * len(offered.points)], strict=False)
    ]
    points = [one for one in found if one is not None]
    if not points:
        seen = max((_seconds(more, window_s) for more in kept), default=0.0)
        need = f"{SECONDS_LEAST:.0f} s and {ROWS_LEAST} rows are needed"
        return f"too little was seen: at most {seen:.0f} s at its peak with as many threads, {need}"
    seconds = math.fsum(one.seconds for one in points)
    if seconds < AGAIN * before_s:
        return f"it was refitted from {before_s:.0f} s, and {AGAIN * before_s:.0f} s are needed to refit it again"
    time, cost = (math.fsum(v * one.seconds for v, one in zip(values, points, strict=True)) / seconds
                  for values in ([one.time for one in points], [one.cost for one in points]))  # fmt: skip
    own = math.sqrt(math.fsum((one.seconds * one.error) ** 2 for one in points)) / seconds
    error = math.hypot(SPREAD, own)
    if any(abs(one.time - time) > SURE * math.hypot(error, one.error) for one in points):
        return f"its numbers of threads differ in how far they are off ({_texts(points)}): measure it again"
    if max(abs(time), abs(cost)) < SURE * error:
        return f"it says what was seen, within its error of {error:.0%} ({_texts(points)})"
    if max(abs(time), abs(cost)) > math.log(MOST):
        return f"it is off by more than × {MOST:g}, which is another task's model ({_texts(points)})"
    text = f"{_texts(points)} ({seconds:.0f} s at its peak, ± {error:.0%})"
    return RefitFound(math.exp(time), math.exp(cost), error, seconds, text)


def _point_found(model: Model, point: Point, windows: float, window_s: float) -> _PointFound | None:
    seconds = windows * window_s
    if seconds < SECONDS_LEAST or point.rate_tps * seconds < ROWS_LEAST:
        return None
    said_tps, said_cpu = peak_rate(model, point.threads), cpu(model, point.threads)
    time = math.log(said_tps / point.rate_tps)
    known = said_cpu > 0 and point.cpu > 0
    cost = time + math.log(point.cpu / said_cpu) if known else time
    error = QUARTILES * half_widths(point)[0] / point.rate_tps / math.sqrt(windows)
    text = (
        f"{counted(point.threads, 'thread')} {significant(said_tps)} → {significant(point.rate_tps)} t/s, "
        f"CPU {said_cpu:.2f} → {point.cpu:.2f} of a slot"
    )
    return _PointFound(time, cost, error, seconds, text)


def _texts(points: list[_PointFound]) -> str:
    return "; ".join(one.text for one in points)


def _seconds(more: Mapping[str, Any], window_s: float) -> float:
    return _number(more.get("windows")) * window_s


def _number(value: Any) -> float:
    """Of a key that whoever reads models does not check; 0: none that can be used."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= 1e9 else 0.0
