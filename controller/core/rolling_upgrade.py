"""Other code takes the place of what runs, slot by slot: `replace`, and what follows from it second by second. Pure.

A worker runs one code, so threads of another one begin in slots that are free, take over as in any other enactment
(reason `code_replaced`), and what they left is free for the next ones. In between rows go from tasks of the one code to
tasks of the other. When a step fails (tasks cannot be built, probation finds it bad), the code before comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from headgate.controller.core.plan_choice import PlanChoice
from headgate.controller.execute.plan_drift import outdated_slots
from headgate.controller.execute.rollout import CIRCUIT_NS
from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.journal_records import Recoded, Rollout
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.models.plans import Placement, Plan
from headgate.controller.models.task_models import Model
from headgate.controller.plan.plan_reuse import reused_plan
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Conflict, Infeasible, InvalidInput
from headgate.topology_runtime.packages.package_manifest import SHORT
from headgate.topology_runtime.wire.messages import TaskCode
from headgate.topology_runtime.wire.wire_version import REMEDY
from headgate.topology_runtime.wording import counted

# ── Where a controller plans nothing by itself, what an operator orders would be waited for in vain. Pure ───


def refuse_held(k: Knowledge) -> None:
    """Raises Conflict where nothing would be moved, so that nobody waits for it."""
    if k.mode == "advise":
        raise Conflict("nothing is moved in mode advise", hint="`headgate resume --mode auto`")
    if k.settings.plan is not None:
        raise Conflict("the plan was given and is held, so nothing is moved")
    if k.durable.held_plan is not None:
        raise Conflict(f"nothing is moved: {k.hold}", hint="`headgate resume` ends it")


REASON: Literal["code_replaced"] = "code_replaced"
CODES_WIRE = 3  # agents of this wire version know of more than one code
MIGRATE = "stop, create a checkpoint, and begin from that: there they are migrated"
NO_SLOT = "no slot is free for the other code"
Arguments = dict[str, Any]


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `replace`: the same topology with other code, params or models. back: the code before comes back."""

    topology: Topology | None = None
    models: tuple[Model, ...] = ()
    user_paths: tuple[str, ...] = ()
    package: str = ""
    back: bool = False


def replaced(turn: Turn, arguments: Arguments, vms: tuple[Sequence[Vm], Sequence[Vm]]) -> Any:
    """Have other code take the place of what runs. vms: to plan with, and that may be asked for."""
    k = turn.knowledge
    try:
        given = msgspec.convert(arguments, Replacement, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput("invalid code", cause=str(error)) from error
    if k.durable.rollout is None or k.topology is None or turn.stage != "running":
        raise Conflict("nothing runs whose code could be replaced", hint="`headgate submit`")
    refuse_held(k)
    if old := sorted(m.vm.vm for m in turn.members.up() if 0 < m.spoken[0] < CODES_WIRE):
        raise Conflict(f"{', '.join(old)}: an agent of before codes could be replaced", hint=REMEDY)
    left = outdated_slots(k)
    if given.back and k.durable.given_up_code:  # the code before is back already, the other one did not work
        return _told(k, len(left))
    if left and not given.back:
        raise Conflict(
            f"another replacement goes on: {counted(len(left), 'slot')} to change",
            hint="wait (`headgate status`), or `headgate replace --back`",
        )
    code = _before(k) if given.back else _new(k, given)
    staying = k.durable.rollout.staying_slots
    free_soon = {thread.slot for thread in k.durable.rollout.leaving} - staying
    if not left and not free_soon and not _pairs(k, sorted(staying), *vms)[0]:
        raise Conflict(
            NO_SLOT,
            cause="threads of the one code begin elsewhere before those of the other end",
            hint="add a VM or allow more (`--max-vms`), or `headgate stop` and `headgate submit`",
        )
    why = "an operator brought the code before back" if given.back else "an operator gives other code"
    gives_up = given.back and bool(left)  # what it comes back from has not proved itself
    turn.record(Recoded(code, given.models, why, turn.now.wall_ns, gives_up))
    k.next_turn_ns = 0
    slots = len(outdated_slots(k))
    turn.event("code", f"{why}: {counted(slots, 'slot')} to change")
    return _told(k, slots)


def _told(k: Knowledge, slots: int) -> dict[str, Any]:
    assert k.durable.run is not None
    package = k.durable.run.package or None
    return {"run": k.settings.run, "code": k.durable.code, "package": package, "slots": slots}


def _new(k: Knowledge, given: Replacement) -> TaskCode:
    """Raises InvalidInput where it is of another topology."""
    assert k.topology is not None
    if given.topology is None:
        raise InvalidInput("no topology is given")
    if faults := differences(k.topology, given.topology):
        raise InvalidInput(
            f"{given.topology.name!r} cannot take the place of {k.topology.name!r}",
            faults=faults,
            cause="tasks and edges stay as they are; code, and params of tasks that are no sources, may change",
            hint="`headgate stop` and `headgate submit`",
        )
    if given.package and k.durable.run is not None and given.package == k.durable.run.package:
        raise Conflict(f"package {given.package[:SHORT]} is what runs already")
    return TaskCode(k.durable.codes_made, given.topology, given.user_paths, given.package)


def _before(k: Knowledge) -> TaskCode:
    if not k.durable.codes:
        raise Conflict("no code was replaced yet, so none can come back")
    return k.durable.codes[-1]


def differences(now: Topology, then: Topology) -> list[str]:
    """What keeps threads of the one from working with threads of the other."""
    if now.name != then.name:
        return [f"it is named {then.name!r}"]
    names, others = [t.name for t in now.tasks], [t.name for t in then.tasks]
    if names != others:
        return [f"its tasks are {', '.join(others)}, not {', '.join(names)}"]
    faults = []
    sources = {task.name for task in now.sources}
    for task, other in zip(now.tasks, then.tasks, strict=True):
        same = replace(other, params=task.params, run=task.run)
        if task.name in sources:
            same = other
        if task.state_version != other.state_version:
            versions = f"version {task.state_version}, and the other code has version {other.state_version}"
            faults.append(f"task {task.name!r}: its states are of {versions}: {MIGRATE}")
        elif same != task:
            what = "params, code and settings of a source" if task.name in sources else "its settings"
            faults.append(f"task {task.name!r}: {what} have to stay as they are")
    if now.edges != then.edges:
        faults.append("its edges are others")
    return faults


# ── second by second ────────────────────────────────────────────────────────────────────────────


def found(turn: Turn) -> Diagnosis | None:
    """Do slots have code that is to be replaced, and may that go on now?"""
    k, now = turn.knowledge, turn.now
    slots = outdated_slots(k)
    if not slots or k.plan is None or k.enacting:
        return None
    failed = _failed_last(k)
    if failed is not None and not k.durable.given_up_code:
        before = _before(k)
        why = "the other code did not prove itself, the code before comes back"
        turn.record(Recoded(before, (), why, now.wall_ns, by_itself=True))
        turn.event("code", f"plan {failed.epoch} failed: {why}", level="warning")
        return None
    if failed is not None and now.wall_ns - failed.decided_ns < CIRCUIT_NS:
        return None
    text = f"{counted(len(slots), 'slot')} to change to other code"
    evidence = {"slots": [str(slot) for slot in slots], "code": k.durable.code}
    return Diagnosis("replan", REASON, text, k.plan.rate_tps, evidence, ())


def _failed_last(k: Knowledge) -> Rollout | None:
    """The newest step, if it was undone and is of this code."""
    steps = [one for one in k.durable.rollouts if one.reason == REASON]
    if not steps or not (steps[-1].rolled_back or steps[-1].abandoned):
        return None
    return steps[-1] if steps[-1].decided_ns >= k.durable.recoded_ns else None


def choice(k: Knowledge, here: Sequence[Vm], may_add: Sequence[Vm]) -> PlanChoice:
    """The present placement, with as many slots of the code before as possible in free ones. Raises Infeasible."""
    assert k.plan is not None and k.topology is not None
    pairs, free = _pairs(k, outdated_slots(k), here, may_add)
    if not pairs:
        rollout = k.durable.rollout
        if free or (rollout is not None and rollout.leaving):
            return PlanChoice("none", "the next slots are free in a moment")
        raise Infeasible(NO_SLOT, cause="all slots are used, and no VM may be added")
    asked = tuple(vm for vm in may_add if any(slot.vm == vm.vm for slot in pairs.values()))
    plan = reused_plan(
        _moved(k.plan, pairs, (*here, *asked), k.topology), k.topology, k.models, (*here, *asked)
    )
    moves = ", ".join(f"{one} → {other}" for one, other in pairs.items())
    return PlanChoice("enact", f"other code: {moves}", plan, asked, "", 2 * len(pairs))


def _pairs(
    k: Knowledge, old: Sequence[Slot], here: Sequence[Vm], may_add: Sequence[Vm]
) -> tuple[dict[Slot, Slot], bool]:
    """(slot → a free one at least as large, on its own VM if there is one; was any slot free?). A VM is only asked for
    where none is free."""
    rollouts = [one for one in (k.durable.rollout, k.durable.waiting) if one is not None]
    used = {slot for one in rollouts for slot in one.slots} | k.members.quarantined | k.withheld
    used |= {slot for slot, worker in k.members.workers.items() if worker.state in ("starting", "running")}
    if k.profiles.desired is not None:
        used.add(k.profiles.desired.slot)
    vms = {vm.vm: vm for vm in (*here, *may_add)}
    for offer in (here, may_add[:1]):
        free = [slot for vm in offer for slot in vm.all_slots() if slot not in used]
        pairs: dict[Slot, Slot] = {}
        for slot in old:
            fit = [one for one in free if slot.vm not in vms or _suits(vms[one.vm], vms[slot.vm])]
            if fit:
                pairs[slot] = min(fit, key=lambda one: (one.vm != slot.vm, free.index(one)))
                free.remove(pairs[slot])
        if pairs:
            return pairs, True
    return {}, False


def _suits(vm: Vm, was: Vm) -> bool:
    return (
        vm.slot_cores >= was.slot_cores
        and vm.slot_memory_bytes >= was.slot_memory_bytes
        and vm.speed >= was.speed
    )


def _moved(plan: Plan, to: dict[Slot, Slot], vms: Sequence[Vm], topology: Topology) -> Plan:
    """Its bundles in other slots; the rest is computed again."""
    bundles = [replace(one, slot=to.get(one.slot, one.slot)) for one in plan.placement.bundles]
    placement = Placement(tuple(sorted(bundles, key=lambda one: one.slot)))
    used = {one.slot.vm for one in bundles}
    return replace(
        plan,
        placement=placement,
        vms=tuple(vm for vm in vms if vm.vm in used),
        topology_digest=topology.digest,
        models_digest="",
    )
