"""Is a worker hung? Pure: it is shown what the worker's meter and /proc say, and when.

A worker is hung when (docs/faults.md)
 1. it is stopped (SIGSTOP, a debugger) for 3 s,
 2. its main loop does not advance for 3 s although rows wait, its CPU is idle and no thread is in a call,
 3. a thread has been in one call for longer than its task's `max_call_s`: a call for one row, not a frame
    (but of a batched task); in a source's read or poll too. A call of open or close is the worker's own to
    tell of, so it counts only when the main loop does not advance either, and open may take a minute.
A call that is long but legal, a worker starved of CPU, and an agent that was itself stalled are no hang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headgate.topology_runtime.struck import CallKind

NS = 1_000_000_000
FROZEN_NS = 3 * NS
OWN_GAP_NS = NS  # if we were not looking for so long ourselves, nothing is known
IDLE_SHARE = 0.01  # of a core: a frozen worker's I/O threads stay far below it
IDLE_LEAST_NS = 10_000_000  # one tick of the kernel's CPU account
STOPPED = frozenset("Tt")
OPEN_LEAST_NS = 60 * NS  # a task may load much when it begins


class Call(NamedTuple):
    """A thread in user code. started_ns: when its frame was begun (monotonic). moved: another number than
    before, and it is not in the same call."""

    thread: int
    task: int
    kind: CallKind
    started_ns: int
    moved: int


class HangReading(NamedTuple):
    """One look at a worker. ran_ns: CPU time it had plus time its main thread waited for a CPU.
    queued: rows waiting."""

    now_ns: int
    state: str
    progress: int
    ran_ns: int
    queued: int
    calls: tuple[Call, ...]


class Hang(NamedTuple):
    """Why a worker is hung, and the thread that is in a call for too long (−1: none)."""

    why: str
    thread: int = -1


class HangWatch:
    """Watches one worker. `max_call_ns`: task number → how long a call may take."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._since: HangReading | None = None  # the first of the readings without progress
        self._calls: dict[int, tuple[Call, int]] = {}  # thread → its call, and since when it is in that
        self._progress, self._advanced_ns = -1, 0  # of the main loop, and when it was last seen to advance

    def look(self, reading: HangReading, max_call_ns: Mapping[int, int]) -> Hang | None:
        """Is the worker hung? None when it is not, or not known to be."""
        gap_ns, self._last_ns = reading.now_ns - self._last_ns, reading.now_ns
        stalled = gap_ns > OWN_GAP_NS
        if stalled or reading.progress != self._progress:
            self._progress, self._advanced_ns = reading.progress, reading.now_ns
        if stalled:
            self._since, self._calls = reading, {}
        self._follow(reading)
        if stalled:
            return None
        return self._call_too_long(reading, max_call_ns) or self._frozen(reading)

    def _follow(self, reading: HangReading) -> None:
        """Since when is each thread in its call? Counted from our own first look at it."""
        before, self._calls = self._calls, {}
        for call in reading.calls:
            known = before.get(call.thread)
            since_ns = known[1] if known is not None and known[0] == call else reading.now_ns
            self._calls[call.thread] = call, since_ns

    def _call_too_long(self, reading: HangReading, max_call_ns: Mapping[int, int]) -> Hang | None:
        stuck = reading.now_ns - self._advanced_ns >= FROZEN_NS
        for call, since_ns in self._calls.values():
            if call.task not in max_call_ns or (call.kind in ("open", "close") and not stuck):
                continue
            age_ns, most_ns = reading.now_ns - since_ns, most_of(call.kind, max_call_ns[call.task])
            if age_ns > most_ns:
                where = "a call" if call.kind in ("row", "bucket") else f"{call.kind}()"
                return Hang(
                    f"{where} has taken {age_ns / NS:.1f} s of at most {most_ns / NS:g} s", call.thread
                )
        return None

    def _frozen(self, reading: HangReading) -> Hang | None:
        since = self._since
        if since is None or self._moves(since, reading):
            self._since = reading
            return None
        frozen_ns = reading.now_ns - since.now_ns
        if frozen_ns < FROZEN_NS:
            return None
        if reading.state in STOPPED:
            return Hang(f"it has been stopped for {frozen_ns / NS:.1f} s")
        return Hang(
            f"no progress for {frozen_ns / NS:.1f} s with an idle CPU and {reading.queued} rows waiting"
        )

    @staticmethod
    def _moves(since: HangReading, now: HangReading) -> bool:
        if now.state in STOPPED:
            return since.state not in STOPPED
        elapsed_ns = now.now_ns - since.now_ns
        ran_ns = now.ran_ns - since.ran_ns
        busy = ran_ns > IDLE_SHARE * elapsed_ns + IDLE_LEAST_NS
        return (
            since.state in STOPPED
            or now.progress != since.progress
            or busy
            or not now.queued
            or bool(now.calls)
        )


def most_of(kind: CallKind, max_call_ns: int) -> int:
    """How long a call of this kind may take."""
    return max(OPEN_LEAST_NS, max_call_ns) if kind == "open" else max_call_ns
