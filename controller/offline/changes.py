"""What changes from one plan to another: threads that stay, move, start and stop, slots, VMs, cost. Pure.

Of each (task, slot) as many threads stay as both plans have there. Of the others, one that ends in one
slot while one of the same task begins in another has moved; what is left over starts or stops. A VM that
only shares its name with another (it has other slots, or is in another rack) is another VM.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from headgate.controller.knowledge.plans import Plan, usd_per_hour
from headgate.topology_runtime.cluster import Vm

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
    }


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
    slots: dict[tuple[Vm, int], dict[str, int]] = {}
    for bundle in plan.placement.bundles:
        at = machines[bundle.slot.vm], bundle.slot.number
        slots.setdefault(at, {})[bundle.task] = bundle.threads
    return slots


def _machine(vm: Vm) -> Vm:
    """What makes a VM this one: all but its price."""
    return msgspec.structs.replace(vm, usd_per_hour=0.0)


def _word(old: dict[str, int], new: dict[str, int]) -> str:
    if old == new:
        return "same"
    return "changed" if old and new else "added" if new else "removed"


def _summary(plan: Plan) -> dict[str, Any]:
    return {
        "id": plan.id,
        "topology": plan.topology,
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.rate_tps,
        "slots": plan.slots.total,
        "used": plan.slots.used,
        "vms": len(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
    }
