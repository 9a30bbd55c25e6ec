"""Clocks. Durations and leases: monotonic, which means nothing elsewhere. Intended emit times and records: UTC.

UTC here is the controller's: an agent measures how far its machine's clock is off, and it and its workers add that.
"""

from __future__ import annotations

import time

monotonic_ns = time.monotonic_ns

_offset_ns = 0


def wall_ns() -> int:
    """UTC by the controller's clock, as well as that is known."""
    return time.time_ns() + _offset_ns


def correct(offset_ns: int) -> None:
    """From now on add so much to this machine's clock."""
    global _offset_ns
    _offset_ns = offset_ns


def wall_of_monotonic_ns() -> int:
    """Add it to a monotonic time of this process to get UTC."""
    return wall_ns() - monotonic_ns()
