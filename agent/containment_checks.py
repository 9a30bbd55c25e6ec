"""How far this machine and this user allow to contain workers: each part tried out, with what to try where it lacks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import NamedTuple

from headgate.agent import start_up
from headgate.agent.config import OWN, AgentConfig
from headgate.topology_runtime.containment import limits
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.slots import cgroup1, cgroups
from headgate.topology_runtime.slots.size import PROCESSES_MOST

LIMITED = f"from {limits.__name__} import give_up; give_up()"


class Check(NamedTuple):
    """ok: True, False, or None when it works with a stated drawback."""

    name: str
    ok: bool | None
    text: str


def checks(binding: str) -> list[Check]:
    """binding: that an agent would choose here."""
    return [_user(), _limits(), _processes(binding), _memory(binding), _left(binding)]


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
            user = start_up.contain(config, undo)
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
    most = limits.FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, limits.FILES_MOST)
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


def _memory(binding: str) -> Check:
    if binding.startswith("cgroup"):
        return Check("tasks' memory", True, "bounded in each slot; who takes more ends alone")
    text = "not bounded: a task may take all there is; control groups (root, or a delegated one) bound it"
    return Check("tasks' memory", None, text)


def _left(binding: str) -> Check:
    name = "what tasks leave running"
    if binding.startswith("cgroup"):
        return Check(name, True, "all processes of a slot end with its worker, whatever they did to get away")
    return Check(
        name,
        None,
        "ended with its worker if it kept its environment; control groups end all (root, or a delegated one)",
    )


def _offered(controller: str) -> bool:
    points = cgroups.mounted("cgroup2")
    try:
        return bool(points) and controller in (points[0][0] / "cgroup.controllers").read_text().split()
    except OSError:
        return False
