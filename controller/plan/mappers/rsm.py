"""R-Storm mapping (paper 0, Alg. 5): one thread of each task in turn, to the nearest VM that holds it.

    d = wM (Mⱼ − m)² + wC (Cⱼ − c)² + wN NWDist      CPU and memory as fractions of one slot

c, m      need of one thread: the allocation's average cᵢ/τᵢ, mᵢ/τᵢ
Cⱼ, Mⱼ    what VM j has free in all its slots; at first its number of slots (CPU: times its speed)
NWDist    0 in the VM of the thread before, 0.5 in its rack, else 1

Readings: a VM holds a thread when its CPU in all and the memory of one slot suffice. Of its slots the
thread takes the one with the least free memory that holds it. Equal VMs and slots go by filling order.
With the authors' models and free resources counted in slots, not as fractions of each VM, this gives all
nine slot counts of LSA+RSM, if the hub of Star is its XML task (with π as the hub, Star takes 8 and 14
slots instead of 7 and 13). Best or first fit among the slots of a VM makes no difference to them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.mappers.free_slots import Filling, Room, Weights
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

# ── The VM nearest to what a thread needs, without looking at every VM. Pure ────────────────────────────
#
# VMs that have the same free are as near as each other, and few differ at a time: each kind is looked at once.

SAME_RACK, OTHER_RACK = 0.5, 1.0  # NWDist of paper 0, section 7.3; 0 within a VM

Free = tuple[str, float, float, float]  # rack, free CPU and memory in slots, free memory of the emptiest slot


class Nearest:
    """VMs count in filling order."""

    def __init__(
        self,
        racks: Sequence[str],
        sizes: Sequence[int],
        weights: Weights,
        memory: float = 1.0,
        cpus: Sequence[float] = (),
    ) -> None:
        """Every VM j is empty, with `sizes[j]` slots, which have `cpus[j]` together (left out: 1 each); memory: of each
        slot, what threads may hold."""
        self._racks, self._weights = racks, weights
        self._free: dict[int, Free] = {}
        self._alike: dict[Free, list[int]] = {}
        for vm, size in enumerate(sizes):
            self._put(vm, (racks[vm], cpus[vm] if cpus else float(size), size * memory, memory))

    def set(self, vm: int, cpu: float, memory: float, slot: float) -> None:
        """`vm` now has `cpu` and `memory` free in all, and `slot` of memory in its emptiest slot."""
        self.close(vm)
        self._put(vm, (self._racks[vm], cpu, memory, slot))

    def close(self, vm: int) -> None:
        """Nothing fits into `vm` any more."""
        free = self._free.pop(vm)
        alike = self._alike[free]
        del alike[bisect_left(alike, vm)]
        if not alike:
            del self._alike[free]

    def find(self, cpu: float, memory: float, reference: int) -> int | None:
        """The VM at the least distance of those that have `cpu` free, and `memory` in some slot; of equals
        the first. `reference`: the VM that threads were put into last."""
        least_cpu, least_memory = cpu - EPSILON, memory - EPSILON
        by_cpu, by_memory = self._weights.cpu, self._weights.memory
        near, far = self._weights.network * SAME_RACK, self._weights.network * OTHER_RACK
        best, found, home = math.inf, -1, self._racks[reference]
        here = self._free.get(reference)
        kinds = [(here, reference)] if here is not None else []
        kinds += [(free, vms[0]) for free, vms in self._alike.items()]
        for place, ((rack, free_cpu, free_memory, slot), vm) in enumerate(kinds):
            if free_cpu < least_cpu or slot < least_memory:
                continue
            over_memory, over_cpu = max(free_memory - memory, 0.0), max(free_cpu - cpu, 0.0)
            distance = by_memory * over_memory * over_memory + by_cpu * over_cpu * over_cpu
            if place or here is None:
                distance += near if rack == home else far
            if distance < best or (distance == best and vm < found):
                best, found = distance, vm
        return found if found >= 0 else None

    def _put(self, vm: int, free: Free) -> None:
        self._free[vm] = free
        insort(self._alike.setdefault(free, []), vm)


@dataclass(slots=True)
class _Need:
    """One thread of a task needs `cpu` and `memory` of a slot; `left` threads are not placed yet."""

    task: str
    cpu: float
    memory: float
    left: int


def rsm(allocation: Allocation, room: Room) -> Placement:
    """Maps an allocation of any allocator. Raises Infeasible when no VM holds a thread.

    About (threads + VMs) × log VMs. Pinned threads stay where they fit."""
    needs = [
        _Need(t.task, t.cpu_slots / t.threads, t.memory_slots / t.threads, t.threads)
        for t in allocation.tasks
    ]
    board = _RsmBoard(room, needs, allocation.slot_speed)
    for need in needs:
        for slot in room.pinned.get(need.task, ())[: need.left]:
            need.left -= board.put_at(slot, need)
    sweep = [need for need in needs if need.left]
    while sweep:
        for need in sweep:
            board.put_nearest(need)
            need.left -= 1
        sweep = [need for need in sweep if need.left]
    return board.filling().placement(allocation, room.vms)


class _RsmBoard:
    """What is free. `_slots[j]`: (free memory, place) of the slots of VM j, the fullest first."""

    def __init__(self, room: Room, needs: list[_Need], slot_speed: float) -> None:
        usable = [[s for s in vm.all_slots() if s not in room.excluded] for vm in room.vms]
        self._names = [slots for slots in usable if slots]
        vms = [vm for vm, slots in zip(room.vms, usable, strict=True) if slots]
        sizes = [len(slots) for slots in self._names]
        self._cpu = [size * (vm.speed / slot_speed) for vm, size in zip(vms, sizes, strict=True)]
        self._memory = [size * room.memory for size in sizes]
        self._slots = [[(room.memory, place) for place in range(size)] for size in sizes]
        racks = [vm.rack for vm in vms]
        self._nearest = Nearest(racks, sizes, room.weights, room.memory, self._cpu.copy())
        self._reference = 0
        self._least_cpu = min((need.cpu for need in needs), default=0.0) - EPSILON
        self._least_memory = min((need.memory for need in needs), default=0.0) - EPSILON
        self._threads: Counter[tuple[int, int, str]] = Counter()

    def put_nearest(self, need: _Need) -> None:
        vm = self._nearest.find(need.cpu, need.memory, self._reference) if self._names else None
        if vm is None:
            raise Infeasible(
                f"no VM holds one more thread of task {need.task!r}: "
                f"{need.cpu:.3g} of a slot's CPU and {need.memory:.3g} of its memory"
            )
        self._put(vm, bisect_left(self._slots[vm], (need.memory - EPSILON, -1)), need)
        self._reference = vm

    def put_at(self, slot: Slot, need: _Need) -> bool:
        """One thread into this very slot, if it is usable and holds it."""
        for vm, names in enumerate(self._names):
            if slot in names and self._cpu[vm] >= need.cpu - EPSILON:
                free = {place: memory for memory, place in self._slots[vm]}
                memory = free[names.index(slot)]
                if memory >= need.memory - EPSILON:
                    self._put(vm, self._slots[vm].index((memory, names.index(slot))), need)
                    return True
        return False

    def filling(self) -> Filling:
        filling = Filling()
        for (vm, place, task), threads in self._threads.items():
            filling.put(self._names[vm][place], task, threads)
        return filling

    def _put(self, vm: int, index: int, need: _Need) -> None:
        """A thread into the slot at `index` of the VM's slots by free memory."""
        slots = self._slots[vm]
        memory, place = slots.pop(index)
        insort(slots, (memory - need.memory, place))
        self._cpu[vm] -= need.cpu
        self._memory[vm] -= need.memory
        self._threads[vm, place, need.task] += 1
        emptiest = slots[-1][0]
        if self._cpu[vm] < self._least_cpu or emptiest < self._least_memory:
            self._nearest.close(vm)
        else:
            self._nearest.set(vm, self._cpu[vm], self._memory[vm], emptiest)
