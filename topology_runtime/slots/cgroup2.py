"""Slots as control groups of version 2: one tree, `cpu.max`, `memory.max` and `pids.max`.

A worker joins before its exec, while its slot has no CPU quota; the quota comes into force when the
worker has said hello (cgroup1.py says why).
"""

from __future__ import annotations

from pathlib import Path

from headgate.topology_runtime.one_core import keep_slot
from headgate.topology_runtime.slots import cgroups
from headgate.topology_runtime.slots.cgroups import ControlGroup
from headgate.topology_runtime.slots.size import SlotSize, joining

CONTROLLERS = ("cpu", "memory")
PIDS = "pids"  # where it is offered
PARENT_WEIGHT = 800  # as 8192 shares in v1: foreign processes must not take a slot's share


class Cgroup2:
    """`<base>/headgate-<run>/<vm>-<slot>`; `base` may hold no process of its own unless it is the root."""

    name = "cgroup2"

    def __init__(self, size: SlotSize, base: Path, controllers: tuple[str, ...] = CONTROLLERS) -> None:
        self.size = size
        self._controllers = controllers
        self._base = base
        self._parent = base / cgroups.NAME.format(run=size.run)
        self.groups: dict[int, ControlGroup] = {}

    def reserve(self) -> None:
        """Make the run's parent group and hand it the controllers. Raises OSError where we may not."""
        enable = " ".join(f"+{name}" for name in self._controllers)
        ControlGroup(self._base).write("cgroup.subtree_control", enable)
        self._parent.mkdir(exist_ok=True)
        parent = ControlGroup(self._parent)
        parent.write("cgroup.subtree_control", enable)
        parent.write("cpu.weight", PARENT_WEIGHT)

    def prepare(self) -> None:
        """Remove what an earlier agent of this VM left, then make every slot's group."""
        for group in cgroups.leftovers(self._parent, self.size.vm):
            group.remove()
        self.reserve()
        for slot in range(self.size.count):
            group = cgroups.make(self._parent, f"{self.size.vm}-{slot}")
            group.write("memory.max", self.size.memory_bytes or "max")
            group.may_fork(self.size.processes)
            self.groups[slot] = group

    def command(self, slot: int, command: list[str]) -> list[str]:
        """The command line that starts a worker inside its slot, without a CPU quota yet."""
        self.groups[slot].write("cpu.max", "max")
        return joining(self.procs(slot), command)

    def procs(self, slot: int) -> list[str]:
        return [str(self.groups[slot].procs)]

    def bind(self, slot: int, pid: int) -> None:
        """The worker is ready: from now on its slot has its share of a core, and of one only."""
        quota_us, period_us = cgroups.quota(self.size.cores)
        self.groups[slot].write("cpu.max", f"{quota_us} {period_us}")
        if self.size.one_core:
            keep_slot(pid, self.size.vm, slot)

    def cpu_ns(self, slot: int) -> int:
        return 1000 * self.groups[slot].number("cpu.stat", "usage_usec")

    def throttled_ns(self, slot: int) -> int:
        return 1000 * self.groups[slot].number("cpu.stat", "throttled_usec")

    def memory_bytes(self, slot: int) -> int:
        return self.groups[slot].number("memory.current")

    def oom_kills(self, slot: int) -> int:
        return self.groups[slot].number("memory.events", "oom_kill")

    def kill(self, slot: int) -> None:
        """End every process in the slot, also those that a worker started and those that these are starting now."""
        self.groups[slot].may_fork(0)
        self.groups[slot].kill()
        self.groups[slot].may_fork(self.size.processes)

    def cleanup(self) -> list[str]:
        """Remove every group; those that would not go."""
        left = [str(group.path) for group in self.groups.values() if not group.remove()]
        cgroups.remove_if_empty(self._parent)
        return left


def probe(size: SlotSize) -> tuple[Cgroup2 | None, str]:
    """The binding if this machine and this user can have it, and a sentence about it.

    Tried at the tree's root, then beside this process and where it is itself (a delegated subtree)."""
    points = cgroups.mounted("cgroup2")
    if not points:
        return None, "cgroup v2 is not mounted"
    point = points[0][0]
    reason = ""
    own = point / cgroups.own_path().lstrip("/")
    for base in dict.fromkeys((point, own.parent if own != point else point, own)):
        binding, reason = binding_under(size, base)
        if binding is not None:
            return binding, reason
    return None, reason


def binding_under(size: SlotSize, base: Path) -> tuple[Cgroup2 | None, str]:
    try:
        offered = (base / "cgroup.controllers").read_text("ascii").split()
    except OSError as error:
        return None, f"cgroup v2 cannot be read ({error.strerror}: {error.filename})"
    missing = [name for name in CONTROLLERS if name not in offered]
    if missing:
        return None, f"cgroup v2 at {base} has no {' and no '.join(missing)} controller"
    counts = PIDS in offered
    binding = Cgroup2(size, base, (*CONTROLLERS, PIDS) if counts else CONTROLLERS)
    try:
        binding.reserve()
    except OSError as error:
        binding.cleanup()
        return None, f"cgroup v2 at {base} cannot be used ({error.strerror}: {error.filename})"
    what = "CPU, memory and processes" if counts else "CPU and memory, not the number of processes,"
    return binding, f"cgroup v2 at {base} bounds {what} of every slot"
