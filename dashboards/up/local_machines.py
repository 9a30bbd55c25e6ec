"""The machines provider of `up`: a VM is an agent process on this machine, asked for by a file.

`machines/<vm>.desired` holds the VM as JSON; while it is there its agent runs. `machines/<vm>.running` holds
the agent's process id (docs/decisions/0002-machines-as-files.md).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.platform.child_processes import Child
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
PATIENCE_S = 5.0  # an agent that gives its VM back ends its workers first
WANTED, RUNNING = ".desired", ".running"


def want(directory: Path, vm: Vm) -> None:
    """Ask for a VM; by rename, so that nobody reads half a file."""
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f"{vm.vm}.new"
    new.write_bytes(msgspec.json.encode(vm))
    new.rename(directory / f"{vm.vm}{WANTED}")


class LocalMachines:
    """Makes agents match the `.desired` files. Call `reconcile` often, from the main thread."""

    def __init__(self, directory: Path, agent_for: Callable[[Vm], Child]) -> None:
        self._directory = directory
        self._agent_for = agent_for
        self._agents: dict[str, Child] = {}
        self._leaving: dict[str, int] = {}  # VM → when it is killed
        self._unnoted: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def agents(self) -> list[Child]:
        return list(self._agents.values())

    def reconcile(self, now_ns: int) -> list[str]:
        """Start what is desired, stop what is not, restart what died; lines about it. Raises like
        `Child.look`."""
        desired = self._desired()
        lines = []
        for name, vm in desired.items():
            if name not in self._agents:
                lines.append(self._begin(vm))
        for name in list(self._agents):
            if name not in desired:
                lines += self._end(name, now_ns)
            elif line := self._agents[name].look(now_ns):
                self._note(name)
                lines.append(line)
            elif name in self._unnoted:
                self._note(name)
        return lines

    def _desired(self) -> dict[str, Vm]:
        vms = {}
        for path in sorted(self._directory.glob(f"*{WANTED}")):
            try:
                vms[path.name.removesuffix(WANTED)] = msgspec.json.decode(path.read_bytes(), type=Vm)
            except FileNotFoundError:
                continue  # given back between listing and reading
        return vms

    def _begin(self, vm: Vm) -> str:
        agent = self._agents[vm.vm] = self._agent_for(vm)
        agent.start()
        self._note(vm.vm)
        return f"{vm.vm}: {counted(vm.slots, 'slot')}, agent process {agent.pid}"

    def _end(self, name: str, now_ns: int) -> list[str]:
        """Ask an agent to end, kill it when it does not; forget it once it has ended."""
        agent = self._agents[name]
        if not agent.running:
            del self._agents[name]
            self._leaving.pop(name, None)
            (self._directory / f"{name}{RUNNING}").unlink(missing_ok=True)
            return [f"{name}: given back"]
        if name not in self._leaving:
            agent.stopping = True
            agent.send(signal.SIGTERM)
            self._leaving[name] = now_ns + int(PATIENCE_S * NS)
        elif now_ns >= self._leaving[name]:
            agent.send(signal.SIGKILL)
        return []

    def _note(self, name: str) -> None:
        new = self._directory / f"{name}.pid"
        try:
            new.write_text(f"{self._agents[name].pid}\n", "ascii")
            new.rename(self._directory / f"{name}{RUNNING}")
        except OSError:  # a full disk: the agent runs all the same, and is noted once there is room
            self._unnoted.add(name)
        else:
            self._unnoted.discard(name)
