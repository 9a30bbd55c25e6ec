"""Placements that keep the threads that run where they are, for thread counts that a plan has (ours). Pure.

A mapper begins with empty slots, so a little more of one task may send threads of all tasks elsewhere. Here threads
stay, those that are too many leave where most CPU is needed, and those that are missing go where least is. The rules of
a mapper say how it packs what it places; what is kept is judged by what it is predicted to carry and to hold instead.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from headgate.controller.models.plans import Allocation, Bundle, Placement, TaskAllocation
from headgate.controller.plan.mappers.free_slots import Filling, Room
from headgate.topology_runtime.api.cluster import Slot

EMPTIEST = 2  # slots that a thread more is tried in
MOST_SLOTS = 400  # above, it is not tried to put threads beside those of their task

Threads = Mapping[str, int]


def kept_placements(
    allocation: Allocation, room: Room, there: Placement, most_slots: int
) -> Iterator[Placement]:
    """Placements of these thread counts in at most so many slots, which begin with what is `there`: those for which
    threads are put into no other slot first."""
    usable = set(room.slots())
    here = {slot: threads for slot, threads in there.by_slot().items() if slot in usable}
    full = {bundle.slot for bundle in there.bundles if bundle.full}
    if not here or len(here) > most_slots:
        return
    for most in dict.fromkeys((len(here), most_slots)):
        for beside in (False, True) if most <= MOST_SLOTS else (False,):
            yield _Keeping(allocation, room, here, most, beside).placement(full)


def grown(
    there: Placement,
    room: Room,
    tasks: Sequence[str],
    most_slots: int,
    most_threads: int,
    carries: Callable[[Placement], tuple[float, Mapping[Slot, float]]],
    rate_tps: float,
) -> Placement | None:
    """What is `there` with the fewest threads more, found one by one, that carry this rate: each time the one of these
    tasks, in one of the emptiest of so many slots, with which most is carried. carries: the rate of a placement, and
    which part of its CPU each slot uses. None where so many threads do not do."""
    threads = Counter({(bundle.slot, bundle.task): bundle.threads for bundle in there.bundles})
    if not {slot for slot, _ in threads} <= set(room.slots()):
        return None
    turn = _in_turn(room, there.by_slot(), most_slots)
    carried_tps, used = carries(there)
    placement = there
    for _ in range(most_threads):
        if carried_tps >= rate_tps:
            return placement
        emptiest = sorted(turn, key=lambda slot: round(used.get(slot, 0.0), 6))[:EMPTIEST]  # stable
        tried = (placed_at(threads + Counter({(slot, task): 1})) for task in tasks for slot in emptiest)
        placement, (carried_tps, used) = max(
            ((one, carries(one)) for one in tried), key=lambda found: found[1][0]
        )
        threads = Counter({(bundle.slot, bundle.task): bundle.threads for bundle in placement.bundles})
    return placement if carried_tps >= rate_tps else None


def placed_at(threads: Mapping[tuple[Slot, str], int]) -> Placement:
    return Placement(tuple(Bundle(slot, task, many) for (slot, task), many in sorted(threads.items())))


class _Keeping:
    """loads: slot → the part of its CPU that its threads need on average; turn: slots that may be
    used. beside: threads go where others of their task are, if there are any; else where least CPU is needed."""

    def __init__(
        self, allocation: Allocation, room: Room, here: Mapping[Slot, Threads], most_slots: int, beside: bool
    ) -> None:
        self.allocation, self.room, self.here, self.beside = allocation, room, here, beside
        self.threads = {slot: Counter(threads) for slot, threads in here.items()}
        self.turn = _in_turn(room, here, most_slots)
        self.loads = dict.fromkeys(self.turn, 0.0)
        self.each = {task.task: task.cpu_slots / task.threads for task in allocation.tasks}
        self.cpus = {vm.vm: vm.speed / allocation.slot_speed for vm in room.vms}
        for slot, counts in self.threads.items():
            needed = sum(self.each.get(name, 0.0) * count for name, count in counts.items())
            self.loads[slot] = needed / self.cpus[slot.vm]

    def placement(self, full: set[Slot]) -> Placement:
        for task in self.allocation.tasks:
            self._to_pinned(task)
            self._too_many(task.task, sum(held[task.task] for held in self.threads.values()) - task.threads)
        for task in sorted(self.allocation.tasks, key=lambda one: -self.each[one.task]):
            missing = task.threads - sum(held[task.task] for held in self.threads.values())
            if missing > 0:
                self._put(task.task, missing)
        filling, known = Filling(), {task.task for task in self.allocation.tasks}
        for slot, held in self.threads.items():
            for name, count in held.items():
                if count and name in known:
                    same = slot in full and held == Counter(self.here[slot])
                    filling.put(slot, name, count, full=same)
        return filling.placement(self.allocation, self.room.vms)

    def _to_pinned(self, task: TaskAllocation) -> None:
        """Threads that are to be in a slot are there."""
        pinned = Counter(slot for slot in self.room.pinned.get(task.task, ())[: task.threads])
        for slot, count in pinned.items():
            if slot in self.loads and count > self.threads.setdefault(slot, Counter())[task.task]:
                self._change(slot, task.task, count - self.threads[slot][task.task])

    def _too_many(self, name: str, many: int) -> None:
        """So many leave, one after the other, where most CPU is needed; those that are pinned do not."""
        pinned = Counter(self.room.pinned.get(name, ()))
        for _ in range(many):
            may = [slot for slot, held in self.threads.items() if held[name] > pinned[slot]]
            may = may or [slot for slot, held in self.threads.items() if held[name]]
            self._change(max(may, key=lambda slot: self.loads[slot]), name, -1)

    def _put(self, name: str, missing: int) -> None:
        def order(slot: Slot, place: int) -> tuple[bool, float, int, Slot]:
            alone = self.beside and not self.threads.get(slot, Counter())[name]
            return alone, round(self.loads[slot], 9), place, slot

        emptiest = [order(slot, place) for place, slot in enumerate(self.turn)]
        heapq.heapify(emptiest)
        for _ in range(missing):
            _, _, place, slot = emptiest[0]
            self.threads.setdefault(slot, Counter())
            self._change(slot, name, 1)
            heapq.heapreplace(emptiest, order(slot, place))

    def _change(self, slot: Slot, name: str, by: int) -> None:
        self.threads[slot][name] += by
        self.loads[slot] += by * self.each[name] / self.cpus[slot.vm]


def _in_turn(room: Room, here: Mapping[Slot, Threads], most_slots: int) -> list[Slot]:
    """So many slots: those in use, then others of their VMs, then the rest in their order."""
    vms = {slot.vm for slot in here}
    ordered = sorted(room.slots(), key=lambda slot: (slot not in here, slot.vm not in vms))  # stable
    return ordered[:most_slots]
