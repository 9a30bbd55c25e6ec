"""What slots a VM has: the one thing every slot binding is made from."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence

import msgspec

PROCESSES_MOST = 2048  # a slot's own threads are some hundreds; the rest is what its tasks start


class SlotSize(msgspec.Struct, frozen=True):
    """`count` slots of VM `vm` in run `run`, each `cores` of a core and `memory_bytes` (0: as much as there is), each
    kept to one core unless told otherwise. processes: and threads, at most, in each."""

    run: str
    vm: str
    count: int
    cores: float
    memory_bytes: int
    one_core: bool = True
    processes: int = PROCESSES_MOST


def joining(procs: list[str], command: list[str]) -> list[str]:
    """A command line that enters control groups and then *becomes* `command`, under the same process id.

    A shell does it: running Python between fork and exec is not safe in a process that has threads."""
    enter = " && ".join(f'echo $$ > "${n}"' for n in range(1, len(procs) + 1))
    script = f'{enter} && shift {len(procs)} && exec "$@"'
    return ["/bin/sh", "-c", script, "headgate-slot", *procs, *command]


# ── Each slot's worker stays on one core (decision 21): it cannot use more, and wakes that stay on a core
# cost less


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
