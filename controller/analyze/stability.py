"""Does the topology keep up with what is offered? Pure.

A row waits longer by 1 − capacity / rate seconds each second once more is offered than can be done, so a
slope of 0.02 s/s means 2 % overload. Two series can show it: the median end-to-end latency of each second,
and the lag: how long ago the rows were offered that are done just now. For steady rates the lag's slope is
the backlog's growth / rate; unlike the backlog it does not change when the rate changes and the latency
does not. So both must grow. Theil–Sen slopes, because a hiccup of the machine is no trend; their intervals
by block bootstrap, as in the profiler's trials (headgate.topology_runtime.stability). A slope above
the limit counts when the series is a trend: Kendall's test is sure that it rises, and it rises by more than
its largest jump and half its scatter. A latency that is higher since the load rose makes one jump, and rows
that are done in batches make a sawtooth whose samples can look like a slope.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from headgate.controller.knowledge.diagnoses import Stability, Verdict
from headgate.controller.knowledge.measured_window import SERIES_STEP_S, MeasuredWindow
from headgate.topology_runtime.stability.slopes import (
    MIN_POINTS,
    Floats,
    Slope,
    least_squares,
    probability_above,
    theil_sen_each,
    trend,
)
from headgate.topology_runtime.stability.trial_evidence import RAW_SLOPE, UNSTABLE_SLOPE

SURE = 0.997  # that a series rises; six seconds of steady growth give as much
SCATTER_SHARE = 0.5  # of the scatter (5th to 95th percentile) that it must rise by
SETTLE_S = 2.0  # after a plan came into force its transition still shows
SPAN_S = 15.0  # of the newest history that is judged
MIN_SPAN_S = 5.0  # of it that must be there
MIN_RATE_TPS = 1e-6  # below it nothing is offered

Method = Literal["theil_sen", "least_squares"]


def stability(window: MeasuredWindow, in_force_s: float, method: Method = "theil_sen") -> Stability:
    """The verdict on the last 15 s, or on what there is since the plan came into force `in_force_s` ago
    (plus 2 s). "unknown" when that is under 5 s or samples are missing. "least_squares" is the paper's raw
    test of the latency alone, for comparison."""
    span_s = min(SPAN_S, in_force_s - SETTLE_S)
    points = _points(window, span_s)
    there_s = (points - 1) * SERIES_STEP_S
    if not window.is_complete:
        return _unknown(
            f"unknown: {window.complete:.0%} of the samples of the last {window.seconds:g} s are there"
        )
    if there_s < MIN_SPAN_S:
        return _unknown(f"unknown: the plan has settled for {there_s:.1f} s of {MIN_SPAN_S:g} s")
    series = window.progress
    rate_tps = (series.offered[-1] - series.offered[-points]) / there_s
    done_tps = (series.acked[-1] - series.acked[-points]) / there_s
    latency = _latency(window, span_s)
    growth, grows, sure = _queue_growth(window, points, rate_tps)
    if method == "least_squares":
        limit, slope = RAW_SLOPE, least_squares(*latency)
        unstable = slope.value > limit
    else:
        limit, slope = UNSTABLE_SLOPE, trend(*latency)
        late = slope.value > limit and growth.high > limit
        unstable = grows or (late and _is_trend(*latency, slope.value, latency))
    verdict: Verdict = "unstable" if unstable else "stable"
    sure = max(sure, probability_above(*latency, limit))
    out_in = done_tps / rate_tps if rate_tps > MIN_RATE_TPS else 1.0
    return Stability(
        verdict=verdict,
        slope=slope.value,
        slope_low=slope.low,
        slope_high=slope.high,
        queue_growth=growth.value,
        queue_growth_low=growth.low,
        queue_growth_high=growth.high,
        out_in=out_in,
        confidence=sure if verdict == "unstable" else 1 - sure,
        text=_text(verdict, slope, growth, out_in, limit, there_s),
    )


def _points(window: MeasuredWindow, span_s: float) -> int:
    """How many of the newest points of the progress are judged."""
    return min(len(window.progress.at_s), int(max(0.0, span_s) / SERIES_STEP_S) + 1)


def _latency(window: MeasuredWindow, span_s: float) -> tuple[Floats, Floats]:
    """at_s and median latency of the seconds within the last `span_s`."""
    at_s = np.array(window.latency_series.at_s)
    kept = at_s >= -span_s
    return at_s[kept], np.array(window.latency_series.p50_s)[kept]


def _queue_growth(window: MeasuredWindow, points: int, rate_tps: float) -> tuple[Slope, bool, float]:
    """The lesser of two growths over the last `points`, in s/s: of the lag, and of the backlog / rate;
    whether it is one; and how sure it is that it is above the limit. Seconds in which nothing is offered
    are left out: nothing waits then but a batch for its end."""
    series = window.progress
    at_s, offered, acked = (np.array(c) for c in (series.at_s, series.offered, series.acked))
    if rate_tps <= MIN_RATE_TPS:
        return Slope(0.0, 0.0, 0.0, points), False, 0.0
    waits = (_lag(at_s, offered, acked, rate_tps)[-points:], (offered - acked)[-points:] / rate_tps)
    at_s, seconds = at_s[-points:], _busy_seconds(offered[-points:])
    found = [medians(wait_s, seconds) for wait_s in waits]
    x = medians(at_s, seconds)
    least = int(theil_sen_each(x, np.array(found).T).argmin())
    growth, y = trend(x, found[least]), found[least]
    grows = growth.value > UNSTABLE_SLOPE and _is_trend(x, y, growth.value, (at_s, waits[least]))
    return growth, grows, probability_above(x, y, UNSTABLE_SLOPE)


def _is_trend(x: Floats, y: Floats, slope: float, raw: tuple[Floats, Floats]) -> bool:
    """Does y rise all along, not in one jump, nor just by where a sawtooth was sampled? raw: all points."""
    if len(x) < MIN_POINTS or probability_above(x, y, 0.0) <= SURE:
        return False
    jump = float((np.diff(y) - slope * np.diff(x)).max())
    low, high = np.percentile(raw[1] - slope * raw[0], (5, 95))
    return slope * float(x[-1] - x[0]) > jump + SCATTER_SHARE * float(high - low)


def _lag(at_s: Floats, offered: Floats, acked: Floats, rate_tps: float) -> Floats:
    """How long ago the rows were offered that are done just now; 0 when no whole row is left to do."""
    rising = offered + (at_s - at_s[0]) * 1e-9  # interpolation needs no flat parts
    offered_at_s = np.interp(acked, rising, at_s)
    # what was offered before the history begins is taken to have come at the same rate
    offered_at_s += np.minimum(0.0, (acked - offered[0]) / rate_tps)
    lag: Floats = np.where(offered - acked < 1.0, 0.0, at_s - offered_at_s)
    return lag


def _busy_seconds(offered: Floats) -> list[slice]:
    """Points by the second, because acks are reported up to half a second late; those with an offer."""
    each, points = round(1 / SERIES_STEP_S), len(offered)
    seconds = [slice(begin, begin + each) for begin in range(points % each, points, each)]
    return [s for s in seconds if s.start and offered[s.stop - 1] > offered[s.start - 1]]


def medians(values: Floats, seconds: list[slice]) -> Floats:
    if not seconds:
        return np.zeros(0)
    rows = np.array([values[second] for second in seconds])  # np.median of each takes ten times as long
    rows.sort(axis=1)
    points = rows.shape[1]
    middle: Floats = (rows[:, (points - 1) // 2] + rows[:, points // 2]) / 2
    return middle


def _text(verdict: Verdict, slope: Slope, growth: Slope, out_in: float, limit: float, there_s: float) -> str:
    return (
        f"{verdict}: over {there_s:g} s latency grows {slope.value:+.4f} s/s "
        f"({slope.low:+.4f} … {slope.high:+.4f}, limit {limit:g}), "
        f"queues {growth.value:+.4f} s/s ({growth.low:+.4f} … {growth.high:+.4f}), out/in {out_in:.3f}"
    )


def _unknown(text: str) -> Stability:
    return Stability("unknown", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, text)
