"""Exact counts of the rows that reached the sinks: all of them, and the distinct ones.

Agents read the logs of finished rows on from where they were; after a restart they may send bytes again.
So bytes are told apart by their place in their log, and rows by (task, source, partition, variant, position).
Positions are kept as one bit each in chunks, and a full chunk as its number alone: what is contiguous takes
next to nothing, and a filter that lets every tenth row through takes ten bits a row. What comes of buckets has
a variant of its own each time: such rows take eight bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.knowledge.spans import Spans
from topology_runtime.errors import BadMessage
from topology_runtime.messages import FinishedRuns

WORDS_PER_RUN = 5
RUN_BYTES = WORDS_PER_RUN * 8
CHUNK_BITS = 12  # positions in a chunk: 4096, half a kilobyte
CHUNK = 1 << CHUNK_BITS
MAX_RUN = 1 << 20  # rows in one run: a frame has at most 512
VARIANTS_MOST = 64  # of one source at a sink that have chunks of their own
VARIANT_BITS = 31
RECENT_MOST = 1 << 16  # odd rows before they are packed

Log = tuple[str, int, int]  # task, thread, incarnation
Group = tuple[str, int, int]  # task, source number, partition


class Positions:
    """A set of positions; `add` says how many were new."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # chunk → bits of the positions in it
        self._full = Spans()  # chunks that are complete

    def add(self, first: int, count: int) -> int:
        """Add first … first + count − 1; how many of them were not in it."""
        end, new = first + count, 0
        for chunk in range(first >> CHUNK_BITS, ((end - 1) >> CHUNK_BITS) + 1):
            if self._full.holds(chunk):
                continue
            base = chunk << CHUNK_BITS
            low, high = max(first - base, 0), min(end - base, CHUNK)
            bits = ((1 << (high - low)) - 1) << low
            before = self._open.get(chunk, 0)
            new += (bits & ~before).bit_count()
            self._keep(chunk, before | bits)
        return new

    def _keep(self, chunk: int, bits: int) -> None:
        if bits.bit_count() == CHUNK:
            self._full.add(chunk, chunk + 1)
            self._open.pop(chunk, None)
        else:
            self._open[chunk] = bits


class Odd:
    """A set of (position, variant) of which hardly two are alike; `add` says how many were new."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._packed = np.empty(0, np.uint64)  # ascending

    def add(self, first: int, count: int, variant: int) -> int:
        """Add positions first … first + count − 1 of this variant; how many of them were not in it."""
        keys = [
            (position << VARIANT_BITS | variant) & 0xFFFF_FFFF_FFFF_FFFF
            for position in range(first, first + count)
        ]
        fresh = [key for key in keys if key not in self._recent and not self._is_packed(key)]
        self._recent.update(fresh)
        if len(self._recent) >= RECENT_MOST:
            recent = np.fromiter(self._recent, np.uint64, len(self._recent))
            self._packed = np.sort(np.concatenate([self._packed, recent]))
            self._recent = set()
        return len(fresh)

    def _is_packed(self, key: int) -> bool:
        at = int(self._packed.searchsorted(np.uint64(key)))
        return at < len(self._packed) and int(self._packed[at]) == key


class OfSource:
    """The rows of one source partition at one sink: those of its first variants in chunks, others as odd."""

    def __init__(self) -> None:
        self._regular: dict[int, Positions] = {}
        self._odd = Odd()

    def add(self, first: int, count: int, variant: int) -> int:
        """How many of these rows were not known."""
        if variant not in self._regular:
            if len(self._regular) == VARIANTS_MOST:
                return self._odd.add(first, count, variant)
            self._regular[variant] = Positions()
        return self._regular[variant].add(first, count)


class FinishedRows:
    """All sinks of a run. rows: that reached a sink; distinct: of them; missed_bytes: of logs, not yet seen
    though later ones were."""

    def __init__(self) -> None:
        self.rows = 0
        self.distinct = 0
        self._seen: dict[Log, Spans] = {}
        self._groups: dict[Group, OfSource] = {}
        self._by_task: dict[str, tuple[int, int]] = {}

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct

    @property
    def by_task(self) -> dict[str, tuple[int, int]]:
        """Sink → (rows, distinct)."""
        return dict(self._by_task)

    @property
    def missed_bytes(self) -> int:
        return sum(seen.missing() for seen in self._seen.values())

    def add(self, finished: Iterable[FinishedRuns]) -> None:
        """Count these runs, those that are known already excepted. Raises BadMessage (the runs before
        the bad ones are counted)."""
        for runs in finished:
            self._add(runs)

    def _add(self, runs: FinishedRuns) -> None:
        table = _table(runs)
        log = (runs.task, runs.thread, runs.incarnation)
        for begin, end in self._seen.setdefault(log, Spans()).add(runs.offset, runs.offset + len(runs.runs)):
            first, last = (begin - runs.offset) // RUN_BYTES, (end - runs.offset) // RUN_BYTES
            for source, partition, position, count, variant in table[first:last].tolist():
                of_source = self._groups.setdefault((runs.task, source, partition), OfSource())
                self._count(runs.task, count, of_source.add(position, count, variant))

    def _count(self, task: str, rows: int, new: int) -> None:
        self.rows += rows
        self.distinct += new
        known = self._by_task.get(task, (0, 0))
        self._by_task[task] = known[0] + rows, known[1] + new


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
