"""What an agent reads from its command line, checked as a whole."""

from __future__ import annotations

import math
import os
import re

import msgspec

from headgate.topology_runtime.api.cluster import SLOT_MEMORY_LEAST, bandwidth_fault
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.platform.addresses import ENDPOINT, Listening
from headgate.topology_runtime.platform.http_options import MetricsAt
from headgate.topology_runtime.platform.slot_size import PROCESSES_MOST

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
SLOTS_MOST = 256  # more slots than that on one VM is a slip of the finger
SLOT_DISK_LEAST = 1024 * 1024
OWN, AGENT = "own", "agent"  # whom workers run as: a user of their own, or the agent's; else the name of one
WORK = "work"  # in the agent's folder, what workers of another user write
DISK_SHARE = 0.8  # of the disk, as with memory
MEMORY_SHARE = 0.8  # of the machine's memory that slots get when nothing is said


class AgentConfig(msgspec.Struct, frozen=True):
    """One VM: its name, its slots, its controller. `owner`: die with this process (0: with nobody)."""

    controller: str
    vm: str
    slots: int
    slot_cores: float
    slot_memory_bytes: int
    directory: str
    run: str = "local"
    at: Listening = Listening()  # for rows between workers
    key: str = ""  # the file of its key
    owner: int = 0
    metrics: MetricsAt | None = None  # none: no metrics
    packages: str = ""  # the folder of its packages; none: in its own
    signers: tuple[str, ...] = ()  # files of public keys whose packages it runs
    allow_folders: bool = False  # run code from folders too, although there are signers
    rack: str = ""  # none: as the controller has it
    usd_per_hour: float = 0.0
    bandwidth_mbps: float = 0.0  # of its link; 0: nobody knows
    package_index: str = ""  # where requirements come from; none: from the packages alone
    slot_processes: int = PROCESSES_MOST  # and threads, of each slot
    slot_disk_bytes: int = 0  # of each slot's files in the folder of workers; 0: nothing bounds them
    workers_as: str = ""  # none: own where it is root

    @property
    def endpoints(self) -> list[str]:
        return self.controller.split(",")

    @property
    def work(self) -> str:
        """The folder that workers write to."""
        return self.directory if self.workers_as == AGENT else os.path.join(self.directory, WORK)

    @property
    def store(self) -> str:
        return self.packages or os.path.join(self.directory, "packages")


def checked(config: AgentConfig) -> AgentConfig:
    """The same configuration, its directory absolute, its workers' user chosen. Raises UsageError with every fault."""
    found = faults(config)
    if found:
        raise UsageError("the agent cannot start with these options", faults=found)
    workers_as = config.workers_as or (OWN if os.geteuid() == 0 else AGENT)
    return msgspec.structs.replace(config, directory=os.path.abspath(config.directory), workers_as=workers_as)


def faults(config: AgentConfig) -> list[str]:
    """What is wrong with the options, one sentence each."""
    found = []
    for endpoint in config.endpoints:
        port = ENDPOINT.fullmatch(endpoint)
        if port is None or not 0 < int(port[2]) < 65536:
            found.append(f"--controller: {endpoint!r} is not tcp://HOST:PORT")
    if not config.key:
        found.append(
            f"--key: none is given; `headgate keys add agent {config.vm}` on the controller's host makes one"
        )
    if config.rack and not NAME.fullmatch(config.rack):
        found.append(
            f"--set rack: {config.rack!r} is not a name of 1 to 64 letters, digits, '.', '_' and '-'"
        )
    if config.bandwidth_mbps and (fault := bandwidth_fault(config.bandwidth_mbps)) is not None:
        found.append(f"--set bandwidth-mbps: {fault}, got {config.bandwidth_mbps:g}")
    for option, name in (("--vm", config.vm), ("--run", config.run)):
        if not NAME.fullmatch(name) or name in (".", ".."):
            found.append(f"{option}: {name!r} is not a name of 1 to 64 letters, digits, '.', '_' and '-'")
    if config.workers_as and not USER.fullmatch(config.workers_as):
        found.append(f"--workers-as: {config.workers_as!r} is not {OWN}, {AGENT} or a user of this machine")
    elif config.workers_as not in ("", AGENT) and os.geteuid() != 0:
        found.append(f"--workers-as: only root can start workers as another user than its own ({AGENT})")
    if not 1 <= config.slots <= SLOTS_MOST:
        found.append(f"--slots: {config.slots} is not between 1 and {SLOTS_MOST}")
    if not (math.isfinite(config.slot_cores) and 0 < config.slot_cores <= 1):
        found.append(f"--slot-cores: {config.slot_cores} is not above 0 and at most 1")
    if config.slot_disk_bytes and config.slot_disk_bytes < SLOT_DISK_LEAST:
        found.append(f"--set slot-disk: {config.slot_disk_bytes} bytes is less than {SLOT_DISK_LEAST}")
    if config.at.port and config.at.port + config.slots - 1 > 65535:
        found.append(f"--set worker-port: {config.at.port} and {config.slots} slots go beyond 65535")
    if config.slot_memory_bytes < SLOT_MEMORY_LEAST:
        less = f"is less than the {SLOT_MEMORY_LEAST} that a worker takes"
        found.append(f"--slot-memory: {config.slot_memory_bytes} bytes {less}")
    return found


def default_memory(slots: int) -> int:
    """An equal part of most of this machine's memory."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(MEMORY_SHARE * total / max(1, slots))


def default_disk(directory: str, slots: int) -> int:
    """An equal part of most of the disk that the folder is on, or will be."""
    at = os.path.abspath(directory)
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    space = os.statvfs(at)
    return int(DISK_SHARE * space.f_blocks * space.f_frsize / max(1, slots))


def default_directory(run: str, vm: str) -> str:
    return os.path.join(".headgate", run, "agents", vm)
