"""The stair of rates that one run is led up, until it does not keep up. Pure: readings in, rates out.

A point is taken whenever more tuples have been acked: how many seconds of the offer are not done. Where that grows
with a slope of over 0.02 s/s the run does not keep up (headgate.topology_runtime.stability). This only leads the run:
what it carried is judged afterwards, from its trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE
from headgate.topology_runtime.stability.slopes import theil_sen

SETTLE_S, FIRST_SETTLE_S = 1.5, 3.0  # of a step: the change has not gone through yet; a run has just begun
LEAST_POINTS = 4
CLEARLY_STABLE, CLEARLY_UNSTABLE, AT_ONCE = 0.01, 0.05, 0.12  # s/s
DOUBT = 1.25  # times the long time of a step, when it lies between
HOPELESS_S = 6.0  # so far behind: no step has to be waited for
DRAINED_S, DRAIN_LONGEST_S = 1.5, 15.0
BACK = 0.75  # of the rate, when not even the first was carried
REST = 0.7  # of the rate, before it is tried again
LOOKS = 2  # a rate must fail so often: machines hiccup


@dataclass(frozen=True)
class Pace:
    """`first`: of the predicted rate, where the stair begins; then steps up by `step`. A step takes `short_s`
    when it is clear, else `long_s`."""

    first: float = 0.84
    step: float = 0.06
    short_s: float = 5.2
    long_s: float = 8.0
    longest_s: float = 150.0


@dataclass(frozen=True)
class Step:
    """One rate that was offered, seconds after the run's first tuple; `keeps_up`: as it looked."""

    rate_tps: float
    from_s: float
    to_s: float
    keeps_up: bool
    slope: float


@dataclass
class Stair:
    """`look` says what rate to offer from now on: another one, or None when the stair ends (`over`)."""

    predicted_tps: float
    pace: Pace
    rate_tps: float = 0.0
    over: bool = False
    steps: list[Step] = field(default_factory=list)
    _from_s: float = 0.0
    _after_tps: float = 0.0  # of the next step, once what is behind is done
    _acked: int = -1
    _points: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rate_tps = self.pace.first * self.predicted_tps

    def look(self, now_s: float, offered: float, acked: int) -> float | None:
        """`now_s`: since the first tuple was due. The new rate, if it changes."""
        behind_s = (offered - acked) / self.rate_tps
        in_step_s = now_s - self._from_s
        if acked != self._acked and in_step_s >= (SETTLE_S if self.steps else FIRST_SETTLE_S):
            self._points.append((now_s, behind_s))
        self._acked = acked
        if now_s >= self.pace.longest_s:
            return self._end()
        if self._after_tps:
            waited = behind_s < DRAINED_S or in_step_s > DRAIN_LONGEST_S
            return self._begin(self._after_tps, now_s) if waited and in_step_s > SETTLE_S else None
        keeps_up = self._verdict(in_step_s, behind_s)
        if keeps_up is None:
            return None
        self.steps.append(Step(self.rate_tps, self._from_s, now_s, keeps_up, self._slope()))
        if keeps_up:
            return self._begin(self.rate_tps * (1 + self.pace.step), now_s)
        if sum(step.rate_tps == self.rate_tps for step in self.steps) < LOOKS:
            return self._begin(self.rate_tps * REST, now_s, after_tps=self.rate_tps)
        if any(step.keeps_up for step in self.steps):
            return self._end()
        return self._begin(self.rate_tps * BACK, now_s, after_tps=self.rate_tps * BACK)

    def _verdict(self, in_step_s: float, behind_s: float) -> bool | None:
        """None: not yet."""
        if behind_s > HOPELESS_S and in_step_s >= SETTLE_S:
            return False
        slope = self._slope()
        if in_step_s < self.pace.short_s or len(self._points) < LEAST_POINTS:
            return None if in_step_s < 3 * self.pace.long_s else False
        if slope < CLEARLY_STABLE or slope > AT_ONCE:
            return slope < CLEARLY_STABLE
        if in_step_s < self.pace.long_s:
            return None
        if slope > CLEARLY_UNSTABLE or in_step_s >= DOUBT * self.pace.long_s:
            return slope <= UNSTABLE_SLOPE
        return True if slope <= UNSTABLE_SLOPE else None

    def _slope(self) -> float:
        times, behind = (np.array([point[n] for point in self._points]) for n in (0, 1))
        return theil_sen(times, behind).value

    def _begin(self, rate_tps: float, now_s: float, after_tps: float = 0.0) -> float:
        self.rate_tps, self._from_s, self._after_tps, self._points = rate_tps, now_s, after_tps, []
        return rate_tps

    def _end(self) -> None:
        self.over = True
