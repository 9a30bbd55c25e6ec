"""Slots as control groups of version 1: the controllers cpu, cpuacct and memory (and pids where it is mounted), each
with its own tree.

A worker joins all three before its exec, while its slot has no CPU quota: start-up under a 5 % quota
takes 0.9 s, without it 0.04 s. The quota comes into force when the worker has said hello.
"""

from __future__ import annotations

from pathlib import Path

from headgate.topology_runtime.one_core import keep_slot
from headgate.topology_runtime.slots import cgroups
from headgate.topology_runtime.slots.cgroups import ControlGroup
from headgate.topology_runtime.slots.size import SlotSize, joining

CONTROLLERS = ("cpu", "cpuacct", "memory")
PIDS = "pids"
PARENT_SHARES = 8192  # against three foreign spinners a 20 % slot gets 20 %, at 1024 only 8.5 % (measured)
UNLIMITED = -1


def find() -> dict[str, Path]:
    """Controller → its mount point, of those we use that are mounted."""
    points = cgroups.mounted("cgroup")
    return {name: point for name in (*CONTROLLERS, PIDS) for point, options in points if name in options}


class Cgroup1:
    """`<mount>/headgate-<run>/<vm>-<slot>` in each tree."""

    name = "cgroup1"

    def __init__(self, size: SlotSize, roots: dict[str, Path]) -> None:
        self.size = size
        self._parents = {c: roots[c] / cgroups.NAME.format(run=size.run) for c in roots}
        self._groups: dict[int, dict[str, ControlGroup]] = {}

    def reserve(self) -> None:
        """Make the run's parent groups. Raises OSError where this user may not."""
        for parent in self._trees():
            parent.mkdir(exist_ok=True)
        ControlGroup(self._parents["cpu"]).write("cpu.shares", PARENT_SHARES)

    def prepare(self) -> None:
        """Remove what an earlier agent of this VM left, then make every slot's groups."""
        old = [group for parent in self._trees() for group in cgroups.leftovers(parent, self.size.vm)]
        for group in old:  # in the tree of pids, before anything is killed through another
            group.may_fork(0)
        for group in old:
            group.remove()
        for slot in range(self.size.count):
            name = f"{self.size.vm}-{slot}"
            self._groups[slot] = {c: cgroups.make(parent, name) for c, parent in self._parents.items()}
            self._groups[slot]["memory"].write("memory.limit_in_bytes", self.size.memory_bytes or UNLIMITED)
            self._may_fork(slot, self.size.processes)
        self.reserve()

    def _trees(self) -> list[Path]:
        """The parents without repetition: cpu and cpuacct are often one tree."""
        return sorted({path.parent.resolve() / path.name for path in self._parents.values()})

    def command(self, slot: int, command: list[str]) -> list[str]:
        """The command line that starts a worker inside its slot, without a CPU quota yet."""
        self._groups[slot]["cpu"].write("cpu.cfs_quota_us", UNLIMITED)
        return joining(self.procs(slot), command)

    def procs(self, slot: int) -> list[str]:
        return [str(group.procs) for group in self._groups[slot].values()]

    def bind(self, slot: int, pid: int) -> None:
        """The worker is ready: from now on its slot has its share of a core, and of one only."""
        quota_us, period_us = cgroups.quota(self.size.cores)
        cpu = self._groups[slot]["cpu"]
        cpu.write("cpu.cfs_period_us", period_us)
        cpu.write("cpu.cfs_quota_us", quota_us)
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)

    def cpu_ns(self, slot: int) -> int:
        return self._groups[slot]["cpuacct"].number("cpuacct.usage")

    def throttled_ns(self, slot: int) -> int:
        return self._groups[slot]["cpu"].number("cpu.stat", "throttled_time")

    def memory_bytes(self, slot: int) -> int:
        return self._groups[slot]["memory"].number("memory.usage_in_bytes")

    def oom_kills(self, slot: int) -> int:
        return self._groups[slot]["memory"].number("memory.oom_control", "oom_kill")

    def kill(self, slot: int) -> None:
        """End every process in the slot, also those that a worker started and those that these are starting now."""
        self._may_fork(slot, 0)
        self._groups[slot]["memory"].kill()
        self._may_fork(slot, self.size.processes)

    def _may_fork(self, slot: int, most: int) -> None:
        if PIDS in self._groups[slot]:
            self._groups[slot][PIDS].may_fork(most)

    def cleanup(self) -> list[str]:
        """Remove every group; those that would not go."""
        left = [str(g.path) for groups in self._groups.values() for g in groups.values() if not g.remove()]
        for parent in self._trees():
            cgroups.remove_if_empty(parent)
        return left


def probe(size: SlotSize) -> tuple[Cgroup1 | None, str]:
    """The binding if this machine and this user can have it, and a sentence about it."""
    roots = find()
    missing = [name for name in CONTROLLERS if name not in roots]
    if missing:
        return None, f"cgroup v1 has no {' and no '.join(missing)} controller mounted"
    binding = Cgroup1(size, roots)
    try:
        binding.reserve()
    except OSError as error:
        binding.cleanup()
        return None, f"cgroup v1 cannot be used ({error.strerror}: {error.filename})"
    what = "CPU, memory and processes" if PIDS in roots else "CPU and memory, not the number of processes,"
    return binding, f"cgroup v1 bounds {what} of every slot"
