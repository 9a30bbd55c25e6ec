"""Slots without control groups: each worker is kept to one CPU, or to nothing at all. Nothing bounds its
share or its memory; that is said out loud in `doctor` and in the agent's HELLO.

What a worker started and left is found by a mark in the environment that it inherited, also when it leads a session of
its own. Whoever takes the mark out of his environment is not found."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from headgate.topology_runtime import proc
from headgate.topology_runtime.one_core import keep_slot
from headgate.topology_runtime.slots import marks
from headgate.topology_runtime.slots.size import SlotSize


class Unbound:
    """No bound at all; figures come from the worker's own process."""

    name = "none"

    def __init__(self, size: SlotSize) -> None:
        self.size = size
        self._pids: dict[int, int] = {}
        self.spent_ns: dict[int, int] = dict.fromkeys(range(size.count), 0)  # by workers that are gone
        self._last_ns: dict[int, int] = dict.fromkeys(range(size.count), 0)  # by the present one

    def prepare(self) -> None:
        """Nothing to make; what workers of an earlier agent of this VM left is ended."""
        marks.end(f"{self.size.run}/{self.size.vm}/")

    def command(self, slot: int, command: list[str]) -> list[str]:
        return marks.marking(self._mark(slot), command)

    def _mark(self, slot: int) -> str:
        return f"{self.size.run}/{self.size.vm}/{slot}/"

    def procs(self, slot: int) -> list[str]:
        return []

    def bind(self, slot: int, pid: int) -> None:
        """`pid` is this slot's worker now."""
        self.spent_ns[slot] += self._last_ns[slot]
        self._last_ns[slot] = 0
        self._pids[slot] = pid

    def cpu_ns(self, slot: int) -> int:
        """What was last seen of a worker that is gone is kept: the figure never falls."""
        if slot in self._pids:
            stat = proc.stat(self._pids[slot])
            if stat is not None:
                self._last_ns[slot] = max(self._last_ns[slot], stat.cpu_ns)
        return self.spent_ns[slot] + self._last_ns[slot]

    def throttled_ns(self, slot: int) -> int:
        return 0  # nothing throttles

    def memory_bytes(self, slot: int) -> int:
        return proc.rss_bytes(self._pids[slot]) if slot in self._pids else 0

    def oom_kills(self, slot: int) -> int:
        return 0  # the kernel counts them per control group only

    def kill(self, slot: int) -> None:
        """End the worker's whole session (it was started as the leader of one), and what has left that."""
        pid = self._pids.pop(slot, None)
        if pid is not None:
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(pid, signal.SIGKILL)
        marks.end(self._mark(slot))

    def cleanup(self) -> list[str]:
        for slot in list(self._pids):
            self.kill(slot)
        marks.end(f"{self.size.run}/{self.size.vm}/")
        return []


class Affinity(Unbound):
    """Each slot's worker on one CPU; slots share CPUs when there are more of them."""

    name = "affinity"

    def bind(self, slot: int, pid: int) -> None:
        super().bind(slot, pid)
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)


def probe(size: SlotSize) -> tuple[Unbound | None, str]:
    """CPU affinity where there is more than one CPU to choose from."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return None, "CPU affinity would bind nothing, there is one CPU"
    return Affinity(size), f"CPU affinity keeps each worker to one of {count} CPUs; nothing bounds memory"
