"""What other input rates would need, of the topology and the VMs that run: rows for a slider. Pure.

VMs that may be had are used first; beyond them as many of their size as it takes, and the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from controller.knowledge.plans import Plan, usd_per_hour
from controller.plan.outlook import (
    BASELINE,
    Comparison,
    Outlook,
    Supply,
    compared,
    outlook,
    step_for,
    why_not,
)
from controller.plan.planner import PlanRequest, allocated
from topology_runtime.cluster import Vm
from topology_runtime.errors import Infeasible, InvalidInput
from topology_runtime.picturing.figures import figure

SCHEMA = "headgate/whatif/v1"
RATES_MOST = 40  # in one request
RATE_MOST_TPS = 1e9
MORE_SLOTS_MOST = 2000  # beyond what may be had nothing larger is thought of
ROUNDING_SLOTS = 8  # slots more than are counted, for what a mapper cannot fill

Row = dict[str, Any]


def rates_asked(arguments: dict[str, Any]) -> tuple[float, ...]:
    """`{"rates": [100, 200]}` → the rates. Raises InvalidInput with every fault."""
    given = arguments.get("rates")
    if not isinstance(given, list) or not 1 <= len(given) <= RATES_MOST:
        raise InvalidInput(f"rates must be a list of 1 to {RATES_MOST} rates")
    faults = [
        f"rates[{n}]: {rate!r:.40} is no rate"
        for n, rate in enumerate(given)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= RATE_MOST_TPS
    ]
    if faults:
        raise InvalidInput("the rates are not all rates", faults=faults, hint="tuples per second, above 0")
    return tuple(float(rate) for rate in given)


def whatif(request: PlanRequest, rates: Sequence[float], full: bool) -> Row:
    """A row per rate. `full`: also how far the same slots reach and what one slot more would buy."""
    reachable = frozenset(vm.vm for vm in (*request.vms, *request.may_add))
    rows = [_row(_widened(request, rate), rate, reachable, full) for rate in rates]
    return {
        "schema": SCHEMA,
        "topology": request.topology.name,
        "allocator": request.allocator,
        "mapper": request.mapper,
        "routing": request.routing,
        "interference": request.interference,
        "baseline": BASELINE,
        "rows": rows,
    }


def _widened(request: PlanRequest, rate_tps: float) -> PlanRequest:
    """With as many VMs more as the rate may take by any allocator that is compared."""
    present = (*request.vms, *request.may_add)
    if not present:
        raise InvalidInput("there is no VM to plan for", hint="`headgate status` shows who has joined")
    size = present[-1]
    counts = []
    for allocator in (request.allocator, BASELINE.split("+")[0]):
        try:
            counts.append(allocated(replace(request, rate_tps=rate_tps, allocator=allocator)).slots)
        except Infeasible:
            counts.append(0)
    have = sum(vm.slots for vm in present)
    missing = min(MORE_SLOTS_MOST, max(counts) + ROUNDING_SLOTS - have)
    extra = max(0, math.ceil(missing / size.slots))
    names = {vm.vm for vm in present}
    fresh = [name for n in range(1, extra + len(names) + 1) if (name := f"vm{n}") not in names][:extra]
    more = tuple(replace(size, vm=name) for name in fresh)
    return replace(request, rate_tps=rate_tps, may_add=(*request.may_add, *more))


def _row(request: PlanRequest, rate_tps: float, reachable: frozenset[str], full: bool) -> Row:
    supply = Supply(request)
    baseline = compared(supply, BASELINE, rate_tps)
    if full:
        return _outlook_row(outlook(supply, rate_tps), baseline, reachable)
    try:
        plan: Plan | None = supply.plan(rate_tps)
        reason = None
    except Infeasible as error:
        plan, reason = None, why_not(error)
    return _plan_row(plan, reason, rate_tps, baseline, reachable)


def _outlook_row(found: Outlook, baseline: Comparison, reachable: frozenset[str]) -> Row:
    row = _plan_row(found.plan, found.reason, found.rate_tps, baseline, reachable)
    here, more = found.same_slots, found.more_slots
    row["same_slots_up_to_tps"] = here.rate_tps if here else None
    row["more_slots"] = None
    if here and more:
        row["more_slots"] = {
            "slots": more.slots - here.slots,
            "up_to_tps": more.rate_tps,
            "carried_tps": figure(more.carried_tps, 5),
            "buys_tps": figure(more.carried_tps - here.carried_tps, 4),
        }
    row["step_tps"] = step_for(found.rate_tps)
    if found.limit is not None:
        row["limited_because"] = found.limit.by
    return row


def _plan_row(
    plan: Plan | None, reason: str | None, rate_tps: float, baseline: Comparison, reachable: frozenset[str]
) -> Row:
    return {
        "rate_tps": rate_tps,
        "fits": plan is not None and {vm.vm for vm in plan.vms} <= reachable,
        **_numbers(plan),
        "threads": {task.task: task.threads for task in plan.allocation.tasks} if plan else {},
        "headroom_tps": figure(plan.prediction.rate_tps - rate_tps, 4) if plan else None,
        "limited_by": plan.prediction.limited_by if plan else None,
        "limited_by_slot": plan.prediction.limited_by_slot if plan else None,
        "reason": reason,
        "lsa": {**_numbers(baseline.plan), "pair": baseline.pair, "reason": baseline.reason},
    }


def _numbers(plan: Plan | None) -> Row:
    """What a plan takes and carries; nulls without one."""
    vms: tuple[Vm, ...] = plan.vms if plan else ()
    return {
        "slots": plan.slots.used if plan else None,
        "slots_total": plan.slots.total if plan else None,
        "vms": ",".join(str(vm.slots) for vm in vms) if plan else None,
        "vm_count": len(vms) if plan else None,
        "usd_per_hour": usd_per_hour(vms) if plan else None,
        "predicted_tps": figure(plan.prediction.rate_tps, 5) if plan else None,
    }
