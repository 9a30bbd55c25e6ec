"""VMs and their slots. No I/O."""

from __future__ import annotations

import math
from typing import Any

import msgspec

SLOT_CORES, SLOT_MEMORY_BYTES = 0.5, 512 * 1024**2  # of a slot, unless told otherwise
MOST_MBPS = 1e7  # of a VM's link: ten terabits a second
MOST_SPEED = 1000.0  # of a VM, as many times what models were measured on


class Slot(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One slot: the place `number` of VM `vm`; written `vm/number`."""

    vm: str
    number: int

    def __str__(self) -> str:
        return f"{self.vm}/{self.number}"


class Vm(msgspec.Struct, frozen=True):
    """A machine with `slots` slots of `slot_cores` cores and `slot_memory_bytes` each. bandwidth_mbps: of its link, in
    megabits (1,000,000 bits) a second, each way; left out, nobody knows, and plans take it for wide enough."""

    vm: str
    slots: int
    slot_cores: float = 1.0
    slot_memory_bytes: int = 3_758_096_384
    usd_per_hour: float = 0.0
    rack: str = "r1"
    speed: float = 1.0
    bandwidth_mbps: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """Bytes/s of its link, each way; None where nobody knows."""
        return None if self.bandwidth_mbps is msgspec.UNSET else float(self.bandwidth_mbps) * 1e6 / 8

    def all_slots(self) -> tuple[Slot, ...]:
        return tuple(Slot(self.vm, number) for number in range(self.slots))


def bandwidth_fault(value: Any) -> str | None:
    """What is wrong with a `bandwidth_mbps`; None: nothing."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and 0 < value <= MOST_MBPS:
        return None
    return f"expected a number of Mbit/s above 0 and at most {MOST_MBPS:g}"
