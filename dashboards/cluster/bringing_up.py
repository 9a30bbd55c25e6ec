"""Brings hosts to what their file says: looks, says what is missing, does that and no more, waits for the agents."""

from __future__ import annotations

import asyncio
import getpass
import socket
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.dashboards.cluster.applying import apply
from headgate.dashboards.cluster.host_board import HostBoard, all_linked, on_each
from headgate.dashboards.cluster.host_changes import HostChange, HostWanted, changes
from headgate.dashboards.cluster.host_facts import HostFacts, findings
from headgate.dashboards.cluster.host_failures import HostFailed
from headgate.dashboards.cluster.host_links import HostLink, see_command
from headgate.dashboards.cluster.hosts_file import ClusterHosts, VmEntry
from headgate.dashboards.cluster.services import agent_name
from headgate.dashboards.cluster.surveying import survey
from headgate.dashboards.cluster.wanting import ClusterKeys, asked_for, wanted_on
from headgate.dashboards.cluster.wheels import WheelSet
from headgate.dashboards.terminal.connection import asked
from headgate.topology_runtime.addresses import tcp
from headgate.topology_runtime.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.utc import utc_iso

REGISTERED_S, LOOK_S = 60.0, 0.2
STAGED = ("wheels", "version")


@dataclass
class BroughtUp:
    """What came of it. steps: per host, what was done, or would be. install_s: what pip took where it took longest."""

    steps: dict[str, tuple[HostChange, ...]] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)  # of services: as the hosts tell them
    registered: tuple[str, ...] = ()
    install_s: float = 0.0

    @property
    def changed(self) -> bool:
        return any(self.steps.values())


@dataclass(frozen=True)
class BringUp:
    """why: for whoever is kept out meanwhile. only: the controller and these VMs; None: all. staged: versions are
    brought, nothing is switched to them."""

    hosts: ClusterHosts
    wheels: WheelSet
    keys: ClusterKeys
    why: str
    dry: bool = False
    only: tuple[str, ...] | None = None
    staged: bool = False

    def vms(self) -> tuple[VmEntry, ...]:
        return tuple(vm for vm in self.hosts.vms if self.only is None or vm.name in self.only)


def who(why: str) -> str:
    """For whoever is kept out meanwhile."""
    return f"{getpass.getuser()}@{socket.gethostname()} since {utc_iso(wall_ns())}: {why}"


async def bring_up(up: BringUp, board: HostBoard) -> BroughtUp:
    """Failures are on the board; the others go on. Nothing is done when the controller's host fails."""
    found = BroughtUp()
    hosts = replace_vms(up.hosts, up.vms())
    async with all_linked(hosts.hosts(), board) as links:
        if not up.dry:
            await hold(hosts, links, up.why, board)
        facts = await survey(hosts, links, board, asked_for(hosts))
        judge(hosts, facts, board)
        if hosts.controller.on.host in board.failures:
            return found
        up.keys.make(up.vms())
        wanted: dict[str, HostWanted] = {}
        for on in hosts.hosts():
            if on.host in facts and on.host not in board.failures:
                wanted[on.host] = wanted_on(hosts, on, facts[on.host], up.wheels, up.keys)
                steps = changes(wanted[on.host], facts[on.host])
                found.steps[on.host] = tuple(one for one in steps if not up.staged or one.thing in STAGED)
                found.others[on.host] = facts[on.host].others
                found.pids |= {name: one.pid for name, one in facts[on.host].services.items()}
        if up.dry:
            return found
        refuse_restarts(up, found)

        async def work(link: HostLink) -> None:
            host = link.on.host
            done = await apply(link, wanted[host], found.steps[host], up.wheels, board)
            found.pids |= done.pids
            found.install_s = max(found.install_s, done.install_s)

        await on_each({host: links[host] for host in wanted}, board, work)
    if hosts.controller.on.host not in board.failures and not up.staged:
        await registered(up, found, board)
    return found


def refuse_restarts(up: BringUp, found: BroughtUp) -> None:
    """Of all services at once, while rows flow. Raises Conflict."""
    again = [step for steps in found.steps.values() for step in steps if step.is_restart]
    if up.staged or up.only is not None or not again:
        return
    try:
        running = asked(contact_of(up.hosts, up.keys), "status")["topology"]
    except HeadgateError:
        return  # a controller that does not answer is what `up` is there to mend
    if running is not None:
        raise Conflict(
            f"{running} runs, and services would be started again all at once",
            faults=[step.line() for step in again],
            hint="`headgate cluster upgrade` does it one after the other, or `headgate stop` before",
        )


def replace_vms(hosts: ClusterHosts, vms: tuple[VmEntry, ...]) -> ClusterHosts:
    return msgspec.structs.replace(hosts, vms=vms)


async def hold(hosts: ClusterHosts, links: dict[str, HostLink], why: str, board: HostBoard) -> None:
    """Nobody else changes the cluster meanwhile: a lock at the controller's host, for as long as our link stands."""
    link = links.get(hosts.controller.on.host)
    if link is None:
        return
    try:
        await link.ask("lock", home=hosts.home(link.on), who=who(why))
    except HostFailed as failure:
        board.fail(link.on.host, failure)


def judge(hosts: ClusterHosts, facts: dict[str, HostFacts], board: HostBoard) -> None:
    """What stands in the way is a host's failure."""
    for one in findings(hosts, facts):
        if one.level == "fault" and one.host not in board.failures:
            on = next(on for on in hosts.hosts() if on.host == one.host)
            board.fail(one.host, HostFailed(one.what, hint=one.hint, see=see_command(on, one.see)))


async def registered(up: BringUp, found: BroughtUp, board: HostBoard) -> None:
    """Wait until the controller has heard of every agent, with the process that its host tells."""
    contact = contact_of(up.hosts, up.keys)
    waiting = {vm.name: vm for vm in up.vms() if vm.on.host not in board.failures}
    for vm in waiting.values():
        board.step(vm.on.host, f"wait for {vm.name} to register")
    deadline_ns, trouble = monotonic_ns() + int(REGISTERED_S * 1e9), ""
    while waiting and monotonic_ns() < deadline_ns:
        try:
            status: dict[str, Any] = await asyncio.to_thread(asked, contact, "status")
        except HeadgateError as error:
            trouble = error.what
        else:
            trouble = "the controller has not heard of it"
            for vm in status["vms"]:
                pid = found.pids.get(agent_name(vm["vm"]))
                if vm["vm"] in waiting and vm["state"] == "joined" and vm["pid"] == pid:
                    board.step(waiting[vm["vm"]].on.host, f"{vm['vm']} is registered")
                    found.registered += (vm["vm"],)
                    del waiting[vm["vm"]]
        await asyncio.sleep(LOOK_S if waiting else 0)
    for vm in waiting.values():
        hint = "headgate cluster check tells which ports are not reached"
        log = f"tail {up.hosts.home(vm.on)}/log/{agent_name(vm.name)}"
        what = f"{vm.name} did not register within {REGISTERED_S:g} s: {trouble}"
        board.fail(vm.on.host, HostFailed(what, hint=hint, see=see_command(vm.on, log)))


def contact_of(hosts: ClusterHosts, keys: ClusterKeys) -> Contact:
    """To the controller, as its operator."""
    c = hosts.controller
    return read_key(keys.operator()).contact(tcp(c.address, c.command_port))
