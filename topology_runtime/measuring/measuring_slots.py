"""Slots for measuring: a process's CPU limited to a share of a core, as an agent does it (`slots/`), undone at the end.

Where this machine cannot enforce a share, a process is kept on one core, and `binding` says so.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType

from headgate.topology_runtime.platform import cgroups
from headgate.topology_runtime.platform.slot_binding import PROBES, Probe, choose
from headgate.topology_runtime.platform.slot_size import SlotSize

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
        cgroups.remove_run(self._run)


def _remove_leftovers() -> None:
    """Of calibrations that were killed."""
    for parent in cgroups.parents_of(f"{RUN}*"):
        pid = parent.name.rpartition("-")[2]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            cgroups.remove_run(f"{RUN}{pid}")


# ── Keeps the machine's cores awake while something is measured ─────────────────────────────────────────
#
# A core that idles falls asleep, clocks down, or loses its turn on the host: on the test machine a row then
# cost 1.71 to 2.40 ms of CPU, differently from second to second; awake 1.70 to 1.91 ms. Models so tell what a
# slot does on a machine that works, which is when it matters. (Keeping the cores busy with processes of the
# lowest priority does that too, but delays what is measured.)

QUALITY = Path("/dev/cpu_dma_latency")  # Linux: no core sleeps deeper than the latency that is asked for here


class Awake:
    """No core sleeps while the `with` block lasts; the kernel forgets it with the process. `so`: False where
    this machine or this user cannot ask for that."""

    def __init__(self, device: Path = QUALITY) -> None:
        self._device = device
        self._file: int | None = None

    def __enter__(self) -> Awake:
        try:
            file = os.open(self._device, os.O_WRONLY)
        except OSError:  # no such device, or not for us: measured as it is, and `so` says it
            return self
        try:
            os.write(file, struct.pack("=i", 0))
        except OSError:
            os.close(file)
        else:
            self._file = file
        return self

    @property
    def so(self) -> bool:
        return self._file is not None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
