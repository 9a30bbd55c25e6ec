"""From "plan for this rate" to what will be done: plan, verify, relabel, compare. Pure.

The same question gives the same answer, live, in replay and in simulation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from headgate.controller.execute.move_price import MovePrice, Sizes, gain_s, price_of
from headgate.controller.execute.plan_diff import ThreadChanges, diff
from headgate.controller.execute.rollout import circuit_of, routes
from headgate.controller.models.plans import Placement, Plan, ThreadAt
from headgate.controller.models.task_models import unknown_tasks
from headgate.controller.plan.latency_limit import plan_within
from headgate.controller.plan.plan_moves import relabel
from headgate.controller.plan.plan_steps import allocated
from headgate.controller.plan.planner import COUNTED, PlanRequest, best_plan, carrying_plan, make_plan
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.scaling import (
    BASELINE,
    Row,
    Supply,
    compared,
    comparison_document,
    scaling_analysis,
    whatif_document,
)
from headgate.controller.plan.schedulers import each_once
from headgate.controller.plan.steadiness import as_it_is, is_near, moving_least
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.wire.messages import Route
from headgate.topology_runtime.wording import counted

BETTER = 1.02  # a degraded plan must carry this much more than the present one to be worth its moves

Action = Literal["enact", "adopt", "none"]


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What there is to plan with. threads: existing ones that may stay. present: the plan agents are held
    to. forced: something of it is dead, so it cannot stay as it is. closed: plans that failed lately. leaving: those
    of `threads` that are on their way out. ordered: another must take its place, also one for less. may_stay: the one
    that is present may stay if it carries the rate, unless another is worth its moves; near_stays: in any case, where
    the rate is about `counted_tps`, that its threads were counted for (0: its own). routes: that are in force; sizes:
    bytes of state by task and key range; move_bytes_s: of state, that a thread moved in this run."""

    request: PlanRequest
    threads: tuple[ThreadAt, ...]
    present: Plan | None
    forced: bool
    closed: frozenset[str]
    next_thread: int = 0
    leaving: frozenset[int] = frozenset()
    ordered: bool = False
    may_stay: bool = True
    near_stays: bool = True
    counted_tps: float = 0.0
    routes: tuple[Route, ...] = ()
    sizes: Sizes = field(default_factory=dict)
    move_bytes_s: float | None = None


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What to do, and why. asked: VMs to get first. rejected: what else was thought of. price: of its moves."""

    action: Action
    text: str
    plan: Plan | None = None
    asked: tuple[Vm, ...] = ()
    degraded: str = ""
    moves: int = 0
    rejected: tuple[str, ...] = ()
    price: MovePrice | None = None


def choose(
    question: PlanQuestion, make: Callable[[PlanRequest], tuple[Plan, str]] | None = None
) -> PlanChoice:
    """The plan for the rate asked for, or the best one that fits. Raises Infeasible when none does. make: what plans
    are made by (left out: `planned`)."""
    request = question.request
    stays = _staying(question)
    if stays is not None and question.near_stays and _is_near(question):
        return _chosen(question, stays, "")
    plan, degraded = (make or planned)(request)
    plan = relabel(plan, question.threads, request.excluded, request.pinned)
    if request.in_force is not None and question.present is not None:
        plan = moving_least(request, plan, question.present, request.in_force)
    faults = faults_of(plan, request.topology, request.models, _replaced(question))
    if faults:
        return PlanChoice(
            "none", f"the planner's plan is faulty and was not used: {faults[0]}", rejected=tuple(faults)
        )
    if circuit_of(plan) in question.closed and not question.forced:
        return PlanChoice(
            "none", "the plan for this rate failed lately and is not tried again yet", degraded=degraded
        )
    if degraded and not (question.forced or question.ordered) and not _better(plan, question):
        return PlanChoice("none", f"nothing better fits: {degraded}", degraded=degraded)
    found = _chosen(question, plan, degraded)
    if stays is None or not found.moves or found.price is None:
        return found
    freed_s = gain_s(stays.slots.used, plan.slots.used)
    if freed_s > found.price.slot_s:
        return found
    why = f"another plan is not worth its moves: {found.text}; it frees {freed_s:,.0f} s of a slot and takes "
    why += f"{found.price.slot_s:,.0f}"
    return dataclasses.replace(_chosen(question, stays, ""), rejected=(why,))


def _is_near(question: PlanQuestion) -> bool:
    present = question.present
    counted_tps = question.counted_tps or (present.rate_tps if present is not None else 0.0)
    return is_near(question.request.rate_tps, counted_tps)


def _staying(question: PlanQuestion) -> Plan | None:
    """The plan in force, where it may stay and carries the rate."""
    present = _replaced(question)
    if present is None or not question.may_stay or question.ordered:
        return None
    return as_it_is(question.request, present)


def _chosen(question: PlanQuestion, plan: Plan, degraded: str) -> PlanChoice:
    """What bringing this plan into force takes."""
    request = question.request
    change = diff(question.threads, plan.placement, request.topology, question.next_thread)
    here = {vm.vm for vm in request.vms}
    asked = tuple(vm for vm in plan.vms if vm.vm not in here)
    moves = moves_of(question, change)
    if not moves and not question.forced:
        return PlanChoice("adopt", "the placement that runs already fits this rate", plan, (), degraded)
    price = _price(question, plan, change)
    text = describe(plan, change, _back(question, change), asked) + _less(degraded)
    text += f"; {price.words}" if price.ranges else ""
    return PlanChoice("enact", text, plan, asked, degraded, moves, price=price)


def _price(question: PlanQuestion, plan: Plan, change: ThreadChanges) -> MovePrice:
    topology, staying = question.request.topology, (*change.keep, *change.start)
    after = routes(topology, plan, staying, question.routes)
    return price_of(change, question.routes, after, topology, question.sizes, question.move_bytes_s)


def _less(degraded: str) -> str:
    return f"; degraded, {degraded}" if degraded else ""


def moves_of(question: PlanQuestion, change: ThreadChanges) -> int:
    """Threads that start, leave, or were leaving and stay."""
    return len(change.start) + len(change.leave) + _back(question, change)


def _back(question: PlanQuestion, change: ThreadChanges) -> int:
    return sum(thread.thread in question.leaving for thread in change.keep)


def standing(present: Plan | None, dead: Collection[Slot]) -> Placement | None:
    """What the plan in force has in slots that are not dead."""
    if present is None:
        return None
    return Placement(tuple(bundle for bundle in present.placement.bundles if bundle.slot not in dead))


def planned(request: PlanRequest) -> tuple[Plan, str]:
    """(the plan, why it is for less than was asked for or "")."""
    lacking = unknown_tasks(request.topology, request.models)
    if lacking and (found := _with_unknown(request, len(lacking))) is not None:
        return found, ""
    if lacking:
        request = replace(request, unknown=0.0, allocator=COUNTED[0], mapper=COUNTED[1])
    elif request.p95_ms is not None:
        return plan_within(request, request.p95_ms, _carrying_most)[:2]
    return _carrying_most(request)


def _carrying_most(request: PlanRequest) -> tuple[Plan, str]:
    """(the plan, or the best one that fits, why it is for less)."""
    try:
        return carrying_plan(request)
    except Infeasible as error:
        best = best_plan(request)
        lacks = error.cause or "; ".join(error.faults) or error.what
        why = f"{best.rate_tps:,.1f} of {request.rate_tps:,.1f} rows/s: {lacks}"
        return best, why


def _with_unknown(request: PlanRequest, lacking: int) -> Plan | None:
    """Tasks that nothing is known of have the slots there are to themselves, as many as there are of these; else they
    share them, two and two, four and four, …: VMs are added last."""
    alone = replace(request, may_add=())
    together = replace(alone, allocator=COUNTED[0], mapper=COUNTED[1])
    shares = dict.fromkeys(max(2.0**-n, 0.5 / lacking) for n in range(1, lacking.bit_length() + 2))
    tries = [alone, *(replace(together, unknown=share) for share in shares)]
    tries.append(replace(tries[-1], may_add=request.may_add))
    for tried in tries:
        try:
            return carrying_plan(tried)[0]
        except Infeasible:
            continue
    return None


def moving_little(asked: PlanQuestion, make: Callable[[PlanRequest], Plan] = make_plan) -> Plan:
    """What would be planned; raises Infeasible."""
    request = asked.request
    plan = relabel(make(request), asked.threads, request.excluded, request.pinned)
    if request.in_force is None or asked.present is None:
        return plan
    return moving_least(request, plan, asked.present, request.in_force)


def _replaced(question: PlanQuestion) -> Plan | None:
    """The present plan, if it could stay as it is."""
    present, request = question.present, question.request
    if present is None or question.forced:
        return None
    usable = {slot for vm in request.vms for slot in vm.all_slots()} - request.excluded
    return present if all(bundle.slot in usable for bundle in present.placement.bundles) else None


def _better(plan: Plan, question: PlanQuestion) -> bool:
    """Than what is there, by the models of now: it may have been planned before anything was known."""
    present, request = question.present, question.request
    if present is None:
        return True
    found = predict(
        request.topology,
        request.models,
        present.placement,
        present.vms,
        request.rate_tps,
        routing=request.routing,
        interference=request.interference,
    )
    return plan.prediction.rate_tps > BETTER * found.rate_tps


def describe(plan: Plan, change: ThreadChanges, back: int, asked: tuple[Vm, ...]) -> str:
    """The plan in a sentence. back: threads that were leaving and stay."""
    start, leave = len(change.start), len(change.leave)
    moves = f"{counted(start, 'thread')} {_verb('start', start)}, {leave} {_verb('leave', leave)}"
    moves += f", {back} {_verb('come', back)} back" if back else ""
    margin = f" with a margin of {plan.allocation.margin - 1:.1%}" if plan.allocation.margin > 1 else ""
    used = counted(plan.slots.used, "slot")
    text = f"{used} for {plan.rate_tps:,.1f} rows/s{margin}{_surely(plan)} ({moves})"
    text += f", with {', '.join(vm.vm for vm in asked)} to be added" if asked else ""
    return "; ".join(filter(None, (text, plan.allocation.gap_words, plan.allocation.counted)))


def _surely(plan: Plan) -> str:
    sure = plan.prediction.sure
    if sure is None:
        return ""
    asked = f" ({sure.probability:g} was asked for)" if sure.chance < sure.probability else ""
    return f" with a probability of {sure.told}{asked}"


def _verb(do: str, number: int) -> str:
    return f"{do}s" if number == 1 else do


# ── What other input rates would need, of the topology and the VMs that run: rows for a slider. Pure ────
#
# VMs that may be had are used first; beyond them as many of their size as it takes, and the row says so.

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
        f"rates[{n}]: invalid rate {rate!r:.40}"
        for n, rate in enumerate(given)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= RATE_MOST_TPS
    ]
    if faults:
        raise InvalidInput("invalid rates", faults=faults, hint="rows per second, above 0")
    return tuple(float(rate) for rate in given)


def whatif(request: PlanRequest, rates: Sequence[float], full: bool) -> Row:
    """A row per rate to plan for. `full`: also how far its slots reach and what one slot more would buy."""
    reachable = frozenset(vm.vm for vm in (*request.vms, *request.may_add))
    rows = [_row(_widened(request, rate), rate, reachable, full) for rate in rates]
    return whatif_document(request, rows, True, ())


def side_by_side(question: PlanQuestion, rates: Sequence[float]) -> Row:
    """Every allocator and mapper at each rate, the pair that runs first: as `headgate plan --compare`, with the
    threads that would start and end."""
    request = replace(question.request, in_force=standing(question.present, ()))

    def moves(plan: Plan) -> int:
        present = question.present
        assert present is not None and request.in_force is not None
        same = (plan.allocator, plan.mapper) == (present.allocator, present.mapper)
        at_rate = replace(request, rate_tps=plan.rate_tps)
        if same and is_near(plan.rate_tps, present.rate_tps) and as_it_is(at_rate, present) is not None:
            return 0
        there = relabel(plan, question.threads, request.excluded, request.pinned)
        asked = replace(
            request, rate_tps=plan.rate_tps, allocator=plan.allocator, mapper=plan.mapper,
            vms=there.vms, may_add=(), fixed=True,
        )  # fmt: skip
        there = moving_least(asked, there, present, request.in_force)
        return moves_of(
            question, diff(question.threads, there.placement, request.topology, question.next_thread)
        )

    pairs = dict.fromkeys((f"{request.allocator}+{request.mapper}", *each_once()))
    rows = []
    for rate_tps in rates:
        supply = Supply(_widened(request, rate_tps), moves=moves if question.present is not None else None)
        rows += [compared(supply, pair, rate_tps) for pair in pairs]
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
    return scaling_analysis(supply, rate_tps, reachable, full)
