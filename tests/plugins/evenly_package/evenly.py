"""A mapper, a source and a sink in a package of their own: what `docs` shows, and tests install."""

from __future__ import annotations

from collections.abc import Sequence

from headgate import Source
from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Filling, Room


def evenly(allocation: Allocation, room: Room) -> Placement:
    """Evenly gives each task's threads to the slots that hold the fewest threads."""
    filling, slots = Filling(), room.slots()
    held = dict.fromkeys(slots, 0)
    for task in allocation.tasks:
        for _ in range(task.threads):
            slot = min(slots, key=lambda one: held[one])
            filling.put(slot, task.task, 1)
            held[slot] += 1
    return filling.placement(allocation, room.vms)


class Numbers(Source[int]):
    def read(self, position: int, limit: int) -> Sequence[int]:
        return range(position, position + limit)


def drop(row: int) -> None:
    return None
