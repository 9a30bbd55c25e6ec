"""Slots for measuring: a process's CPU limited to a share of a core, as an agent does it (`slots/`), undone at the end.

Where this machine cannot enforce a share, a process is kept on one core, and `binding` says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate.topology_runtime.slots import cgroups
from headgate.topology_runtime.slots.binding import PROBES, Probe, choose
from headgate.topology_runtime.slots.size import SlotSize

RUN = "calibrate-"  # and the number of the process that measures


class Quotas:
    """The slots of one calibration. `binding`: cgroup1, cgroup2, affinity or none."""

    def __init__(self, probes: tuple[Probe, ...] = PROBES) -> None:
        _remove_leftovers()
        self._run, self._probes = f"{RUN}{os.getpid()}", probes
        found, _ = choose(SlotSize(self._run, "none", 0, 1.0, 0), probes)
        self.binding = found.name

    @property
    def enforced(self) -> bool:
        """Does a slot really get no more than its share?"""
        return self.binding in ("cgroup1", "cgroup2")

    def bind(self, pid: int, name: str, cores: float, core: int | None) -> None:
        """Limit a process (all its threads) to `cores` of a core, where that can be enforced, and keep it on the
        core that this number falls to (None: on any). Raises OSError."""
        vm = name if core is None else f"{name}-{core}"
        slot, _ = choose(SlotSize(self._run, vm, 1, cores, 0, one_core=core is not None), self._probes)
        if slot.name != self.binding:
            raise OSError(f"no slot of {self.binding} can be made any more")
        slot.prepare()
        for file in slot.procs(0):
            Path(file).write_text(str(pid))
        slot.bind(0, pid)

    def remove(self) -> None:
        """Remove the slots, and what is still in them."""
        cgroups.remove_run(self._run)


def _remove_leftovers() -> None:
    """Of calibrations that were killed."""
    for parent in cgroups.parents_of(f"{RUN}*"):
        pid = parent.name.rpartition("-")[2]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            cgroups.remove_run(f"{RUN}{pid}")
