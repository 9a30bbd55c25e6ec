"""Once a second: every thread's counts, times and latency, every slot's use, every link, in one block.

Read from outside the workers: their meters (shared memory), schedstat files kept open, statm, the slot
binding. Attribution, where the kernel does not say:
  memory      what the slot is charged, all of its processes (without a control group: what they hold), is split
              evenly over its threads; 0 while no worker runs: not known
  run_delay   includes being throttled by the slot's bound; each thread's is reduced in proportion, so
              that what is left in a slot is waiting for others
  latency     a sink's end-to-end latency is booked on the first source (in file order) from which the
              sink can be reached; with several sources the meter does not distinguish them
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import stat
import time
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from headgate.agent.reports.meter_reader import Counts, MeterReader, ThreadDelta
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.api.user_metrics import BUCKETS as USER_BUCKETS
from headgate.topology_runtime.latency.latency_buckets import (
    BUCKETS,
    LATENCY_COLUMNS,
    PER_DOUBLING,
    percentiles_ns,
    without_last_zeros,
)
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.disk import open_plain, text_of, write_note
from headgate.topology_runtime.platform.slot_binding import SlotBinding
from headgate.topology_runtime.wire.message_bounds import NUMBER_MOST
from headgate.topology_runtime.wire.messages import (
    LINK_COLUMNS,
    SAMPLE_COLUMNS,
    SLOT_COLUMNS,
    DesiredState,
    FinishedKept,
    FinishedRuns,
    SampleBlock,
)
from headgate.topology_runtime.wire.report_messages import UserMetric
from headgate.topology_runtime.worker.meters import meter

# ── Reads on in the logs of finished rows that workers append to
# (topology_runtime/worker/meters/thread_records.py)
#
# No byte is skipped, and only whole records are sent, as they are: whoever gets them knows by (task, thread,
# incarnation, offset) what it had before. So whenever bytes may have been lost (a silent connection, a new
# controller, a new agent) they are simply sent again. What the controller has counted and kept for good is
# thrown away, a whole part of a log at a time.

FOLDER, WORDS_PER_RUN = "finished", 5  # as the worker has them, whose module imports all of its data plane
LOG_NAME = re.compile(r"(\d+)-(\d+)-(\d+)(?:-(\d+))?\.log")
RECORD_BYTES = WORDS_PER_RUN * 8
RUN_NOTE = "run"  # holds the name of the run whose logs are here
MOST_BYTES = 256 * 1024 // RECORD_BYTES * RECORD_BYTES  # in one block: a quarter of what a message may have
RECENT_MOST = 4096  # pieces sent lately, to be sent again if the connection turns out to be lost


@dataclass(slots=True)
class SinkLogPart:
    """A part of one log, from byte `begin` of it on; `sent` bytes of the part have been sent. highest: by
    (source number, partition), the highest position in those."""

    path: str
    task_number: int
    thread: int
    incarnation: int
    begin: int = 0
    sent: int = 0
    highest: dict[tuple[int, int], int] = field(default_factory=dict)

    def waiting(self) -> int:
        """Bytes of whole records that are still to be sent; none when somebody removed the log, or it is no file."""
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return 0
        size = status.st_size if stat.S_ISREG(status.st_mode) else self.sent
        return size // RECORD_BYTES * RECORD_BYTES - self.sent

    def read(self, most: int) -> bytes:
        with open_plain(self.path) as file:
            file.seek(self.sent)
            data = file.read(most)
        words = memoryview(data[: len(data) // RECORD_BYTES * RECORD_BYTES]).cast("q")
        for at in range(0, len(words), WORDS_PER_RUN):
            key, last = (words[at], words[at + 1]), words[at + 2] + words[at + 3] - 1
            self.highest[key] = max(last, self.highest.get(key, -1))
        return data

    def needless(self, counted: int, floors: Mapping[tuple[int, int], int]) -> bool:
        """Is all that was sent of it counted for good, and is there no more? counted: so many bytes of the whole
        log; floors: (source number, partition) → below which all is."""
        return (
            0 < self.sent <= counted - self.begin
            and not self.waiting()
            and all(last < floors.get(key, 0) for key, last in self.highest.items())
        )

    def remove(self) -> bool:
        """False while its worker may still write to it: it holds a lock for as long."""
        with open_plain(self.path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            os.remove(self.path)
        return True


class FinishedTail:
    """All logs under `directory`/finished."""

    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._logs: dict[str, SinkLogPart] = {}
        self._recent: deque[tuple[int, SinkLogPart, int]] = deque(maxlen=RECENT_MOST)
        self._begun = self._noted = False

    def begin(self, run: str) -> None:
        """From now on logs are of this run: those of another one, in the same folder, are removed. Raises
        OSError when that cannot be noted; call again then."""
        if self._noted:
            return
        note = os.path.join(self._folder, RUN_NOTE)
        os.makedirs(self._folder, exist_ok=True)
        if not self._begun and text_of(note) != run:
            for name in os.listdir(self._folder):
                if LOG_NAME.fullmatch(name):
                    os.remove(os.path.join(self._folder, name))
        self._begun = True
        if text_of(note) != run:
            write_note(note, run)
        self._noted = True

    def take(self, names: Sequence[str], now_ns: int) -> tuple[FinishedRuns, ...]:
        """What is to be sent now, bounded; call again when `behind`. `names`: of tasks by number."""
        self._find()
        left = MOST_BYTES
        taken: list[FinishedRuns] = []
        for log in self._logs.values():
            size = min(left, log.waiting())
            if size > 0 and log.task_number < len(names):
                runs = log.read(size)
                name = names[log.task_number]
                offset = log.begin + log.sent
                taken.append(FinishedRuns(name, log.thread, log.incarnation, offset, runs))
                self._recent.append((now_ns, log, log.sent))
                log.sent += size
                left -= size
        return tuple(taken)

    def behind(self) -> bool:
        """Is there more to send?"""
        self._find()
        return any(log.waiting() > 0 for log in self._logs.values())

    def rewind(self, since_ns: int | None = None) -> None:
        """Send again what was sent since then; everything when no time is given."""
        if since_ns is None:
            for log in self._logs.values():
                log.sent = 0
            self._recent.clear()
        while self._recent and since_ns is not None and self._recent[-1][0] >= since_ns:
            _, log, offset = self._recent.pop()
            log.sent = min(log.sent, offset)

    def trim(self, kept: FinishedKept, names: Sequence[str]) -> None:
        """Remove parts that the controller has counted for good and nobody writes to. Raises OSError."""
        ends = {(task, thread, boot): end for task, thread, boot, end in kept.logs}
        floors = {(source, partition): floor for source, partition, floor in kept.floors}
        for file, log in [one for one in self._logs.items() if one[1].task_number < len(names)]:
            counted = ends.get((names[log.task_number], log.thread, log.incarnation), 0)
            if log.needless(counted, floors) and log.remove():
                del self._logs[file]

    def _find(self) -> None:
        """Logs that have appeared, those of earlier workers and agents too."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # no sink has run here yet
        fresh = [match for name in names if (match := LOG_NAME.fullmatch(name)) and name not in self._logs]
        for match in sorted(fresh, key=lambda match: [int(number or 0) for number in match.groups()]):
            numbers = [int(number or 0) for number in match.groups()]
            if max(numbers) >= NUMBER_MOST:  # of no log of ours: a task can make files there, too
                continue
            task, thread, incarnation, begin = numbers
            path = os.path.join(self._folder, match[0])
            self._logs[match[0]] = SinkLogPart(path, task, thread, incarnation, begin)


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

SHORTEST_NS = 100_000_000  # less time says nothing of a CPU: the next block has it
USER_MOST, USER_NUMBERS_MOST = 2_000, 20_000  # of tasks' own metrics in one block
USER_NAME_MOST = 256  # characters
USER_KEPT = 200_000  # numbers of these, for later blocks
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
    schedstats: dict[int, processes.Schedstat] = field(default_factory=dict)
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


class UserPart:
    """Tasks' own metrics on their way from workers' reports into blocks: what is new of each thread's, so much of it
    in a block."""

    def __init__(self) -> None:
        self._new: dict[tuple[int, int, str], UserMetric] = {}
        self._numbers = 0

    def add(self, metrics: Iterable[UserMetric]) -> None:
        for one in metrics:
            if len(one.name) > USER_NAME_MOST or not all(
                0 <= bucket < USER_BUCKETS for bucket, _ in one.buckets
            ):
                continue  # no worker of ours says that
            key = one.slot, one.thread, one.name
            before = self._new.get(key)
            if before is not None and one.kind != "gauge":
                one = _summed(before, one)
            more = len(one.buckets) + 1 - (len(before.buckets) + 1 if before is not None else 0)
            if self._numbers + more <= USER_KEPT and _can_be(one):
                self._numbers += more
                self._new[key] = one

    def take(self) -> tuple[UserMetric, ...]:
        """The oldest ones; the rest comes with the next block."""
        taken, room = [], USER_NUMBERS_MOST
        for key in list(self._new)[:USER_MOST]:
            if (room := room - 1 - len(self._new[key].buckets)) < 0:
                break
            taken.append(self._new.pop(key))
        self._numbers -= sum(len(one.buckets) + 1 for one in taken)
        return tuple(taken)


def _summed(before: UserMetric, one: UserMetric) -> UserMetric:
    buckets = Counter(dict(before.buckets)) + Counter(dict(one.buckets))
    value, count = before.value + one.value, before.count + one.count
    return structs.replace(one, value=value, count=count, buckets=tuple(sorted(buckets.items())))


def _can_be(one: UserMetric) -> bool:
    """Does the controller take it?"""
    return math.isfinite(one.value) and max((one.count, *(n for _, n in one.buckets))) <= NUMBER_MOST


class Sampler:
    """Makes a VM's sample blocks. Nothing is measured before the first desired state names the tasks."""

    def __init__(self, vm: str, boot: int, binding: SlotBinding, directory: str, now_ns: int) -> None:
        self._vm, self._boot, self._binding = vm, boot, binding
        self.finished = FinishedTail(directory)
        self.user = UserPart()
        self._watched: list[WatchedWorker] = []
        self._used: dict[int, SlotUsage] = {}
        self._topology: Topology | None = None
        self._names: tuple[str, ...] = ()
        self._source_of: dict[int, str] = {}
        self._last_ns = now_ns
        self._sequence = 0
        self._timers_ns: dict[str, int] = {}
        self._calls: dict[str, tuple[int, int, int]] = {}
        self._run = ""
        self._timed = True

    def obey(self, desired: DesiredState) -> None:
        """Learn the tasks' names and which source a sink's latency is booked on."""
        self._run = desired.run
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
        self._timed = now_ns - self._last_ns >= SHORTEST_NS
        rows: list[Row] = []
        tasks: list[str] = []
        slots: list[Row] = []
        latency: dict[int, list[int]] = {}
        in_task: TaskLatency = {}
        links: list[Row] = []
        self._timers_ns, self._calls = {}, {}
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
                (self._names[sink], self._source_of[sink], without_last_zeros(buckets))
                for sink, buckets in latency.items()
            ),
            finished=self.finished.take(self._names, now_ns),
            task_latency=columns(LATENCY_COLUMNS, [(*place, count) for place, count in in_task.items()]),
            user=self.user.take(),
            run=self._run,
            timers_ns=self._timers_ns,
            calls=self._calls,
            per_doubling=PER_DOUBLING,
            cost_ns=time.thread_time_ns() - begin_ns,
        )

    def _count_calls(self, task: str, delta: ThreadDelta) -> None:
        fields = meter.CALLS, meter.RAN_SQUARES, meter.WAITED_SQUARES
        calls, ran, waited = (delta.now[field] - delta.before[field] for field in fields)
        if calls:
            of = self._calls.get(task, (0, 0, 0))
            self._calls[task] = of[0] + calls, of[1] + ran, of[2] + waited

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
        """One slot's row (none where too little time has passed) and its threads' rows."""
        here = [watched for watched in self._watched if watched.slot == slot]
        held_bytes = 0 if all(watched.over for watched in here) else self._binding.memory_bytes(slot)
        throttled_ns = 0
        if self._timed:
            now, before = self._use(slot), self._used[slot]
            self._used[slot] = now
            throttled_ns = now.throttled_ns - before.throttled_ns
            killed = now.oom_kills - before.oom_kills
            slots.append((slot, now.cpu_ns - before.cpu_ns, throttled_ns, held_bytes, killed))
        seen = [
            (delta, _times(watched, delta, self._timed))
            for watched in here
            for delta in watched.reader.threads()
        ]
        own_share = unthrottled_share([delay_ns for _, (_, delay_ns) in seen], throttled_ns)
        memory_bytes = held_bytes // len(seen) if seen else 0
        for delta, (cpu_ns, delay_ns) in seen:
            task = delta.now[meter.TASK]
            tasks.append(self._names[task])
            borrowed_ns = delta.now[meter.BORROWED_NS] - delta.before[meter.BORROWED_NS]
            times = (max(0, cpu_ns + borrowed_ns), int(delay_ns * own_share), memory_bytes)
            rows.append(
                (delta.now[meter.THREAD] - 1, slot, delta.now[meter.EPOCH] or epoch, *times, *_counts(delta))
            )
            if timers_ns := delta.now[meter.TIMERS_NS] - delta.before[meter.TIMERS_NS]:
                name = self._names[task]
                self._timers_ns[name] = self._timers_ns.get(name, 0) + timers_ns
            self._count_calls(self._names[task], delta)
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


def _times(watched: WatchedWorker, delta: ThreadDelta, timed: bool) -> tuple[int, int]:
    """(CPU, run-delay) in ns of a thread since the last timed block; its file is kept open."""
    tid = delta.now[meter.TID]
    file = watched.schedstats.get(tid)
    if file is None:
        if not tid:
            return 0, 0
        file = watched.schedstats[tid] = processes.Schedstat(watched.pid, tid)
    if delta.now[meter.STATE] == meter.ENDED:
        del watched.schedstats[tid]
        added = file.added()
        file.close()
        return added
    return file.added() if timed else (0, 0)


def _counts(delta: ThreadDelta) -> tuple[int, ...]:
    """The rest of a thread's row, in the order of SAMPLE_COLUMNS from `tuples_in` on."""
    now, before, latency, _ = delta
    counted = sum([count for _, count in latency])
    mean_ns = (now[meter.LATENCY_SUM_NS] - before[meter.LATENCY_SUM_NS]) // counted if counted else 0
    return (
        now[meter.TUPLES_IN] - before[meter.TUPLES_IN],
        now[meter.TUPLES_OUT] - before[meter.TUPLES_OUT],
        now[meter.QUEUE],
        mean_ns,
        *map(round, percentiles_ns(latency, counted, (0.50, 0.99))),
        now[meter.BUSY_NS] - before[meter.BUSY_NS],
        now[meter.WAIT_NS] - before[meter.WAIT_NS],
        now[meter.BYTES_IN] - before[meter.BYTES_IN],
        now[meter.BYTES_OUT] - before[meter.BYTES_OUT],
    )


def _link_row(now: Counts, before: Counts) -> Row:
    """A link's row; its latencies are means over the frames of the window."""
    frames = now[meter.L_FRAMES] - before[meter.L_FRAMES]
    each = frames or 1
    return (
        now[meter.L_FROM],
        now[meter.L_TO],
        now[meter.L_TUPLES] - before[meter.L_TUPLES],
        now[meter.L_BYTES] - before[meter.L_BYTES],
        frames,
        (now[meter.L_BUFFER_NS] - before[meter.L_BUFFER_NS]) // each,
        (now[meter.L_CHANNEL_NS] - before[meter.L_CHANNEL_NS]) // each,
    )
