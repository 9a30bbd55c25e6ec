"""What other input rates would need, of the topology and the VMs that run: rows for a slider. Pure.

VMs that may be had are used first; beyond them as many of their size as it takes, and the row says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from headgate.controller.core.decide import PlanQuestion, moves_of, standing
from headgate.controller.execute.diff import diff
from headgate.controller.knowledge.plans import Plan
from headgate.controller.plan.outlook_rows import (
    Row,
    comparison_document,
    comparison_row,
    outlook_row,
    whatif_document,
)
from headgate.controller.plan.planner import PlanRequest, allocated
from headgate.controller.plan.relabel import relabel
from headgate.controller.plan.scaling import BASELINE, Supply, compared, glance, outlook
from headgate.controller.plan.schedulers import each_once
from headgate.topology_runtime.errors import Infeasible, InvalidInput

RATES_MOST = 40  # in one request
RATE_MOST_TPS = 1e9
MORE_SLOTS_MOST = 2000  # beyond what may be had nothing larger is thought of
ROUNDING_SLOTS = 8  # slots more than are counted, for what a mapper cannot fill


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
    """A row per rate to plan for. `full`: also how far its slots reach and what one slot more would buy."""
    reachable = frozenset(vm.vm for vm in (*request.vms, *request.may_add))
    rows = [_row(_widened(request, rate), rate, reachable, full) for rate in rates]
    return whatif_document(request, rows, True, ())


def side_by_side(question: PlanQuestion, rates: Sequence[float]) -> Row:
    """Every allocator and mapper at each rate, the pair that runs first: as `headgate compare` tells it, with the
    threads that would start and end."""
    request = replace(question.request, in_force=standing(question.present, ()))

    def moves(plan: Plan) -> int:
        there = relabel(plan, question.threads, request.excluded, request.pinned)
        return moves_of(
            question, diff(question.threads, there.placement, request.topology, question.next_thread)
        )

    pairs = dict.fromkeys((f"{request.allocator}+{request.mapper}", *each_once()))
    rows = []
    for rate_tps in rates:
        supply = Supply(_widened(request, rate_tps), moves=moves if question.present is not None else None)
        rows += [comparison_row(compared(supply, pair, rate_tps)) for pair in pairs]
    return comparison_document(request, rows, False)


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
    return outlook_row(outlook(supply, rate_tps) if full else glance(supply, rate_tps), reachable)
