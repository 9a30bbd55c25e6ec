"""One worker's meter as its agent reads it: deltas since the last reading, and where the sources are.

Reading is a copy of the records in use; nothing that the worker does is disturbed. Latency buckets are
compared in pieces of 16: of 320 counters a thread changes a handful in a second.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from agent.hang import Reading
from topology_runtime.messages import SourceNow
from topology_runtime.worker import meter as mt

RECORD_BYTES = mt.THREAD_WORDS * 8
FIELDS = struct.Struct(f"<{mt.FIELDS}q")
FIELDS_BYTES = mt.FIELDS * 8
PIECE = 16
PIECE_BYTES = PIECE * 8
PIECE_WORDS = struct.Struct(f"<{PIECE}q")
LATENCY_END = FIELDS_BYTES + mt.BUCKETS * 8
LINK = struct.Struct(f"<{mt.LINK_WORDS}q")
LINK_BYTES = mt.LINK_WORDS * 8
LINKS_AT = (mt.HEADER + mt.THREADS * mt.THREAD_WORDS) * 8
RUNNING, ENDED = 1, 2  # STATE
STOPPED_BIT, EXHAUSTED_BIT = 1, 2  # SOURCE_STATE

Counts = tuple[int, ...]
Buckets = list[tuple[int, int]]  # (bucket, how many more), buckets ascending


class ThreadDelta(NamedTuple):
    """A thread's record now, and what was added since the last reading."""

    now: Counts
    before: Counts
    latency: Buckets
    end_to_end: Buckets

    def added(self, field: int) -> int:
        return self.now[field] - self.before[field]


class LinkDelta(NamedTuple):
    from_thread: int
    to_thread: int
    tuples: int
    bytes: int
    frames: int
    buffer_ns: int
    channel_ns: int


NOTHING = bytes(RECORD_BYTES)
NO_COUNTS: Counts = (0,) * mt.FIELDS
NO_LINK = bytes(LINK_BYTES)


class MeterReader:
    """Maps a meter for reading; `fd` may be closed afterwards."""

    def __init__(self, fd: int) -> None:
        self._meter = mt.Meter(fd)
        self._bytes = self._meter.words.cast("B")
        self._records: list[bytes] = []
        self._links: list[bytes] = []
        self._ended: set[int] = set()

    def close(self) -> None:
        self._bytes.release()
        self._meter.close()

    def threads(self) -> list[ThreadDelta]:
        """Every thread that runs or did anything since the last reading."""
        used = self._meter.words[mt.H_THREADS]
        self._records += [NOTHING] * (used - len(self._records))
        return [delta for i in range(used) if i not in self._ended and (delta := self._thread(i)) is not None]

    def _thread(self, i: int) -> ThreadDelta | None:
        at = mt.HEADER * 8 + i * RECORD_BYTES
        record, before = self._bytes[at : at + RECORD_BYTES].tobytes(), self._records[i]
        self._records[i] = record
        now = FIELDS.unpack_from(record)
        if now[mt.STATE] == ENDED:
            self._ended.add(i)
        if not now[mt.THREAD] or (now[mt.STATE] == ENDED and record == before):
            return None
        last = FIELDS.unpack_from(before) if before is not NOTHING else NO_COUNTS
        latency = _added(before, record, FIELDS_BYTES, LATENCY_END)
        return ThreadDelta(now, last, latency, _added(before, record, LATENCY_END, RECORD_BYTES))

    def links(self, most: int) -> list[LinkDelta]:
        """At most `most` links over which something went; what is left out comes with the next reading."""
        used = self._meter.words[mt.H_LINKS]
        self._links += [NO_LINK] * (used - len(self._links))
        data = self._bytes[LINKS_AT : LINKS_AT + used * LINK_BYTES].tobytes()
        found: list[LinkDelta] = []
        for i, before in enumerate(self._links):
            record = data[i * LINK_BYTES : (i + 1) * LINK_BYTES]
            if record != before and len(found) < most:
                self._links[i] = record
                found.append(_link(LINK.unpack(record), LINK.unpack(before)))
        return found

    def sources(self, names: tuple[str, ...]) -> tuple[SourceNow, ...]:
        """Where the source threads are. `names`: of the topology's tasks, by number."""
        words = self._meter.words
        found = []
        for i in range(words[mt.H_THREADS]):
            at = mt.HEADER + i * mt.THREAD_WORDS
            if words[at + mt.SOURCE_PARTITION]:
                found.append(_source(FIELDS.unpack_from(self._bytes, at * 8), names))
        return tuple(found)

    def reading(self, now_ns: int, state: str, ran_ns: int) -> Reading:
        """What `hang.HangWatch` wants to see."""
        words = self._meter.words
        queued, calls = 0, []
        for i in range(words[mt.H_THREADS]):
            at = mt.HEADER + i * mt.THREAD_WORDS
            if words[at + mt.STATE] != ENDED:
                queued += words[at + mt.QUEUE]
                if started_ns := words[at + mt.CALL_STARTED_NS]:
                    calls.append((words[at + mt.TASK], started_ns))
        return Reading(now_ns, state, words[mt.H_PROGRESS], ran_ns, queued, tuple(calls))


def _added(before: bytes, now: bytes, start: int, end: int) -> Buckets:
    """Which buckets between two byte offsets of a record have grown, and by how much."""
    if now[start:end] == before[start:end]:
        return []
    found: Buckets = []
    for at in range(start, end, PIECE_BYTES):
        if now[at : at + PIECE_BYTES] != before[at : at + PIECE_BYTES]:
            first = (at - start) // 8
            pairs = zip(PIECE_WORDS.unpack_from(now, at), PIECE_WORDS.unpack_from(before, at), strict=True)
            found += [(first + k, new - old) for k, (new, old) in enumerate(pairs) if new != old]
    return found


def _link(now: Counts, before: Counts) -> LinkDelta:
    return LinkDelta(
        now[mt.L_FROM],
        now[mt.L_TO],
        *(
            now[k] - before[k]
            for k in (mt.L_TUPLES, mt.L_BYTES, mt.L_FRAMES, mt.L_BUFFER_NS, mt.L_CHANNEL_NS)
        ),
    )


def _source(now: Counts, names: tuple[str, ...]) -> SourceNow:
    state = now[mt.SOURCE_STATE]
    return SourceNow(
        task=names[now[mt.TASK]],
        partition=now[mt.SOURCE_PARTITION] - 1,
        thread=now[mt.THREAD] - 1,
        emitted=now[mt.SOURCE_EMITTED],
        acked=now[mt.SOURCE_ACKED],
        acked_above=now[mt.SOURCE_ACKED_ABOVE],
        in_flight=now[mt.SOURCE_IN_FLIGHT],
        replayed=now[mt.SOURCE_REPLAYED],
        stopped=bool(state & STOPPED_BIT),
        exhausted=bool(state & EXHAUSTED_BIT),
    )


def quantile_ns(buckets: Buckets, share: float) -> int:
    """The latency below which `share` of the counted ones lie (0 when there are none)."""
    want = share * sum(count for _, count in buckets)
    seen = 0
    for bucket, count in buckets:
        seen += count
        if seen >= want:
            return mt.bucket_ns(bucket)
    return 0
