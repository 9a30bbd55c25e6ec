"""Default Storm mapping (paper 0, Alg. 4): threads round the slots in turn, whatever they need."""

from __future__ import annotations

from headgate.controller.knowledge.plans import Allocation, Placement
from headgate.controller.plan.room import Filling, Room
from headgate.topology_runtime.errors import Infeasible


def dsm(allocation: Allocation, room: Room) -> Placement:
    """Thread n goes to slot n modulo the number of slots, over every slot of the room.

    Pinned threads stay. Raises Infeasible when there is no usable slot."""
    slots = room.slots()
    if not slots:
        raise Infeasible("there is no slot that may be used")
    filling, usable, turn = Filling(), set(slots), 0
    for task in allocation.tasks:
        stay = [slot for slot in room.pinned.get(task.task, ())[: task.threads] if slot in usable]
        for slot in stay:
            filling.put(slot, task.task, 1)
        each, more = divmod(task.threads - len(stay), len(slots))
        for i in range(len(slots) if each else more):
            filling.put(slots[(turn + i) % len(slots)], task.task, each + (i < more))
        turn += each * len(slots) + more
    return filling.placement(allocation, room.vms)
