"""Where a run is: its name, directories and ports."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headgate.dashboards.runs.up_settings import UpSettings
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.keys.keyring import KEYS
from headgate.topology_runtime.platform.run_ids import new_run_id

HOST = "127.0.0.1"
CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # ports that the kernel gives to connections
LOWEST, TRIES = 10_240, 100
OWN = 8  # ports that a process tries before any others
_given = set[int]()  # by this process: nobody listens on some of them yet
RUNS = Path(".headgate")  # state directories of runs, below where `up` was started


def remove_state(state: Path) -> None:
    """The run's state directory, and `.headgate` above it when it was the last."""
    shutil.rmtree(state)
    if state.parent.name == ".headgate":
        try:
            state.parent.rmdir()
        except OSError:
            return  # another run is in there


@dataclass(frozen=True)
class Places:
    """The run's name, its state directory, the folder of all traces, ports on loopback."""

    run: str
    state: Path
    traces: Path
    control_port: int
    command_port: int
    service_port: int

    @property
    def machines(self) -> Path:
        return self.state / "machines"

    @property
    def keys(self) -> Path:
        return self.state / KEYS

    @property
    def wanted_before(self) -> bool:
        """Did an earlier `up` of this run ask for VMs?"""
        return any(self.machines.glob("*.desired"))

    @property
    def summary(self) -> Path:
        return self.state / "summary.json"

    @property
    def control(self) -> str:
        return f"tcp://{HOST}:{self.control_port}"

    @property
    def commands(self) -> str:
        return f"tcp://{HOST}:{self.command_port}"

    def trace(self, topology: str) -> Path:
        return self.traces / topology / self.run

    def log(self, name: str) -> Path:
        return self.state / "logs" / f"{name}.log"

    def make(self) -> None:
        """Create the state directory. Raises InvalidInput, Conflict."""
        try:
            (self.state / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot write to {self.state}", cause=error.strerror) from error
        if (self.state / "controller").exists():
            raise Conflict(
                f"{self.state} holds the state of another run",
                hint=f"a new folder (`up --state-dir DIR`), or go on: `headgate up --resume --state-dir {self.state}`",
            )

    def remove(self) -> None:
        remove_state(self.state)


def places_of(settings: UpSettings) -> Places:
    """A new name, free ports, and the directories that were asked for."""
    run = new_run_id()
    state = settings.state_dir or RUNS / run
    control, command, service = free_ports(3)
    if settings.dashboard_port:
        check_free(settings.dashboard_port, "--dashboard-port")
    return Places(run, state.absolute(), settings.trace_dir, settings.port or control, command, service)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now. They must be known before who uses them starts: a controller
    that is started again is found where its predecessor was.

    None of those that the kernel gives to connections: one of these may be taken before it is listened on."""
    with ExitStack() as open_sockets:
        servers = [open_sockets.enter_context(_server()) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def check_free(port: int, option: str) -> None:
    """Raises Conflict when the port that somebody chose with `option` cannot be had."""
    if fault := fault_of(port):
        raise Conflict(
            f"{option} {port} is taken", cause=fault, hint=f"give another {option}, or leave it out: any"
        )


def fault_of(port: int) -> str | None:
    """Why nobody can listen there now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def candidates(beyond: int) -> Iterator[int]:
    """Ports to try: first some of this process's own, which one that begins at the same moment does not choose."""
    if beyond > LOWEST:
        first = os.getpid() * OWN % (beyond - LOWEST)
        yield from (LOWEST + (first + n) % (beyond - LOWEST) for n in range(OWN))
        yield from (random.randrange(LOWEST, beyond) for _ in range(TRIES))


def _server() -> socket.socket:
    beyond = int(CONNECTIONS.read_text("ascii").split()[0]) if CONNECTIONS.exists() else LOWEST
    for port in candidates(beyond):
        if port in _given:
            continue
        try:
            server = socket.create_server((HOST, port))
        except OSError:
            continue  # it is in use
        _given.add(port)
        return server
    return socket.create_server((HOST, 0))  # whatever is left
