"""What a stretch of a trial at one steady rate shows, and what follows from it. Pure.

Once more is offered than can be done a row waits longer by 1 − capacity / rate seconds each second, so a
slope of 0.02 s/s means 2 % overload. Two series show it: the median latency of the rows done in each bin,
and the queue (rows offered and not done yet) / rate, which is how long it takes to do them. Where rows
wait in one line both say the same (Little's law), each with noise of its own; a queue that is seen only in
part says less than the latency. So either may say what is the matter if the other does not deny it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from headgate.topology_runtime.stability.slopes import Floats, Slope, least_squares, probability, trend

UNSTABLE_SLOPE = 0.02  # s/s: 0 mistakes in 72 trials
RAW_SLOPE = 0.001  # the limit of paper 0, section 5, for the least-squares slope of the latency
POINTS_MOST = 24  # bins are put together until they are so few: pairs grow with the square
LEAST_BINS = 8  # below it no warm-up can be told from the rest …
DROPPED = 0.25  # … and this share is dropped
KEPT_LEAST = 1 / 3  # of the bins, however late the warm-up ends
LATENCY_RESOLUTION = 0.1  # of a latency: it is counted in buckets 19 % wide
CLEARLY = 2.0  # times the least error
SEEN_LEAST = 0.5  # of the bins that need a latency for its slope to count

Verdict = Literal["stable", "unstable", "unsure"]


class Bin(msgspec.Struct, frozen=True):
    """A quarter of a second or so. t_s: its end; latency_s: the median from offer to done of the rows
    done in it (None: none was); queue: rows offered and not done, the mean of several moments (rows that are
    done in waves look like growth when read once a wave); rows offered and done in it."""

    t_s: float
    latency_s: float | None
    queue: float
    offered: float
    done: float


class Evidence(msgspec.Struct, frozen=True):
    """Growth of the latency and of queue / rate (Theil–Sen), and the paper's slope of the latency (`raw`,
    least squares), all in s/s; out_in: rows done per row offered; what came before `from_s` was dropped
    as warm-up, `span_s` is left."""

    latency: Slope
    queue: Slope
    raw: Slope
    out_in: float
    rate_tps: float
    from_s: float
    span_s: float
    bins: int

    @property
    def text(self) -> str:
        return (
            f"over {self.span_s:.1f} s latency grows {self.latency.value:+.4f} s/s "
            f"({self.latency.low:+.4f} … {self.latency.high:+.4f}), "
            f"queue {self.queue.value:+.4f} s/s ({self.queue.low:+.4f} … {self.queue.high:+.4f}), "
            f"limit {UNSTABLE_SLOPE:g}, out/in {self.out_in:.3f}, least squares {self.raw.value:+.4f} s/s"
        )


def evidence(bins: Sequence[Bin]) -> Evidence:
    """Of the bins after the warm-up, which is found in them. Ascending t_s; the first one's rows came
    before its t_s and are not counted."""
    none = Slope(0.0, 0.0, 0.0, 0)
    span_s = bins[-1].t_s - bins[0].t_s if bins else 0.0
    rate_tps = sum(b.offered for b in bins[1:]) / span_s if span_s > 0 else 0.0
    if rate_tps <= 0:
        return Evidence(none, none, none, 1.0, 0.0, bins[0].t_s if bins else 0.0, span_s, len(bins))
    first = warm_up(bins, rate_tps)
    kept = bins[first:]
    latency, resolution_s = _latencies(kept)
    queue = _queue(kept, rate_tps)
    offered = sum(b.offered for b in kept[1:])
    seen = len(latency[0]) >= SEEN_LEAST * len(kept)
    return Evidence(
        latency=trend(*_merged(*latency), resolution_s) if seen else none,
        queue=trend(*_merged(*queue), 1.0 / rate_tps),
        raw=least_squares(*latency),
        out_in=sum(b.done for b in kept[1:]) / offered if offered > 0 else 1.0,
        rate_tps=rate_tps,
        from_s=kept[0].t_s,
        span_s=kept[-1].t_s - kept[0].t_s,
        bins=len(kept),
    )


def warm_up(bins: Sequence[Bin], rate_tps: float) -> int:
    """How many of the first bins are not like the rest: those without which the slope of the rest is
    known best (as MSER does for a mean, White 1997). Too few bins to tell: a quarter."""
    if len(bins) < LEAST_BINS:
        return int(DROPPED * len(bins))
    queue = best_from(*_queue(bins, rate_tps), 1.0 / rate_tps)
    latency, resolution_s = _latencies(bins)
    if len(latency[0]) < max(LEAST_BINS, SEEN_LEAST * len(bins)):
        return queue
    at_s = latency[0][best_from(*latency, resolution_s)]
    late = next(n for n, b in enumerate(bins) if b.t_s >= at_s)
    return min(max(queue, late), int((1 - KEPT_LEAST) * len(bins)))


def best_from(x: Floats, y: Floats, resolution: float) -> int:
    """The first point from which on the least-squares slope has about the least standard error: points are
    dropped only where that clearly makes it less, because any choice among noise flatters the rest."""
    x, y = x - x.mean(), y - y.mean()
    most = int((1 - KEPT_LEAST) * len(x))
    n = np.arange(len(x), len(x) - most - 1, -1)

    def rest(values: Floats) -> Floats:
        sums: Floats = np.cumsum(values[::-1])[::-1][: most + 1]
        return sums

    xs, ys = rest(x), rest(y)
    spread = rest(x * x) - xs * xs / n
    both = rest(x * y) - xs * ys / n
    square = np.maximum(0.0, rest(y * y) - ys * ys / n - both * both / spread)
    error = np.sqrt((square / (n - 2) + resolution * resolution / 12) / spread)
    return int(np.argmax(error <= CLEARLY * error.min()))


def _queue(bins: Sequence[Bin], rate_tps: float) -> tuple[Floats, Floats]:
    return np.array([b.t_s for b in bins]), np.array([b.queue for b in bins]) / rate_tps


def _latencies(bins: Sequence[Bin]) -> tuple[tuple[Floats, Floats], float]:
    """t_s and latency of the bins that have one, and how finely a latency is known."""
    seen = [(b.t_s, b.latency_s) for b in bins if b.latency_s is not None]
    at_s, latency_s = np.array([t for t, _ in seen]), np.array([value for _, value in seen])
    return (at_s, latency_s), LATENCY_RESOLUTION * float(np.median(latency_s)) if seen else 0.0


def _merged(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Neighbours put together to at most 24 points; those that would not fill a point at the beginning
    are left out."""
    each = math.ceil(len(x) / POINTS_MOST) or 1
    first = len(x) % each
    return x[first:].reshape(-1, each).mean(axis=1), y[first:].reshape(-1, each).mean(axis=1)


# ── what follows ────────────────────────────────────────────────────────────────────────────────


def verdict_of(found: Evidence, error_stable: float, error_unstable: float) -> Verdict:
    """unsure unless the wrong verdict has at most this probability; each series has half of it."""
    slopes = [slope for slope in (found.latency, found.queue) if slope.freedom > 0]
    zs = [slope.z_above(UNSTABLE_SLOPE) for slope in slopes]

    def any_sure(sign: int, error: float) -> bool:
        return error > 0 and any(probability(-sign * z) <= error / 2 for z in zs)

    if any_sure(1, error_unstable) and not any_sure(-1, error_unstable):
        return "unstable"
    leans_above = any(slope.value > UNSTABLE_SLOPE + slope.error for slope in slopes)
    return "stable" if any_sure(-1, error_stable) and not leans_above else "unsure"


def leaning(found: Evidence, error: float) -> Verdict:
    """The verdict when there is no more time: unstable when one series surely grows; else what the more
    exact one tends to. unsure only when nothing was offered."""
    slopes = [slope for slope in (found.latency, found.queue) if slope.freedom > 0]
    if not slopes:
        return "unsure"
    if any(probability(-slope.z_above(UNSTABLE_SLOPE)) <= error / 2 for slope in slopes):
        return "unstable"
    exact = min(slopes, key=lambda slope: slope.error)
    return "unstable" if exact.value > UNSTABLE_SLOPE else "stable"


def confidence(found: Evidence, verdict: Verdict) -> float:
    """That a verdict is right, by the series that says it most clearly: 0 … 1; 0 for unsure."""
    sign = {"stable": -1, "unstable": 1, "unsure": 0}[verdict]
    zs = [sign * s.z_above(UNSTABLE_SLOPE) for s in (found.latency, found.queue) if s.freedom > 0]
    return probability(max(zs)) if sign and zs else 0.0


def papers_verdict(found: Evidence) -> Verdict:
    """Paper 0, section 5: stable while the least-squares slope of the latency is at most 0.001. Calls noise
    unstable when trials are short; here to compare."""
    return "unstable" if found.raw.value > RAW_SLOPE else "stable"
