"""Allocation, placement, prediction, plan: what the planner makes. Frozen; no I/O.

An allocator makes an allocation; a mapper makes a placement. Field names are those of the contract's
`headgate/plan/v1`; fractions of a slot unless the name says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from headgate.controller.knowledge.certainty import Certainty
from headgate.controller.knowledge.traffic import TaskFlow
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.faults.words import counted


class TaskAllocation(msgspec.Struct, frozen=True):
    """What one task needs: `threads`, CPU and memory in slots. MBA also says how it got there:
    `full_bundles` bundles of `bundle_threads` threads (a whole slot each), then `rest_threads`
    threads that need `rest_cpu` and `rest_memory` of a slot."""

    task: str
    rate_tps: float
    threads: int
    cpu_slots: float
    memory_slots: float
    full_bundles: int = 0
    bundle_threads: int = 0
    rest_threads: int = 0
    rest_cpu: float = 0.0
    rest_memory: float = 0.0
    static: bool = False


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Threads and resources per task at `rate_tps`; `slots` is ρ (static tasks not counted). Of an allocator that
    chooses what shares a slot: `mixes`, the threads of each slot (a plan's placement has them), and the `gap`: by what
    part of its slots it may be above the fewest there are; `ended`: why a gap is left. margin: threads and slots
    are for so many times the rate, for this reason; that of a plan that is to be sure is in its prediction."""

    allocator: str
    rate_tps: float
    tasks: tuple[TaskAllocation, ...]
    slots: int
    mixes: tuple[dict[str, int], ...] = ()
    gap: float | None = None
    ended: str = ""
    margin: float = 1.0
    margin_why: str = ""

    @property
    def gap_words(self) -> str:
        """Beside a gap: why it is left, and what closing it could save; empty where there is none."""
        fewer = math.floor((self.gap or 0.0) * self.slots + 1e-6)
        if not fewer or not self.ended:
            return ""
        return (
            f"{self.ended}; at most {counted(fewer, 'slot')} fewer {'is' if fewer == 1 else 'are'} possible"
        )


def margin_words(allocation: Allocation) -> str:
    """The margin and its reason; empty where the allocator takes none."""
    if not allocation.margin_why:
        return ""
    part = allocation.margin - 1
    return f"margin {part:.1%}: {allocation.margin_why}"


class Bundle(msgspec.Struct, frozen=True, array_like=True):
    """`threads` threads of `task` in `slot`. full: SAM gave them the slot for themselves."""

    slot: Slot
    task: str
    threads: int
    full: bool = False


class Placement(msgspec.Struct, frozen=True):
    """Threads → slots. Bundles in order of (slot, task's breadth-first place), one per (slot, task)."""

    bundles: tuple[Bundle, ...]

    def slots_used(self) -> int:
        return len({bundle.slot for bundle in self.bundles})


class SlotUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPU and memory of a slot, and between what they may lie when the models carry spread."""

    vm: str
    slot: int
    cpu: float
    memory: float
    cpu_low: float | None = None
    cpu_high: float | None = None
    memory_low: float | None = None
    memory_high: float | None = None


class VmUse(msgspec.Struct, frozen=True):
    vm: str
    cpu: float
    memory: float


class Share(msgspec.Struct, frozen=True, array_like=True):
    """The part of the task's rows that the group (slot, task) gets; a task's shares sum to 1."""

    slot: Slot
    task: str
    share: float


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a placement will do: the highest input rate it supports (`rate_tps`; between `rate_low_tps`
    and `rate_high_tps` when the models carry spread; `likely_tps` is then what it is likely to carry, less where
    several slots are about full), which task and slot limit it, CPU and memory per slot and VM at `at_rate_tps`, and
    the routing shares behind it. sure: how surely it carries a rate, where that was asked. flows: what was measured
    that tasks say to each other, at the plan's rate, where it was planned by that."""

    rate_tps: float
    limited_by: str | None
    limited_by_slot: str | None
    slots: tuple[SlotUse, ...]
    vms: tuple[VmUse, ...]
    at_rate_tps: float
    shares: tuple[Share, ...] = ()
    rate_low_tps: float | None = None
    rate_high_tps: float | None = None
    likely_tps: float | None = None
    sure: Certainty | None = None
    flows: tuple[TaskFlow, ...] = ()


class SlotCount(msgspec.Struct, frozen=True):
    """estimated: ρ. extra: slots added until the mapper fitted. total: acquired. used: with threads."""

    estimated: int
    extra: int
    total: int
    used: int


class Plan(msgspec.Struct, frozen=True):
    """A whole plan for `rate_tps`; `id` is a digest of everything else but `base_epoch`."""

    id: str
    topology: str
    rate_tps: float
    allocator: str
    mapper: str
    routing: str
    topology_digest: str
    models_digest: str
    allocation: Allocation
    slots: SlotCount
    vms: tuple[Vm, ...]
    placement: Placement
    prediction: Prediction
    interference: str = "cpu"
    base_epoch: int | None = None


class ThreadAt(msgspec.Struct, frozen=True, array_like=True):
    """A thread of a plan with its number for life. `partition`: k of the task's threads (sources)."""

    thread: int
    task: str
    slot: Slot
    partition: int = 0


def usd_per_hour(vms: Iterable[Vm]) -> float:
    """USD of all of them, to a millionth."""
    return round(math.fsum(vm.usd_per_hour for vm in vms), 6)
