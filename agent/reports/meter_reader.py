"""One worker's meter as its agent reads it: deltas since the last reading, and where the sources are.

Reading is a copy of the records in use; nothing that the worker does is disturbed. Most of a histogram's words are as
they were: only stretches in which something was counted are looked at one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headgate.agent.core.worker_failures import Call, HangReading, UnderWay
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.wire.messages import SourceStatus
from headgate.topology_runtime.worker.meters import meter

RECORD_BYTES = meter.THREAD_WORDS * 8
FIELDS = struct.Struct(f"<{meter.FIELDS}q")
FIELDS_BYTES = meter.FIELDS * 8
WORD_BYTES = 8
STRETCH_BYTES = 160 * WORD_BYTES  # five doublings
LATENCY_END = FIELDS_BYTES + BUCKETS * 8
LINK = struct.Struct(f"<{meter.LINK_WORDS}q")
LINK_COUNTS = meter.L_STATE  # words before it
LINK_BYTES = meter.LINK_WORDS * 8
LINKS_AT = (meter.HEADER + meter.THREADS * meter.THREAD_WORDS) * 8

Counts = tuple[int, ...]
Buckets = list[tuple[int, int]]  # (bucket, how many more), buckets ascending


class ThreadDelta(NamedTuple):
    """A thread's record now, and what was added since the last reading."""

    now: Counts
    before: Counts
    latency: Buckets
    end_to_end: Buckets


NOTHING = (bytes(RECORD_BYTES), (0,) * meter.FIELDS)
NO_LINK: Counts = (0,) * meter.LINK_WORDS


class MeterReader:
    """Maps a meter for reading; `fd` may be closed afterwards."""

    def __init__(self, fd: int) -> None:
        self._meter = meter.Meter(fd)
        self._bytes = self._meter.words.cast("B")
        self._records: list[tuple[bytes, Counts]] = []
        self._links: list[Counts] = []
        self._ended_sources: list[Counts] = []  # freed since they were asked for

    def close(self) -> None:
        self._bytes.release()
        self._meter.close()

    def threads(self) -> list[ThreadDelta]:
        """Every thread that runs or did anything since the last reading. Records of threads that have ended
        are free from now on."""
        used = self._meter.words[meter.H_THREADS]
        self._records += [NOTHING] * (used - len(self._records))
        return [delta for i in range(used) if (delta := self._thread(i)) is not None]

    def _thread(self, i: int) -> ThreadDelta | None:
        at = meter.HEADER * 8 + i * RECORD_BYTES
        record = self._bytes[at : at + RECORD_BYTES].tobytes()
        now = FIELDS.unpack_from(record)
        before, last = self._records[i]
        self._records[i] = (record, now) if now[meter.STATE] != meter.FREE else NOTHING
        if not now[meter.THREAD]:
            return None
        if now[meter.STATE] == meter.ENDED:
            if now[meter.SOURCE_PARTITION]:
                self._ended_sources.append(now)
            self._records[i] = NOTHING
            self._meter.free_thread(meter.HEADER + i * meter.THREAD_WORDS)
        latency = added(before[FIELDS_BYTES:LATENCY_END], record[FIELDS_BYTES:LATENCY_END])
        return ThreadDelta(now, last, latency, added(before[LATENCY_END:], record[LATENCY_END:]))

    def links(self, most: int) -> list[tuple[Counts, Counts]]:
        """(now, at the last reading) of links over which something went, at most so many; what is left out
        comes with the next reading."""
        used = self._meter.words[meter.H_LINKS]
        self._links += [NO_LINK] * (used - len(self._links))
        records = LINK.iter_unpack(self._bytes[LINKS_AT : LINKS_AT + used * LINK_BYTES])
        changed = [
            (i, now, before)
            for i, (now, before) in enumerate(zip(records, self._links, strict=True))
            if now != before and now[meter.L_STATE] != meter.FREE
        ][:most]
        for i, now, _ in changed:
            self._links[i] = now
            if now[meter.L_STATE] == meter.ENDED:
                self._links[i] = NO_LINK
                self._meter.free_link(LINKS_AT // 8 + i * meter.LINK_WORDS)
        return [(now, before) for _, now, before in changed if now[:LINK_COUNTS] != before[:LINK_COUNTS]]

    def sources(self, names: tuple[str, ...]) -> tuple[SourceStatus, ...]:
        """Where the source threads are. `names`: of the topology's tasks, by number."""
        words = self._meter.words
        found = [_source(now, names) for now in self._ended_sources]
        self._ended_sources = []
        for i in range(words[meter.H_THREADS]):
            at = meter.HEADER + i * meter.THREAD_WORDS
            if words[at + meter.SOURCE_PARTITION]:
                found.append(_source(FIELDS.unpack_from(self._bytes, at * 8), names))
        return tuple(found)

    def reading(self, now_ns: int, state: str, ran_ns: int) -> HangReading:
        """What `worker_failures.HangWatch` needs."""
        words = self._meter.words
        queued, calls = 0, []
        for i in range(words[meter.H_THREADS]):
            at = meter.HEADER + i * meter.THREAD_WORDS
            if words[at + meter.STATE] != meter.ENDED:
                queued += words[at + meter.QUEUE]
                if words[at + meter.CALL_STARTED_NS]:
                    calls.append(self._call(at))
        return HangReading(now_ns, state, words[meter.H_PROGRESS], ran_ns, queued, tuple(calls))

    def _call(self, at: int) -> Call:
        words = self._meter.words
        kind = meter.KINDS[words[at + meter.CALL_KIND] % len(meter.KINDS)]
        number, task = words[at + meter.THREAD] - 1, words[at + meter.TASK]
        return Call(number, task, kind, words[at + meter.CALL_STARTED_NS], words[at + meter.CALL_MOVED])

    # ── user code, at a worker's end ────────────────────────────────────────────────────────────

    @property
    def ending(self) -> bool:
        """Did the worker begin to end by itself?"""
        return bool(self._meter.words[meter.H_ENDING])

    @property
    def unlogged(self) -> int:
        """Rows that its sinks began and had not logged."""
        words = self._meter.words
        first = meter.HEADER + meter.UNLOGGED
        return sum(words[first + i * meter.THREAD_WORDS] for i in range(words[meter.H_THREADS]))

    def be_careful(self, careful: bool) -> None:
        """Have the worker name each row before user code is called for it."""
        self._meter.words[meter.H_CAREFUL] = int(careful)

    def under_way(self, names: Sequence[str], sources: Sequence[str]) -> tuple[UnderWay, ...]:
        """The call that the worker named, and the sources that are in a read. `names`: of the topology's
        tasks by number; `sources`: those of its sources."""
        words = self._meter.words
        found = []
        for i in range(words[meter.H_THREADS]):
            at = meter.HEADER + i * meter.THREAD_WORDS
            thread, ident = words[at + meter.THREAD], words[at + meter.IDENT]
            if not thread or words[at + meter.STATE] == meter.ENDED or words[at + meter.TASK] >= len(names):
                continue
            task = names[words[at + meter.TASK]]
            if thread == words[meter.H_ROW_THREAD] and words[meter.H_ROW_SOURCE] < len(sources):
                source, kind = sources[words[meter.H_ROW_SOURCE]], meter.KINDS[words[meter.H_ROW_KIND]]
                place = words[meter.H_ROW_PARTITION], words[meter.H_ROW_POSITION], words[meter.H_ROW_VARIANT]
                found.append(UnderWay(thread - 1, ident, task, source, *place, kind))
            elif words[at + meter.CALL_STARTED_NS] and words[at + meter.CALL_KIND] == meter.READ:
                place = words[at + meter.SOURCE_PARTITION] - 1, words[at + meter.SOURCE_EMITTED], 0
                found.append(UnderWay(thread - 1, ident, task, task, *place, "read"))
        return tuple(found)


def added(before: bytes, now: bytes) -> Buckets:
    """Which buckets of a histogram have grown, and by how much."""
    found: Buckets = []
    for at in range(0, len(now), STRETCH_BYTES):
        here, there = now[at : at + STRETCH_BYTES], before[at : at + STRETCH_BYTES]
        if here != there:
            found += _added(there, here, at // WORD_BYTES)
    return found


def _added(before: bytes, now: bytes, first: int) -> Buckets:
    """Buckets only grow, so the difference of two stretches is the difference of two long integers."""
    grown = int.from_bytes(now, "little") - int.from_bytes(before, "little")
    if grown < 0:
        return []  # no worker of ours wrote this
    words = memoryview(grown.to_bytes(len(now), "little")).cast("Q")
    return [(bucket, more) for bucket, more in enumerate(words.tolist(), first) if more]


def _source(now: Counts, names: tuple[str, ...]) -> SourceStatus:
    state = now[meter.SOURCE_STATE]
    return SourceStatus(
        task=names[now[meter.TASK]],
        partition=now[meter.SOURCE_PARTITION] - 1,
        thread=now[meter.THREAD] - 1,
        emitted=now[meter.SOURCE_EMITTED],
        acked=now[meter.SOURCE_ACKED],
        acked_above=now[meter.SOURCE_ACKED_ABOVE],
        in_flight=now[meter.SOURCE_IN_FLIGHT],
        replayed=now[meter.SOURCE_REPLAYED],
        stopped=bool(state & meter.STOPPED_BIT),
        exhausted=bool(state & meter.EXHAUSTED_BIT),
        held=bool(state & meter.HELD_BIT),
        arrived=now[meter.SOURCE_ARRIVED],
        oldest_ns=now[meter.SOURCE_OLDEST_NS],
        seen_ns=now[meter.SOURCE_SEEN_NS],
        rests=state >> meter.RESTS_SHIFT,
        offsets=meter.offsets_in(now, 0),
    )
