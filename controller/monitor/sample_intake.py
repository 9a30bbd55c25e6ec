"""Samples in, windows out: every block once, into numpy rings of two minutes (guarantee P7).

One matrix product per block sums its threads by task, so that a thousand agents cost little. A lost block
shows as time that no sample covers. Time is the controller's: a VM's clock is only used for how far apart
its blocks are. No clock of its own; not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.controller.knowledge.measured_window import HISTORY_S
from headgate.controller.knowledge.run_view import Percentiles
from headgate.controller.monitor.sample_blocks import Arrays, Ints, arrays_of, percentiles_ns, task_latency_of
from headgate.controller.monitor.user_totals import UserTotals
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wire.messages import SAMPLE_COLUMNS, SampleBlock

# ── Sums per second of time in numpy rings: what `Intake` writes and `sample_windows` reads ────────────────────
#
# Every quantity is kept as an integral over time (counts, or a gauge × seconds), so that a block which lies
# across two seconds is split between them and nothing depends on when agents happen to sample.


NS = 1_000_000_000
SECONDS_KEPT = 128  # windows reach back 120 s; late blocks a few more


class Ring:
    """(SECONDS_KEPT, series, columns) sums; series are added as VMs and latencies appear."""

    def __init__(self, columns: int, series: int = 0) -> None:
        self.used = series
        self.sums: Floats = np.zeros((SECONDS_KEPT, max(series, 1), columns))

    def add(self, count: int) -> int:
        """Room for `count` more series; the number of the first."""
        first, self.used = self.used, self.used + count
        if self.used > self.sums.shape[1]:
            more = max(self.used, 2 * self.sums.shape[1]) - self.sums.shape[1]
            self.sums = np.pad(self.sums, ((0, 0), (0, more), (0, 0)))
        return first

    def of(self, seconds: NDArray[np.int64]) -> Floats:
        """The sums (seconds, series, columns) of these seconds."""
        return self.sums[seconds % SECONDS_KEPT, : self.used]


class Timeline:
    """Which second is newest; rings are cleared as it moves on."""

    def __init__(self) -> None:
        self.newest: int | None = None
        self._rings: list[Ring] = []

    def ring(self, columns: int, series: int = 0) -> Ring:
        ring = Ring(columns, series)
        self._rings.append(ring)
        return ring

    def spread(self, end_ns: int, length_ns: int) -> Iterator[tuple[int, float]]:
        """(row of the rings, part of the time) for each second that end − length … end touches.

        Seconds that are no longer kept are left out."""
        start_ns = end_ns - length_ns
        self.advance((end_ns - 1) // NS)
        assert self.newest is not None
        for second in range(max(start_ns // NS, self.newest - SECONDS_KEPT + 1), (end_ns - 1) // NS + 1):
            overlap = min(end_ns, (second + 1) * NS) - max(start_ns, second * NS)
            yield second % SECONDS_KEPT, overlap / length_ns

    def advance(self, second: int) -> None:
        """Make `second` the newest, if it is; the rings are empty there."""
        if self.newest is None:
            self.newest = second
        for new in range(max(self.newest + 1, second - SECONDS_KEPT + 1), second + 1):
            for ring in self._rings:
                ring.sums[new % SECONDS_KEPT] = 0.0
        self.newest = max(self.newest, second)


class Marks:
    """The newest values of a few counters against time, oldest first, at least `step_ns` apart but for the
    newest one."""

    def __init__(self, counters: int, kept: int, step_ns: int) -> None:
        self._values: Floats = np.zeros((2 * kept, counters + 1))
        self._kept, self._step_ns, self._end = kept, step_ns, 0

    def add(self, now_ns: int, values: tuple[float, ...]) -> None:
        """A point at `now_ns`; the newest one gives way when it is too close to the one before it."""
        times = self._values[:, 0]
        while self._end and now_ns <= times[self._end - 1]:
            self._end -= 1
        if self._end > 1 and times[self._end - 1] - times[self._end - 2] < self._step_ns:
            self._end -= 1
        if self._end == len(self._values):
            self._values[: self._kept] = self._values[self._kept :].copy()
            self._end = self._kept
        self._values[self._end] = (now_ns, *values)
        self._end += 1

    def all(self) -> Floats:
        """(points, 1 + counters): time in ns, then the counters."""
        return self._values[max(0, self._end - self._kept) : self._end]


# ── Where a VM's rows belong: threads → tasks, slots → their series, links → edges between tasks ────────

Bools = NDArray[np.bool_]

TASK_COUNTS = (
    "tuples_in", "tuples_out", "cpu_ns", "run_delay_ns", "busy_ns", "wait_ns", "bytes_in", "bytes_out",
)  # fmt: skip
IN, OUT, CPU, DELAY, BUSY, WAIT, BYTES_IN, BYTES_OUT = range(8)
MEAN, QUEUE, THREADS = range(8, 11)  # latency × rows, then gauges × seconds
WORK = 11  # CPU × the speed of its VM
TIMERS = 12  # of the CPU, what timers took
CALLS, RAN_SQUARES, WAITED_SQUARES = range(13, 16)  # `SampleBlock.calls`
TASK_COLUMNS = 16
SLOT_CPU, SLOT_THROTTLED, SLOT_MEMORY, SLOT_KILLS, SLOT_TIME, SLOT_HELD_TIME = range(
    6
)  # the last: memory known
SLOT_COLUMNS = 6
TUPLES, BYTES, FRAMES, BUFFER, CHANNEL = range(5)
SLOTS_TUPLES, VMS_TUPLES, VMS_BYTES = range(5, 8)  # of these from another slot, from another VM
EDGE_COLUMNS = 8


class TaskMap:
    """Numbers of tasks and edges of a topology, and which thread runs which task."""

    def __init__(self, topology: Topology) -> None:
        self.tasks = tuple(task.name for task in topology.tasks)
        self.edges = tuple(dict.fromkeys((edge.source, edge.target) for edge in topology.edges))
        self._number = {name: number for number, name in enumerate(self.tasks)}
        # one row and column more than tasks: for threads that are not known (number −1)
        self._edge_of = np.full((len(self.tasks) + 1, len(self.tasks) + 1), -1, np.int64)
        for number, (source, target) in enumerate(self.edges):
            self._edge_of[self._number[source], self._number[target]] = number
        self._task_of = np.full(1024, -1, np.int64)  # by thread + 1; both ends stay −1: threads not known
        self._slot_of = np.full(1024, -1, np.int64)  # likewise: the number of its slot …
        self._vm_of = np.full(1024, -1, np.int64)  # … and of its VM

    def learn(self, threads: Ints, tasks: tuple[str, ...], slots: Ints, vm: int) -> Ints:
        """The task number of each thread row; remembered, with the numbers of its slot and its VM. Raises BadMessage
        for an unknown task."""
        try:
            numbers = np.array([self._number[task] for task in tasks], np.int64)
        except KeyError as error:
            raise BadMessage(f"samples of a task that is not in the topology: {error.args[0]}") from error
        if threads.size:
            least = int(threads.max()) + 3
            if least > len(self._task_of):
                more = max(least, 2 * len(self._task_of)) - len(self._task_of)
                self._task_of = np.pad(self._task_of, (0, more), constant_values=-1)
                self._slot_of = np.pad(self._slot_of, (0, more), constant_values=-1)
                self._vm_of = np.pad(self._vm_of, (0, more), constant_values=-1)
            self._task_of[threads + 1] = numbers
            self._slot_of[threads + 1] = slots
            self._vm_of[threads + 1] = vm
        return numbers

    def edges_of(self, senders: Ints, receivers: Ints) -> Ints:
        """The edge number of each link, −1 where an end is not known (yet)."""
        edges: Ints = self._edge_of[self._tasks(senders), self._tasks(receivers)]
        return edges

    def apart(self, senders: Ints, receivers: Ints) -> tuple[Bools, Bools]:
        """Per link: are both ends known and in different slots? On different VMs?"""
        of, to = senders + 1, receivers + 1
        vm_of, vm_to = self._vm_of.take(of, mode="clip"), self._vm_of.take(to, mode="clip")
        known = (vm_of >= 0) & (vm_to >= 0)
        slots = self._slot_of.take(of, mode="clip") != self._slot_of.take(to, mode="clip")
        return slots & known, (vm_of != vm_to) & known

    def _tasks(self, threads: Ints) -> Ints:
        return self._task_of.take(threads + 1, mode="clip")


def one_hot(numbers: Ints, width: int) -> Floats:
    """(rows, width): 1 in the column of each row's number."""
    out = np.zeros((len(numbers), width))
    out[np.arange(len(numbers)), numbers] = 1.0
    return out


# ── Latency of rows in their tasks, from the histograms that sample blocks bring. Nothing is decided by it.
# Pure

ROWS_MOST = 1 << 40  # beyond them nobody means it
WINDOW_NS = 10_000_000_000
SHARES = (0.5, 0.95, 0.99)
MS = 1e6
NOTHING: Ints = np.zeros((3, 0), np.int64)


class TaskLatency:
    """percentiles: of the last ten seconds, whose blocks are added up when somebody asks; totals: of all. `tasks` in
    the order of the topology; one that did nothing is left out."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks
        self._blocks: deque[tuple[int, Ints]] = deque()
        self._totals = np.zeros((len(tasks), BUCKETS), np.int64)

    def add(self, block: SampleBlock, now_ns: int) -> None:
        """What makes no sense is passed over."""
        found = self._counted(block) if block.task_latency else NOTHING
        task, bucket, rows = found
        if len(task):
            np.add.at(self._totals, (task, bucket), rows)
            self._blocks.append((now_ns, found))
        self._forget(now_ns)

    def _counted(self, block: SampleBlock) -> Ints:
        """(task, bucket, rows) × what a block counted."""
        try:
            found = task_latency_of(block)
        except BadMessage:
            return NOTHING
        task, bucket, rows = found
        there = (task >= 0) & (task < len(self._tasks)) & (bucket >= 0) & (bucket < BUCKETS)
        return found[:, there & (rows > 0) & (rows < ROWS_MOST)]

    def totals(self) -> dict[str, tuple[int, ...]]:
        """Task → rows by bucket."""
        rows = zip(self._tasks, self._totals.tolist(), strict=True)
        return {name: tuple(counts) for name, counts in rows if any(counts)}

    def percentiles(self, now_ns: int) -> dict[str, Percentiles]:
        """By task."""
        self._forget(now_ns)
        if not self._blocks:
            return {}
        sums = np.zeros((len(self._tasks), BUCKETS))
        task, bucket, rows = np.concatenate([counts for _, counts in self._blocks], axis=1)
        np.add.at(sums.reshape(-1), task * BUCKETS + bucket, rows)
        at_ms = (percentiles_ns(sums, SHARES) / MS).tolist()
        done = sums.sum(axis=1) > 0
        return {name: tuple(at_ms[n]) for n, name in enumerate(self._tasks) if done[n]}

    def _forget(self, now_ns: int) -> None:
        while self._blocks and self._blocks[0][0] <= now_ns - WINDOW_NS:
            self._blocks.popleft()


OFFSETS_KEPT = 10  # blocks among which the quickest says how far a VM's clock is off
CLOCK_STEP_NS = 1_000_000_000  # a VM's clock that jumps this far makes its window unusable
TIMERS_MOST_NS = 1 << 50  # in a block
CALLS_MOST, SQUARES_MOST = 1 << 40, 1 << 62  # likewise
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
        self.ever = np.zeros((len(self.map.tasks), 2))  # rows, and CPU of timers in ns
        self.edges = self.timeline.ring(EDGE_COLUMNS, len(self.map.edges))
        self.slots = self.timeline.ring(SLOT_COLUMNS)
        self.coverage = self.timeline.ring(1)
        self.latency = self.timeline.ring(BUCKETS)
        self.pairs: dict[tuple[str, str], int] = {}  # (source, sink) → series of `latency`
        self.senders: dict[str, _Sender] = {}
        self.in_task = TaskLatency(self.map.tasks)
        self.user = UserTotals(tuple(self.map.tasks))
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
        self.ever[: len(sums.tasks)] += sums.tasks[:, [IN, TIMERS]]
        for row, part in self.timeline.spread(end_ns, block.window_ns):
            sums.add_to(self, sender, row, part)
        self.in_task.add(block, now_ns)
        self.user.add(block, now_ns)
        if sender.since is None:
            sender.since = -(-(end_ns - block.window_ns) // NS)
        return True

    def add_progress(self, now_ns: int, offered: float, emitted: float, acked: float) -> None:
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
        for task, timers_ns in block.timers_ns.items():
            if task not in self._ends or not 0 <= timers_ns <= TIMERS_MOST_NS:
                raise BadMessage(f"timers of {block.vm} cannot be used: {timers_ns} ns of {task}")
        for task, counts in block.calls.items():
            most = CALLS_MOST, SQUARES_MOST, SQUARES_MOST
            if task not in self._ends or not all(0 <= n <= top for n, top in zip(counts, most, strict=True)):
                raise BadMessage(f"calls of {block.vm} cannot be used: {counts} of {task}")
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
        tasks[TIMERS:] = 0.0
        by_task = (tasks @ sender.by_task).T
        if block.timers_ns:
            by_task[:, TIMERS] = [block.timers_ns.get(name, 0) for name in self.map.tasks[: len(by_task)]]
        if block.calls:
            none = 0, 0, 0
            by_task[:, CALLS:] = [block.calls.get(name, none) for name in self.map.tasks[: len(by_task)]]
        slots = arrays.slots.astype(np.float64)
        held_s = (slots[3] > 0) * window_s  # of a process that ends nothing is known
        slots[3] *= window_s  # memory is a gauge
        links = arrays.links.astype(np.float64)
        links[5:] *= links[4]  # latencies are means over the frames
        edges = self.map.edges_of(arrays.links[0], arrays.links[1])
        slots_apart, vms_apart = self.map.apart(arrays.links[0], arrays.links[1])
        summed = np.concatenate((links[2:], links[2:3] * slots_apart, links[2:4] * vms_apart))
        return _Sums(
            by_task,
            sender.first_slot + arrays.slots[0],
            np.concatenate((slots[1:], np.full((1, slots.shape[1]), window_s), held_s[None])).T,
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
