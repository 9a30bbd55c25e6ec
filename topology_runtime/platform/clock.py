"""Clocks. Durations and leases: monotonic, which means nothing elsewhere. Emit times, schedules and records: UTC.

UTC here is the controller's, and goes on by the monotonic clock: what the machine's clock said when the process
began, and what has passed since. Who sets that clock later changes no duration, no schedule, no order of records.
An agent measures how far its machine is from its controller, and it and its workers go by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headgate.topology_runtime.platform.disk import write_whole

monotonic_ns = time.monotonic_ns
MONOTONIC_OF = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/self/timens_offsets",
)  # same content: the same clock


class RunClock:
    """UTC of a run. own_ns, ahead_ns: UTC less the monotonic clock, at the start and now."""

    def __init__(self, monotonic: Callable[[], int], utc: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self.own_ns = self.ahead_ns = utc() - monotonic()

    def wall_ns(self) -> int:
        return self._monotonic() + self.ahead_ns

    def go_by(self, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns

    def hear(self, offset_ns: int, ahead_ns: int | None) -> None:
        """What an agent says; one of before knows `offset_ns` alone."""
        self.go_by(self.own_ns + offset_ns if ahead_ns is None else ahead_ns)

    def not_before(self, wall_ns: int) -> None:
        """Time that was recorded is over."""
        self.ahead_ns += max(0, wall_ns - self.wall_ns())

    def carry_on(self, file: Path, fresh: bool) -> None:
        """Go on with the time of the process before, if it kept it in `file` since this machine started. fresh: there
        is no run to go on with. Raises OSError: it cannot be kept."""
        which = "".join(Path(name).read_text("ascii") for name in MONOTONIC_OF if Path(name).exists()).strip()
        with suppress(FileNotFoundError, ValueError):  # what is torn says nothing
            there, _, ahead = file.read_text("ascii").rpartition("\n")
            if there == which and not fresh:
                return self.go_by(int(ahead))
        write_whole(file, f"{which}\n{self.ahead_ns}".encode())


HERE = RunClock(monotonic_ns, time.time_ns)
wall_ns = HERE.wall_ns
