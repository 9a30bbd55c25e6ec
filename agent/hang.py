"""Is a worker hung? Pure: it is shown what the worker's meter and /proc say, and when.

A worker is hung when (reliability: Faults)
 1. it is stopped (SIGSTOP, a debugger) for 3 s,
 2. its main loop does not advance for 3 s although rows wait, its CPU is idle and no thread is in a call,
 3. a thread has been in one call for longer than its task's `max_call_s`.
A call that is long but legal, a worker starved of CPU, and an agent that was itself stalled are no hang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NS = 1_000_000_000
FROZEN_NS = 3 * NS
OWN_GAP_NS = NS  # if we were not looking for so long ourselves, nothing is known
IDLE_SHARE = 0.01  # of a core: a frozen worker's I/O threads stay far below it
IDLE_LEAST_NS = 10_000_000  # one tick of the kernel's CPU account
STOPPED = frozenset("Tt")


class Reading(NamedTuple):
    """One look at a worker. ran_ns: CPU time it had plus time its main thread waited for a CPU.
    queued: rows waiting. calls: (task number, begin in monotonic ns) of the calls under way."""

    now_ns: int
    state: str
    progress: int
    ran_ns: int
    queued: int
    calls: tuple[tuple[int, int], ...]


class HangWatch:
    """Watches one worker. `max_call_ns`: task number → how long a call may take."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._since: Reading | None = None  # the first of the readings without progress

    def look(self, reading: Reading, max_call_ns: Mapping[int, int]) -> str:
        """Why the worker is hung; empty when it is not, or not known to be."""
        gap_ns, self._last_ns = reading.now_ns - self._last_ns, reading.now_ns
        if gap_ns > OWN_GAP_NS:
            self._since = reading
            return ""
        return self._call_too_long(reading, max_call_ns) or self._frozen(reading)

    def _call_too_long(self, reading: Reading, max_call_ns: Mapping[int, int]) -> str:
        for task, started_ns in reading.calls:
            age_ns = reading.now_ns - started_ns
            if task in max_call_ns and age_ns > max_call_ns[task]:
                return f"a call has taken {age_ns / NS:.1f} s of at most {max_call_ns[task] / NS:g} s"
        return ""

    def _frozen(self, reading: Reading) -> str:
        since = self._since
        if since is None or self._moves(since, reading):
            self._since = reading
            return ""
        frozen_ns = reading.now_ns - since.now_ns
        if frozen_ns < FROZEN_NS:
            return ""
        if reading.state in STOPPED:
            return f"it has been stopped for {frozen_ns / NS:.1f} s"
        return f"no progress for {frozen_ns / NS:.1f} s with an idle CPU and {reading.queued} rows waiting"

    @staticmethod
    def _moves(since: Reading, now: Reading) -> bool:
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
