"""Counters of one worker in shared memory: written by its threads, read by its agent.

One anonymous file (memfd) per worker, made by the agent, inherited by the worker: reading never
disturbs the data path, a hung worker is still visible, and what a killed worker had counted stays.
The file is an array of int64. Every record has one writer, so nothing is locked. A record whose thread has
ended is its agent's: that reads it to its end, makes it all zero and then free, and only then it is used again.

    header   HEADER words
    threads  THREADS records of THREAD_WORDS words: the fields below, then BUCKETS latency buckets
    links    LINKS records of LINK_WORDS words
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.latency.latency_buckets import BUCKETS
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wire.dead_letter_messages import CallKind
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Identity, StartAgain

HEADER = 16
(
    H_THREADS, H_LINKS, H_PROGRESS, H_INCARNATION, H_ENDING,
    H_CAREFUL, H_ROW_THREAD, H_ROW_SOURCE, H_ROW_PARTITION, H_ROW_POSITION, H_ROW_VARIANT, H_ROW_KIND,
) = range(12)  # fmt: skip
"""THREADS, LINKS: records in use. PROGRESS: of the main loop. ENDING: 1 once the worker ends by itself.
CAREFUL, written by the agent: while it is 1, each row is named here before user code is called for it, one
at a time in the whole worker. ROW_THREAD: number + 1 of the thread in such a call, 0 when there is none."""

(
    THREAD, TID, TASK, EPOCH, STATE, TUPLES_IN, TUPLES_OUT, FRAMES_IN, FRAMES_OUT, BYTES_IN, BYTES_OUT,
    BUSY_NS, WAIT_NS, QUEUE, LATENCY_SUM_NS, CALL_STARTED_NS, HELD_ROWS,
    SOURCE_PARTITION, SOURCE_EMITTED, SOURCE_ACKED, SOURCE_ACKED_ABOVE, SOURCE_IN_FLIGHT,
    SOURCE_REPLAYED, SOURCE_STATE, CALL_MOVED, CALL_KIND, IDENT, UNLOGGED,
    SOURCE_ARRIVED, SOURCE_OLDEST_NS, SOURCE_SEEN_NS, BORROWED_NS,
    SOURCE_OFFSETS, _, _, _, _, _, TIMERS_NS, CALLS, RAN_SQUARES, WAITED_SQUARES,
) = range(42)  # fmt: skip
"""THREAD: number + 1 (0: record unused). TASK: number of the task in the topology.
STATE: RUNNING, ENDED, FREE. QUEUE: rows waiting now.
CALL_STARTED_NS: monotonic, when a frame (or a call of another kind) was begun, 0 when idle.
CALL_MOVED: another number than before: not the same call any more; brought up to date by the main thread.
CALL_KIND: index into KINDS. IDENT: as stacks name the thread. UNLOGGED: rows that a sink began and has not logged.
BUSY_NS: in the task's logic; WAIT_NS: of that, off the CPU.
SOURCE_STATE: bit 0 stopped, bit 1 exhausted, bit 2 held; above `rests`.
SOURCE_ARRIVED, SOURCE_OLDEST_NS, SOURCE_SEEN_NS: as `messages.SourceNow` says; 0 where rows do not arrive.
SOURCE_OFFSETS: of a source with offsets, twice a position, the offset to go on from there (0: not known), and both
XORed: whoever reads while they are written sees that they do not fit.
TIMERS_NS: CPU that timers took: their calls, and to send what they gave.
CALLS: frames that came together are one. RAN_SQUARES, WAITED_SQUARES: of each, on the CPU and off it, µs² / rows.
BORROWED_NS: CPU that other threads spent on this one's frames, less what it spent on those of others: it may fall.
All others count up since the thread began."""

RUNNING, ENDED, FREE = 1, 2, 3
KINDS: tuple[CallKind, ...] = ("row", "bucket", "read", "open", "close")
ROW, BUCKET, READ, OPEN, CLOSE = range(5)
FIELDS = 42
STOPPED_BIT, EXHAUSTED_BIT, HELD_BIT, RESTS_SHIFT = 1, 2, 4, 3
THREAD_WORDS = FIELDS + 2 * BUCKETS  # latency in the task, then (sinks) latency from intended emit time
E2E = FIELDS + BUCKETS
THREADS = 1024
L_FROM, L_TO, L_TUPLES, L_BYTES, L_FRAMES, L_BUFFER_NS, L_CHANNEL_NS, L_STATE = range(8)
LINK_WORDS = 8
LINKS = 8192
WORDS = HEADER + THREADS * THREAD_WORDS + LINKS * LINK_WORDS
SIZE_BYTES = WORDS * 8
NO_THREAD, NO_LINK = (memoryview(array("q", bytes(words * 8))) for words in (THREAD_WORDS, LINK_WORDS))


def offset_words(*pairs: tuple[int, int]) -> memoryview:
    """SOURCE_OFFSETS of two pairs of position and offset."""
    return memoryview(array("q", [word for at, offset in pairs for word in (at, offset, at ^ offset)]))


def offsets_in(words: Sequence[int], at: int) -> tuple[tuple[int, int], ...]:
    """The pairs that are known, of the record that begins at this word."""
    six = words[at + SOURCE_OFFSETS : at + SOURCE_OFFSETS + 6]
    return tuple((six[n], six[n + 1]) for n in (0, 3) if six[n + 1] > 0 and six[n] ^ six[n + 1] == six[n + 2])


def create() -> int:
    """A new meter's file descriptor (the agent keeps it, the worker inherits it)."""
    fd = os.memfd_create("headgate-meter", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE_BYTES)
    return fd


class Meter:
    """A meter mapped into this process; `words` is the array of int64."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE_BYTES)
        self.words = memoryview(self._map).cast("q")
        self._next_thread = 0
        self._next_link = 0
        self._ended: deque[int] = deque()
        self._ended_links: deque[int] = deque()

    def thread_record(self) -> int:
        """First word of a thread record that is all zero. Called by one thread only."""
        if (freed := self._freed(self._ended, STATE)) is not None:
            return freed
        if self._next_thread == THREADS:
            raise MemoryError(f"a worker runs at most {THREADS} threads at once")
        self._next_thread += 1
        self.words[H_THREADS] = self._next_thread
        return HEADER + (self._next_thread - 1) * THREAD_WORDS

    def link_record(self, from_thread: int, to_thread: int) -> int | None:
        """First word of a fresh link record, None when all are used. One caller at a time."""
        at = self._freed(self._ended_links, L_STATE)
        if at is None and self._next_link == LINKS:
            return None
        if at is None:
            at = HEADER + THREADS * THREAD_WORDS + self._next_link * LINK_WORDS
            self._next_link += 1
        self.words[at + L_FROM], self.words[at + L_TO] = from_thread, to_thread
        self.words[H_LINKS] = self._next_link
        return at

    def thread_records(self) -> range:
        """First words of the thread records that were ever in use."""
        return range(HEADER, HEADER + self.words[H_THREADS] * THREAD_WORDS, THREAD_WORDS)

    def link_records(self) -> range:
        """The same of link records."""
        first = HEADER + THREADS * THREAD_WORDS
        return range(first, first + self.words[H_LINKS] * LINK_WORDS, LINK_WORDS)

    def _freed(self, ended: deque[int], state: int) -> int | None:
        """The record that has been waiting longest, once its agent has read it to its end."""
        if not ended or self.words[ended[0] + state] != FREE:
            return None
        self.words[ended[0] + state] = 0
        return ended.popleft()

    def thread_ended(self, at: int) -> None:
        """Nothing more will be counted in this thread record."""
        self.words[at + STATE] = ENDED
        self._ended.append(at)

    def link_ended(self, at: int) -> None:
        """Nothing more will be counted in this link record. One caller at a time."""
        self.words[at + L_STATE] = ENDED
        self._ended_links.append(at)

    def free_thread(self, at: int) -> None:
        """The agent's: it has all of this ended record."""
        self.words[at : at + THREAD_WORDS] = NO_THREAD
        self.words[at + STATE] = FREE

    def free_link(self, at: int) -> None:
        """The agent's: it has all of this ended record."""
        self.words[at : at + LINK_WORDS] = NO_LINK
        self.words[at + L_STATE] = FREE

    def close(self) -> None:
        self.words.release()
        self._map.close()


# ── What a thread's calls of user code leave in the meter, for the agent to see when they do not end ────


HELD: dict[int, str] = {}  # files of the runtime's that nobody may close: what they are


def hold() -> None:
    """The files by which sockets and threads wake each other, as they are now; looked at after careful calls."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the folder's own
            if (what := os.readlink(f"/proc/self/fd/{fd}")).startswith("anon_inode:"):
                HELD[fd] = what


def _is_held(fd: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}") == HELD[fd]
    except OSError:
        return False


class MeterWatch(CallWatch):
    """Of thread number `thread`, whose record begins at `at`. `one`: held in careful calls."""

    ends = (StartAgain,)  # no key of a keyboard reaches a worker

    def __init__(self, words: memoryview, at: int, thread: int, one: threading.Lock) -> None:
        super().__init__()
        self._words, self._at, self._thread, self._one = words, at, thread, one
        self._alone = self._whole = False  # this call holds `one`; no frame is round this call
        self.tell_away: Callable[[ServiceAway | None], float] | None = (
            None  # seconds until the next try; None: it is back
        )
        self.rest: Callable[[float], None] = time.sleep
        self.waited_ns = 0  # for services, ever
        self._away = False

    def look(self) -> None:
        """Between frames: what does the agent ask for?"""
        self.careful = self._words[H_CAREFUL] != 0

    def enter(self, identity: Identity) -> None:
        words, started = self._words, self._at + CALL_STARTED_NS
        self.calls += 1
        self._whole = not words[started]
        if self.careful:
            words[started] = 0  # it does not count how long this one waits for the others
            self._one.acquire()
            self._alone = True
            source, partition, position, variant, kind = identity
            words[H_ROW_SOURCE], words[H_ROW_PARTITION] = source, partition
            words[H_ROW_POSITION], words[H_ROW_VARIANT] = position, variant
            words[H_ROW_KIND] = KINDS.index(kind)
            words[H_ROW_THREAD] = self._thread + 1
        if not words[started]:
            words[started] = monotonic_ns()

    def leave(self) -> None:
        if self._alone:
            if HELD and not all(map(_is_held, HELD)):
                os.write(2, b"headgate: user code closed files that are not its own\n")
                os._exit(1)  # while its row is named: the sockets of this process are gone in any case
            self._alone = False
            self._words[H_ROW_THREAD] = 0
            self._one.release()
        if self._whole:
            self._words[self._at + CALL_STARTED_NS] = 0

    def timers(self, fire: Callable[[], bool]) -> bool:
        self._words[self._at + CALL_STARTED_NS] = monotonic_ns()
        try:
            return super().timers(fire)
        finally:
            self._words[self._at + CALL_STARTED_NS] = 0

    @contextlib.contextmanager
    def for_timers(self) -> Iterator[None]:
        begun_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._words[self._at + TIMERS_NS] += time.thread_time_ns() - begun_ns

    def waits(self, error: ServiceAway) -> bool:
        pause_s = self.away_s(error)
        if pause_s is None:
            return False
        words, started = self._words, self._at + CALL_STARTED_NS
        before, words[started] = words[started], 0  # nobody is in user code meanwhile
        begun_ns = monotonic_ns()
        self.rest(pause_s)
        now_ns = monotonic_ns()
        self.waited_ns += now_ns - begun_ns
        words[started] = now_ns if before else 0
        return True

    def away_s(self, error: ServiceAway) -> float | None:
        if self.tell_away is None:
            return None
        self._away = True
        return self.tell_away(error)

    def served(self) -> None:
        if self._away and self.tell_away is not None:
            self._away = False
            self.tell_away(None)

    def calling(self, kind: int) -> MeterWatch:
        """`with watch.calling(kind)`: round a call that is about no row. It is timed."""
        self._words[self._at + CALL_KIND] = kind
        return self

    def __enter__(self) -> None:
        self._words[self._at + CALL_STARTED_NS] = monotonic_ns()

    def __exit__(self, *_: object) -> None:
        words, at = self._words, self._at
        words[at + CALL_STARTED_NS] = 0
        words[at + CALL_KIND] = ROW
