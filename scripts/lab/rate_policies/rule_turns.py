"""What a rule for following a rate sees once a second, and what it says. Pure."""

from __future__ import annotations

from typing import Protocol

import msgspec

from headgate.controller.analyze.demand import Offer
from headgate.controller.analyze.forecast import Tuning
from headgate.controller.knowledge.diagnoses import Horizon, Past
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.rates.learned_season import LearnedSeason


class Turn1s(msgspec.Struct, frozen=True):
    """What a policy sees, once a second.

    offer: rates (rows/s) as sources count them, and rows that wait. planned_tps: of the newest plan, carried_tps: what
    the planner predicts for the plan in force, slots: that it has threads in. done_tps, busy: rows done in the last
    second, and the part of it that threads of the slowest task worked (0 to 1), both as measured, with errors; a
    saturated plan reads about 1. in_force_s: None while a plan is enacted. horizon: how long a plan takes."""

    at_s: float
    offer: Offer
    planned_tps: float
    carried_tps: float
    slots: int
    done_tps: float
    busy: float
    in_force_s: float | None
    past: Past
    horizon: Horizon

    @property
    def offered_tps(self) -> float:
        """Over the last second."""
        return sum(self.offer.rates[:2]) / 2

    def rate_of(self, slots: float) -> float:
        """The rate to ask the planner for, to have about so many slots: rows/s, by what those in force carry each."""
        return self.carried_tps * slots / self.slots


class Decider(Protocol):
    """A policy's rule."""

    def first_tps(self, rate_tps: float) -> float:
        """What the first plan is for."""

    def look(self, now: Turn1s) -> float | None:
        """The rate to plan for now; None: go on as it is."""


class DeciderQuestion(msgspec.Struct, frozen=True):
    """What a rule is made for. peak_tps: the highest rate that will come. most_slots: that may be had.
    headroom_measured: ours begins with `headroom`, and goes by the errors of its run."""

    topology: Topology
    headroom: float
    peak_tps: float
    tuning: Tuning = Tuning()
    season: LearnedSeason | None = None
    most_slots: int = 256
    headroom_measured: bool = True


class Rival:
    """A rule of others: it starts with the headroom that every plan has, as ours does."""

    def __init__(self, given: DeciderQuestion) -> None:
        self.given = given

    def first_tps(self, rate_tps: float) -> float:
        return rate_tps * self.given.headroom
