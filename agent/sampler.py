"""Once a second: every thread's counts, times and latency, every slot's use, every link, in one block.

Read from outside the workers: their meters (shared memory), schedstat files kept open, statm, the slot
binding. Attribution, where the kernel does not say:
  memory      a slot's RSS is split evenly over its threads (a thread has none of its own)
  run_delay   includes being throttled by the slot's bound; each thread's is reduced in proportion, so
              that what is left in a slot is waiting for others
  latency     a sink's end-to-end latency is booked on the first source (in file order) from which the
              sink can be reached; with several sources the meter does not tell them apart
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.agent.meter_reader import Counts, MeterReader, ThreadDelta
from headgate.agent.sink_log_parts import FinishedTail
from headgate.topology_runtime import proc
from headgate.topology_runtime.finished_kept import FinishedKept
from headgate.topology_runtime.latency_buckets import BUCKETS, LATENCY_COLUMNS, percentiles_ns
from headgate.topology_runtime.messages import (
    LINK_COLUMNS,
    SAMPLE_COLUMNS,
    SLOT_COLUMNS,
    DesiredState,
    SampleBlock,
)
from headgate.topology_runtime.slots.binding import SlotBinding
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.worker import meter as mt

LINKS_MOST = 4096  # in one block; what is left out comes with the next
Row = Sequence[int]
TaskLatency = dict[tuple[int, int], int]  # (task, bucket) → rows


@dataclass(slots=True)
class WatchedWorker:
    """A worker whose meter is read. over: its process has ended; it is read one last time."""

    slot: int
    incarnation: int
    pid: int
    reader: MeterReader
    schedstats: dict[int, proc.Schedstat] = field(default_factory=dict)
    over: bool = False

    def close(self) -> None:
        for file in self.schedstats.values():
            file.close()
        self.reader.close()


@dataclass(slots=True)
class SlotUsage:
    """A slot's figures at the last block."""

    cpu_ns: int = 0
    throttled_ns: int = 0
    oom_kills: int = 0


class Sampler:
    """Makes a VM's sample blocks. Nothing is measured before the first desired state names the tasks."""

    def __init__(self, vm: str, boot: int, binding: SlotBinding, directory: str, now_ns: int) -> None:
        self._vm, self._boot, self._binding = vm, boot, binding
        self.finished = FinishedTail(directory)
        self._watched: list[WatchedWorker] = []
        self._used: dict[int, SlotUsage] = {}
        self._topology: Topology | None = None
        self._names: tuple[str, ...] = ()
        self._source_of: dict[int, str] = {}
        self._last_ns = now_ns
        self._sequence = 0

    def obey(self, desired: DesiredState) -> None:
        """Learn the tasks' names and which source a sink's latency is booked on."""
        if desired.topology == self._topology:
            return
        self._topology = topology = desired.topology
        self._names = tuple(task.name for task in topology.tasks)
        self._source_of = {
            number: source
            for number, task in enumerate(topology.tasks)
            if not topology.out_edges(task.name) and (source := first_source(topology, task.name))
        }

    def watch(self, slot: int, incarnation: int, pid: int, reader: MeterReader) -> None:
        if all(watched.slot != slot for watched in self._watched):
            self._used[slot] = self._use(slot)  # what a profile used there was nobody's
        self._watched.append(WatchedWorker(slot, incarnation, pid, reader))

    def over(self, slot: int, incarnation: int) -> None:
        """That worker's process has ended: what it still counted is in the next block."""
        for watched in self._watched:
            if (watched.slot, watched.incarnation) == (slot, incarnation):
                watched.over = True

    def trim(self, kept: FinishedKept) -> None:
        """Throw away logs of finished rows that nobody needs. Raises OSError."""
        self.finished.trim(kept, self._names)

    def close(self) -> None:
        for watched in self._watched:
            watched.close()
        self._watched.clear()

    # ── a block ─────────────────────────────────────────────────────────────────────────────────

    def block(self, now_ns: int, wall_ns: int, epoch: int) -> SampleBlock | None:
        """Everything since the last block; None before there is anything to name."""
        if self._topology is None:
            return None
        begin_ns = time.thread_time_ns()
        rows: list[Row] = []
        tasks: list[str] = []
        slots: list[Row] = []
        latency: dict[int, list[int]] = {}
        in_task: TaskLatency = {}
        links: list[Row] = []
        for slot in sorted({watched.slot for watched in self._watched}):
            self._slot(slot, epoch, rows, tasks, slots, latency, in_task)
        for watched in self._watched:
            links += [_link_row(*link) for link in watched.reader.links(LINKS_MOST - len(links))]
        self._forget_over()
        window_ns, self._last_ns = now_ns - self._last_ns, now_ns
        self._sequence += 1
        return SampleBlock(
            vm=self._vm,
            boot=self._boot,
            sequence=self._sequence,
            wall_ns=wall_ns,
            window_ns=window_ns,
            epoch=epoch,
            tasks=tuple(tasks),
            threads=columns(SAMPLE_COLUMNS, rows),
            slots=columns(SLOT_COLUMNS, slots),
            links=columns(LINK_COLUMNS, links),
            latency=tuple(
                (self._names[sink], self._source_of[sink], tuple(buckets))
                for sink, buckets in latency.items()
            ),
            finished=self.finished.take(self._names, now_ns),
            task_latency=columns(LATENCY_COLUMNS, [(*place, count) for place, count in in_task.items()]),
            cost_ns=time.thread_time_ns() - begin_ns,
        )

    def behind(self) -> bool:
        """Are there finished rows that did not fit into the last block?"""
        return self._topology is not None and self.finished.behind()

    def _forget_over(self) -> None:
        for watched in self._watched:
            if watched.over:
                watched.close()
        self._watched = [watched for watched in self._watched if not watched.over]

    # ── a slot ──────────────────────────────────────────────────────────────────────────────────

    def _slot(
        self,
        slot: int,
        epoch: int,
        rows: list[Row],
        tasks: list[str],
        slots: list[Row],
        latency: dict[int, list[int]],
        in_task: TaskLatency,
    ) -> None:
        """One slot's row and its threads' rows."""
        now, before = self._use(slot), self._used[slot]
        self._used[slot] = now
        throttled_ns = now.throttled_ns - before.throttled_ns
        here = [watched for watched in self._watched if watched.slot == slot]
        rss_bytes = sum(proc.rss_bytes(watched.pid) for watched in here if not watched.over)
        slots.append(
            (slot, now.cpu_ns - before.cpu_ns, throttled_ns, rss_bytes, now.oom_kills - before.oom_kills)
        )
        seen = [(delta, _times(watched, delta)) for watched in here for delta in watched.reader.threads()]
        own_share = unthrottled_share([delay_ns for _, (_, delay_ns) in seen], throttled_ns)
        memory_bytes = rss_bytes // len(seen) if seen else 0
        for delta, (cpu_ns, delay_ns) in seen:
            task = delta.now[mt.TASK]
            tasks.append(self._names[task])
            borrowed_ns = delta.now[mt.BORROWED_NS] - delta.before[mt.BORROWED_NS]
            times = (max(0, cpu_ns + borrowed_ns), int(delay_ns * own_share), memory_bytes)
            rows.append(
                (delta.now[mt.THREAD] - 1, slot, delta.now[mt.EPOCH] or epoch, *times, *_counts(delta))
            )
            for bucket, count in delta.latency:
                in_task[task, bucket] = in_task.get((task, bucket), 0) + count
            if delta.end_to_end and task in self._source_of:
                buckets = latency.setdefault(task, [0] * BUCKETS)
                for bucket, count in delta.end_to_end:
                    buckets[bucket] += count

    def _use(self, slot: int) -> SlotUsage:
        binding = self._binding
        return SlotUsage(binding.cpu_ns(slot), binding.throttled_ns(slot), binding.oom_kills(slot))


def unthrottled_share(delays_ns: Sequence[int], throttled_ns: int) -> float:
    """The part of a slot's run-delays that is not its being throttled: waiting for others."""
    delayed_ns = sum(delays_ns)
    return max(0.0, 1 - throttled_ns / delayed_ns) if delayed_ns else 0.0


def first_source(topology: Topology, task: str) -> str | None:
    """The first source, in file order, from which `task` can be reached (itself, if it is one)."""
    upstream, waiting = {task}, [task]
    while waiting:
        for _, edge in topology.in_edges(waiting.pop()):
            if edge.source not in upstream:
                upstream.add(edge.source)
                waiting.append(edge.source)
    return next((source.name for source in topology.sources if source.name in upstream), None)


def columns(names: Sequence[str], rows: Iterable[Row]) -> dict[str, bytes]:
    """Rows of int64 as one run of bytes per column."""
    turned = list(zip(*rows, strict=True)) or [()] * len(names)
    return {name: array("q", column).tobytes() for name, column in zip(names, turned, strict=True)}


def _times(watched: WatchedWorker, delta: ThreadDelta) -> tuple[int, int]:
    """(CPU, run-delay) in ns of a thread since the last block; its file is kept open."""
    tid = delta.now[mt.TID]
    file = watched.schedstats.get(tid)
    if file is None:
        if not tid:
            return 0, 0
        file = watched.schedstats[tid] = proc.Schedstat(watched.pid, tid)
    if delta.now[mt.STATE] == mt.ENDED:
        del watched.schedstats[tid]
        added = file.added()
        file.close()
        return added
    return file.added()


def _counts(delta: ThreadDelta) -> tuple[int, ...]:
    """The rest of a thread's row, in the order of SAMPLE_COLUMNS from `tuples_in` on."""
    now, before, latency, _ = delta
    counted = sum([count for _, count in latency])
    mean_ns = (now[mt.LATENCY_SUM_NS] - before[mt.LATENCY_SUM_NS]) // counted if counted else 0
    return (
        now[mt.TUPLES_IN] - before[mt.TUPLES_IN],
        now[mt.TUPLES_OUT] - before[mt.TUPLES_OUT],
        now[mt.QUEUE],
        mean_ns,
        *map(round, percentiles_ns(latency, counted, (0.50, 0.99))),
        now[mt.BUSY_NS] - before[mt.BUSY_NS],
        now[mt.WAIT_NS] - before[mt.WAIT_NS],
        now[mt.BYTES_IN] - before[mt.BYTES_IN],
        now[mt.BYTES_OUT] - before[mt.BYTES_OUT],
    )


def _link_row(now: Counts, before: Counts) -> Row:
    """A link's row; its latencies are means over the frames of the window."""
    frames = now[mt.L_FRAMES] - before[mt.L_FRAMES]
    each = frames or 1
    return (
        now[mt.L_FROM],
        now[mt.L_TO],
        now[mt.L_TUPLES] - before[mt.L_TUPLES],
        now[mt.L_BYTES] - before[mt.L_BYTES],
        frames,
        (now[mt.L_BUFFER_NS] - before[mt.L_BUFFER_NS]) // each,
        (now[mt.L_CHANNEL_NS] - before[mt.L_CHANNEL_NS]) // each,
    )
