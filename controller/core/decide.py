"""From "plan for this rate" to what will be done: plan, verify, relabel, compare. Pure.

The same question gives the same answer, live, in replay and in simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from headgate.controller.execute.diff import ThreadChanges, diff
from headgate.controller.execute.executor import circuit_of
from headgate.controller.knowledge.plans import Placement, Plan, ThreadAt
from headgate.controller.plan.carrying import carrying_plan
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.relabel import relabel
from headgate.controller.plan.verify import faults_of
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.faults.words import counted

BETTER = 1.02  # a degraded plan must carry this much more than the present one to be worth its moves

Action = Literal["enact", "adopt", "none"]


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What there is to plan with. threads: existing ones that may stay. present: the plan agents are held
    to. forced: something of it is dead, so it cannot stay as it is. closed: plans that failed lately. leaving: those
    of `threads` that are on their way out. ordered: another must take its place, also one for less."""

    request: PlanRequest
    threads: tuple[ThreadAt, ...]
    present: Plan | None
    forced: bool
    closed: frozenset[str]
    next_thread: int = 0
    leaving: frozenset[int] = frozenset()
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """What to do, and why. asked: VMs to get first. rejected: what else was thought of."""

    action: Action
    text: str
    plan: Plan | None = None
    asked: tuple[Vm, ...] = ()
    degraded: str = ""
    moves: int = 0
    rejected: tuple[str, ...] = ()


def choose(
    question: PlanQuestion, make: Callable[[PlanRequest], tuple[Plan, str]] | None = None
) -> PlanChoice:
    """The plan for the rate asked for, or the best one that fits. Raises Infeasible when none does. make: what plans
    are made by (left out: `planned`)."""
    request = question.request
    plan, degraded = (make or planned)(request)
    plan = relabel(plan, question.threads, request.excluded, request.pinned)
    faults = faults_of(plan, request.topology, request.models, _replaced(question))
    if faults:
        return PlanChoice(
            "none", f"the planner's plan is faulty and was not used: {faults[0]}", rejected=tuple(faults)
        )
    if circuit_of(plan) in question.closed and not question.forced:
        return PlanChoice(
            "none", "the plan for this rate failed lately and is not tried again yet", degraded=degraded
        )
    if degraded and not (question.forced or question.ordered) and not _better(plan, question.present):
        return PlanChoice("none", f"nothing better fits: {degraded}", degraded=degraded)
    change = diff(question.threads, plan.placement, request.topology, question.next_thread)
    here = {vm.vm for vm in request.vms}
    asked = tuple(vm for vm in plan.vms if vm.vm not in here)
    moves = moves_of(question, change)
    if not moves and not question.forced:
        return PlanChoice("adopt", "the placement that runs already fits this rate", plan, (), degraded)
    return PlanChoice(
        "enact", describe(plan, change, _back(question, change), asked), plan, asked, degraded, moves
    )


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
    try:
        return carrying_plan(request)
    except Infeasible as error:
        best = best_plan(request)
        why = f"{best.rate_tps:,.1f} of {request.rate_tps:,.1f} tuples/s: {error.cause or error.what}"
        return best, why


def moving_little(asked: PlanQuestion, make: Callable[[PlanRequest], Plan] = make_plan) -> Plan:
    """What would be planned; raises Infeasible."""
    request = asked.request
    return relabel(make(request), asked.threads, request.excluded, request.pinned)


def _replaced(question: PlanQuestion) -> Plan | None:
    """The present plan, if it could stay as it is."""
    present, request = question.present, question.request
    if present is None or question.forced:
        return None
    usable = {slot for vm in request.vms for slot in vm.all_slots()} - request.excluded
    return present if all(bundle.slot in usable for bundle in present.placement.bundles) else None


def _better(plan: Plan, present: Plan | None) -> bool:
    return present is None or plan.prediction.rate_tps > BETTER * present.prediction.rate_tps


def describe(plan: Plan, change: ThreadChanges, back: int, asked: tuple[Vm, ...]) -> str:
    """The plan in a sentence. back: threads that were leaving and stay."""
    start, leave = len(change.start), len(change.leave)
    moves = f"{counted(start, 'thread')} {_verb('start', start)}, {leave} {_verb('leave', leave)}"
    moves += f", {back} {_verb('come', back)} back" if back else ""
    margin = f" with a margin of {plan.allocation.margin - 1:.1%}" if plan.allocation.margin > 1 else ""
    used = counted(plan.slots.used, "slot")
    text = f"{used} for {plan.rate_tps:,.1f} tuples/s{margin}{_surely(plan)} ({moves})"
    text += f", with {', '.join(vm.vm for vm in asked)} to be added" if asked else ""
    return text + (f"; {plan.allocation.gap_words}" if plan.allocation.gap_words else "")


def _surely(plan: Plan) -> str:
    sure = plan.prediction.sure
    if sure is None:
        return ""
    asked = f" ({sure.probability:g} was asked for)" if sure.chance < sure.probability else ""
    return f" with a probability of {sure.told}{asked}"


def _verb(do: str, number: int) -> str:
    return f"{do}s" if number == 1 else do
