"""What this machine offers an agent, and what is missing. Leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headgate.agent.process import agent_startup
from headgate.agent.process.agent_config import OWN, AgentConfig
from headgate.agent.process.agent_startup import FILES_LEAST
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform import cgroups, containment
from headgate.topology_runtime.platform import cgroups as cgroup1
from headgate.topology_runtime.platform.slot_binding import PROBES, choose
from headgate.topology_runtime.platform.slot_size import PROCESSES_MOST, SlotSize

# ── How far this machine and this user allow to contain workers: each part tried out, with what to try
# where it lacks

LIMITED = f"from {containment.__name__} import give_up; give_up()"


BY_GROUPS = (  # part of containment, what control groups do for it, and how it is without
    (
        "tasks' memory",
        "bounded in each slot; who takes more ends alone",
        "not bounded: a task may take all there is; control groups (root, or a delegated one) bound it",
    ),
    (
        "what tasks leave running",
        "all processes of a slot end with its worker, whatever they did to get away",
        "ended with its worker if it kept its environment; control groups end all (root, or a delegated one)",
    ),
)


class Check(NamedTuple):
    """ok: True, False, or None when it works with a stated drawback."""

    name: str
    ok: bool | None
    text: str


def containment_checks(binding: str) -> list[Check]:
    """binding: that an agent would choose here."""
    groups = binding.startswith("cgroup")
    parts = [Check(name, groups or None, by if groups else without) for name, by, without in BY_GROUPS]
    return [_user(), _limits(), _processes(binding), *parts]


def _user() -> Check:
    name = "tasks' own user"
    if os.geteuid() != 0:
        return Check(
            name, None, f"no root: tasks run as user {os.geteuid()}, as their agent, and may do what it may"
        )
    with TemporaryDirectory(prefix="headgate-doctor-") as folder, ExitStack() as undo:
        config = AgentConfig("", "doctor", 1, 1.0, 0, os.path.join(folder, "vm"), workers_as=OWN)
        os.chmod(folder, 0o755)
        os.mkdir(config.directory)
        try:
            user = agent_startup.contain(config, undo)
        except HeadgateError as error:
            text = f"{error.what}: {error.cause}; {error.hint}"
            return Check(name, None, text)
        assert user is not None
        return Check(
            name,
            True,
            f"as root, `agent run` gives tasks a user of their own (here {user.uid}); `up` runs them as you",
        )


def _limits() -> Check:
    tried = subprocess.run([sys.executable, "-P", "-c", LIMITED], capture_output=True, check=False)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = containment.FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, containment.FILES_MOST)
    if tried.returncode:
        return Check("tasks' privileges", False, tried.stderr.decode("utf-8", "replace").strip()[-200:])
    return Check(
        "tasks' privileges", True, f"tasks gain no privileges, leave no core dumps, open at most {most} files"
    )


def _processes(binding: str) -> Check:
    name = "tasks' processes"
    if (binding == "cgroup1" and cgroup1.PIDS in cgroup1.find()) or (
        binding == "cgroup2" and _offered("pids")
    ):
        return Check(name, True, f"at most {PROCESSES_MOST} processes and threads in a slot")
    if binding.startswith("cgroup"):
        return Check(name, None, "not bounded: the pids controller is missing; mount it, or enable it above")
    return Check(name, None, "not bounded in a slot: that needs control groups (root, or a delegated one)")


def _offered(controller: str) -> bool:
    points = cgroups.mounted("cgroup2")
    try:
        return bool(points) and controller in (points[0][0] / "cgroup.controllers").read_text().split()
    except OSError:
        return False


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

TRIAL_CORES, TRIAL_MEMORY_BYTES = 0.2, 256 * 1024 * 1024


def checks() -> list[Check]:
    """Every check, in the order in which they matter."""
    slots = [_binding(), *_bindings()]
    binding, _ = choose(_size())
    binding.cleanup()
    contained = containment_checks(binding.name)
    shared = _try("shared memory", "memfd_create", lambda: os.memfd_create("headgate-doctor"))
    ends = _try("ends of processes", "pidfd_open", lambda: os.pidfd_open(os.getpid()))
    times, shell = os.path.exists("/proc/self/schedstat"), os.access("/bin/sh", os.X_OK)
    with_times = "schedstat counts each thread's CPU time in ns"
    return [
        *slots, *contained, _files(), shared, ends,
        Check("CPU time of threads", times or None, with_times if times else "no schedstat: threads have no CPU times"),
        Check("shell", shell, "/bin/sh is there" if shell else "no /bin/sh: a worker cannot enter its control group"),
    ]  # fmt: skip


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
        name = probe.__name__.removeprefix("probe_")
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
