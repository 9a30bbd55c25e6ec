"""An operator brings an earlier plan back, and it is held until somebody lets planning go on (`resume`). Pure.

While it is held no plan is made for rates, latency or models; only what fails is planned round, as in every mode. It
is journaled, so a controller that was killed goes on holding it. When it cannot be brought into force, nothing is held.
"""

from __future__ import annotations

from typing import Any, Protocol

from headgate.controller.core.alarms import clear_alarm
from headgate.controller.core.decide import PlanChoice, describe
from headgate.controller.core.deciding import bring, change_to, present
from headgate.controller.core.provided import addable
from headgate.controller.execute.ending import Ending
from headgate.controller.execute.executor import sight_of
from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.plan_data import plan_data, plan_of
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.records import Adopted, PlanHeld
from headgate.controller.knowledge.turn import Turn
from headgate.controller.plan.again import made_again
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Conflict

Arguments = dict[str, Any]


class RollbackRun(Protocol):
    """What these commands ask of the loop."""

    knowledge: Knowledge
    members: Membership
    ending: Ending


def rollback(run: RollbackRun, turn: Turn, arguments: Arguments) -> Any:
    """Enact the plan that is given whole (`plan`, of the format plan/v1), and hold it. instead: of one that is held."""
    k, members = run.knowledge, run.members
    asked = plan_of(arguments.get("plan"), "the plan to roll back to")
    _refuse_now(run, asked, bool(arguments.get("instead")))
    topology = k.topology
    assert topology is not None
    here = present(k, members)
    needed = {bundle.slot.vm for bundle in asked.placement.bundles} - {vm.vm for vm in here}
    more = tuple(vm for vm in addable(k, members, here) if vm.vm in needed)
    plan = made_again(asked, topology, k.models, (*here, *more), sight_of(members).quarantined)
    left, back = k.plan, f"an operator brought plan {asked.id} back"
    if plan.id != asked.id:
        back += f", as plan {plan.id}: its models or VMs are others now"
    moves, text = _bring_back(turn, members, plan, back, more)
    turn.record(PlanHeld(asked.id, k.epoch_to_be, plan.rate_tps, turn.now.wall_ns))
    clear_alarm(turn, "plan", "a plan is held")
    turn.event("held", f"{back}; it is held until `headgate resume`", plan=plan.id)
    return {
        "id": asked.id,
        "as": plan.id,
        "epoch": k.epoch_to_be,
        "moves": moves,
        "text": text,
        "asked": [vm.vm for vm in more],
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.rate_tps,
        "left": left.id if left is not None else None,
        "held": k.hold,
    }


def _bring_back(
    turn: Turn, members: Membership, plan: Plan, back: str, more: tuple[Vm, ...]
) -> tuple[int, str]:
    """(threads that start, leave or come back, in words). A placement that runs already is only held."""
    k = turn.knowledge
    change, returning = change_to(k, members, plan)
    moves = len(change.start) + len(change.leave) + returning
    diagnosis = Diagnosis("replan", "rollback", back, plan.rate_tps, {}, ())
    if not moves and k.durable.waiting is None:
        text = "its placement runs already"
        if k.plan is not None and k.plan.id != plan.id:
            turn.record(Adopted(k.epoch, plan, "", turn.now.wall_ns))
        bring(turn, members, diagnosis, PlanChoice("adopt", text, plan))
        return 0, text
    text = describe(plan, change, returning, more)
    bring(turn, members, diagnosis, PlanChoice("enact", text, plan, more, "", moves))
    return moves, text


def _refuse_now(run: RollbackRun, plan: Plan, instead: bool) -> None:
    """Raises Conflict when no operator may do it now: another one was first, or nothing runs."""
    k, held = run.knowledge, run.knowledge.durable.held_plan
    if k.durable.rollout is None or k.topology is None or run.ending.stage != "running":
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
            hint="`headgate rollback … --instead` takes its place, `headgate resume` ends it",
        )
    if k.durable.phase in ("prepared", "switched"):
        raise Conflict(
            f"another enactment is running: plan {k.epoch} ({k.durable.rollout.reason}) is {k.durable.phase}",
            hint="try again when it is in force (`headgate status`)",
        )


def plans(run: RollbackRun, turn: Turn, arguments: Arguments) -> Any:
    """The plans that this controller knows; with `id` that one whole."""
    k = run.knowledge
    d = k.durable
    known = {one.plan.id: one.plan for one in (d.before, d.rollout, d.waiting) if one is not None} | k.plans
    if k.proposal is not None:
        known[k.proposal.plan.id] = k.proposal.plan
    one = known.get(str(arguments.get("id", "")))
    rows = [{"id": p.id, "topology": p.topology, "rate_tps": p.rate_tps} for p in known.values()]
    return {"plans": rows, "plan": plan_data(one) if one is not None else None}
