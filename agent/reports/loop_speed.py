"""How fast this VM is: a small loop, in CPU time of its thread, at the agent's start and while no worker runs.

Quotas and other processes' turns do not count as CPU time; a slower clock, a worse processor and whoever shares a core
or a cache do. The last come and go within seconds, so the best of many short loops counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from headgate.topology_runtime.measuring.machine_speed import loop_ns
from headgate.topology_runtime.wire.messages import LoopSeen

NS = 1_000_000_000
ROUNDS = 2_000  # a fifth of a millisecond
AT_START, AT_A_TIME = 200, 5  # loops
KEPT = 60  # seconds without workers, of which the best counts
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LoopSpeed:
    """See the module's text. loop_ns: CPU that so many rounds take."""

    def __init__(self, loop_ns: Callable[[int], int] = loop_ns, host: str | None = None) -> None:
        self._loop_ns, self._host = loop_ns, host_name() if host is None else host
        self._best: deque[float] = deque([self._round_ns(AT_START)], maxlen=KEPT)
        self._seconds = 0
        self._due_ns = 0

    def look(self, now_ns: int, idle: bool) -> None:
        """Time has passed. idle: no worker and no profile runs here."""
        if not idle:
            self._due_ns = now_ns + NS  # what ended leaves work behind
        elif now_ns >= self._due_ns:
            self._due_ns = now_ns + NS
            self._best.append(self._round_ns(AT_A_TIME))
            self._seconds = min(self._seconds + 1, KEPT)

    @property
    def seen(self) -> LoopSeen:
        return LoopSeen(round(min(self._best), 3), self._seconds, self._host)

    def _round_ns(self, loops: int) -> float:
        return min(self._loop_ns(ROUNDS) for _ in range(loops)) / ROUNDS


def host_name() -> str:
    """Of this machine since it started, the same for all agents on it; empty where that is not known."""
    with suppress(OSError):
        return sha256(BOOT_ID.read_bytes()).hexdigest()[:16]
    return ""
