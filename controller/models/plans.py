"""Allocation, placement, prediction, plan: what the planner makes. Frozen; no I/O.

An allocator makes an allocation; a mapper makes a placement. Field names are those of the contract's
`headgate/plan/v1`; fractions of a slot unless the name says otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.wire.messages import ThreadSpec
from headgate.topology_runtime.wording import counted

# ── How surely a placement carries a rate: what is asked for, and what is said of it. Frozen, plain values

SLOT, TOGETHER = (
    0.053,
    0.05,
)  # measured in 144 trials and 102 (docs/explanation/models-and-planning.md; decision 23)


class ErrorSpread(msgspec.Struct, frozen=True):
    """By how much plans err, as standard deviations of ln(what a row costs / what was predicted).

    slot: each slot for itself. together: all slots of a plan alike; where the models' own errors are not known. models:
    model → (by how much ln is off on average, its own standard deviation), learned."""

    slot: float = SLOT
    together: float = TOGETHER
    models: dict[str, tuple[float, float]] = {}


class Sure(msgspec.Struct, frozen=True):
    """A plan shall carry its rate with this probability. strict: or there is none; else it is as sure as the slots
    there are allow. margin: threads and slots are for the rate × this."""

    probability: float
    spread: ErrorSpread = ErrorSpread()
    strict: bool = True
    margin: float = 1.0


class Certainty(msgspec.Struct, frozen=True):
    """`chance`: at least so probably the placement carries `rate_tps`; asked for was `probability`. The rest: by what
    errors that was worked out, and `margin`."""

    probability: float
    rate_tps: float
    chance: float
    margin: float
    spread: ErrorSpread

    @property
    def told(self) -> str:
        """The chance in three digits, never more than it is."""
        return f"{math.floor(1000 * self.chance) / 1000:.3f}"


# ── What tasks say to each other, and what CPU that takes, as it was measured. Frozen, plain values ───
#
# Everything is kept per tuple of the input rate, so that a plan for any rate is made of it. Measured pairs of
# threads are summed by edge: a plan's threads are new ones, and those of a task are alike.

DIGITS = 3  # of what is handed to plans: what differs by less is the same plan

EdgeEnds = tuple[str, str]  # the task that sends, the one that receives


class TaskFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all threads of one task send to those of another. row_bytes: of a row between slots, if it is known."""

    source: str
    target: str
    rows_tps: float
    row_bytes: float | None = None


class TaskWork(msgspec.Struct, frozen=True, array_like=True):
    """CPU of all threads of a task: cores in use, each × the speed of its VM: what paper 1 counts in Hz."""

    task: str
    cores: float


class MeasuredTraffic(msgspec.Struct, frozen=True):
    """Per tuple of the input rate. rows: on an edge; row_bytes: of one of its rows, where rows left a slot;
    work: core-seconds of a task at speed 1. seconds: for how long it was measured."""

    seconds: float
    rows: dict[EdgeEnds, float]
    row_bytes: dict[EdgeEnds, float]
    work: dict[str, float]

    def flows(self, rate_tps: float) -> tuple[TaskFlow, ...]:
        """At an input rate."""
        return tuple(
            TaskFlow(*ends, _rounded(rows * rate_tps), self._size(ends)) for ends, rows in self.rows.items()
        )

    def works(self, rate_tps: float) -> tuple[TaskWork, ...]:
        """At an input rate, if every row costs what it costs now."""
        return tuple(TaskWork(task, _rounded(each * rate_tps)) for task, each in self.work.items())

    def _size(self, ends: EdgeEnds) -> float | None:
        size = self.row_bytes.get(ends)
        return None if size is None else _rounded(size)


def sized(flows: Iterable[TaskFlow]) -> tuple[TaskFlow, ...]:
    """Rows of unknown size are as large as the others in the geometric mean, since sizes differ by factors; where none
    is known, none is. Unknown is what never left a slot: once a plan parts it, it is known."""
    flows = tuple(flows)
    sizes = [flow.row_bytes for flow in flows if flow.row_bytes]
    if not sizes:
        return flows
    plain = _rounded(math.exp(math.fsum(map(math.log, sizes)) / len(sizes)))
    return tuple(replace(flow, row_bytes=plain) if flow.row_bytes is None else flow for flow in flows)


def weight_of(flow: TaskFlow) -> float:
    """What it counts where what is said is to stay near: bytes/s; rows/s where no size of rows is known."""
    return flow.rows_tps * (1.0 if flow.row_bytes is None else flow.row_bytes)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


class TaskState(msgspec.Struct, frozen=True):
    """What the states of a keyed task take, of all its threads: as they are saved and moved, and if all of them were in
    memory. A stock: whoever has a part of the key ranges holds that part of it."""

    task: str
    saved_bytes: int
    memory_bytes: int


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
    are for so many times the rate, for this reason; that of a plan that is to be sure is in its prediction. kept: so
    many threads stay where an earlier plan had them; only the others were placed. slot_speed: CPU is counted in slots
    of VMs of this speed; counted: how else threads are counted than the allocator does, and why."""

    allocator: str
    rate_tps: float
    tasks: tuple[TaskAllocation, ...]
    slots: int
    mixes: tuple[dict[str, int], ...] = ()
    gap: float | None = None
    ended: str = ""
    margin: float = 1.0
    margin_why: str = ""
    kept: int = 0
    slot_speed: float = 1.0
    counted: str = ""

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

    def by_slot(self) -> dict[Slot, dict[str, int]]:
        """Slot → task → threads, of the slots that have any."""
        found: dict[Slot, dict[str, int]] = {}
        for bundle in self.bundles:
            found.setdefault(bundle.slot, {})[bundle.task] = bundle.threads
        return found

    def by_task(self) -> Counter[str]:
        """Threads of each task."""
        found: Counter[str] = Counter()
        for bundle in self.bundles:
            found[bundle.task] += bundle.threads
        return found


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


UNLIMITED_TPS = 1e9  # predicted where what limits the rate is a task that nothing is known of yet


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a placement will do: the highest input rate it supports (`rate_tps`; between `rate_low_tps`
    and `rate_high_tps` when the models carry spread; `likely_tps` is then what it is likely to carry, less where
    several slots are about full), which task and slot limit it, CPU and memory per slot and VM at `at_rate_tps`, and
    the routing shares behind it. sure: how surely it carries a rate, where that was asked. flows: what was measured
    that tasks say to each other, at the plan's rate, where it was planned by that. states: of keyed tasks, of which no
    slot keeps more than `state_most_bytes` in memory (0: half of its own)."""

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
    states: tuple[TaskState, ...] = ()
    state_most_bytes: int = 0

    @property
    def told_tps(self) -> float | None:
        """`rate_tps` as people and programs see it: None while it is not known."""
        return self.rate_tps if self.rate_tps < UNLIMITED_TPS else None


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


class RowLatency(NamedTuple):
    """From when a row is due, or came, until a sink is done with it, in ms."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class PlanLatency(NamedTuple):
    """Of rows at all sinks together, and at each."""

    rate_tps: float
    rows: RowLatency
    sinks: tuple[tuple[str, RowLatency], ...]


class ThreadAt(msgspec.Struct, frozen=True, array_like=True):
    """A thread of a plan with its number for life. `partition`: k of the task's threads (sources)."""

    thread: int
    task: str
    slot: Slot
    partition: int = 0


def usd_per_hour(vms: Iterable[Vm]) -> float:
    """USD of all of them, to a millionth."""
    return round(math.fsum(vm.usd_per_hour for vm in vms), 6)


# ── Who is where, by a rollout: worked out once for each. Pure ──────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PlacedThreads:
    """threads: (slot, task) → threads that stay. Others by slot; shares: of a task's rows."""

    threads: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_slot: dict[Slot, dict[str, int]] = field(default_factory=dict)
    by_task: Counter[str] = field(default_factory=Counter)
    leaving: Counter[Slot] = field(default_factory=Counter)
    full: frozenset[Slot] = frozenset()
    shares: dict[Slot, dict[str, float]] = field(default_factory=dict)


NOWHERE = PlacedThreads()


def placed(threads: Iterable[ThreadSpec], plan: Plan) -> PlacedThreads:
    """The threads of a rollout, and what its plan says of their slots."""
    found = PlacedThreads(full=frozenset(bundle.slot for bundle in plan.placement.bundles if bundle.full))
    for thread in threads:
        if thread.leaving:
            found.leaving[thread.slot] += 1
            continue
        tasks = found.by_slot.setdefault(thread.slot, {})
        tasks[thread.task] = tasks.get(thread.task, 0) + 1
        found.threads[str(thread.slot), thread.task] += 1
        found.by_task[thread.task] += 1
    for part in plan.prediction.shares:
        found.shares.setdefault(part.slot, {})[part.task] = part.share
    return found
