"""What rate to plan for, and when: by the controller's own rule, and by those that it is held against. Pure.

foresight   what the controller does: forecast, `demand`, `diagnose`, as in the loop
ds2         the right size in one step, from true rates                          (`true_rates`)
flink       Flink's autoscaler: a target utilisation within bounds               (`utilisation_bounds`)
hpa         Kubernetes' autoscaler: use / wanted use                             (`pod_thresholds`)
daedalus    the fewest slots that recover in ten minutes, by measured capacity   (`recovery_times`)
phoebe      the fewest slots that recover in three minutes                       (`recovery_times`)
conttune    by what sizes did before, else as DS2                                (`conservative_tuning`)
static      one plan for the peak, known in hindsight, with the headroom that every plan has
bare        the same without headroom: nothing more will come, and no model is wrong
lsa+rsm     when the controller would, and for the same rate, a plan as in the paper: by this pair, rows shuffled, each
mba+sam     group of threads reckoned as if it had its slot to itself (what carries is said by slots that are shared)

Sizes of others are numbers of slots, of which each carries what those in force carry on average; the plan for
that rate is by the same planner as ours, so none of them pays for a placement that is worse, nor for slots that
carry less than in proportion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from headgate.controller.analyze.demand import demand
from headgate.controller.analyze.diagnosis import DiagnosisInput, diagnose
from headgate.controller.analyze.model_bias import USED_LEAST
from headgate.controller.core.alarms import SETTLED_S
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.knowledge.diagnoses import Diagnosis, Headroom, Stability
from headgate.controller.knowledge.measured_window import (
    SERIES_STEP_S,
    Latency,
    LatencySeries,
    MeasuredWindow,
    ProgressSeries,
)
from headgate.lab.rate_policies.conservative_tuning import ConservativeTuning
from headgate.lab.rate_policies.pod_thresholds import PodThresholds
from headgate.lab.rate_policies.recovery_times import Daedalus, Phoebe
from headgate.lab.rate_policies.rule_turns import Decider, DeciderQuestion, Turn1s
from headgate.lab.rate_policies.true_rates import TrueRates
from headgate.lab.rate_policies.utilisation_bounds import UtilisationBounds

NS = 1_000_000_000
CALM_S, TOLD_S = SETTLED_S, 20  # two windows of the ledger
GROWS_S = 6  # rows wait, and more each second
STABLE = Stability("stable", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, "stable")


@dataclass
class Foresight:
    """The controller's own."""

    given: DeciderQuestion
    following: RateFollower = field(init=False)
    found: Diagnosis | None = None  # of the last look, where the rate is not the one planned for
    errors: PlanErrors = field(init=False)
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=GROWS_S + 1))

    def __post_init__(self) -> None:
        given = self.given
        self.errors = PlanErrors()
        self.following = RateFollower(given.topology, given.tuning, given.season, given.headroom)

    def first_tps(self, rate_tps: float) -> float:
        return rate_tps * self.given.headroom

    def look(self, now: Turn1s) -> float | None:
        self.following.hear(now.offer, round(now.at_s * NS))
        forecast = self.following.forecast
        self.errors.hear(now)
        room = Headroom(self.given.headroom)
        if self.given.headroom_measured:
            room = self.following.headroom(self.errors.found)
        need = demand(now.offer, forecast, now.planned_tps, now.past, room, now.horizon)
        stable = self._stability(now)
        self.found = None
        if need.direction == "same" and stable is STABLE:
            return None
        seen = DiagnosisInput(_window(now), stable, need, now.planned_tps, now.in_force_s)
        self.found = diagnose(seen)
        return self.found.rate_tps

    def _stability(self, now: Turn1s) -> Stability:
        """Unstable where the queue has grown for so long; the loop's own needs samples."""
        self._waits.append(now.offer.backlog)
        grows = all(before < after for before, after in pairwise(self._waits))
        if len(self._waits) <= GROWS_S or not grows or now.offered_tps <= 0:
            return STABLE
        return replace(
            STABLE, verdict="unstable", out_in=now.done_tps / now.offered_tps, text="the queue grows"
        )


class PlanErrors:
    """By how much each plan was off, as the ledger has it: once it was in force calmly for so long."""

    def __init__(self) -> None:
        self._ended: list[float] = []
        self._busy_s = self._could = 0.0
        self._seconds = 0

    @property
    def found(self) -> list[float]:
        """ln(measured / predicted), the newest last."""
        own = self._seconds >= TOLD_S and self._busy_s >= USED_LEAST * self._seconds
        return [*self._ended, math.log(self._busy_s / self._could)] if own else self._ended

    def hear(self, now: Turn1s) -> None:
        if now.in_force_s is None:
            self._ended = self.found
            self._busy_s, self._could, self._seconds = 0.0, 0.0, 0
        elif now.in_force_s >= CALM_S and now.done_tps > 0:
            self._seconds += 1
            self._busy_s += now.busy
            self._could += now.done_tps / now.carried_tps


def _window(now: Turn1s) -> MeasuredWindow:
    """All that `diagnose` asks of one where nothing but the rate is wrong."""
    offered, points = [0.0], len(now.offer.rates)
    for rate_tps in reversed(now.offer.rates):
        offered.append(offered[-1] + rate_tps * SERIES_STEP_S)
    at_s = tuple(-n * SERIES_STEP_S for n in range(points, -1, -1))
    series = ProgressSeries(at_s, tuple(offered), tuple(offered), tuple(offered))
    nothing: Mapping[str, float] = dict.fromkeys(
        ("offered_tps", "offered_slope_tps_per_s", "emitted_tps", "acked_tps", "backlog_growth_tps"), 0.0
    )
    return MeasuredWindow(
        now_ns=round(now.at_s * NS), seconds=10.0, epoch=1, complete=1.0, backlog=now.offer.backlog,
        tasks={}, slots={}, edges={}, latency=Latency(0.0, 0.0, 0.0, 0.0, 0.0), latencies={},
        latency_series=LatencySeries(), progress=series, **nothing,
    )  # fmt: skip


@dataclass
class StaticPeak:
    given: DeciderQuestion

    def first_tps(self, rate_tps: float) -> float:
        return self.given.peak_tps * self.given.headroom

    def look(self, now: Turn1s) -> float | None:
        return None


class BarePeak(StaticPeak):
    def first_tps(self, rate_tps: float) -> float:
        return self.given.peak_tps


DECIDERS: dict[str, Callable[[DeciderQuestion], Decider]] = {
    "foresight": Foresight,
    "static": StaticPeak,
    "bare": BarePeak,
    "ds2": TrueRates,
    "hpa": PodThresholds,
    "flink": UtilisationBounds,
    "daedalus": Daedalus,
    "phoebe": Phoebe,
    "conttune": ConservativeTuning,
    "lsa+rsm": Foresight,
    "mba+sam": Foresight,
}
PLANNERS = {"lsa+rsm": ("lsa", "rsm"), "mba+sam": ("mba", "sam")}  # as in the paper
STATIC, BARE, OURS = "static", "bare", "foresight"
MEASURES = (STATIC, BARE)  # every other one is held against these
RULES = tuple(name for name in DECIDERS if name not in PLANNERS)
