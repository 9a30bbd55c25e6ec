"""Each slot's worker stays on one core (decision 21): it cannot use more, and wakes that stay on a core cost less."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence


def cores() -> list[int]:
    """The cores that this process may use, by number."""
    return sorted(os.sched_getaffinity(0))


def core_of(vm: str, slot: int, of: Sequence[int]) -> int:
    """One of the cores for slot `slot` of VM `vm`: in turn, and for VMs that share a machine (vm1, vm2, …) each
    beginning at another."""
    number = re.search(r"\d+$", vm)
    return of[(slot + int(number[0] if number else 0)) % len(of)]


def keep_slot(pid: int, vm: str, slot: int) -> None:
    """The worker of this slot, on the slot's core."""
    keep_on(pid, core_of(vm, slot, cores()))


def keep_on(pid: int, core: int) -> None:
    """Every thread that the process has; those it starts later inherit it."""
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError):  # this thread has
                os.sched_setaffinity(int(thread), {core})
