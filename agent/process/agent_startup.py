"""What an agent needs once, at its start: descriptors, an owner, a number, and its folder for itself."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from headgate.agent.process import agent_files
from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.process.worker_user import UNCONTAINED, hand_over, take_over, worker_user
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.measuring.model_store import machine
from headgate.topology_runtime.platform import containment, processes
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.platform.containment import WorkerUser
from headgate.topology_runtime.platform.disk import DiskTroubles, write_whole
from headgate.topology_runtime.platform.slot_binding import SlotBinding, choose
from headgate.topology_runtime.platform.slot_size import SlotSize
from headgate.topology_runtime.wire.messages import Hello
from headgate.topology_runtime.wire.wire_version import VERSION

FILES_LEAST, FILES_WANTED = 4096, 65_536  # one schedstat file per thread, sockets, meters
ENDING_S, LOOK_AGAIN_S = 15.0, 0.05  # an agent ends its workers in less, on a busy machine too

log = logging.getLogger("headgate.agent")


def raise_file_limit() -> int:
    """As many open files as allowed, up to what is of use; how many there may be now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


def end_with(owner: int) -> None:
    """Have the kernel send SIGTERM when the process `owner`, our parent, ends. Call in the main thread.

    Raises HeadgateError when it is not our parent (any more), OSError."""
    processes.prctl(processes.PR_SET_PDEATHSIG, signal.SIGTERM)
    if processes.orphaned(owner):
        raise HeadgateError(
            f"process {owner} is not the owner of this agent (any more)",
            cause=f"the parent is process {os.getppid()}",
        )


def bind_slots(config: AgentConfig) -> tuple[SlotBinding, str]:
    """What keeps workers to their slots, made ready, and why it is this one. Raises HeadgateError."""
    c = config
    binding, why = choose(
        SlotSize(c.run, c.vm, c.slots, c.slot_cores, c.slot_memory_bytes, processes=c.slot_processes)
    )
    try:
        binding.prepare()
    except OSError as error:
        binding.cleanup()
        raise HeadgateError(
            "the slots cannot be made", cause=str(error), hint="`headgate doctor` says what is missing"
        ) from error
    return binding, why


def contain(config: AgentConfig, undo: ExitStack) -> WorkerUser | None:
    """Whom workers run as (None: as this process), tried out. Raises HeadgateError."""
    take_over(config.directory, config.work)
    user, claimed = worker_user(config)
    if claimed is not None:
        undo.callback(claimed.release)
    log.info("workers run as %s", whose(config, user))
    if user is None:
        return None
    try:
        hand_over(config.directory, user)
    except OSError as error:
        raise _no_folder(config.directory, error) from error
    tried = subprocess.run(
        [sys.executable, "-P", "-m", containment.__name__, user.words(())],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    if tried.returncode:
        told = tried.stderr.decode("utf-8", "replace").strip().splitlines()
        raise HeadgateError(
            f"workers cannot run as user {user.uid} here", cause=told[-1] if told else None, hint=UNCONTAINED
        )
    return user


def whose(config: AgentConfig, user: WorkerUser | None) -> str:
    """Whom workers run as, for people."""
    return f"{config.workers_as} ({os.geteuid() if user is None else user.uid})"


def hello(
    config: AgentConfig, boot: int, binding: SlotBinding, only_signed: bool, user: WorkerUser | None
) -> Hello:
    """Who this agent is."""
    c = config
    shape = c.slots, c.slot_cores, c.slot_memory_bytes
    return Hello(
        *(c.vm, boot, *shape, binding.name, os.getpid()),
        version=VERSION,
        rack=c.rack,
        usd_per_hour=c.usd_per_hour,
        bandwidth_mbps=c.bandwidth_mbps,
        spools=agent_files.left_over(c.work),
        only_signed=only_signed,
        machine=machine(),
        workers_as=whose(c, user),
        address=c.at.advertise,
    )


def contacts(config: AgentConfig) -> list[Contact]:
    """To the controller, by this VM's key, at each address that it may have. Raises InvalidInput."""
    key = read_key(Path(config.key))
    if (key.role, key.name) != ("agent", config.vm):
        raise InvalidInput(
            f"{config.key} is the key of {key.role} {key.name}, not of agent {config.vm}",
            hint=f"`headgate keys add agent {config.vm}` on the controller's host makes one",
        )
    return [key.contact(endpoint) for endpoint in config.endpoints]


def lock(directory: str, vm: str, patience_s: float = ENDING_S) -> int:
    """The folder is this agent's alone until the descriptor is closed. An agent whose owner died may still be ending
    its workers: it is waited for. Raises Conflict, HeadgateError."""
    path = os.path.join(directory, "agent.lock")
    try:
        os.makedirs(directory, exist_ok=True)
        if os.path.exists(path):  # reading is enough, and works on a disk that takes nothing
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _no_folder(directory, error) from error
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() < end:
                time.sleep(LOOK_AGAIN_S)
                continue
            os.close(fd)
            raise Conflict(
                f"another agent of {vm} is running",
                cause=f"it holds {directory}",
                hint="stop it, or choose another --vm",
            ) from error
        return fd


def next_boot(directory: str, disk: DiskTroubles) -> int:
    """This start's number: UTC ns, and higher than the one before even if the clock was set back (which a
    full disk cannot remember: then the clock alone counts)."""
    path = os.path.join(directory, "boot")
    boot = max(wall_ns(), _last_boot(path) + 1)
    with disk.writing("the agent's boot number", path):
        write_whole(Path(path), str(boot).encode())
    return boot


def _last_boot(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return 0  # the first start, or a file that a full disk left empty


def _no_folder(directory: str, error: OSError) -> HeadgateError:
    return HeadgateError(f"the agent's folder {directory} cannot be used", cause=str(error))
