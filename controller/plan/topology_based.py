"""Topology-based scheduling (paper 1, section 3.1, offline): threads beside the threads that feed them. Pure.

Components are walked in breadth-first order. A component's executors go to slots that hold a component that feeds it
directly, at most M(α) = ⌈E/W⌉ + α (E − W + 1 − ⌈E/W⌉) executors in a slot (E executors, W slots); from component
i > β C on, empty slots are used first. Slots go to nodes round robin. No load is looked at.

Readings: of several slots that may be used the one with the fewest executors is, the first of equals; when no slot that
feeds the component has room, any slot in use is, then an empty one. M is rounded down.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, zip_longest

from headgate.controller.knowledge.plans import Allocation, Placement
from headgate.controller.plan.room import Filling, Room
from headgate.controller.plan.slot_room import refuse_beyond
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

MOST_LOOKS = 40_000_000  # threads times slots


def topology_based(allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible when there is no usable slot. Pinned threads stay."""
    refuse_beyond("topology", allocation, room, MOST_LOOKS)
    slots = _round_robin(room)
    if not slots:
        raise Infeasible("there is no slot that may be used")
    filling, held = Filling(), Counter[Slot]()
    of_task: dict[str, set[Slot]] = {}
    most = most_in_slot(sum(task.threads for task in allocation.tasks), len(slots), room.spread.alpha)
    usable, empty = set(slots), list(reversed(slots))
    for number, task in enumerate(allocation.tasks, 1):
        mine = of_task.setdefault(task.task, set())
        pinned = [slot for slot in room.pinned.get(task.task, ())[: task.threads] if slot in usable]
        feeding = set[Slot]().union(
            *(of_task.get(flow.source, set()) for flow in room.flows if flow.target == task.task)
        )
        forced = number > room.spread.beta * len(allocation.tasks)
        for thread in range(task.threads):
            while empty and held[empty[-1]]:
                empty.pop()
            if thread < len(pinned):
                slot = pinned[thread]
            elif forced and empty:
                slot = empty.pop()
            else:
                slot = _beside(feeding, slots, held, most)
            filling.put(slot, task.task, 1)
            held[slot] += 1
            mine.add(slot)
    return filling.placement(allocation, room.vms)


def most_in_slot(executors: int, slots: int, alpha: float) -> int:
    """M(α)."""
    least = -(-executors // slots)
    return int(least + alpha * max(0, executors - slots + 1 - least) + 1e-9)


def _beside(feeding: set[Slot], slots: list[Slot], held: Counter[Slot], most: int) -> Slot:
    """The slot for an executor: beside those that feed it, else in use, else any."""
    with_room = [slot for slot in slots if held[slot] < most] or slots
    for choice in (
        [slot for slot in with_room if slot in feeding],
        [s for s in with_room if held[s]],
        with_room,
    ):
        if choice:
            return min(choice, key=held.__getitem__)
    raise AssertionError("there is a slot")


def _round_robin(room: Room) -> list[Slot]:
    """The usable slots, one of each VM in turn."""
    of_vm = ([slot for slot in vm.all_slots() if slot not in room.excluded] for vm in room.vms)
    return [slot for slot in chain.from_iterable(zip_longest(*of_vm)) if slot is not None]
