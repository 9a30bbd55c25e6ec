"""What this machine offers an agent, and what is missing. Leaves nothing behind."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from headgate.agent import containment_checks
from headgate.agent.containment_checks import Check
from headgate.agent.start_up import FILES_LEAST
from headgate.topology_runtime.slots.binding import PROBES, choose
from headgate.topology_runtime.slots.size import SlotSize

TRIAL_CORES, TRIAL_MEMORY_BYTES = 0.2, 256 * 1024 * 1024


def checks() -> list[Check]:
    """Every check, in the order in which they matter."""
    slots = [_binding(), *_bindings()]
    binding, _ = choose(_size())
    binding.cleanup()
    contained = containment_checks.checks(binding.name)
    return [*slots, *contained, _files(), _memfd(), _pidfd(), _schedstat(), _shell()]


def _size() -> SlotSize:
    return SlotSize(f"doctor-{os.getpid()}", "doctor", 1, TRIAL_CORES, TRIAL_MEMORY_BYTES)


def _binding() -> Check:
    """The binding that an agent would choose here, tried out."""
    binding, why = choose(_size())
    try:
        binding.prepare()
    except OSError as error:
        return Check("slot binding", False, f"{why}; but slots cannot be made: {error}")
    finally:
        left = binding.cleanup()
    if left:
        return Check("slot binding", False, f"{why}; but {', '.join(left)} cannot be removed")
    return Check("slot binding", True if binding.name.startswith("cgroup") else None, why)


def _bindings() -> list[Check]:
    """Each way to bind slots by itself, with what it lacks."""
    found = []
    for probe in PROBES:
        binding, text = probe(_size())
        name = probe.__module__.rpartition(".")[2]
        if binding is not None:
            binding.cleanup()
        found.append(Check(name, True if binding is not None else None, text))
    return found


def _files() -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= FILES_LEAST
    most = "without limit" if hard == resource.RLIM_INFINITY else f"up to {hard}"
    hint = "" if enough else f"; {FILES_LEAST} are needed for 500 threads: raise `ulimit -Hn`"
    return Check("open files", enough, f"{most}{hint}")


def _try(name: str, what: str, make: Callable[[], int]) -> Check:
    try:
        os.close(make())
    except (OSError, AttributeError) as error:
        return Check(name, False, f"{what} is not there: {error}")
    return Check(name, True, f"{what} works")


def _memfd() -> Check:
    return _try("shared memory", "memfd_create", lambda: os.memfd_create("headgate-doctor"))


def _pidfd() -> Check:
    return _try("ends of processes", "pidfd_open", lambda: os.pidfd_open(os.getpid()))


def _schedstat() -> Check:
    there = os.path.exists("/proc/self/schedstat")
    text = (
        "schedstat counts each thread's CPU time in ns"
        if there
        else "no schedstat: threads have no CPU times"
    )
    return Check("CPU time of threads", there or None, text)


def _shell() -> Check:
    there = os.access("/bin/sh", os.X_OK)
    text = "/bin/sh is there" if there else "/bin/sh is missing: a worker cannot enter its control group"
    return Check("shell", there, text)
