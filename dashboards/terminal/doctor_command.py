"""`headgate doctor`: what this machine offers, what is missing, and what that means."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from headgate.topology_runtime.commands.output import Format, emit, format_options
from headgate.topology_runtime.errors import CheckFailed

MEMORY_BYTES = 2 * 1024**3  # controller, two agents, eight workers at 60 MB, and room
DISK_BYTES = 1024**3  # an hour of traces of the demo takes a small part of this
NAME = re.compile(r"[A-Za-z0-9._-]+")  # of a distribution, at the beginning of what is required
AGENT_DOCTOR = "headgate.agent.process.agent_doctor"  # by name: this package may not import the agent's

State = Literal["good", "note", "bad"]

# what follows from each of the agent's checks
MEANINGS = {
    "slot binding": "how each slot is held to its share of CPU and memory in a run on this machine",
    "cgroup2": "the binding that is tried first: CPU quota and memory limit in one hierarchy",
    "cgroup1": "the binding where cgroup 2 has no CPU controller: quota and memory limit",
    "affinity": "the last resort: a slot keeps to one core, shares below a core are not kept",
    "tasks' own user": "keys, journals and other runs are out of a task's reach where it is not its agent's user",
    "tasks' privileges": "sudo and other setuid programs refuse in tasks",
    "tasks' processes": "a task that starts processes without end fails alone",
    "tasks' memory": "a task that takes too much memory ends alone",
    "what tasks leave running": "daemons that a task started do not outlive it",
    "open files": "sockets, counters and logs of every worker",
    "shared memory": "the counters of workers that agents read without disturbing them",
    "ends of processes": "a dead worker is noticed within milliseconds",
    "CPU time of threads": "CPU per thread and task, and with it model errors",
    "shell": "starts workers inside their control group",
}


class Check(msgspec.Struct, frozen=True):
    """One thing looked at. `meaning`: what follows from it for a run."""

    name: str
    state: State
    found: str
    meaning: str


def machine_checks(directory: Path) -> list[Check]:
    """Python, packages, cores, memory, disk, ports."""
    return [_python(), _packages(), _cores(), _memory(), _disk(directory), _ports()]


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Check("python", "good" if good else "bad", found, "3.11 or newer is needed")


def _packages() -> Check:
    """Every package that headgate itself requires is there and can be imported."""
    missing = []
    for line in metadata.requires("headgate") or []:
        name = NAME.match(line)
        if "extra ==" in line or name is None:
            continue
        try:
            metadata.version(name[0])
        except metadata.PackageNotFoundError:
            missing.append(name[0])
    found = f"missing: {', '.join(missing)}" if missing else "all there"
    return Check("packages", "bad" if missing else "good", found, "`scripts/setup` installs them")


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    meaning = "slots share these cores with the controller, the agents and whatever else runs here"
    return Check("cores", "good" if cores >= 2 else "note", f"{cores} usable", meaning)


def _memory() -> Check:
    import psutil

    available = psutil.virtual_memory().available
    meaning = "a worker takes some 30 to 60 MB, more with the code of its tasks"
    state: State = "good" if available >= MEMORY_BYTES else "note"
    return Check("memory", state, f"{available / 1024**3:.1f} GiB available", meaning)


def _disk(directory: Path) -> Check:
    free = shutil.disk_usage(directory).free
    writable = os.access(directory, os.W_OK)
    found = f"{free / 1024**3:.1f} GiB free in {directory}" + ("" if writable else ", not writable")
    state: State = "bad" if not writable else "good" if free >= DISK_BYTES else "note"
    return Check("disk", state, found, "runs keep journals, spools and traces below the folder they start in")


def _ports() -> Check:
    state: State = "good"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            found = f"loopback works (port {server.getsockname()[1]} could be had)"
    except OSError as error:
        found, state = str(error), "bad"
    meaning = "processes of a run talk over TCP on loopback; nothing listens elsewhere"
    return Check("ports", state, found, meaning)


def agent_checks() -> list[Check]:
    """What the agent's package finds out about slots on this machine, by trying."""
    states: dict[bool | None, State] = {True: "good", None: "note", False: "bad"}
    found = import_module(AGENT_DOCTOR).checks()
    return [Check(c.name, states[c.ok], c.text, MEANINGS.get(c.name, "")) for c in found]


@click.command()
@format_options
def doctor(output: Format) -> None:
    """Look at this machine: what it offers to a run, what is missing, what that means.

    Ends 8 when something that every run needs is missing.
    """
    checks = machine_checks(Path.cwd()) + agent_checks()
    rows: list[dict[str, Any]] = [msgspec.to_builtins(check) for check in checks]
    emit(output, {"schema": "headgate/doctor/v1", "checks": rows}, rows)
    bad = [f"{check.name}: {check.found}" for check in checks if check.state == "bad"]
    if bad:
        raise CheckFailed("this machine cannot run headgate as it is", faults=bad)
