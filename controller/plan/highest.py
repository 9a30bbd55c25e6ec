"""The highest rate that plans on the VMs there are (paper 0, section 8.5). Pure.

The slots that an allocation needs at least rise with the rate, so bisection finds the rate above which
none fits. Whether threads then fit one by one does not fall steadily with the rate: from there it is
tried step by step.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec.structs import replace

from headgate.controller.knowledge.plans import Plan
from headgate.controller.plan.planner import (
    PlanRequest,
    allocation_within,
    check,
    first_plan,
    make_plan,
    room_of,
    with_rising_needs,
)
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import significant

LEAST_TPS, MOST_TPS = 1e-6, 1e12  # one tuple in eleven days; more than any cluster could see
MOST_STEPS = 10_000  # that are tried


def highest_plan(request: PlanRequest, step_tps: float) -> Plan:
    """The plan for the highest multiple of `step_tps` that fits; the request's own rate is not looked at.

    Raises Infeasible when not even one step fits, InvalidInput for a senseless request or step, and when
    no rate needs more slots than there are."""
    if not LEAST_TPS <= step_tps <= MOST_TPS:
        raise InvalidInput(f"rate step: expected {LEAST_TPS:g} to {MOST_TPS:g} tuples/s, got {step_tps}")
    request = replace(request, rate_tps=step_tps)
    check(request)
    most = most_steps(request, step_tps)
    if most > MOST_STEPS:
        raise InvalidInput(
            f"rate step: {significant(step_tps, 6)} tuples/s is too fine",
            cause=f"there are {most:,} steps to the most that the slots may carry; {MOST_STEPS:,} are tried",
            hint=f"a step of {most * step_tps / 1000:.1g} gives three digits",
        )
    found = first_plan(request, (steps * step_tps for steps in range(most, 0, -1)))
    return found if found is not None else make_plan(request)  # says why not even one step fits


def most_steps(request: PlanRequest, step_tps: float) -> int:
    """No higher multiple of `step_tps` fits: the least that is needed is more than the usable slots.

    Raises InvalidInput when no rate needs more slots than there are."""
    least, usable = with_rising_needs(request), len(room_of(request).slots())
    steps = range(1, int(MOST_TPS / step_tps) + 1)
    most = bisect_left(
        steps, True, key=lambda n: allocation_within(replace(least, rate_tps=n * step_tps), usable) is None
    )
    if most == len(steps):
        raise InvalidInput(
            "there is no highest rate",
            cause=f"no task of topology {request.topology.name!r} needs more slots at a higher rate",
        )
    return most
