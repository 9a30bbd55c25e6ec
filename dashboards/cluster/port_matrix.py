"""Which ports must be reached from where, and which are. Pure.

Workers on any two hosts send each other rows, on ports that the system chooses; agents reach the controller on its port
for agents. The machine that commands are given on reaches the ports for commands and for the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from headgate.dashboards.cluster.host_facts import HostFinding
from headgate.dashboards.cluster.hosts_file import ClusterHosts

HERE = "here"  # where the command is given
ANY = 0  # a port that the system chooses


class Target(msgspec.Struct, frozen=True):
    """A port of a host. word: what it answers with; "": whatever listens there is right."""

    host: str
    address: str
    port: int
    word: str
    wanted: int  # as it was asked for: `ANY`, or one of the controller's

    @property
    def name(self) -> str:
        return f"{self.host}:{self.wanted or 'any'}"


class PortReach(msgspec.Struct, frozen=True):
    """One direction. trouble: why it cannot be reached."""

    source: str
    target: Target
    trouble: str | None


def wanted_ports(hosts: ClusterHosts, host: str) -> tuple[int, ...]:
    """Ports that this host shall listen on."""
    c = hosts.controller
    own = (c.port, c.command_port, c.stream_port) if host == c.on.host else ()
    return (*own, *((ANY,) if hosts.vms_on(host) else ()))


def addresses(hosts: ClusterHosts) -> dict[str, str]:
    """Where each host is reached by the others."""
    return {vm.on.host: vm.address for vm in hosts.vms} | {hosts.controller.on.host: hosts.controller.address}


def targets_from(
    hosts: ClusterHosts, source: str, listening: Mapping[str, tuple[Target, ...]]
) -> list[Target]:
    """What a host must reach, of all that listen."""
    c, found = hosts.controller, []
    for host, targets in listening.items():
        for target in targets:
            between_vms = target.wanted == ANY and host != source and bool(hosts.vms_on(source))
            to_controller = target.wanted == c.port and bool(hosts.vms_on(source))
            from_here = source == HERE and target.wanted in (c.command_port, c.stream_port)
            if between_vms or to_controller or from_here:
                found.append(target)
    return found


def unreached(reached: list[PortReach], hosts: ClusterHosts) -> Iterator[HostFinding]:
    """The pairs that cannot."""
    for one in reached:
        if one.trouble is not None:
            what = f"{one.target.name} ({one.target.address}) is not reached from it: {one.trouble}"
            hint = f"let {one.source} through to {one.target.address}: {ports_words(one.target, hosts)}"
            yield HostFinding(
                one.source, "fault", what, hint, f"nc -vz {one.target.address} {one.target.port}"
            )


def ports_words(target: Target, hosts: ClusterHosts) -> str:
    return f"tcp port {target.wanted}" if target.wanted else "all tcp ports (links between workers)"


def matrix(reached: list[PortReach]) -> list[dict[str, str]]:
    """Rows: from; columns: to."""
    rows: dict[str, dict[str, str]] = {}
    for one in reached:
        row = rows.setdefault(one.source, {"from": one.source})
        row[one.target.name] = "ok" if one.trouble is None else one.trouble
    return list(rows.values())
