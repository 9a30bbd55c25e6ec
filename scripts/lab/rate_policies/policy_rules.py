"""What rate to plan for, and when: by the controller's own rule, and by those that it is held against. Pure.

foresight   what the controller does: forecast, `demand`, `diagnose`, as in the loop
ds2         every ten seconds a plan for the mean rate of these, × headroom, where that is 5 % off (in the manner
            of DS2: the right size in one step, from true rates)
hpa         every 15 s the plan × measured use / wanted use, where that is 10 % off; at most twice as much; down to
            the most that was wanted in five minutes (in the manner of Kubernetes' autoscaler and its defaults)
static      one plan for the peak, known in hindsight, with the headroom that every plan has
bare        the same without headroom: nothing more will come, and no model is wrong
lsa+rsm     when the controller would, and for the same rate, a plan as in the paper: by this pair, rows shuffled, each
mba+sam     group of threads reckoned as if it had its slot to itself (what carries is said by slots that are shared)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headgate.controller.analyze.demand import Offer, demand
from headgate.controller.analyze.diagnosis import DiagnosisInput, diagnose
from headgate.controller.analyze.forecast import Tuning
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.knowledge.diagnoses import Diagnosis, Horizon, Past, Stability
from headgate.controller.knowledge.measured_window import (
    SERIES_STEP_S,
    Latency,
    LatencySeries,
    MeasuredWindow,
    ProgressSeries,
)
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.rates.learned_season import LearnedSeason

NS = 1_000_000_000
DS2_S, DS2_OFF = 10, 0.05
HPA_S, HPA_OFF, HPA_QUIET_S, HPA_MOST = 15, 0.1, 300, 2.0
STABLE = Stability("stable", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, "stable")


class Turn1s(msgspec.Struct, frozen=True):
    """What a policy sees, once a second. done_tps: of the last second. in_force_s: None while a plan is enacted."""

    at_s: float
    offer: Offer
    planned_tps: float
    carried_tps: float
    done_tps: float
    in_force_s: float | None
    past: Past
    horizon: Horizon


class Decider(Protocol):
    """A policy's rule."""

    def first_tps(self, rate_tps: float) -> float:
        """What the first plan is for."""

    def look(self, now: Turn1s) -> float | None:
        """The rate to plan for now; None: go on as it is."""


@dataclass(frozen=True)
class DeciderQuestion:
    """What a rule is made for. peak_tps: the highest rate that will come."""

    topology: Topology
    headroom: float
    peak_tps: float
    tuning: Tuning = Tuning()
    season: LearnedSeason | None = None


@dataclass
class Foresight:
    """The controller's own."""

    given: DeciderQuestion
    following: RateFollower = field(init=False)
    found: Diagnosis | None = None  # of the last look, where the rate is not the one planned for

    def __post_init__(self) -> None:
        self.following = RateFollower(self.given.topology, self.given.tuning, self.given.season)

    def first_tps(self, rate_tps: float) -> float:
        return rate_tps * self.given.headroom

    def look(self, now: Turn1s) -> float | None:
        self.following.hear(now.offer, round(now.at_s * NS))
        forecast = self.following.forecast
        need = demand(now.offer, forecast, now.planned_tps, now.past, self.given.headroom, now.horizon)
        self.found = None
        if need.direction == "same":
            return None
        seen = DiagnosisInput(_window(now), STABLE, need, now.planned_tps, now.in_force_s)
        self.found = diagnose(seen)
        return self.found.rate_tps


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
class Ds2Like:
    given: DeciderQuestion
    rates: list[float] = field(default_factory=list)

    def first_tps(self, rate_tps: float) -> float:
        return rate_tps * self.given.headroom

    def look(self, now: Turn1s) -> float | None:
        if now.in_force_s is None:
            self.rates.clear()  # metrics of a plan that is not in force yet say nothing of it
            return None
        self.rates.append(sum(now.offer.rates[:2]) / 2)
        if len(self.rates) < DS2_S:
            return None
        wanted_tps = self.given.headroom * sum(self.rates) / len(self.rates)
        self.rates.clear()
        return wanted_tps if abs(wanted_tps / now.planned_tps - 1) > DS2_OFF else None


@dataclass
class HpaLike:
    given: DeciderQuestion
    uses: list[float] = field(default_factory=list)
    wanted: deque[tuple[float, float]] = field(default_factory=deque)

    def first_tps(self, rate_tps: float) -> float:
        return rate_tps * self.given.headroom

    def look(self, now: Turn1s) -> float | None:
        self.uses.append(min(1.0, now.done_tps / max(now.carried_tps, 1e-9)))
        if len(self.uses) < HPA_S or now.in_force_s is None:
            return None
        ratio = sum(self.uses[-HPA_S:]) / HPA_S * self.given.headroom
        self.uses.clear()
        wanted_tps = now.planned_tps * min(HPA_MOST, ratio) if abs(ratio - 1) > HPA_OFF else now.planned_tps
        self.wanted.append((now.at_s, wanted_tps))
        while self.wanted[0][0] < now.at_s - HPA_QUIET_S:
            self.wanted.popleft()
        if wanted_tps < now.planned_tps:
            wanted_tps = min(now.planned_tps, max(tps for _, tps in self.wanted))
        return wanted_tps if abs(wanted_tps / now.planned_tps - 1) > 1e-3 else None


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
    "ds2": Ds2Like,
    "hpa": HpaLike,
    "lsa+rsm": Foresight,
    "mba+sam": Foresight,
}
PLANNERS = {"lsa+rsm": ("lsa", "rsm"), "mba+sam": ("mba", "sam")}  # as in the paper
STATIC, BARE, OURS = "static", "bare", "foresight"
MEASURES = (STATIC, BARE)  # every other one is held against these
RULES = tuple(name for name in DECIDERS if name not in PLANNERS)
