"""How the loop follows the offered rate: it gives the forecast each second's rate, and asks what to plan for. Pure.

The forecast is of this life of the controller: what it knows comes from the events of this life alone, so that a
replay of them knows the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from headgate.controller.analyze.demand import (
    ALARM_S,
    CHANCE,
    HEADROOM,
    Offer,
    ahead_of,
    demand,
    drain_tps,
    offer_of,
)
from headgate.controller.analyze.forecast import CHOSEN, RateForecast, Tuning
from headgate.controller.analyze.headroom import RatesAbove, headroom
from headgate.controller.execute.plan_drift import past_of
from headgate.controller.execute.rollout_steps import PROBATION_WINDOWS
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.diagnoses import Demand, Headroom, Horizon
from headgate.controller.knowledge.journal_records import Rollout
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.knowledge.offered_load import Lag
from headgate.controller.models.plans import Plan
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.rates.learned_season import LearnedSeason
from headgate.topology_runtime.rates.season_learning import Handed

NS = 1_000_000_000
QUEUE_S = ALARM_S  # that rows may wait where no latency constraint says less: what waits longer is an alarm
ENACTMENTS = 5  # of the last so many the slowest is reckoned with


class RateFollower:
    """Follows the rate of one topology."""

    def __init__(
        self,
        topology: Topology,
        tuning: Tuning = CHOSEN,
        season: LearnedSeason | None = None,
        usual: float = HEADROOM,
    ) -> None:
        self.forecast = RateForecast(queue_s(topology), tuning, handed_of(season))
        self.above = RatesAbove(usual)
        self._usual, self._ahead_s = usual, ahead_of(Horizon().enact_s)
        self._season = season
        self._heard_ns = 0

    @classmethod
    def of(cls, topology: Topology, settings: ControllerSettings) -> RateFollower:
        return cls(topology, season=settings.season, usual=settings.headroom)

    def headroom(self, errors: Iterable[float]) -> Headroom:
        """By the rates heard, and by how far each plan that was measured was off (ln)."""
        return headroom(errors, self.above, self._usual, self.forecast.tuning.short_share)

    def need(
        self,
        k: Knowledge,
        window: MeasuredWindow,
        lags: tuple[Lag, ...],
        cap_tps: float,
        now: Now,
        errors: Iterable[float] = (),
    ) -> Demand:
        """What to plan for, by a window that ends now. To be asked once a turn. errors: of plans (`headroom`)."""
        plan, learned = k.plan, k.durable.season
        assert plan is not None
        if learned is not None and learned != self._season:  # from this run, meanwhile
            self._season = learned
            self.forecast.hand(handed_of(learned))
        offer = offer_of(window, drain_tps(lags) if lags else None, cap_tps)
        self.hear(offer, now.mono_ns)
        horizon = horizon_of(k, plan)
        if k.settings.headroom_measured:
            k.measured_headroom = self.headroom(errors)
        return demand(offer, self.forecast, plan.rate_tps, past_of(k, now), k.headroom, horizon)

    def hear(self, offer: Offer, now_ns: int) -> None:
        """Give the forecast each second since the last one, as far as the offer reaches back."""
        halves = offer.rates
        passed = 1 if not self._heard_ns else round((now_ns - self._heard_ns) / NS)
        for second in reversed(range(min(passed, len(halves) // 2))):
            rate_tps = (halves[2 * second] + halves[2 * second + 1]) / 2
            self._hear(min(rate_tps, offer.cap_tps), arrives=offer.waits_tps is not None)
            self._heard_ns = now_ns

    def _hear(self, rate_tps: float, arrives: bool) -> None:
        """One second's rate; of rows that are taken as they come, what chance adds is no error."""
        self.forecast.hear(rate_tps)
        foreseen_tps = self.forecast.foreseen_tps(self._ahead_s)
        if foreseen_tps is not None:
            chance_tps = CHANCE * math.sqrt(max(0.0, foreseen_tps)) if arrives else 0.0
            self.above.hear(foreseen_tps, max(min(rate_tps, foreseen_tps), rate_tps - chance_tps))


def handed_of(season: LearnedSeason | None) -> Handed | None:
    if season is None:
        return None
    return Handed(season.period_s, np.array(season.middle), np.array(season.high))


def queue_s(topology: Topology) -> float:
    """How long rows may wait: as long as the tightest latency constraint allows."""
    return min([QUEUE_S, *(constraint.limit_ms / 1000 for constraint in topology.latency_constraints)])


def horizon_of(k: Knowledge, plan: Plan) -> Horizon:
    """How long enacting took lately, and what the slots there are would carry, each as well as those in use."""
    rollouts = [r for r in k.durable.rollouts if r.in_force_ns and r.reason != "start"]
    usual = Horizon()
    enact_s = _slowest([r for r in rollouts if not r.awaited], usual.enact_s)
    machine_s = _slowest([r for r in rollouts if r.awaited], usual.enact_s + usual.machine_s)
    held_s = PROBATION_WINDOWS * k.settings.probation_window_s
    up = k.members.up()
    if k.settings.spare is None or len(up) >= k.settings.max_vms or not plan.slots.used:
        return Horizon(enact_s, 0.0, held_s=held_s)
    room_tps = plan.rate_tps * sum(member.vm.slots for member in up) / plan.slots.used
    return Horizon(enact_s, max(0.0, machine_s - enact_s), room_tps, held_s)


def _slowest(rollouts: list[Rollout], usual_s: float) -> float:
    seconds = [(r.in_force_ns - r.decided_ns) / NS for r in rollouts[-ENACTMENTS:]]
    return max(seconds, default=usual_s)
