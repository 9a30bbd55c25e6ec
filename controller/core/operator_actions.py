"""Operators set VMs apart: `cordon`, `drain`, `uncordon`. Pure.

No plan is made with a cordoned VM; what runs there stays until the next plan. One that is drained is a reason for that
plan at once (`vm_drained`): its threads move as in any other enactment, with all their rows, events and state. It is
journaled, so a controller that was killed goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.controller.core.background_planning import planned_in_background
from headgate.controller.core.decisions import addable, bring, change_to, present, question
from headgate.controller.core.plan_choice import PlanChoice, choose, describe
from headgate.controller.core.rolling_upgrade import refuse_held
from headgate.controller.execute.plan_drift import cordon_of
from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.journal_records import Adopted, Cordoned, PlanHeld
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.membership import natural
from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Plan
from headgate.controller.plan.plan_reuse import reused_plan
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Conflict, Infeasible, InvalidInput

Arguments = dict[str, Any]


def cordon(turn: Turn, arguments: Arguments) -> Any:
    """Make no plan with these VMs from now on."""
    vms = _named(turn, arguments)
    cordoned = turn.knowledge.durable.cordoned
    _set(turn, cordoned | {vm: cordoned.get(vm, False) for vm in vms})
    return _answer(turn, vms)


def drain(turn: Turn, arguments: Arguments) -> Any:
    """Cordon these VMs, and move away what runs there. force: also when the others carry less without them. check: only
    say whether it would be refused."""
    k, vms = turn.knowledge, _named(turn, arguments)
    if k.plan is not None and any(slot.vm in vms for slot in _slots(k)):
        refuse_held(k)
        if not arguments.get("force"):
            _fits_without(turn, k.plan, frozenset(vms))
    if not arguments.get("check"):
        _set(turn, k.durable.cordoned | dict.fromkeys(vms, True))
        k.next_turn_ns = 0
    return _answer(turn, vms)


def uncordon(turn: Turn, arguments: Arguments) -> Any:
    """Plan with these VMs again."""
    vms = _named(turn, arguments)
    _set(turn, {vm: drains for vm, drains in turn.knowledge.durable.cordoned.items() if vm not in vms})
    return _answer(turn, vms)


CORDON_COMMANDS: dict[str, Callable[[Turn, Arguments], Any]] = {
    "cordon": cordon,
    "drain": drain,
    "uncordon": uncordon,
}


def _named(turn: Turn, arguments: Arguments) -> tuple[str, ...]:
    """The VMs asked for, each once, all of which must be known."""
    asked = arguments.get("vms")
    if not isinstance(asked, list) or not asked or not all(isinstance(vm, str) for vm in asked):
        raise InvalidInput("no VM is named", hint="`headgate status` shows them")
    known = turn.members.members
    if unknown := sorted({vm for vm in asked if vm not in known}):
        raise InvalidInput(
            f"there is no VM {unknown[0][:64]!r}",
            hint=", ".join(sorted(known, key=natural)) or "none is there",
        )
    return tuple(dict.fromkeys(asked))


def _set(turn: Turn, cordoned: dict[str, bool]) -> None:
    before = turn.knowledge.durable.cordoned
    if cordoned == before:
        return
    turn.record(Cordoned(cordoned, turn.now.wall_ns))
    for vm in sorted({*cordoned, *before}, key=natural):
        was, now = before.get(vm), cordoned.get(vm)
        if was == now:
            continue
        words = {
            None: f"{vm} may be planned with again",
            False: f"{vm} is cordoned: no plan is made with it",
            True: f"{vm} is drained: what runs there moves to other VMs",
        }
        turn.event("cordon", f"{words[now]} (an operator)", vm=vm)


def _slots(k: Knowledge) -> tuple[Any, ...]:
    newest = k.durable.waiting or k.durable.rollout
    return tuple(newest.staying_slots) if newest is not None else ()


def _fits_without(turn: Turn, plan: Plan, vms: frozenset[str]) -> None:
    """Raises Conflict when without these VMs less can be carried than is planned for."""
    names = ", ".join(sorted(vms, key=natural))
    try:
        asked = question(turn.knowledge, plan.rate_tps, "vm_drained", vms)
        choice = choose(asked, planned_in_background(turn))
    except Infeasible as error:
        raise Conflict(f"nothing can run without {names}", cause=error.cause or error.what) from error
    if choice.plan is None:
        raise Conflict(f"{names} cannot be drained now", cause=choice.text)
    if choice.degraded and choice.plan.rate_tps < plan.rate_tps:
        raise Conflict(
            f"without {names} too little can be carried: {choice.degraded}",
            hint="`drain --force` drains all the same",
        )


def _answer(turn: Turn, vms: tuple[str, ...]) -> dict[str, Any]:
    k, members = turn.knowledge, turn.members
    return {"vms": [{"vm": vm, "cordon": cordon_of(k, members.members[vm])} for vm in vms]}


# ── An operator brings an earlier plan back, and it is held until somebody lets planning go on (`resume`).
# Pure
#
# While it is held no plan is made for rates, latency or models; only what fails is planned around, as in every
# mode. It is journaled, so a controller that was killed goes on holding it. When it cannot be brought into
# force, nothing is held.


def rollback(turn: Turn, arguments: Arguments) -> Any:
    """Enact the plan that is given whole (`plan`, of the format plan/v1), and hold it. instead: of one that is held."""
    k = turn.knowledge
    asked = plan_of(arguments.get("plan"), "the plan to roll back to")
    _refuse_now(turn, asked, bool(arguments.get("instead")))
    topology = k.topology
    assert topology is not None
    here = present(k)
    needed = {bundle.slot.vm for bundle in asked.placement.bundles} - {vm.vm for vm in here}
    more = tuple(vm for vm in addable(k, here) if vm.vm in needed)
    plan = reused_plan(asked, topology, k.models, (*here, *more), k.members.quarantined)
    left, back = k.plan, f"an operator brought plan {asked.id} back"
    if plan.id != asked.id:
        back += f", as plan {plan.id}: its models or VMs are others now"
    moves, text = _bring_back(turn, plan, back, more)
    turn.record(PlanHeld(asked.id, k.epoch_to_be, plan.rate_tps, turn.now.wall_ns))
    turn.alarm("plan", "", "a plan is held")
    turn.event("held", f"{back}; it is held until `headgate resume`", plan=plan.id)
    return {
        "id": asked.id,
        "as": plan.id,
        "epoch": k.epoch_to_be,
        "moves": moves,
        "text": text,
        "asked": [vm.vm for vm in more],
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.told_tps,
        "left": left.id if left is not None else None,
        "held": k.hold,
    }


def _bring_back(turn: Turn, plan: Plan, back: str, more: tuple[Vm, ...]) -> tuple[int, str]:
    """(threads that start, leave or come back, in words). A placement that runs already is only held."""
    k = turn.knowledge
    change, returning = change_to(k, plan)
    moves = len(change.start) + len(change.leave) + returning
    diagnosis = Diagnosis("replan", "rollback", back, plan.rate_tps, {}, ())
    if not moves and k.durable.waiting is None:
        text = "its placement runs already"
        if k.plan is not None and k.plan.id != plan.id:
            turn.record(Adopted(k.epoch, plan, "", turn.now.wall_ns))
        bring(turn, diagnosis, PlanChoice("adopt", text, plan))
        return 0, text
    text = describe(plan, change, returning, more)
    bring(turn, diagnosis, PlanChoice("enact", text, plan, more, "", moves))
    return moves, text


def _refuse_now(turn: Turn, plan: Plan, instead: bool) -> None:
    """Raises Conflict when no operator may do it now: another one was first, or nothing runs."""
    k, held = turn.knowledge, turn.knowledge.durable.held_plan
    if k.durable.rollout is None or k.topology is None or turn.stage != "running":
        raise Conflict(
            "no plan is in force now, so there is none to leave", hint="`headgate status` shows the run"
        )
    if k.adopting_until_ns:
        raise Conflict(
            "this controller was started a moment ago and is still finding out what runs",
            hint="try again in five seconds",
        )
    if held is not None and held.plan != plan.id and not instead:
        raise Conflict(
            f"plan {plan.id} is not brought back: {k.hold}",
            hint="`headgate rollback … --force` takes its place, `headgate resume` ends it",
        )
    if k.durable.phase in ("prepared", "switched"):
        raise Conflict(
            f"another enactment is running: plan {k.epoch} ({k.durable.rollout.reason}) is {k.durable.phase}",
            hint="try again when it is in force (`headgate status`)",
        )


def plans(turn: Turn, arguments: Arguments) -> Any:
    """The plans that this controller knows; with `id` that one whole."""
    k = turn.knowledge
    d = k.durable
    known = {one.plan.id: one.plan for one in (d.before, d.rollout, d.waiting) if one is not None} | k.plans
    if k.proposal is not None:
        known[k.proposal.plan.id] = k.proposal.plan
    one = known.get(str(arguments.get("id", "")))
    rows = [{"id": p.id, "topology": p.topology, "rate_tps": p.rate_tps} for p in known.values()]
    return {"plans": rows, "plan": plan_data(one) if one is not None else None}
