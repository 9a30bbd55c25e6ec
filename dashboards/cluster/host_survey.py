"""Asks hosts what they are, and whether they reach each other."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headgate.dashboards.cluster import host_facts as port_matrix
from headgate.dashboards.cluster.host_changes import SIGNER, agent_name
from headgate.dashboards.cluster.host_facts import (
    CONTROLLER,
    HERE,
    HostFacts,
    HostFinding,
    PortReach,
    ServiceFacts,
    Target,
)
from headgate.dashboards.cluster.host_links import (
    HostBoard,
    HostLink,
    HostStep,
    all_linked,
    on_each,
    steps_on_each,
)
from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached, parse
from headgate.dashboards.cluster.on_host.host_side import unreached
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.keys.keyring import CONTROLLER as CONTROLLER_KEY
from headgate.topology_runtime.keys.keyring import SHARED_KEY, TRUST
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.wording import utc_iso

FILE_MOST_BYTES = 1024 * 1024
KEEPER = "keeper.py"
CONNECT_S = 3.0


@dataclass
class PortsSeen:
    """What was found out about ports. taken: findings on ports that something else has."""

    reached: list[PortReach] = field(default_factory=list)
    taken: list[HostFinding] = field(default_factory=list)


def read_hosts(path: Path) -> ClusterHosts:
    """Raises InvalidInput with every fault."""
    try:
        data = path.read_bytes()
        if len(data) > FILE_MOST_BYTES:
            raise InvalidInput(f"{path} is no hosts file", cause=f"{len(data):,} bytes")
        hosts, faults = parse(data.decode("utf-8"), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"the hosts file {path} cannot be read", cause=getattr(error, "strerror", None) or str(error)
        ) from error
    if hosts is None:
        raise InvalidInput(
            f"the hosts file {path} cannot be used", faults=faults, hint="docs/reference/cluster.md"
        )
    return msgspec.structs.replace(hosts, file=os.path.abspath(path))


@contextlib.asynccontextmanager
async def surveyed(
    hosts: ClusterHosts, board: HostBoard, why: str = "", only: Iterable[Reached] | None = None
) -> AsyncIterator[tuple[dict[str, HostLink], dict[str, HostFacts]]]:
    """Links to all hosts (or to some) that let us in, and the facts of those that answer. why: of a change; nobody else
    changes the cluster meanwhile, by a lock at the controller's host for as long as our link stands."""
    async with all_linked(hosts.hosts() if only is None else only, board) as links:
        control = hosts.controller.on
        if why and control.host in links:
            who = f"{getpass.getuser()}@{socket.gethostname()} since {utc_iso(wall_ns())}: {why}"
            lock = HostStep("log in", "lock", {"home": hosts.home(control), "who": who})
            await steps_on_each({control.host: links[control.host]}, board, lambda _: [lock])
        yield links, await survey(hosts, links, board)


async def survey(hosts: ClusterHosts, links: dict[str, HostLink], board: HostBoard) -> dict[str, HostFacts]:
    """Facts of all that answer, each with its clock."""

    async def one(link: HostLink) -> HostFacts:
        host = link.on.host
        board.step(host, "look around")
        services = [agent_name(vm.name) for vm in hosts.vms_on(host)]
        files = [KEEPER, SIGNER, *(f"{name}.key" for name in services)]
        if host == hosts.controller.on.host:
            services.insert(0, CONTROLLER)
            own = (CONTROLLER_KEY, *([SHARED_KEY] if hosts.controller.shared else []))
            files += [f"keys/{name}" for name in (TRUST, *own)]
        told = await link.ask("facts", home=hosts.home(link.on), files=files, services=services)
        offset_s, error_s = await link.clock()
        return msgspec.convert({**told, "clock_offset_s": offset_s, "clock_error_s": error_s}, HostFacts)

    return await on_each(links, board, one)


async def try_ports(
    hosts: ClusterHosts, links: dict[str, HostLink], board: HostBoard, facts: Mapping[str, HostFacts]
) -> PortsSeen:
    """Open every port that is needed, and reach each from wherever it must be reached."""
    seen, word = PortsSeen(), secrets.token_hex(8)
    addresses = port_matrix.addresses(hosts)

    async def listen(link: HostLink) -> tuple[Target, ...]:
        host = link.on.host
        board.step(host, "open ports")
        wanted = port_matrix.wanted_ports(hosts, host)
        running = {name for name, one in facts[host].services.items() if one.running}
        ours = port_matrix.ports_in_use(hosts, host, running)
        opened = [port for port in wanted if port not in ours]
        found = (await link.ask("listen", ports=opened, word=word))["ports"]
        targets = [Target(host, addresses[host], port, "", port) for port, answers in ours.items() if answers]
        for port, told in zip(opened, found, strict=True):
            if "error" in told:
                hint = "end what listens there, or name another port in hosts.toml"
                see = f"ss -ltnp sport = :{port}"
                seen.taken.append(
                    HostFinding(host, "fault", f"port {port} is taken: {told['error']}", hint, see)
                )
            else:
                targets.append(Target(host, addresses[host], told["port"], word, port))
        return tuple(targets)

    listening = await on_each({host: links[host] for host in facts if host in links}, board, listen)

    async def connect(link: HostLink) -> None:
        board.step(link.on.host, "reach the others")
        targets = port_matrix.targets_from(hosts, link.on.host, listening)
        wanted = [(target.address, target.port, target.word) for target in targets]
        told = await link.ask("connect", targets=wanted, within_s=CONNECT_S)
        seen.reached += [
            PortReach(link.on.host, *pair) for pair in zip(targets, told["results"], strict=True)
        ]

    there = {host: links[host] for host in listening}
    await on_each(there, board, connect)
    for target in port_matrix.targets_from(hosts, HERE, listening):
        trouble = unreached(target.address, target.port, target.word, CONNECT_S)
        seen.reached.append(PortReach(HERE, target, trouble))
    await steps_on_each(there, board, lambda _: [HostStep("close ports", "unlisten")])
    return seen


def is_running(service: ServiceFacts | None) -> bool:
    return service is not None and service.running
