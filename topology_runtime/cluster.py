"""VMs and their slots. No I/O."""

from __future__ import annotations

import msgspec


class Slot(msgspec.Struct, frozen=True, order=True, array_like=True):
    """One slot: the place `number` of VM `vm`; written `vm/number`."""

    vm: str
    number: int

    def __str__(self) -> str:
        return f"{self.vm}/{self.number}"


class Vm(msgspec.Struct, frozen=True):
    """A machine with `slots` slots of `slot_cores` cores and `slot_memory_bytes` each."""

    vm: str
    slots: int
    slot_cores: float = 1.0
    slot_memory_bytes: int = 3_758_096_384
    usd_per_hour: float = 0.0
    rack: str = "r1"
    speed: float = 1.0

    def all_slots(self) -> tuple[Slot, ...]:
        return tuple(Slot(self.vm, number) for number in range(self.slots))
