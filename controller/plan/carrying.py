"""A plan that is predicted to carry the rate it is for. Pure.

An allocator may count too few slots, and a mapper may use them badly: LSA takes the rate of one thread times their
number, and RSM puts threads where they come too close (paper 0, section 8.5: what such plans carry in fact is less
than they are for). Whoever runs one finds out, and asks for more. So does this: threads and slots are counted for a
rate that rises by tenths, until what comes of it is predicted to carry the rate in question.
"""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.knowledge.plans import Plan
from headgate.controller.plan.identity import with_id
from headgate.controller.plan.planner import PlanRequest, flows_measured, make_plan
from headgate.topology_runtime.errors import Infeasible

RISE, TRIES = 1.1, 36  # up to thirty times
COUNTED = ("mba", "sam")  # SAM gives the bundles that MBA counts slots for just these
ENOUGH = 0.98  # of the rate: models are no more exact


def carrying_plan(request: PlanRequest) -> tuple[Plan, str]:
    """(the plan, ""), or the one that carries most and why it is less. Raises Infeasible as `make_plan`."""
    best = make_plan(request)
    enough_tps = ENOUGH * request.rate_tps
    counted = (request.allocator, request.mapper) == COUNTED or request.sure is not None
    if counted or best.prediction.rate_tps >= enough_tps:
        return best, ""
    for step in range(1, TRIES + 1):
        try:
            found = make_plan(replace(request, rate_tps=request.rate_tps * RISE**step))
        except Infeasible:
            break
        if found.prediction.rate_tps > best.prediction.rate_tps:
            best = found
        if best.prediction.rate_tps >= enough_tps:
            return _for_rate(best, request), ""
    carried = best.prediction.rate_tps
    why = f"{request.allocator}+{request.mapper} carries {carried:,.1f} of {request.rate_tps:,.1f} tuples/s at most"
    return _for_rate(best, request), f"{why}, whatever it is asked for"


def _for_rate(plan: Plan, request: PlanRequest) -> Plan:
    """The plan, said to be for the rate in question."""
    rates = request.topology.rates(request.rate_tps * plan.allocation.margin)
    tasks = tuple(replace(task, rate_tps=rates[task.task]) for task in plan.allocation.tasks)
    allocation = replace(plan.allocation, tasks=tasks)
    prediction = replace(plan.prediction, flows=flows_measured(request))
    return with_id(replace(plan, rate_tps=request.rate_tps, allocation=allocation, prediction=prediction))
