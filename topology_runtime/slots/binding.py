"""How slots are bounded: one protocol, and the choice among its implementations.

cgroup2    cpu.max and memory.max
cgroup1    cpu, cpuacct and memory
affinity   one CPU for each worker
none       nothing
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headgate.topology_runtime.slots import affinity, cgroup1, cgroup2
from headgate.topology_runtime.slots.size import SlotSize


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

    def kill(self, slot: int) -> None:
        """End every process in the slot."""

    def cleanup(self) -> list[str]:
        """Give everything back; names of what would not go."""


Probe = Callable[[SlotSize], tuple[SlotBinding | None, str]]
PROBES: tuple[Probe, ...] = (cgroup2.probe, cgroup1.probe, affinity.probe)


def choose(size: SlotSize, probes: tuple[Probe, ...] = PROBES) -> tuple[SlotBinding, str]:
    """The best binding that this machine and this user allow, and a sentence saying which and why.

    It is not prepared yet, but whatever it is, `cleanup` gives everything back."""
    reasons: list[str] = []
    for probe in probes:
        binding, reason = probe(size)
        if binding is not None:
            return binding, "; ".join([f"slots are bound by {binding.name}: {reason}", *reasons])
        reasons.append(reason)
    return affinity.Unbound(size), "; ".join(["slots are not bound by anything", *reasons])
