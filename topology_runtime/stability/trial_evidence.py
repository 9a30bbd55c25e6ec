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


# ── A trial at one steady rate that ends as soon as its verdict is sure. Pure: bins in, a finding out ───
#
# The trial is looked at once a second. Every look may be wrong, so the error allowed is spent over them: by
# time t the share (t / longest)³ of it (a power family as in Kim and DeMets 1987; what is known of a slope
# grows with the cube of time). A look may err by what has been spent since the look before; adding these up
# (Bonferroni) bounds the whole trial. When time is up the verdict is what the evidence tends to, and says so.

ERROR = 0.005  # each way: of a surely wrong verdict, over all looks of a trial
LONGEST_S, LONGEST_WAITS_S = 10.0, 20.0  # a throttled service hides overload for 7 to 17 s
STABLE_FROM = 0.75  # of the longest time, where a service may hide overload
FIRST_S = 5.0  # a machine that stops for a second or two must not look like a trend …
LEAST_SPAN_S = 3.0  # … nor what is left after a warm-up that seems to end late
WAVES = 4  # rows that every thread has done before: with many threads they come in waves
SLACK_S = 1e-6


class Looks(msgspec.Struct, frozen=True):
    """When a trial is looked at, and its error each way. `stable_from_s`: it is not called stable before
    (the service behind the task may be living on its reserve)."""

    longest_s: float = LONGEST_S
    stable_from_s: float = 0.0
    first_s: float = FIRST_S
    every_s: float = 1.0
    error: float = ERROR

    def spent(self, at_s: float) -> float:
        """Of the error, by then."""
        return self.error * min(1.0, max(0.0, at_s) / self.longest_s) ** 3


def looks_for(waits: bool, longest_s: float | None = None, wave_s: float = 0.0) -> Looks:
    """`waits`: the task waits for a service, which may be throttled; `wave_s`: in which every thread does
    a row."""
    longest_s = longest_s or (LONGEST_WAITS_S if waits else LONGEST_S)
    first_s = min(longest_s, max(FIRST_S, WAVES * wave_s))
    return Looks(longest_s, STABLE_FROM * longest_s if waits else 0.0, first_s)


class Finding(msgspec.Struct, frozen=True):
    """`forced`: time was up before it was sure. `confidence`: of the verdict, 0 … 1; `seconds` it took."""

    verdict: Verdict
    confidence: float
    forced: bool
    seconds: float
    evidence: Evidence

    @property
    def text(self) -> str:
        sure = f"forced after {self.seconds:.1f} s" if self.forced else f"sure after {self.seconds:.1f} s"
        return f"{self.verdict} ({sure}, confidence {self.confidence:.3f}): {self.evidence.text}"


class Trial:
    """The clock of the bins begins when the rate begins to be offered."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._bins: list[Bin] = []
        self._next_s = looks.first_s
        self._spent_stable = self._spent_unstable = 0.0

    def add(self, bin_: Bin) -> Finding | None:
        """The finding as soon as there is one; bins come in order of time."""
        self._bins.append(bin_)
        seconds = bin_.t_s
        over = seconds >= self._looks.longest_s - SLACK_S
        if seconds < self._next_s - SLACK_S and not over:
            return None
        while self._next_s <= seconds + SLACK_S:
            self._next_s += self._looks.every_s
        return self._look(seconds, over)

    def _look(self, seconds: float, over: bool) -> Finding | None:
        found, spent = evidence(self._bins), self._looks.spent(seconds)
        if found.span_s < LEAST_SPAN_S and not over:
            return None  # nothing is decided, so nothing is spent
        may_be_stable = over or seconds >= self._looks.stable_from_s - SLACK_S
        error_stable = spent - self._spent_stable if may_be_stable else 0.0
        error_unstable = spent - self._spent_unstable
        verdict = verdict_of(found, error_stable, error_unstable)
        self._spent_unstable = spent
        if may_be_stable:
            self._spent_stable = spent
        if verdict == "unsure" and not over:
            return None
        forced = verdict == "unsure"
        if forced:
            verdict = leaning(found, error_unstable)
        return Finding(verdict, confidence(found, verdict), forced, seconds, found)
