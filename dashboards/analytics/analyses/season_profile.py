"""A season as runs are given it (`headgate/season/v1`): what came in each second of a period, in the middle of all
periods and in 95 of 100, where that foresees.

Each whole period is divided by its mean, so that one with more of everything is the same; a part of a period is as long
as a bin of the series, and seconds lie on the lines between the parts. The first two thirds choose a period and a
profile and foresee the last third: it must be off by at most half as much as what came 15 s before, as `season learn`
asks, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.dashboards.analytics.analyses.seasons import period_of, refined

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SCHEMA = "headgate/season/v1"
SHORTEST_S, LONGEST_S, PERIODS_LEAST = 30, 3600, 3
LEARNED_SHARE, HIGH = 2 / 3, 0.95
LOOK_S, HALF = 15.0, 0.5
SAME = 0.05  # of a period: that of the first two thirds is that of all
DIGITS = 6


class SeasonOf(NamedTuple):
    """Of which topology it is, from where, until when, made by which headgate."""

    topology: str
    source: str
    until: str
    version: str


def season_data(values: Floats, bin_s: float, of: SeasonOf) -> dict[str, Any] | None:
    """Of an evenly spaced series, tuples/s; None where nothing comes back that could be foreseen."""
    seen = values[: int(LEARNED_SHARE * len(values))]
    period_s, before_s = (_period_s(each, bin_s) for each in (values, seen))
    if period_s is None or before_s is None or abs(before_s / period_s - 1) > SAME:
        return None
    seconds, periods = len(values) * bin_s, math.floor(len(values) * bin_s / period_s)
    if not SHORTEST_S <= period_s <= LONGEST_S or periods < PERIODS_LEAST:
        return None
    held_out = _held_out(values, len(seen), bin_s, before_s)
    if held_out["error"] > HALF * held_out["error_of_level"]:
        return None
    middle, high = _profile(values, bin_s, period_s)
    return {
        "schema": SCHEMA,
        "topology": of.topology,
        "period_s": round(period_s, DIGITS),
        "middle": [round(tps, DIGITS) for tps in _by_second(middle, period_s)],
        "high": [round(tps, DIGITS) for tps in _by_second(high, period_s)],
        "learned": {
            "sources": [of.source],
            "seconds": seconds,
            "periods": periods,
            "time": of.until,
            "version": of.version,
            "held_out": held_out,
        },
    }


def _period_s(values: Floats, bin_s: float) -> float | None:
    whole, _ = period_of(values)
    return refined(values, whole) * bin_s if whole else None


def _profile(values: Floats, bin_s: float, period_s: float) -> tuple[Floats, Floats]:
    """(in the middle, at most) of each part of a period."""
    import numpy as np

    at_s = (np.arange(len(values)) + 0.5) * bin_s
    number = (at_s // period_s).astype(int)
    parts = max(PERIODS_LEAST, round(period_s / bin_s))
    part = np.minimum((at_s % period_s * parts / period_s).astype(int), parts - 1)
    whole = math.floor(len(values) * bin_s / period_s)
    means = np.array([values[number == n].mean() for n in range(whole)])
    inside = (number < whole) & (means[np.minimum(number, whole - 1)] > 0)
    shares = values[inside] / means[number[inside]]
    typical = float(np.median(means))
    by_part = [shares[part[inside] == n] for n in range(parts)]
    middle = np.array([typical * float(np.median(found)) if len(found) else typical for found in by_part])
    high = np.array(
        [typical * float(np.quantile(found, HIGH)) if len(found) else typical for found in by_part]
    )
    return middle, np.maximum(high, middle)


def _by_second(parts: Floats, period_s: float) -> Floats:
    """Between the middles of the parts, all round the period."""
    import numpy as np

    seconds = round(period_s)
    middles = (np.arange(len(parts)) + 0.5) / len(parts)
    return np.interp((np.arange(seconds) + 0.5) / seconds, middles, parts, period=1.0)


def _held_out(values: Floats, learned: int, bin_s: float, period_s: float) -> dict[str, float]:
    """How well what is before bin `learned` foresees the others."""
    import numpy as np

    middle, high = _profile(values[:learned], bin_s, period_s)
    at = np.arange(learned, len(values))
    part = np.minimum(((at + 0.5) * bin_s % period_s * len(middle) / period_s).astype(int), len(middle) - 1)
    look, period = math.ceil(LOOK_S / bin_s), max(1, round(period_s / bin_s))
    before = np.array([values[max(0, n - look - period) : n - look + 1].mean() for n in at])
    scale = before / max(1e-9, float(middle.mean()))
    mean = max(1e-9, float(values[at].mean()))
    return {
        "seconds": len(at) * bin_s,
        "error": round(float(np.abs(values[at] - middle[part] * scale).mean()) / mean, 4),
        "error_of_level": round(float(np.abs(values[at] - values[at - look]).mean()) / mean, 4),
        "covered": round(float((values[at] <= high[part] * scale + 1e-9).mean()), 4),
    }
