"""A plan for another system: what is common to all of them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from headgate.controller.knowledge.plans import Plan
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.faults.words import counted, significant

SCHEMA = "headgate/plan-for/v1"
MIB = 1024 * 1024


class TaskLeaving(NamedTuple):
    """One task of a plan: its threads in all, and what each takes of a core and of memory."""

    task: str
    rate_tps: float
    threads: int
    cores_each: float
    mib_each: int


class Leaving(NamedTuple):
    """A plan in the words of `target`. rows: one per task or per kind of machine. blocks: (where it goes, text to
    paste). lost: what of the plan the target cannot be told."""

    target: str
    rows: tuple[dict[str, Any], ...]
    told: dict[str, Any]
    blocks: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]

    def document(self, plan: Plan) -> dict[str, Any]:
        """All of it but the text."""
        head = {
            "schema": SCHEMA,
            "target": self.target,
            "topology": plan.topology,
            "rate_tps": plan.rate_tps,
            "plan_id": plan.id,
        }
        return {**head, **self.told, "not_expressed": list(self.lost)}


def shares(plan: Plan) -> tuple[TaskLeaving, ...]:
    """Every task of the plan, in the order of its allocation."""
    placed = Counter[str]()
    for bundle in plan.placement.bundles:
        placed[bundle.task] += bundle.threads
    vm = slot_of(plan)
    found = []
    for task in plan.allocation.tasks:
        threads = placed[task.task]
        cores = task.cpu_slots * vm.slot_cores / threads
        mib = task.memory_slots * vm.slot_memory_bytes / MIB / threads
        found.append(
            TaskLeaving(
                task.task,
                task.rate_tps,
                threads,
                max(round(cores, 4), 0.0001),  # a request of nothing is none
                max(round(mib), 1),
            )
        )
    return tuple(found)


def slot_of(plan: Plan) -> Vm:
    """A VM whose slots are those of the plan; the smallest where they differ."""
    return min(plan.vms, key=lambda vm: (vm.slot_cores, vm.slot_memory_bytes))


def contents(plan: Plan) -> dict[Slot, dict[str, int]]:
    """Slot → task → threads, of the slots that have any."""
    found: dict[Slot, dict[str, int]] = {}
    for bundle in plan.placement.bundles:
        found.setdefault(bundle.slot, {})[bundle.task] = bundle.threads
    return found


def processes_lost(plan: Plan, process: str, shuffle_tps: float) -> list[str]:
    """Sentences about what a system loses that spreads threads over `process`es by rules of its own. shuffle_tps: what
    the plan carries with as many rows for each thread of a task."""
    slots = contents(plan)
    kinds = len(Counter(tuple(sorted(threads.items())) for threads in slots.values()))
    told = []
    if kinds > 1:
        mixed = sum(len(threads) > 1 for threads in slots.values())
        told.append(
            f"Which threads share a slot: the plan has {counted(len(slots), 'slot')} of {counted(kinds, 'kind')}, "
            f"{mixed} of them with threads of several tasks; {process}s get threads without regard to that, so one may "
            "get more work than a slot carries, and then the predicted rate does not hold."
        )
    if plan.routing == "weighted":
        told.append(
            "Weighted routing: the plan sends each thread as many rows as its slot carries; there all of a task get "
            f"the same, and were they where the plan has them, they would carry {significant(shuffle_tps)} tuples/s."
        )
    if len({vm.rack for vm in plan.vms}) > 1 or len({vm.speed for vm in plan.vms}) > 1:
        told.append("Racks and speeds of machines: all are treated alike.")
    return told
