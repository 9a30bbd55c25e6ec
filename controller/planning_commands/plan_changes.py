"""What changes from one plan to another: threads that stay, move, start and stop, slots, VMs, cost. Pure.

Of each (task, slot) as many threads stay as both plans have there. Of the others, one that ends in one
slot while one of the same task begins in another has moved; what is left over starts or stops. A VM that
only shares its name with another (it has other slots, or is in another rack) is another VM.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.execute.move_price import MovePrice, price_by_owners, price_data
from headgate.controller.execute.plan_diff import diff
from headgate.controller.execute.rollout import owners_of_ranges, thread_weights
from headgate.controller.models.plan_data import with_id
from headgate.controller.models.plans import Plan, ThreadAt, usd_per_hour
from headgate.controller.plan.plan_moves import relabel, renamed, threads_of
from headgate.controller.plan.predict.prediction import vm_uses
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology

SCHEMA = "headgate/diff/v1"


class TaskChange(msgspec.Struct, frozen=True):
    """Threads of one task."""

    task: str
    old: int
    new: int
    stay: int
    move: int
    start: int
    stop: int


class SlotChange(msgspec.Struct, frozen=True):
    """One slot, and its threads by task. change: "added", "removed", "changed" or "same"."""

    vm: str
    slot: int
    change: str
    old: dict[str, int]
    new: dict[str, int]


class VmChange(msgspec.Struct, frozen=True):
    """A VM that only one of the plans has."""

    vm: str
    change: str
    slots: int
    usd_per_hour: float


class Changes(msgspec.Struct, frozen=True):
    """All of it; slots and VMs in the order of the old plan, then those that are new."""

    tasks: tuple[TaskChange, ...]
    slots: tuple[SlotChange, ...]
    vms: tuple[VmChange, ...]

    def total(self, what: str) -> int:
        """Threads in all that `stay`, `move`, `start` or `stop`."""
        return sum(getattr(task, what) for task in self.tasks)


def changes(old: Plan, new: Plan) -> Changes:
    """From `old` to `new`."""
    before, after = _by_slot(old), _by_slot(new)
    slots = []
    for at in dict.fromkeys((*before, *after)):
        had, has = before.get(at, {}), after.get(at, {})
        vm, number = at
        slots.append(SlotChange(vm.vm, number, _word(had, has), had, has))
    had_vms, has_vms = {_machine(vm): vm for vm in old.vms}, {_machine(vm): vm for vm in new.vms}
    gone = [had_vms[key] for key in had_vms if key not in has_vms]
    come = [has_vms[key] for key in has_vms if key not in had_vms]
    vms = [VmChange(vm.vm, "removed", vm.slots, vm.usd_per_hour) for vm in gone]
    vms += [VmChange(vm.vm, "added", vm.slots, vm.usd_per_hour) for vm in come]
    return Changes(tuple(_tasks(slots)), tuple(slots), tuple(vms))


def changes_data(old: Plan, new: Plan) -> dict[str, Any]:
    """The changes as `headgate/diff/v1`."""
    found = changes(old, new)
    return {
        "schema": SCHEMA,
        "changed": any(slot.change != "same" for slot in found.slots) or bool(found.vms),
        "old": _summary(old),
        "new": _summary(new),
        "threads": {what: found.total(what) for what in ("stay", "move", "start", "stop")},
        "tasks": [msgspec.structs.asdict(task) for task in found.tasks],
        "slots": [msgspec.structs.asdict(slot) for slot in found.slots if slot.change != "same"],
        "vms": [msgspec.structs.asdict(vm) for vm in found.vms],
        "price": price_data(price_between(old, new)),
    }


def price_between(old: Plan, new: Plan) -> MovePrice:
    """What it costs to bring `new` into force while `old` is, with states as large as either plan knows."""
    before = threads_of(old.placement)
    there: defaultdict[tuple[Slot, str], list[ThreadAt]] = defaultdict(list)
    for thread in before:
        there[thread.slot, thread.task].append(thread)
    after, start = [], []
    for fresh in threads_of(new.placement):
        free = there[fresh.slot, fresh.task]
        if not free:
            start.append(replace(fresh, thread=len(before) + fresh.thread))
        after.append(free.pop(0) if free else start[-1])
    leave = [thread for threads in there.values() for thread in threads]
    states = new.prediction.states or old.prediction.states
    keyed = {state.task for state in states}
    weights = tuple(
        thread_weights(plan, [thread for thread in threads if thread.task in keyed])
        for plan, threads in ((old, before), (new, after))
    )
    owners, sizes = {}, {}
    for state in states:
        if all(state.task in of_plan for of_plan in weights):
            was = owners_of_ranges(weights[0][state.task], ())
            owners[state.task] = was, owners_of_ranges(weights[1][state.task], was)
            sizes[state.task] = [state.saved_bytes // KEY_RANGES] * KEY_RANGES
    return price_by_owners(start, leave, owners, sizes)


def _tasks(slots: list[SlotChange]) -> list[TaskChange]:
    old, new, stay = Counter[str](), Counter[str](), Counter[str]()
    for slot in slots:
        old.update(slot.old)
        new.update(slot.new)
        stay.update({task: min(count, slot.new.get(task, 0)) for task, count in slot.old.items()})
    found = []
    for task in dict.fromkeys((*old, *new)):
        ending, beginning = old[task] - stay[task], new[task] - stay[task]
        move = min(ending, beginning)
        found.append(
            TaskChange(task, old[task], new[task], stay[task], move, beginning - move, ending - move)
        )
    return found


def _by_slot(plan: Plan) -> dict[tuple[Vm, int], dict[str, int]]:
    """(machine, slot number) → task → threads."""
    machines = {vm.vm: _machine(vm) for vm in plan.vms}
    placed = plan.placement.by_slot().items()
    return {(machines[slot.vm], slot.number): threads for slot, threads in placed}


def _machine(vm: Vm) -> Vm:
    """What makes a VM this one: all but its price."""
    return replace(vm, usd_per_hour=0.0)


def _word(old: dict[str, int], new: dict[str, int]) -> str:
    if old == new:
        return "same"
    return "changed" if old and new else "added" if new else "removed"


def _summary(plan: Plan) -> dict[str, Any]:
    return {
        "id": plan.id,
        "topology": plan.topology,
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.told_tps,
        "slots": plan.slots.total,
        "used": plan.slots.used,
        "vms": len(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
    }


# ── A new plan that moves little against a plan that is in force: same VMs, slots renamed. Pure ─────────


def based_on(plan: Plan, base: Plan, topology: Topology, fixed: bool) -> Plan:
    """`plan` with VMs and slots renamed so that most threads of `base` stay where they are.

    Acquired VMs take the names of the base's VMs of their kind; others get names that are new.
    `fixed`: the plan's VMs have their names already, and all of them belong to it."""
    if not fixed:
        plan = _renamed_vms(plan, base.vms)
    threads = diff((), base.placement, topology, 1).start
    spare = () if fixed else tuple(vm for vm in base.vms if vm.vm not in {own.vm for own in plan.vms})
    wide = replace(plan, vms=(*plan.vms, *spare))  # a VM of the base may serve better than the one named
    found = relabel(wide, threads, frozenset())
    vms = _as_many(plan, found)
    prediction = replace(found.prediction, vms=vm_uses(found.prediction.slots, vms))
    return with_id(replace(found, vms=vms, prediction=prediction))


def _as_many(plan: Plan, found: Plan) -> tuple[Vm, ...]:
    """VMs of `found`, which may have more than the `plan`: as many of each kind, those with threads first."""
    carrying = {bundle.slot.vm for bundle in found.placement.bundles}
    desired = Counter(_kind(vm) for vm in plan.vms)
    desired.subtract(_kind(vm) for vm in found.vms if vm.vm in carrying)
    vms = []
    for vm in found.vms:
        if vm.vm not in carrying:
            desired[_kind(vm)] -= 1
        if vm.vm in carrying or desired[_kind(vm)] >= 0:
            vms.append(vm)
    return tuple(vms)


def _kind(vm: Vm) -> Vm:
    return replace(vm, vm="")


def _renamed_vms(plan: Plan, present: Sequence[Vm]) -> Plan:
    """The plan on VMs called like those `present`, kind by kind."""
    free = list(present)
    taken = {vm.vm for vm in present}
    fresh = (name for n in range(1, len(plan.vms) + len(taken) + 1) if (name := f"vm{n}") not in taken)
    names: dict[str, str] = {}
    for vm in plan.vms:
        alike = next((one for one in free if _kind(one) == _kind(vm)), None)
        names[vm.vm] = alike.vm if alike is not None else next(fresh)
        if alike is not None:
            free.remove(alike)
    vms = tuple(replace(vm, vm=names[vm.vm]) for vm in plan.vms)
    return renamed(plan, lambda slot: replace(slot, vm=names[slot.vm]), vms)
