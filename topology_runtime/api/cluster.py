"""VMs and their slots. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.topology_runtime.errors import Infeasible, UsageError
from headgate.topology_runtime.wording import larger_slots

SLOT_CORES, SLOT_MEMORY_BYTES = 0.5, 512 * 1024**2  # of a slot, unless told otherwise
MIB = 1 << 20
SLOT_MEMORY_LEAST = 34 * MIB  # a worker with one thread that keeps nothing holds 33 MiB, as measured
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


BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """`1500000`, `512M`, `1.5G`, `64KiB` in bytes (powers of 1024). Raises UsageError."""
    match = BYTES.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an amount of memory", hint="say for example 512M or 1.5G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def refuse_small_slots(size_bytes: float, worker_bytes: float = 0.0, tasks: Mapping[str, float] = {}) -> None:
    """Raises Infeasible where a slot has no memory for more than its worker: it could only be killed. worker_bytes: of
    one without tasks, as models say; tasks: bytes that one thread of each holds beside it."""
    if size_bytes >= SLOT_MEMORY_LEAST and size_bytes > worker_bytes:
        return
    needed = max(worker_bytes, SLOT_MEMORY_LEAST)
    by_task = {name: max(SLOT_MEMORY_LEAST, worker_bytes + held) for name, held in sorted(tasks.items())}
    raise Infeasible(
        f"a slot has {size_bytes / MIB:,.0f} MiB of memory, a worker without tasks takes {needed / MIB:,.0f}",
        cause="its tasks would be killed for want of memory, again and again",
        faults=[f"task {name!r} needs a slot of {need / MIB:,.0f} MiB" for name, need in by_task.items()],
        hint=larger_slots(max(needed, *by_task.values(), 0.0)),
    )
