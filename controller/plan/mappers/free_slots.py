"""Where threads may go: VMs in the order in which they are filled, and what is settled before. Pure."""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from headgate.controller.models.plans import (
    Allocation,
    Bundle,
    Placement,
    TaskAllocation,
    TaskFlow,
    TaskWork,
    sized,
    weight_of,
)
from headgate.controller.models.task_models import EPSILON
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import counted


class Weights(msgspec.Struct, frozen=True):
    """What counts how much in the distance of R-Storm's mapping (paper 0, section 7.3)."""

    memory: float = 1.0
    cpu: float = 1.0
    network: float = 1.0


class TopologySpread(msgspec.Struct, frozen=True):
    """Of topology-based scheduling (paper 1, section 3.1). alpha: 0: executors are spread over slots evenly, 1: one
    slot may hold nearly all; beta: from this part of the components on, empty slots are used first."""

    alpha: float = 0.0
    beta: float = 0.5


OBJECTIVES = ("deviation", "utilization")


class GreedyBounds(msgspec.Struct, frozen=True):
    """Of greedy matching (paper 3, Alg. 1). cpu, bandwidth: D_CPU and D_BW, up to which slots are used, as parts of
    what they have; objective: "deviation" (R_dev) or "utilization" (R_utl); seconds: t_max."""

    cpu: float = 1.0
    bandwidth: float = math.inf
    objective: str = "deviation"
    seconds: float = math.inf

    def faults(self) -> list[str]:
        """What of it makes no sense.

        >>> GreedyBounds(cpu=2.0).faults()
        ['greedy.cpu: expected a number from 0 to 1, got 2.0']"""
        found = []
        if not 0 <= self.cpu <= 1:
            found.append(f"greedy.cpu: expected a number from 0 to 1, got {self.cpu}")
        for name in ("bandwidth", "seconds"):
            if not getattr(self, name) >= 0:
                found.append(f"greedy.{name}: expected a number of at least 0, got {getattr(self, name)}")
        if self.objective not in OBJECTIVES:
            found.append(f"greedy.objective: no {self.objective!r}, there are {', '.join(OBJECTIVES)}")
        return found


class Room(msgspec.Struct, frozen=True):
    """`vms` in filling order; `excluded` slots hold nothing; `pinned`: task of fixed size → slots of its
    threads, kept where they are usable. flows: what mappers go by that look at traffic, and at what feeds what; they
    also take a thread to need what was measured of its task (`works`), where that is more than its model says.
    memory: of a slot, what its threads may hold; the rest is the worker's. as_printed: mappers do what their paper
    prints where ours does better. bounds: VM → the part of its CPU that paper 1's `traffic` uses at most ("": of the
    other VMs)."""

    vms: tuple[Vm, ...]
    excluded: frozenset[Slot] = frozenset()
    pinned: dict[str, tuple[Slot, ...]] = {}
    weights: Weights = Weights()
    flows: tuple[TaskFlow, ...] = ()
    works: tuple[TaskWork, ...] = ()
    spread: TopologySpread = TopologySpread()
    memory: float = 1.0
    greedy: GreedyBounds = GreedyBounds()
    as_printed: bool = False
    bounds: dict[str, float] = {}

    def bound_of(self, vm: str) -> float:
        return self.bounds.get(vm, self.bounds.get("", math.inf))

    def slots(self) -> list[Slot]:
        """The usable slots in filling order."""
        return [slot for vm in self.vms for slot in vm.all_slots() if slot not in self.excluded]

    def cpus(self, allocation: Allocation) -> list[float]:
        """CPU of the usable slots, in slots of the speed that the allocation counts in."""
        speeds = {vm.vm: vm.speed / allocation.slot_speed for vm in self.vms}
        return [speeds[slot.vm] for slot in self.slots()]

    def of_speed(self, least: float) -> Room:
        """Without slots of VMs that are slower, but for those that threads are pinned to."""
        if all(vm.speed >= least for vm in self.vms):
            return self
        pinned = {slot for slots in self.pinned.values() for slot in slots}
        vms = tuple(vm for vm in self.vms if vm.speed >= least or pinned & set(vm.all_slots()))
        slow = {slot for vm in vms if vm.speed < least for slot in vm.all_slots()} - pinned
        return msgspec.structs.replace(self, vms=vms, excluded=self.excluded | slow)

    def first(self, slots: int) -> Room:
        """Only as many of the first VMs as have at least `slots` usable slots, and those pinned to."""
        kept, have = [], 0
        needed = {slot.vm for slots_of in self.pinned.values() for slot in slots_of}
        for vm in self.vms:
            if have < slots or vm.vm in needed:
                kept.append(vm)
                have += sum(slot not in self.excluded for slot in vm.all_slots())
        return msgspec.structs.replace(self, vms=tuple(kept))


class Filling:
    """Threads put into slots so far; becomes a placement."""

    def __init__(self) -> None:
        self.threads: Counter[tuple[Slot, str]] = Counter()
        self.full: set[Slot] = set()

    def put(self, slot: Slot, task: str, threads: int, full: bool = False) -> None:
        self.threads[slot, task] += threads
        if full:
            self.full.add(slot)

    def placement(self, allocation: Allocation, vms: tuple[Vm, ...]) -> Placement:
        """Bundles in order of (VM in `vms`, slot, task in the allocation)."""
        vm_place = {vm.vm: place for place, vm in enumerate(vms)}
        task_place = {task.task: place for place, task in enumerate(allocation.tasks)}
        ordered = sorted(self.threads, key=lambda at: (vm_place[at[0].vm], at[0].number, task_place[at[1]]))
        return Placement(tuple(Bundle(s, t, self.threads[s, t], s in self.full) for s, t in ordered))


# ── What threads need on average, and what is free of every slot: the ground of mappers that go by traffic.
# Pure
#
# A thread needs its task's average, as in RSM, or what was measured of it where that is more CPU, and at most
# a whole slot. A slot has 1 of CPU, or less or more by the speed of its VM, and 1 of memory.


def need_of(task: TaskAllocation, most: float = 1.0) -> tuple[float, float]:
    """(CPU, memory) of one thread, as parts of a slot; most: CPU that a slot has."""
    return min(most, task.cpu_slots / task.threads), min(1.0, task.memory_slots / task.threads)


def refuse_beyond(mapper: str, allocation: Allocation, room: Room, most: int) -> None:
    """Raises Infeasible where a mapper that looks at slots for every thread would take longer than some seconds."""
    threads, slots = sum(task.threads for task in allocation.tasks), len(room.slots())
    if threads * slots > most:
        raise Infeasible(
            f"{mapper} looks at every slot for every thread: {threads:,} threads and {slots:,} slots are more than it "
            f"does in seconds (at most {most:,} in product); top-down and sam are quick"
        )


class SlotRoom:
    """Slots by their place in the room, tasks by theirs in the allocation. `cpus`: of each slot, in slots of the speed
    that the allocation counts in; `cpu`, `memory`: free of it; `held`:
    threads of each task in it; `left`: threads that are nowhere yet; `links`: per task, what one thread of it says to
    one of another both ways, in bytes/s where sizes of rows are known, else in rows/s. Pinned threads are in their
    slots from the beginning."""

    def __init__(self, allocation: Allocation, room: Room) -> None:
        self.allocation, self.room = allocation, room
        self.slots = room.slots()
        if not self.slots:
            raise Infeasible("there is no slot that may be used")
        self.tasks = allocation.tasks
        self.cpus = room.cpus(allocation)
        self.needs = self._needs()
        self.cpu, self.memory = self.cpus.copy(), [room.memory] * len(self.slots)
        self.held: list[Counter[int]] = [Counter() for _ in self.slots]
        self.pinned: list[Counter[int]] = [Counter() for _ in self.slots]
        self.left = [task.threads for task in self.tasks]
        self.links = self._links()
        self._pin()

    def fits(self, task: int, slot: int) -> int:
        """How many threads of a task a slot has room for, of those that are left."""
        cpu, memory = self.needs[task]
        most = self.left[task]
        for need, free in ((cpu, self.cpu[slot]), (memory, self.memory[slot])):
            if need > 0:
                most = min(most, int((free + EPSILON) / need * (1 + EPSILON)))
        return most

    def put(self, task: int, slot: int, threads: int = 1) -> None:
        cpu, memory = self.needs[task]
        self.cpu[slot] -= cpu * threads
        self.memory[slot] -= memory * threads
        self.held[slot][task] += threads
        self.left[task] -= threads

    def pull(self, task: int, slot: int) -> float:
        """What one thread of a task says to all threads in a slot."""
        held = self.held[slot]
        return sum(link * held[other] for other, link in self.links[task].items() if other in held)

    def used(self, slot: int) -> float:
        """The part of its CPU that its threads need."""
        return 1 - self.cpu[slot] / self.cpus[slot]

    def emptiest(self) -> list[int]:
        """The slots, those with the most CPU free first."""
        return sorted(range(len(self.slots)), key=lambda slot: (-self.cpu[slot], slot))

    def refuse_left(self) -> None:
        """Raises Infeasible when threads are nowhere."""
        faults = [
            f"{counted(left, 'thread')} of task {task.task!r} fit into no slot"
            for task, left in zip(self.tasks, self.left, strict=True)
            if left
        ]
        if faults:
            raise Infeasible("; ".join(faults))

    def placement(self) -> Placement:
        """Raises Infeasible when threads are nowhere."""
        self.refuse_left()
        filling = Filling()
        for slot, held in zip(self.slots, self.held, strict=True):
            for task, threads in held.items():
                filling.put(slot, self.tasks[task].task, threads)
        return filling.placement(self.allocation, self.room.vms)

    def _needs(self) -> list[tuple[float, float]]:
        cores = {work.task: work.cores for work in self.room.works}
        slot_cores = self.room.vms[0].slot_cores * self.allocation.slot_speed
        found = []
        for task in self.tasks:
            cpu, memory = need_of(task, max(1.0, *self.cpus))
            measured = cores.get(task.task, 0.0) / slot_cores / task.threads
            found.append((max(cpu, min(1.0, measured)), memory))
        return found

    def _links(self) -> list[dict[int, float]]:
        place = {task.task: number for number, task in enumerate(self.tasks)}
        links: list[dict[int, float]] = [{} for _ in self.tasks]
        for flow in sized(self.room.flows):
            a, b = place[flow.source], place[flow.target]
            link = weight_of(flow) / (self.tasks[a].threads * self.tasks[b].threads)
            links[a][b] = links[b][a] = links[a].get(b, 0.0) + link
        return links

    def _pin(self) -> None:
        number = {slot: place for place, slot in enumerate(self.slots)}
        for place, task in enumerate(self.tasks):
            for slot in self.room.pinned.get(task.task, ())[: task.threads]:
                if slot in number and self.fits(place, number[slot]):
                    self.put(place, number[slot])
                    self.pinned[number[slot]][place] += 1
