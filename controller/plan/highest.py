"""The highest rate that plans on the VMs there are (paper 0, section 8.5). Pure.

The slots that an allocation needs at least rise with the rate, so bisection finds the rate above which
none fits. Whether threads then fit one by one does not fall steadily with the rate: from there it is
tried step by step.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from controller.knowledge.models import Model
from controller.knowledge.plans import Plan
from controller.plan.planner import PlanRequest, allocated, check, make_plan, room_of
from topology_runtime.errors import Infeasible, InvalidInput

BEYOND_TPS = 1e12  # what still fits at this rate fits at any


def highest_plan(request: PlanRequest, step_tps: float) -> Plan:
    """The plan for the highest multiple of `step_tps` that fits; the request's own rate is not looked at.

    Raises Infeasible when not even one step fits, InvalidInput for a senseless request or step, and when
    no rate needs more slots than there are."""
    if not (math.isfinite(step_tps) and 0 < step_tps <= BEYOND_TPS):
        raise InvalidInput(f"rate step: expected a number of tuples/s above 0, got {step_tps}")
    request = replace(request, rate_tps=step_tps)
    check(request)
    refused: Infeasible | None = None
    for steps in range(max(1, _most_steps(request)), 0, -1):
        try:
            return make_plan(replace(request, rate_tps=steps * step_tps))
        except Infeasible as error:
            refused = error
    assert refused is not None
    raise refused


def _most_steps(request: PlanRequest) -> int:
    """The most steps at which the least that is needed fits into the usable slots, by bisection."""
    usable = len(room_of(request).slots())
    models = request.models
    if request.allocator != "lsa":  # whose needs rise with the rate anyhow
        models = {name: _rising(model) for name, model in models.items()}
    low, high = 0, int(BEYOND_TPS / request.rate_tps)

    def fits(steps: int) -> bool:
        try:
            rate_tps = steps * request.rate_tps
            return allocated(replace(request, models=models, rate_tps=rate_tps)).slots <= usable
        except Infeasible:
            return False

    if fits(high):
        raise InvalidInput(
            "there is no highest rate",
            cause=f"no task of topology {request.topology.name!r} needs more slots at a higher rate",
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rising(model: Model) -> Model:
    """The model with, at each point, the least CPU and memory of it and the points up to the peak: what
    MBA needs by it is no more than it needs by `model`, and never falls as the rate rises."""
    points = list(model.points)
    peak = max(range(len(points)), key=lambda place: points[place].rate_tps)
    for place in range(peak - 1, -1, -1):
        after = points[place + 1]
        points[place] = replace(
            points[place],
            cpu=min(points[place].cpu, after.cpu),
            memory=min(points[place].memory, after.memory),
        )
    return replace(model, points=tuple(points))
