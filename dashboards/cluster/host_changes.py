"""What has to change on a host. Pure: from what is there and what should be, steps in their order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Literal

import msgspec

from headgate.dashboards.cluster.host_facts import CONTROLLER, HostFacts
from headgate.dashboards.cluster.hosts_file import ClusterHosts, VmEntry
from headgate.dashboards.cluster.service_units import unit
from headgate.topology_runtime.platform.addresses import is_loopback, tcp

# ── What runs on the hosts of a cluster: a controller, and an agent per VM. Pure: command lines, units,
# settings
#
# A service's digest is that of all that it runs with: another command, version or key means that it is
# started again. A controller is ended by SIGKILL, for SIGTERM would end its run too: the next one takes over
# what goes on.

SIGNER = "signing.pub"  # of whose code agents run
KEEPER = "{keeper}"  # in a command: the process that keeps it


class ServiceWanted(msgspec.Struct, frozen=True):
    """digest: as a host tells it when it runs so. settings: of its keeper; unit: of systemd, "" where none runs."""

    name: str
    digest: str
    settings: bytes
    unit: str


def agent_name(vm: str) -> str:
    return f"agent.{vm}"


def controller_service(
    hosts: ClusterHosts, home: str, version: str, secret: str, systemd: bool
) -> ServiceWanted:
    """secret: the digest of its key."""
    c = hosts.controller
    command = [
        *_python(home, "headgate.dashboards.cluster.on_host.controller_runs"), home,
        "controller", "run", "--run", hosts.name, "--keys", f"{home}/keys",
        "--listen", listen(c.address), "--advertise", c.address,
        "--port", str(c.port), "--command-port", str(c.command_port), "--stream-port", str(c.stream_port),
        *(["--set", "shared=yes", "--set", f"topology-port={c.topology_port}"] if c.shared else []),
    ]  # fmt: skip
    return _service(hosts.name, CONTROLLER, command, home, (version, secret), systemd)


def agent_service(
    hosts: ClusterHosts, vm: VmEntry, home: str, version: str, secret: str, systemd: bool
) -> ServiceWanted:
    name = agent_name(vm.name)
    command = [
        *_python(home, "headgate"), "agent", "run", "--run", hosts.name, "--vm", vm.name,
        "--controller", tcp(hosts.controller.address, hosts.controller.port),
        "--key", f"{home}/{name}.key", "--trust-signer", f"{home}/{SIGNER}", "--state-dir", f"{home}/agents/{vm.name}",
        "--listen", listen(vm.address), "--advertise", vm.address,
        "--slots", str(vm.slots), "--slot-cores", f"{vm.slot_cores:g}",
        "--set", f"rack={vm.rack}", *(["--set", f"usd-per-hour={vm.usd_per_hour:g}"] if vm.usd_per_hour else []),
        *(["--set", f"bandwidth-mbps={vm.bandwidth_mbps:g}"] if vm.bandwidth_mbps else []),
        *(["--set", f"worker-port={vm.worker_port}"] if vm.worker_port else []),
        *(["--slot-memory", vm.slot_memory] if vm.slot_memory else []),
        *(["--workers-as", vm.workers_as] if vm.workers_as else []),
        *(["--set", "shared=yes"] if hosts.controller.shared else []),
    ]  # fmt: skip
    return _service(hosts.name, name, command, home, (version, secret), systemd, vm.devices)


def listen(advertised: str) -> str:
    """On every address of the host, of the kind that is told: what is told may lead there through a router."""
    if is_loopback(advertised):
        return advertised
    return "::" if ":" in advertised else "0.0.0.0"


def _python(home: str, module: str) -> list[str]:
    return [f"{home}/current/bin/python", "-P", "-m", module]


def _service(
    cluster: str,
    name: str,
    command: list[str],
    home: str,
    of: tuple[str, str],
    systemd: bool,
    devices: bool = False,
) -> ServiceWanted:
    whole = {"name": name, "command": command, "version": of[0], "key": of[1]}
    digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
    if systemd:
        words = " ".join(command).replace("%", "%%")
        told = unit(
            name, name == CONTROLLER, devices,
            cluster=cluster, version=of[0], digest=digest, home=home, command=words,
        )  # fmt: skip
        return ServiceWanted(name, hashlib.sha256(told.encode()).hexdigest(), b"", told)
    end = "SIGKILL" if name == CONTROLLER else "SIGTERM"
    settings = {"name": name, "command": [*command, "--owner", KEEPER], "digest": digest, "signal": end}
    return ServiceWanted(name, digest, json.dumps(settings, indent=1).encode() + b"\n", "")


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

MODE = 0o600
SIGNS = {"add": "+", "change": "~"}

Thing = Literal["wheels", "version", "file", "current", "service"]


class HostWanted(msgspec.Struct, frozen=True):
    """home: the cluster's folder there, named like the cluster. wheels: name → size, of all that a version is installed
    from. files: below home, for its owner alone."""

    home: str
    version: str
    wheels: dict[str, int]
    files: dict[str, bytes]
    services: tuple[ServiceWanted, ...]

    @property
    def cluster(self) -> str:
        return self.home.rpartition("/")[2]


class HostChange(msgspec.Struct, frozen=True):
    """One step. names: what it is about; why: in the words of a diff."""

    way: Literal["add", "change"]
    thing: Thing
    names: tuple[str, ...]
    why: str

    @property
    def is_restart(self) -> bool:
        """Does it end something that runs well?"""
        return self.thing == "service" and self.way == "change"

    def line(self) -> str:
        named = f" {self.names[0]}" if self.thing in ("version", "file", "service") else ""
        return f"{SIGNS[self.way]} {self.thing}{named}: {self.why}"


def digest_of(content: bytes) -> str:
    """As a host tells it of a file: its digest and its mode."""
    return f"{hashlib.sha256(content).hexdigest()}:{MODE:o}"


def changes(wanted: HostWanted, facts: HostFacts) -> tuple[HostChange, ...]:
    """In the order in which they are made; none when all is as it should be."""
    return tuple(_changes(wanted, facts))


def _changes(wanted: HostWanted, facts: HostFacts) -> Iterator[HostChange]:
    if wanted.version not in facts.versions:
        missing = tuple(sorted(set(wanted.wheels) - set(facts.wheels)))
        if missing:
            megabytes = sum(wanted.wheels[name] for name in missing) / 1e6
            yield HostChange("add", "wheels", missing, f"{len(missing)}, {megabytes:.0f} MB")
        yield HostChange("add", "version", (wanted.version,), "into a virtual environment of its own")
    for name, content in wanted.files.items():
        there = facts.files.get(name, "")
        if there != digest_of(content):
            yield HostChange("change" if there else "add", "file", (name,), "for its owner alone")
    if facts.current != wanted.version:
        before = facts.current or "none"
        yield HostChange(
            "change" if facts.current else "add", "current", (wanted.version,), f"{before} → {wanted.version}"
        )
    for service in wanted.services:
        runs = facts.services.get(service.name)
        if runs is None or not runs.running:
            yield HostChange("add", "service", (service.name,), "start it")
        elif runs.digest != service.digest:
            why = (
                "start it again, with other settings" if facts.current == wanted.version else "start it again"
            )
            yield HostChange("change", "service", (service.name,), why)
