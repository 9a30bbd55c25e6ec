"""Slot aware mapping (paper 0, Alg. 6): full bundles alone in a slot, partial ones where they fit best.

Readings (the printed algorithm has slips): a bundle is full when MBA reserved a whole slot for it; the
"next full slot" is the next *empty* one. Slots are filled in the order of the room, so the slots after
the last one used stay free and whole VMs can be given back; that is the paper's order as well, which
goes on from the VM last used, as long as nothing is pinned.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

import msgspec

from headgate.controller.models.plans import Allocation, Placement, TaskAllocation
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.mappers.free_slots import Filling, Room
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import counted

NAMED = 3  # so many slots that were not chosen are named on either side of the one that was


class Free(msgspec.Struct, frozen=True):
    """What is free of a slot."""

    slot: Slot
    cpu: float
    memory: float


class SlotChoice(msgspec.Struct, frozen=True):
    """Why `threads` threads of `task`, which need `cpu` and `memory`, went into `at.slot`, where `at` was
    free. rule: "full" (alone in the next empty slot), "best fit" or "empty" (no slot in use held them).
    `passed_over`: slots in use that did not hold them, the emptiest first; `runners_up`: slots in use
    that would have, but have more room left, the fullest first. At most `NAMED` of each."""

    task: str
    threads: int
    rule: str
    cpu: float
    memory: float
    at: Free
    passed_over: tuple[Free, ...] = ()
    runners_up: tuple[Free, ...] = ()


def sam(allocation: Allocation, room: Room, choices: list[SlotChoice] | None = None) -> Placement:
    """Maps an allocation of MBA. Raises Infeasible when the slots run out. n log n in slots and tasks,
    unless `choices` is given: each choice is added to it with its reason (pinned threads have none)."""
    turns = SamTurns(allocation, room, choices)
    turns.run()
    return turns.board.filling.placement(allocation, room.vms)


class SamTurns:
    """Round by round each task puts a full bundle into a slot; one that has none left, its rest, and is done. Threads
    that are pinned are put first."""

    def __init__(self, allocation: Allocation, room: Room, choices: list[SlotChoice] | None = None) -> None:
        self.allocation = allocation
        self.board = SamBoard(allocation, room, choices)
        self._bundles = {task.task: task.full_bundles for task in allocation.tasks}
        self._left = {task.task: task.rest_threads for task in allocation.tasks}
        for task in allocation.tasks:
            if task.static:
                self._left[task.task] -= _keep_pinned(self.board, task, room)

    def run(self) -> None:
        tasks = list(self.allocation.tasks)
        while tasks:
            tasks = [task for task in tasks if self.took_slot(task)]

    def took_slot(self, task: TaskAllocation) -> bool:
        """Did a full bundle of it take a slot? If not, its rest is placed."""
        if self._bundles[task.task]:
            self.board.put_full(task)
            self._bundles[task.task] -= 1
            return True
        if self._left[task.task]:
            put_rest(self.board, task, self._left[task.task])
        return False


def _keep_pinned(board: SamBoard, task: TaskAllocation, room: Room) -> int:
    """Put threads of a task of fixed size where they are pinned, if they fit; how many were put."""
    kept = 0
    for slot in room.pinned.get(task.task, ())[: task.threads]:
        kept += board.put_at(slot, task.task, task.rest_cpu / task.threads, task.rest_memory / task.threads)
    return kept


def put_rest(board: SamBoard, task: TaskAllocation, threads: int) -> None:
    """A partial bundle goes into one slot, in which it was measured: if it seems to need more than the
    whole of it, it gets the whole. Threads of a task of fixed size fit in one by one."""
    if not task.static:
        cpu, memory = min(board.most_cpu, task.rest_cpu), min(board.memory, task.rest_memory)
        board.put_best(task.task, threads, cpu, memory)
        return
    for _ in range(threads):
        board.put_best(task.task, 1, task.rest_cpu / task.threads, task.rest_memory / task.threads)


class SamBoard:
    """What is free in each slot; `cpus`: what it has. `_open`: (free CPU + free memory, place) of slots partly used,
    sorted."""

    def __init__(self, allocation: Allocation, room: Room, choices: list[SlotChoice] | None) -> None:
        self.filling, self.memory = Filling(), room.memory
        self.cpus = room.cpus(allocation)
        self.most_cpu = max(self.cpus, default=1.0)
        self._choices = choices
        self._slots = room.slots()
        self._place = {slot: place for place, slot in enumerate(self._slots)}
        self._free_cpu = self.cpus.copy()
        self._free_memory = [room.memory] * len(self._slots)
        self._slow = {
            place for place, cpu in enumerate(self.cpus) if cpu < 1 - EPSILON
        }  # only for what is pinned
        self._empty = deque(place for place in range(len(self._slots)) if place not in self._slow)
        self._used: set[int] = set()
        self._open: list[tuple[float, int]] = []

    def put_full(self, task: TaskAllocation) -> None:
        """A whole bundle takes the next empty slot for itself."""
        place = self._taken_empty(task.task)
        if self._choices is not None:
            self._note("full", place, task.task, task.bundle_threads, self.cpus[place], 1.0)
        self._used.add(place)
        self.filling.put(self._slots[place], task.task, task.bundle_threads, full=True)

    def put_best(self, task: str, threads: int, cpu: float, memory: float) -> None:
        """The slot with the least sum of free CPU and memory that holds the need (GetBestFitSlot)."""
        first = bisect_left(self._open, (cpu + memory - 3 * EPSILON, -1))
        for i in range(first, len(self._open)):
            if self._holds(self._open[i][1], cpu, memory):
                if self._choices is not None:
                    self._note("best fit", self._open[i][1], task, threads, cpu, memory)
                place = self._open.pop(i)[1]
                break
        else:
            place = self._taken_empty(task)
            if not self._holds(place, cpu, memory):
                raise Infeasible(
                    f"{counted(threads, 'thread')} of task {task!r} need more than one whole slot"
                )
            if self._choices is not None:
                self._note("empty", place, task, threads, cpu, memory)
        self._put(place, task, threads, cpu, memory)

    def put_at(self, slot: Slot, task: str, cpu: float, memory: float) -> bool:
        """One thread into this very slot, if it is usable and holds it."""
        place = self._place.get(slot)
        if place is None or not self._holds(place, cpu, memory):
            return False
        if place in self._used and place not in self._slow:
            self._open.remove((self._free_cpu[place] + self._free_memory[place], place))
        self._put(place, task, 1, cpu, memory)
        return True

    def _note(self, rule: str, place: int, task: str, threads: int, cpu: float, memory: float) -> None:
        """Keep a choice that is about to be made, with the slots it was made among."""
        assert self._choices is not None
        among = self._open if rule != "full" else []
        held: list[int] = []
        small: list[int] = []
        for _, other in among:
            if other != place:
                (held if self._holds(other, cpu, memory) else small).append(other)
        at = next(self._free([place]))
        passed_over, runners_up = tuple(self._free(small[::-1])), tuple(self._free(held))
        self._choices.append(SlotChoice(task, threads, rule, cpu, memory, at, passed_over, runners_up))

    def _free(self, places: list[int]) -> Iterator[Free]:
        """What is free of the first few of these slots."""
        for place in places[:NAMED]:
            yield Free(self._slots[place], self._free_cpu[place], self._free_memory[place])

    def _put(self, place: int, task: str, threads: int, cpu: float, memory: float) -> None:
        self._free_cpu[place] -= cpu
        self._free_memory[place] -= memory
        self._used.add(place)
        if place not in self._slow:
            insort(self._open, (self._free_cpu[place] + self._free_memory[place], place))
        self.filling.put(self._slots[place], task, threads)

    def _holds(self, place: int, cpu: float, memory: float) -> bool:
        return self._free_cpu[place] >= cpu - EPSILON and self._free_memory[place] >= memory - EPSILON

    def next_empty(self) -> int | None:
        """The place of the slot that a full bundle would take; None: there is none."""
        while self._empty and self._empty[0] in self._used:
            self._empty.popleft()
        return self._empty[0] if self._empty else None

    def take(self, place: int) -> None:
        """A slot holds nothing else any more."""
        self._used.add(place)

    def _taken_empty(self, task: str) -> int:
        place = self.next_empty()
        if place is None:
            raise Infeasible(f"no slot is left for task {task!r}")
        self._empty.popleft()
        return place
