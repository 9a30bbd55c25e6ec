"""Flink's autoscaler: a target utilisation within bounds, lag that is caught up with, lowering after an hour. Pure.

Read in: apache/flink-kubernetes-operator at 6e9caeb, module flink-autoscaler: `ScalingMetricEvaluator` (true rates,
thresholds, backlog), `utils/AutoScalerUtils.getTargetProcessingCapacity`, `JobVertexScaler` (factor, limits,
`applyScaleDownInterval`), `DelayedScaleDown`, `ScalingExecutor` (nothing while every vertex is within its bounds) and
`config/AutoScalerOptions` (the defaults below). Not here: alignment to key groups and partitions, memory, and what is
off by default (observed scalability, detection of scale-ups without effect, tracked restarts).

    scaled(10, VertexLoad(rate_tps=100.0, lag_rows=0.0, true_tps=100.0), FlinkSettings())  # 16
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Rival, Turn1s

OBSERVED_LAG_S, OBSERVED_OFF, OBSERVED_LEAST = 30.0, 0.15, 2


class FlinkSettings(NamedTuple):
    """The autoscaler's options, with its defaults. upper, lower: utilisations that override target ± bound."""

    target: float = 0.7
    bound: float = 0.3
    window_s: float = 900.0
    stabilisation_s: float = 300.0
    restart_s: float = 300.0
    catch_up_s: float = 1800.0
    down_after_s: float = 3600.0
    most_down: float = 0.6
    most_up: float = 100_000.0
    backlog_s: float = 300.0
    upper: float | None = None
    lower: float | None = None
    look_s: float = 60.0


FLINK = FlinkSettings()


class VertexLoad(NamedTuple):
    """Of a window: rows/s that come (what is read, and what the lag grew by), rows that wait at its end, and rows/s
    that the vertex could take while it works."""

    rate_tps: float
    lag_rows: float
    true_tps: float


def target_capacity(load: VertexLoad, utilisation: float, s: FlinkSettings, restarts: bool) -> float:
    """Rows/s: what comes at this utilisation, what waits within the catch-up time, and what a restart leaves."""
    used = min(1.0, max(0.0, utilisation))
    if used == 0:
        return math.inf
    lag_tps = load.lag_rows / s.catch_up_s if s.catch_up_s else 0.0
    restart_tps = load.rate_tps * s.restart_s / s.catch_up_s if restarts and s.catch_up_s else 0.0
    return math.floor(lag_tps + restart_tps + load.rate_tps / used + 0.5)


def rate_bounds(load: VertexLoad, s: FlinkSettings, backlog: bool = False) -> tuple[float, float]:
    """(true rate below which it scales up, above which it scales down). Behind a backlog it only scales up."""
    upper = s.target + s.bound if s.upper is None else s.upper
    lower = s.target - s.bound if s.lower is None else s.lower
    upper, lower = (1.0, 0.0) if backlog else (upper, lower)
    return target_capacity(load, upper, s, False), target_capacity(load, lower, s, True)


def is_backlog(lag_rows: float, done_tps: float, s: FlinkSettings) -> bool:
    return done_tps > 0 and lag_rows / done_tps > s.backlog_s


def scaled(parallelism: int, load: VertexLoad, s: FlinkSettings) -> int:
    """The parallelism that reaches the target utilisation, if capacity is linear in it."""
    factor = target_capacity(load, s.target, s, True) / load.true_tps
    factor = min(1 + s.most_up, max(1 - s.most_down, factor))
    return max(1, math.ceil(factor * parallelism - 1e-9))


def true_rate(busy: float, done_tps: float, observed_tps: float | None) -> float:
    """Rows/s while it works: by busy time, or as observed while it caught up, where that is much less."""
    by_busy_tps = math.inf if done_tps == 0 or busy <= 0 else done_tps / busy
    if observed_tps is None:
        return by_busy_tps
    return observed_tps if by_busy_tps > observed_tps * (1 + OBSERVED_OFF) else by_busy_tps


class Recommended(NamedTuple):
    at_s: float
    parallelism: int
    outside: bool


class DelayedLowering:
    """A lowering waits for `after_s`; then it is for the most that was recommended meanwhile."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._first_s: float | None = None
        self._asked: deque[Recommended] = deque()

    def clear(self) -> None:
        self._first_s = None
        self._asked.clear()

    def ask(self, now: Recommended) -> Recommended | None:
        """What to lower to now; None: not yet."""
        if self.after_s <= 0:
            return now
        if self._first_s is None:
            self._first_s = now.at_s
        while self._asked and self._asked[-1].parallelism <= now.parallelism:
            self._asked.pop()
        self._asked.append(now)
        if now.at_s - self.after_s < self._first_s:
            return None
        while self._asked[0].at_s < now.at_s - self.after_s:
            self._asked.popleft()
        return self._asked[0]


class VertexScaler:
    """One vertex, look by look."""

    def __init__(self, settings: FlinkSettings) -> None:
        self.settings = settings
        self.lowering = DelayedLowering(settings.down_after_s)

    def parallelism(self, at_s: float, now: int, load: VertexLoad, backlog: bool = False) -> int | None:
        """The new one; None: it stays."""
        if not load.true_tps > 0:
            return None
        wanted = scaled(now, load, self.settings)
        up_tps, down_tps = rate_bounds(load, self.settings, backlog)
        asked = Recommended(at_s, wanted, load.true_tps < up_tps or load.true_tps > down_tps)
        if wanted >= now:
            self.lowering.clear()
        found = asked if wanted >= now else self.lowering.ask(asked)
        if found is None or found.parallelism == now or not found.outside:
            return None
        self.lowering.clear()
        return found.parallelism


class _Sample(NamedTuple):
    at_s: float
    done: float  # rows since the plan came into force
    lag: float
    busy: float
    observed_tps: float | None


class UtilisationBounds(Rival):
    """`flink`: the topology as one vertex, looked at once a minute."""

    def __init__(self, given: DeciderQuestion, settings: FlinkSettings = FLINK) -> None:
        super().__init__(given)
        self.settings = settings
        self._scaler = VertexScaler(settings)
        self._samples: deque[_Sample] = deque()
        self._done = 0.0
        self._busy: deque[float] = deque(maxlen=10)  # its gauge is refreshed every ten seconds

    def look(self, now: Turn1s) -> float | None:
        if now.in_force_s is None:
            self._samples.clear()
            self._busy.clear()
            return None
        s = self.settings
        self._done += now.done_tps
        self._busy.append(now.busy)
        since_s = self._samples[-1].at_s if self._samples else -math.inf
        if now.in_force_s < s.stabilisation_s or now.at_s - since_s < s.look_s:
            return None
        lag = now.offer.backlog
        catches_up = now.done_tps > 0 and lag >= OBSERVED_LAG_S * now.done_tps
        busy = sum(self._busy) / len(self._busy)
        self._samples.append(_Sample(now.at_s, self._done, lag, busy, now.done_tps if catches_up else None))
        while self._samples[0].at_s < now.at_s - s.window_s:
            self._samples.popleft()
        long_s = now.at_s - self._samples[0].at_s
        if long_s < s.window_s:
            return None
        return self._decide(now, long_s)

    def _decide(self, now: Turn1s, long_s: float) -> float | None:
        first, last = self._samples[0], self._samples[-1]
        done_tps = (last.done - first.done) / long_s
        observed = [one.observed_tps for one in self._samples if one.observed_tps is not None]
        observed_tps = sum(observed) / len(observed) if len(observed) >= OBSERVED_LEAST else None
        busy = sum(one.busy for one in self._samples) / len(self._samples)
        load = VertexLoad(
            max(0.0, done_tps + (last.lag - first.lag) / long_s),
            last.lag,
            true_rate(busy, done_tps, observed_tps),
        )
        backlog = is_backlog(last.lag, done_tps, self.settings)
        wanted = self._scaler.parallelism(now.at_s, now.slots, load, backlog)
        return None if wanted is None else now.rate_of(min(wanted, self.given.most_slots))
