"""What the controller would plan, and why, second by second of a rate that somebody else's deployment takes in. Pure.

The rules are the controller's own, as `headgate lab backtest` tries them: forecast, `demand`, `diagnose`, `choose`.
It is reckoned as if each plan were brought into force when it is advised. Of a time of which nothing is known
nothing is advised.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import NamedTuple

import msgspec

from headgate.controller.models.plans import Plan
from headgate.lab.rate_policies.backtest_world import PHASE_S, BacktestQuestion, FluidWorld
from headgate.lab.rate_policies.policy_rules import Foresight
from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Turn1s
from headgate.topology_runtime.rates.learned_season import LearnedSeason
from headgate.topology_runtime.wording import counted

# ── An input rate as it becomes known, span by span, for whoever goes through it in its order. Pure ─────

NS = 1_000_000_000
KEPT_S = 60.0  # behind what is known: nobody looks back further


class OfferedSpan(NamedTuple):
    """known: False where nobody said, and the rate before stands in. rows: until its beginning."""

    from_s: float
    to_s: float
    rate_tps: float
    known: bool
    rows: float


@dataclass
class OfferSoFar:
    """What was offered since second 0."""

    spans: list[OfferedSpan] = field(default_factory=list)

    @property
    def until_s(self) -> float:
        return self.spans[-1].to_s if self.spans else 0.0

    @property
    def rows(self) -> float:
        return self.offered(round(self.until_s * NS)) if self.spans else 0.0

    def add(self, to_s: float, rate_tps: float | None) -> None:
        """From where it is known on until `to_s`; None: nothing is known of that time."""
        if to_s <= self.until_s or (rate_tps is None and not self.spans):
            return
        last = self.spans[-1] if self.spans else OfferedSpan(0.0, 0.0, 0.0, True, 0.0)
        rows = last.rows + (last.to_s - last.from_s) * last.rate_tps
        rate = last.rate_tps if rate_tps is None else rate_tps
        self.spans.append(OfferedSpan(last.to_s, to_s, rate, rate_tps is not None, rows))

    def forget(self, before_s: float) -> None:
        del self.spans[: min(self._number(before_s - KEPT_S), len(self.spans) - 1)]

    def known_at(self, at_s: float) -> bool:
        return self._span(at_s).known

    def rate_at(self, now_ns: int) -> float:
        return self._span(now_ns / NS).rate_tps

    def offered(self, now_ns: int) -> float:
        span = self._span(now_ns / NS)
        return span.rows + (now_ns / NS - span.from_s) * span.rate_tps

    def _number(self, at_s: float) -> int:
        """Of the span at whose end, or in which, this is."""
        return bisect_left(self.spans, at_s, key=lambda span: span.to_s)

    def _span(self, at_s: float) -> OfferedSpan:
        return self.spans[min(self._number(at_s), len(self.spans) - 1)]


TURN_S = 1.0


class Advice(msgspec.Struct, frozen=True):
    """What to do from `at_s` on: `plan`, unless action is "none": something is called for and cannot be had."""

    at_s: float
    action: str
    reason: str
    text: str
    offered_tps: float
    plan: Plan


@dataclass
class OfKnownTime:
    """The controller's own rule, where the rate is known."""

    foresight: Foresight
    offer: OfferSoFar

    def first_tps(self, rate_tps: float) -> float:
        return self.foresight.first_tps(rate_tps)

    def look(self, now: Turn1s) -> float | None:
        if self.offer.known_at(now.at_s):
            return self.foresight.look(now)
        self.foresight.found = None
        return None


@dataclass
class Advisor:
    """`hear` what was offered, and get what there is to say."""

    question: BacktestQuestion
    headroom: float
    season: LearnedSeason | None = None
    offer: OfferSoFar = field(default_factory=OfferSoFar)

    def __post_init__(self) -> None:
        asked = DeciderQuestion(self.question.topology, self.headroom, 0.0, season=self.season)
        self.foresight = Foresight(asked)
        self.world = FluidWorld(
            self.question, OfKnownTime(self.foresight, self.offer), self.offer, keeps=False
        )
        self._turns = self.world.seconds(inf)
        self._due_s = (PHASE_S + n * TURN_S for n in count(1))
        self._next_s = next(self._due_s)
        self._told = ""

    @property
    def plan(self) -> Plan | None:
        """What would run now, or be on its way."""
        return self.world.planned

    def hear(self, to_s: float, rate_tps: float | None) -> list[Advice]:
        """So much was offered until then, since what was heard last. Raises Infeasible when there is no first plan."""
        self.offer.add(to_s, rate_tps)
        found = []
        while self._next_s <= self.offer.until_s:
            first, plans = self.plan is None, len(self.world.plans)
            next(self._turns)
            if first:
                found.append(self._first())
            if said := self._advice(len(self.world.plans) > plans):
                found.append(said)
            self.offer.forget(self._next_s)
            self._next_s = next(self._due_s)
        return found

    def _first(self) -> Advice:
        plan, rate_tps = self.plan, self.offer.spans[0].rate_tps
        assert plan is not None
        used = counted(plan.slots.used, "slot")
        text = f"{rate_tps:,.1f} rows/s are taken in to begin with: {used} for {plan.rate_tps:,.1f} rows/s"
        return Advice(0.0, "plan", "start", text, rate_tps, plan)

    def _advice(self, planned: bool) -> Advice | None:
        """What the turn that was just made comes to; why there is no plan is told once, until there is one."""
        found, plan = self.foresight.found, self.plan
        if found is None or found.kind == "none" or plan is None:
            return None
        wanted = found.rate_tps or 0.0
        if not planned and (wanted <= plan.prediction.rate_tps or self._told == found.reason):
            return None
        self._told = "" if planned else found.reason
        text = f"{found.text} – {self.world.said}"
        rate_tps = self.offer.rate_at(round(self._next_s * 1e9))
        return Advice(self._next_s, "plan" if planned else "none", found.reason, text, rate_tps, plan)
