"""Where threads may go: VMs in the order in which they are filled, and what is settled before. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from headgate.controller.knowledge.plans import Allocation, Bundle, Placement
from headgate.controller.knowledge.traffic import TaskFlow, TaskWork
from headgate.topology_runtime.cluster import Slot, Vm


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


class Room(msgspec.Struct, frozen=True):
    """`vms` in filling order; `excluded` slots hold nothing; `pinned`: task of fixed size → slots of its
    threads, kept where they are usable. flows: what mappers go by that look at traffic, and at what feeds what; they
    also take a thread to need what was measured of its task (`works`), where that is more than its model says."""

    vms: tuple[Vm, ...]
    excluded: frozenset[Slot] = frozenset()
    pinned: dict[str, tuple[Slot, ...]] = {}
    weights: Weights = Weights()
    flows: tuple[TaskFlow, ...] = ()
    works: tuple[TaskWork, ...] = ()
    spread: TopologySpread = TopologySpread()

    def slots(self) -> list[Slot]:
        """The usable slots in filling order."""
        return [slot for vm in self.vms for slot in vm.all_slots() if slot not in self.excluded]

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
