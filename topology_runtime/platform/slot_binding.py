"""How slots are bounded: one protocol, and the choice among its implementations.

cgroup2    cpu.max and memory.max
cgroup1    cpu, cpuacct and memory
affinity   one CPU for each worker
none       nothing
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headgate.topology_runtime.platform import cgroups as cgroup1
from headgate.topology_runtime.platform import cgroups as cgroup2
from headgate.topology_runtime.platform import processes as proc
from headgate.topology_runtime.platform.slot_size import SlotSize, keep_slot

# ── Processes of a slot, known by what they inherited: a word in their environment ──────────────────────

MARK = "HEADGATE_SLOT"
ROUNDS_MOST = 5  # a process that was being made while one looked is found in the next round


def marking(mark: str, command: list[str]) -> list[str]:
    """A command line that becomes `command` under the same process id, with the mark."""
    return ["/bin/sh", "-c", f'export {MARK}="$1" && shift && exec "$@"', "headgate-slot", mark, *command]


def end(mark: str) -> None:
    """Kill every process whose mark begins so, as far as this user may."""
    for _ in range(ROUNDS_MOST):
        if not _round(f"{MARK}={mark}".encode()):
            return


def _round(word: bytes) -> bool:
    """Was there any?"""
    found = False
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            found = _end(int(name), word) or found
    return found


def _end(pid: int, word: bytes) -> bool:
    """By its descriptor: never another process that got the same number meanwhile."""
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False  # it has ended
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if not any(one.startswith(word) for one in words):
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
        return True
    except OSError:
        return False  # another user's, or it has ended
    finally:
        os.close(held)


# ── Slots without control groups: each worker is kept to one CPU, or to nothing at all. Nothing bounds its
# share or its memory; that is said out loud in `doctor` and in the agent's HELLO.
#
# What a worker started and left is found by a mark in the environment that it inherited, also when it leads a
# session of its own. Whoever takes the mark out of his environment is not found.


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
        end(f"{self.size.run}/{self.size.vm}/")

    def command(self, slot: int, command: list[str]) -> list[str]:
        return marking(self._mark(slot), command)

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
        return proc.rss_bytes_of_all(self._pids[slot]) if slot in self._pids else 0

    def oom_kills(self, slot: int) -> int:
        return 0  # the kernel counts them per control group only

    def forks_refused(self, slot: int) -> int:
        return 0

    def kill(self, slot: int) -> None:
        """End the worker's whole session (it was started as the leader of one), and what has left that."""
        pid = self._pids.pop(slot, None)
        if pid is not None:
            with suppress(ProcessLookupError):  # all of it has ended
                os.killpg(pid, signal.SIGKILL)
        end(self._mark(slot))

    def cleanup(self) -> list[str]:
        for slot in list(self._pids):
            self.kill(slot)
        end(f"{self.size.run}/{self.size.vm}/")
        return []


class Affinity(Unbound):
    """Each slot's worker on one CPU; slots share CPUs when there are more of them."""

    name = "affinity"

    def bind(self, slot: int, pid: int) -> None:
        super().bind(slot, pid)
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)


def probe_affinity(size: SlotSize) -> tuple[Unbound | None, str]:
    """CPU affinity where there is more than one CPU to choose from."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return None, "CPU affinity would bind nothing, there is one CPU"
    return Affinity(size), f"CPU affinity keeps each worker to one of {count} CPUs; nothing bounds memory"


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────


class SlotBinding(Protocol):
    """The slots of one VM, numbered from 0. Figures count up for as long as the binding lives."""

    @property
    def name(self) -> str:
        """What HELLO says: cgroup2, cgroup1, affinity or none."""

    def prepare(self) -> None:
        """Remove what an earlier agent of this VM left (killing what is in it), then make the slots."""

    def command(self, slot: int, command: list[str]) -> list[str]:
        """The command line that starts `command` inside the slot, as yet without a CPU bound."""

    def procs(self, slot: int) -> list[str]:
        """Files into which a process writes its id to enter the slot; none where nothing bounds it."""

    def bind(self, slot: int, pid: int) -> None:
        """The worker is ready: its slot's CPU bound is in force from now on."""

    def cpu_ns(self, slot: int) -> int: ...

    def throttled_ns(self, slot: int) -> int:
        """How long the slot was kept off the CPU by its bound."""

    def memory_bytes(self, slot: int) -> int: ...

    def oom_kills(self, slot: int) -> int: ...

    def forks_refused(self, slot: int) -> int:
        """Processes and threads beyond the slot's number of them."""

    def kill(self, slot: int) -> None:
        """End every process in the slot."""

    def cleanup(self) -> list[str]:
        """Give everything back; names of what would not go."""


Probe = Callable[[SlotSize], tuple[SlotBinding | None, str]]
PROBES: tuple[Probe, ...] = (cgroup2.probe_cgroup2, cgroup1.probe_cgroup1, probe_affinity)


def choose(size: SlotSize, probes: tuple[Probe, ...] = PROBES) -> tuple[SlotBinding, str]:
    """The best binding that this machine and this user allow, and a sentence saying which and why.

    It is not prepared yet, but whatever it is, `cleanup` gives everything back."""
    reasons: list[str] = []
    for probe in probes:
        binding, reason = probe(size)
        if binding is not None:
            return binding, "; ".join([f"slots are bound by {binding.name}: {reason}", *reasons])
        reasons.append(reason)
    return Unbound(size), "; ".join(["slots are not bound by anything", *reasons])
