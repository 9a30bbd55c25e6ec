"""Samples in, windows out: every block once, into numpy rings of two minutes (promise P7).

One matrix product per block sums its threads by task, so that a thousand agents cost little. A lost block
shows as time that no sample covers. Time is the controller's: a VM's clock is only used for how far apart
its blocks are. No clock of its own; not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from headgate.controller.knowledge.windows import HISTORY_S
from headgate.controller.monitor.blocks import Arrays, Ints, arrays_of
from headgate.controller.monitor.layout import (
    CPU,
    EDGE_COLUMNS,
    MEAN,
    QUEUE,
    SLOT_COLUMNS,
    TASK_COLUMNS,
    TASK_COUNTS,
    THREADS,
    WORK,
    Floats,
    TaskMap,
    one_hot,
)
from headgate.controller.monitor.rings import NS, Marks, Timeline
from headgate.controller.monitor.task_latency import TaskLatency
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.latency_buckets import BUCKETS
from headgate.topology_runtime.messages import SAMPLE_COLUMNS, SampleBlock
from headgate.topology_runtime.topology import Topology

OFFSETS_KEPT = 10  # blocks among which the quickest tells how far a VM's clock is off
CLOCK_STEP_NS = 1_000_000_000  # a VM's clock that jumps this far makes its window unusable
GAPS_KEPT = 1024  # numbers of lost blocks that may still arrive late
PROGRESS_STEP_NS = 200_000_000
PROGRESS_KEPT = (HISTORY_S + 10) * NS // PROGRESS_STEP_NS

_ROW = {name: row for row, name in enumerate(SAMPLE_COLUMNS)}
_COUNTS = np.array([_ROW[name] for name in TASK_COUNTS])


@dataclass(slots=True)
class _Sender:
    """What is known of one VM's blocks. since: the first second (of the rings) that it covers."""

    vm: Vm
    number: int
    first_slot: int
    boot: int = 0
    sequence: int = -1
    gaps: set[int] = field(default_factory=set)
    since: int | None = None
    offsets: deque[int] = field(default_factory=lambda: deque(maxlen=OFFSETS_KEPT))
    known: tuple[bytes, tuple[str, ...]] = (b"", ())
    by_task: Floats = field(default_factory=lambda: np.zeros((0, 0)))


class Intake:
    """The monitor's memory. `expect` says whose samples count; blocks of other VMs are refused."""

    def __init__(self, topology: Topology) -> None:
        self.map = TaskMap(topology)
        self.arriving = bool(topology.arriving)
        self.timeline = Timeline()
        self.tasks = self.timeline.ring(TASK_COLUMNS, len(self.map.tasks))
        self.edges = self.timeline.ring(EDGE_COLUMNS, len(self.map.edges))
        self.slots = self.timeline.ring(SLOT_COLUMNS)
        self.coverage = self.timeline.ring(1)
        self.latency = self.timeline.ring(BUCKETS)
        self.pairs: dict[tuple[str, str], int] = {}  # (source, sink) → series of `latency`
        self.senders: dict[str, _Sender] = {}
        self.in_task = TaskLatency(self.map.tasks)
        self.progress = Marks(3, PROGRESS_KEPT, PROGRESS_STEP_NS)
        self.epoch = 0
        self.lost = self.duplicates = self.refused = 0  # blocks
        self._homes: dict[Vm, tuple[int, int]] = {}
        self._ends = frozenset(self.map.tasks)

    def expect(self, vms: Iterable[Vm]) -> None:
        """From now on these VMs and no others are sampled. A VM counts as missing samples from its
        first block on, until it is expected no more."""
        desired = {vm.vm: vm for vm in vms}
        for name in [n for n, sender in self.senders.items() if desired.get(n) != sender.vm]:
            del self.senders[name]
        for name, vm in desired.items():
            if name not in self.senders:
                if vm not in self._homes:
                    self._homes[vm] = self.coverage.add(1), self.slots.add(vm.slots)
                self.senders[name] = _Sender(vm, *self._homes[vm])

    def add_block(self, block: SampleBlock, now_ns: int, epoch: int) -> bool:
        """Take in a block that arrived at `now_ns`; False when it is known already, or of a VM that is
        not expected. Raises BadMessage (nothing taken in) when it makes no sense."""
        sender = self.senders.get(block.vm)
        if sender is None:
            self.refused += 1
            return False
        if not self._is_new(sender, block):
            self.duplicates += 1
            return False
        arrays = arrays_of(block)
        self._check(sender, block, arrays)
        self._number(sender, block)
        self.epoch = max(self.epoch, epoch)
        end_ns = self._end_ns(sender, block, now_ns)
        sums = self._sums(sender, block, arrays)
        for row, part in self.timeline.spread(end_ns, block.window_ns):
            sums.add_to(self, sender, row, part)
        self.in_task.add(block, now_ns)
        if sender.since is None:
            sender.since = -(-(end_ns - block.window_ns) // NS)
        return True

    def add_progress(self, now_ns: int, offered: float, emitted: int, acked: int) -> None:
        """Positions of all sources together at `now_ns`. `offered` *not* rounded, else low rates look noisy. Best
        several times a second: a step of the rate is seen two points later."""
        self.progress.add(now_ns, (offered, emitted, acked))

    @staticmethod
    def _is_new(sender: _Sender, block: SampleBlock) -> bool:
        if block.boot != sender.boot:
            return block.boot > sender.boot
        return block.sequence > sender.sequence or block.sequence in sender.gaps

    def _check(self, sender: _Sender, block: SampleBlock, arrays: Arrays) -> None:
        slots = arrays.slots[0]
        if slots.size and not 0 <= slots.min() <= slots.max() < sender.vm.slots:
            raise BadMessage(f"samples of a slot that {block.vm} does not have")
        for sink, source, _ in arrays.latency:
            if sink not in self._ends or source not in self._ends:
                raise BadMessage(f"latency of a task that is not in the topology: {source} → {sink}")
        if (known := (block.threads.get("thread", b""), block.tasks)) != sender.known:
            slots = sender.first_slot + arrays.threads[_ROW["slot"]]
            numbers = self.map.learn(arrays.threads[0], block.tasks, slots, sender.number)
            sender.by_task = one_hot(numbers, len(self.map.tasks))
            sender.known = known

    def _number(self, sender: _Sender, block: SampleBlock) -> None:
        """Note the block's number, and the numbers between it and the last one as lost."""
        if block.boot != sender.boot:
            sender.boot, sender.sequence = block.boot, block.sequence
            sender.gaps.clear()
            sender.offsets.clear()
        elif block.sequence in sender.gaps:
            sender.gaps.discard(block.sequence)
            self.lost -= 1
        else:
            missing = block.sequence - sender.sequence - 1
            self.lost += missing
            sender.gaps.update(range(block.sequence - min(missing, GAPS_KEPT), block.sequence))
            if len(sender.gaps) > GAPS_KEPT:
                sender.gaps = set(sorted(sender.gaps)[-GAPS_KEPT:])
            sender.sequence = block.sequence

    def _end_ns(self, sender: _Sender, block: SampleBlock, now_ns: int) -> int:
        """When the block's window ended, by the controller's clock: the least delay seen lately counts."""
        offset = now_ns - block.wall_ns
        if sender.offsets and offset < min(sender.offsets) - CLOCK_STEP_NS:
            sender.offsets.clear()
            self.coverage.sums[:, sender.number] = 0.0
        sender.offsets.append(offset)
        return block.wall_ns + min(sender.offsets)

    def _sums(self, sender: _Sender, block: SampleBlock, arrays: Arrays) -> _Sums:
        window_s = block.window_ns / NS
        threads = arrays.threads.astype(np.float64)
        tasks = np.empty((TASK_COLUMNS, threads.shape[1]))
        tasks[:MEAN] = threads[_COUNTS]
        tasks[MEAN] = threads[_ROW["latency_mean_ns"]] * threads[_ROW["tuples_in"]]
        tasks[QUEUE] = threads[_ROW["queue"]] * window_s
        tasks[THREADS] = window_s
        tasks[WORK] = tasks[CPU] * sender.vm.speed
        slots = arrays.slots.astype(np.float64)
        slots[3] *= window_s  # memory is a gauge
        links = arrays.links.astype(np.float64)
        links[5:] *= links[4]  # latencies are means over the frames
        edges = self.map.edges_of(arrays.links[0], arrays.links[1])
        slots_apart, vms_apart = self.map.apart(arrays.links[0], arrays.links[1])
        summed = np.concatenate((links[2:], links[2:3] * slots_apart, links[2:4] * vms_apart))
        return _Sums(
            (tasks @ sender.by_task).T,
            sender.first_slot + arrays.slots[0],
            np.concatenate((slots[1:], np.full((1, slots.shape[1]), window_s))).T,
            _by_edge(summed, edges, len(self.map.edges)),
            [(self._pair(source, sink), counts) for sink, source, counts in arrays.latency],
            window_s,
        )

    def _pair(self, source: str, sink: str) -> int:
        if (source, sink) not in self.pairs:
            self.pairs[source, sink] = self.latency.add(1)
        return self.pairs[source, sink]


def _by_edge(values: Floats, edges: Ints, width: int) -> Floats:
    """(edges, columns): sums of the values (columns, links) of each edge; links of edge −1 are left out."""
    columns = len(values)
    places = (edges + 1) + (width + 1) * np.arange(columns)[:, None]
    sums = np.bincount(places.ravel(), values.ravel(), columns * (width + 1))
    return sums.reshape(columns, width + 1)[:, 1:].T.astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class _Sums:
    """A block, summed by task, slot, edge and (source, sink)."""

    tasks: Floats
    slot_series: Ints
    slots: Floats
    edges: Floats
    latency: list[tuple[int, Ints]]
    window_s: float

    def add_to(self, intake: Intake, sender: _Sender, row: int, part: float) -> None:
        """Add this part of the block to one second of the rings."""
        intake.tasks.sums[row, : len(self.tasks)] += part * self.tasks
        intake.slots.sums[row, self.slot_series] += part * self.slots
        intake.edges.sums[row, : len(self.edges)] += part * self.edges
        intake.coverage.sums[row, sender.number] += part * self.window_s
        for series, counts in self.latency:
            intake.latency.sums[row, series] += part * counts
