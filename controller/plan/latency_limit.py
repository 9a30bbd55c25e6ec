"""Plans that keep a latency limit: of those for the rate and more, the first whose rows are predicted to be done in
time (ours). Pure.

More than the rate is planned for in steps (`MARGINS`): more threads and slots, so shorter queues. What tasks take for a
row sets the floor, which no margin gets below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from headgate.controller.models.plans import Plan, PlanLatency
from headgate.controller.plan.planning_request import PlanRequest
from headgate.controller.plan.predict.latency import latency_of
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import counted, significant

MARGINS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0)  # times the rate

Planned = Callable[[PlanRequest], tuple[Plan, str]]  # (a plan, why it is for less than asked or "")


class LimitedPlan(NamedTuple):
    """less: why it is for less than asked, or "". latency: of the plan at its rate; None where that is not known. kept:
    is its p95 within the limit?"""

    plan: Plan
    less: str
    latency: PlanLatency | None
    kept: bool

    @property
    def nearest(self) -> str:
        """What is the nearest where the limit is not kept."""
        if self.latency is None:
            return "its latency is not known before its rows were measured"
        best, slots = significant(self.latency.rows.p95_ms, 3), counted(self.plan.slots.used, "slot")
        return f"the nearest found has {best} ms, on {slots}: what tasks take for a row sets the floor"


def latency_in(plan: Plan, request: PlanRequest) -> PlanLatency | None:
    """That of the plan at its rate; None where it is not known, or the plan does not carry that."""
    there = request.topology, request.models, plan.placement, plan.vms, plan.prediction
    return latency_of(*there, plan.rate_tps)


def is_in_time(plan: Plan, request: PlanRequest, p95_ms: float) -> bool:
    """Are 95 of 100 rows predicted to be done so soon?"""
    found = latency_in(plan, request)
    return found is not None and found.rows.p95_ms <= p95_ms


def plan_within(request: PlanRequest, p95_ms: float, make: Planned) -> LimitedPlan:
    """The first plan whose p95 is within the limit, or of those tried the one nearest to it, with the fewest slots.
    Raises Infeasible where not even the rate itself can be planned, and what `make` raises."""
    nearest: LimitedPlan | None = None
    for margin in MARGINS:
        why = f"so that p95 keeps within {significant(p95_ms, 3)} ms"
        wanted = replace(request, margin=margin, margin_why=why) if margin > 1 else request
        try:
            plan, less = make(wanted)
        except Infeasible:
            if nearest is None:
                raise
            break
        found = latency_in(plan, request)
        if found is None or found.rows.p95_ms <= p95_ms:
            return LimitedPlan(plan, less, found, found is not None)
        if nearest is None or nearest.latency is None or found.rows.p95_ms < nearest.latency.rows.p95_ms:
            nearest = LimitedPlan(plan, less, found, False)
        if less and margin > 1:
            break  # more than this there are no slots for
    assert nearest is not None
    return nearest
