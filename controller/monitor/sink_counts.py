"""Exact counts of the rows that reached the sinks, all of them and the distinct ones, in bounded memory.

Agents read the logs of finished rows on from where they were; after a restart they may send bytes again.
So bytes are distinguished by their place in their log, and rows by (task, source, partition, variant, position).
Rows are remembered by chunks of positions until these are *settled*: done, and every log read on since. What comes
of a settled position later is a copy. A tally of what is settled outlives this process: logs are then read again from
their beginnings, or from where agents have thrown away what was settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Send
from headgate.controller.knowledge.run_tallies import FinishedTally, Spans
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.wire.messages import FinishedKept, FinishedRuns, SampleBlock

WORDS_PER_RUN = 5
RUN_BYTES = WORDS_PER_RUN * 8
CHUNK_BITS = 10  # positions in a chunk: 1024
CHUNK = 1 << CHUNK_BITS
MAX_RUN = 1 << 20  # rows in one run: a frame has at most 512
VARIANTS_MOST = 64  # of a chunk that have bits for its positions
LOGS_MOST = 10_000  # remembered: one for every life of every sink thread
CHUNKS_MOST = 16_384  # remembered while a VM is away: 16 million rows, 10 MB
ODD_IN_A_CHUNK = 8  # rows with a variant of their own that take as much memory as a chunk


class Chunk:
    """Rows of CHUNK positions of one source partition at one sink. rows: copies too; distinct: without."""

    def __init__(self) -> None:
        self.rows = self.distinct = 0
        self._regular: dict[int, int] = {}  # variant → bits of its positions
        self._odd: set[int] = set()  # what comes of buckets has a variant of its own each time

    @property
    def size(self) -> int:
        """In chunks without odd variants."""
        return 1 + len(self._odd) // ODD_IN_A_CHUNK

    def add(self, low: int, high: int, variant: int) -> int:
        """Add positions low … high − 1 (of the chunk) of this variant; how many were not in it."""
        if variant in self._regular or len(self._regular) < VARIANTS_MOST:
            bits, before = ((1 << (high - low)) - 1) << low, self._regular.get(variant, 0)
            self._regular[variant] = before | bits
            new = (bits & ~before).bit_count()
        else:
            keys = {variant << CHUNK_BITS | place for place in range(low, high)} - self._odd
            self._odd |= keys
            new = len(keys)
        self.rows += high - low
        self.distinct += new
        return new


@dataclass(slots=True)
class SinkLog:
    """What is known of one log. counted: rows below the floors in its first so many bytes are in the tally."""

    seen: Spans = field(default_factory=Spans)
    counted: int = 0

    @property
    def end(self) -> int:
        return max(self.counted, self.seen.end)

    def holes(self) -> int:
        """Bytes after those counted that are not seen though later ones are."""
        return self.seen.missing(self.counted)


class FinishedRows:
    """All sinks of a run. rows: that reached a sink; distinct: of them; missed_bytes: of logs, not yet seen
    though later ones were. passed: VMs for whose logs it did not wait any more; of what those hold of settled rows
    nobody knows whether it is a copy, and it is not counted as one."""

    def __init__(self, tally: FinishedTally | None = None) -> None:
        tally = tally or FinishedTally()
        self.tally = tally
        self._floors = {(source, partition): floor for source, partition, floor in tally.floors}
        self._below = {task: (rows, distinct) for task, rows, distinct in tally.tasks}
        self._logs = {(task, thread, boot): SinkLog(counted=end) for task, thread, boot, end in tally.logs}
        self._chunks: dict[tuple[str, int, int, int], Chunk] = {}
        self._size = 0  # of all chunks
        self.passed = set(tally.passed)
        self._by_task = dict(self._below)

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self._by_task.values())

    @property
    def distinct(self) -> int:
        return sum(distinct for _, distinct in self._by_task.values())

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct

    @property
    def by_task(self) -> dict[str, tuple[int, int]]:
        """Sink → (rows, distinct)."""
        return dict(self._by_task)

    @property
    def missed_bytes(self) -> int:
        return sum(log.holes() for log in self._logs.values())

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    @property
    def full(self) -> bool:
        """Does it remember as many rows as it may while a VM is away?"""
        return self._size >= CHUNKS_MOST

    def add(self, finished: Iterable[FinishedRuns], vm: str = "") -> None:
        """Count these runs in logs of that VM, those that are known already excepted. Raises BadMessage (the runs
        before the bad ones are counted)."""
        for runs in finished:
            self._add(runs, vm in self.passed)

    def _add(self, runs: FinishedRuns, passed: bool) -> None:
        table = _table(runs)
        log = self._logs.setdefault((runs.task, runs.thread, runs.incarnation), SinkLog())
        for begin, end in log.seen.add(runs.offset, runs.offset + len(runs.runs)):
            first, last = (begin - runs.offset) // RUN_BYTES, (end - runs.offset) // RUN_BYTES
            for number, run in enumerate(table[first:last].tolist()):
                self._run(runs.task, run, begin + number * RUN_BYTES < log.counted, passed)

    def _run(self, task: str, run: list[int], known: bool, passed: bool) -> None:
        """known: what it has below the floor is in the tally already; passed: else nobody knows what is a copy."""
        source, partition, first, count, variant = run
        floor = self._floors.get((source, partition), 0)
        settled = max(0, min(count, floor - first))
        if settled and not known:
            distinct = settled if passed else 0
            self._below[task] = _sum(self._below.get(task), settled, distinct)
            self._by_task[task] = _sum(self._by_task.get(task), settled, distinct)
        first, end = first + settled, first + count
        while first < end:
            chunk, low = divmod(first, CHUNK)
            high = min(CHUNK, low + end - first)
            place = task, source, partition, chunk
            before = self._chunks[place].size if place in self._chunks else 0
            kept = self._chunks.setdefault(place, Chunk())
            new = kept.add(low, high, variant)
            self._size += kept.size - before
            self._by_task[task] = _sum(self._by_task.get(task), high - low, new)
            first += high - low

    # ── what is settled ─────────────────────────────────────────────────────────────────────────

    def settle(self, done: Mapping[tuple[int, int], int]) -> bool:
        """Below these positions, by (source number, partition), all is done, and all logs were read on since:
        forget rows of whole chunks below, but for their numbers. True when there is a new tally."""
        floors = {key: position // CHUNK * CHUNK for key, position in done.items()}
        risen = {key: floor for key, floor in floors.items() if floor > self._floors.get(key, 0)}
        if not risen or self.missed_bytes:
            return False
        self._floors |= risen
        for key in [key for key in self._chunks if key[3] * CHUNK < self._floors.get(key[1:3], 0)]:
            chunk = self._chunks.pop(key)
            self._size -= chunk.size
            self._below[key[0]] = _sum(self._below.get(key[0]), chunk.rows, chunk.distinct)
        while len(self._logs) > LOGS_MOST:
            del self._logs[next(iter(self._logs))]
        self.tally = FinishedTally(
            tuple((source, partition, floor) for (source, partition), floor in sorted(self._floors.items())),
            tuple((task, rows, distinct) for task, (rows, distinct) in sorted(self._below.items())),
            tuple((*name, log.end) for name, log in self._logs.items()),
            tuple(sorted(self.passed)),
        )
        return True


def _sum(known: tuple[int, int] | None, rows: int, distinct: int) -> tuple[int, int]:
    before = known or (0, 0)
    return before[0] + rows, before[1] + distinct


def _table(runs: FinishedRuns) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(runs, 5) of int64, checked."""
    if len(runs.runs) % RUN_BYTES or runs.offset % RUN_BYTES or runs.offset < 0:
        raise BadMessage(
            f"finished rows of {runs.task} cannot be used",
            cause=f"{len(runs.runs)} bytes from byte {runs.offset} on are not whole runs",
        )
    table = np.frombuffer(runs.runs, "<i8").reshape(-1, WORDS_PER_RUN)
    counts, positions = table[:, 3], table[:, 2]
    if len(table) and (counts.min() < 1 or counts.max() > MAX_RUN or positions.min() < 0):
        raise BadMessage(f"finished rows of {runs.task} cannot be used", cause="a run of no or too many rows")
    return table


# ── When positions that are done are settled: nothing that comes of them is still to be read in a log. Pure
#
# A row is in its sink's log before it is acked. So once every VM has reported its logs to their ends again after
# a position was known to be done, all its rows are counted, and need not be remembered. A block that left
# nothing behind reports a log to its end as of when it was made; the third after that moment was certainly made
# after it. Once the tally of what is settled has been kept for a moment, agents may throw away their logs of
# it. What a VM that is cut off did before it rested is in logs that are read when it is back: until then nothing is
# settled, as long as there is room to remember.

NS = 1_000_000_000
WHOLE_BLOCKS, LEAST_NS = 3, 6 * NS  # a VM that is silent for so long is not counted on
WHOLE_BYTES = 200 * 1024  # a block with more may have left something behind
GAP_BLOCKS = 10  # more of them after one was lost: what was in it comes again first
KEPT_NS = 3 * NS  # tallies are kept once a second

Done = dict[tuple[int, int], int]  # (source number, partition) → all below is done


class Settling:
    """One candidate after the other: positions that are done, and how much was read since."""

    def __init__(self) -> None:
        self._done: Done = {}
        self._since_ns = -1
        self._whole: Counter[str] = Counter()
        self._last: dict[str, tuple[int, int]] = {}  # VM → boot and number of its last block
        self._tally_ns = 0  # since when there is a tally that agents do not know of

    def block(self, block: SampleBlock) -> None:
        boot, number = self._last.get(block.vm, (block.boot, block.sequence - 1))
        self._last[block.vm] = block.boot, block.sequence
        if (block.boot, block.sequence) != (boot, number + 1):
            self._whole[block.vm] = -GAP_BLOCKS
        elif sum(len(runs.runs) for runs in block.finished) < WHOLE_BYTES:
            self._whole[block.vm] += 1

    def go_on(self, turn: Turn, finished: FinishedRows) -> None:
        """Once a second: settle what can be, and let agents know what is kept."""
        k, now_ns = turn.knowledge, turn.now.mono_ns
        up = {member.vm.vm for member in turn.members.up()}
        away = {member.vm.vm for member in turn.members.members.values() if member.state == "lost"}
        silent = any(member.state == "silent" for member in turn.members.up())
        if finished.full and away and not silent:
            finished.passed |= away
        if finished.settle(self.look(now_ns, done_of(k), up, silent or not away <= finished.passed)):
            k.counts.finished = finished.tally
            self._tally_ns = now_ns
        elif self._tally_ns and now_ns - self._tally_ns >= KEPT_NS and "disk the controller" not in k.alarms:
            self._tally_ns = 0
            for vm in sorted(up):
                turn.do(Send(vm, FinishedKept(finished.tally.floors, finished.tally.logs)))

    def look(self, now_ns: int, done: Done, up: set[str], silent: bool) -> Done:
        """What is settled now; nothing while a VM is `silent`, or away. `done`: as known now; `up`: VMs heard."""
        if silent or self._since_ns < 0:
            self._begin(now_ns, done)
        elif now_ns - self._since_ns >= LEAST_NS and all(self._whole[vm] >= WHOLE_BLOCKS for vm in up):
            settled = self._done
            self._begin(now_ns, done)
            return settled
        return {}

    def _begin(self, now_ns: int, done: Done) -> None:
        self._done, self._since_ns = done, now_ns
        for vm, whole in list(self._whole.items()):
            self._whole[vm] = min(whole, 0)


def done_of(k: Knowledge) -> Done:
    """As far as every source is done."""
    sources = [task.name for task in k.topology.sources] if k.topology else []
    return {
        (sources.index(task), partition): known.acked
        for (task, partition), known in k.counts.sources.items()
        if task in sources
    }
