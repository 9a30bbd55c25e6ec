"""The fewest slots that would have done, for one who knows what comes. Pure.

The oracle has at each moment the fewest slots whose plan carries what is offered then; it changes plans at once and
for nothing, and lets no row wait. No policy needs less, unless rows wait or are lost.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.controller.core.plan_choice import PlanQuestion, choose
from headgate.controller.plan.planner import PlanRequest
from headgate.lab.rate_policies.backtest_world import BacktestQuestion
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import significant


def fewest_slots(question: BacktestQuestion, rate_tps: float) -> int:
    """Slots of a plan made from nothing for this rate. Raises Infeasible."""
    request = PlanRequest(
        topology=question.topology, models=question.models, rate_tps=max(rate_tps, 1e-3), vms=(), may_add=question.vms,
        allocator=question.allocator, mapper=question.mapper, routing=question.routing,
        interference=question.interference,
    )  # fmt: skip
    found = choose(PlanQuestion(request, (), None, False, frozenset(), 0))
    if found.plan is None or (found.degraded and not question.best_that_fits):
        raise Infeasible(
            f"no plan carries {significant(rate_tps, 6)} rows/s", cause=found.degraded or found.text
        )
    return found.plan.slots.used


def oracle_slot_seconds(spans: list[tuple[float, float]], slots_for: Callable[[float], int]) -> float:
    """Of `spans` of (rows/s, s). slots_for: rows/s → slots, never fewer for more; it is asked as little as that
    allows."""
    rates = sorted({rate_tps for rate_tps, _ in spans})
    slots: dict[float, int] = {}

    def fill(first: int, last: int) -> None:
        """Where both ends need as many, so does all between."""
        for at in {first, last}:
            slots.setdefault(rates[at], 0)
            slots[rates[at]] = slots[rates[at]] or slots_for(rates[at])
        if slots[rates[first]] == slots[rates[last]]:
            slots.update(dict.fromkeys(rates[first : last + 1], slots[rates[first]]))
        elif last - first > 1:
            middle = (first + last) // 2
            fill(first, middle)
            fill(middle, last)

    fill(0, len(rates) - 1)
    return sum(slots[rate_tps] * long_s for rate_tps, long_s in spans)
