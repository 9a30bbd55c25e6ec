"""Brings hosts to what their file says: looks, says what is missing, does that and no more, waits for the agents."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.cluster import forwards
from headgate.dashboards.cluster.cluster_runs import running_of
from headgate.dashboards.cluster.forwards import cluster_folder
from headgate.dashboards.cluster.host_changes import (
    MODE,
    SIGNER,
    HostChange,
    HostWanted,
    agent_name,
    agent_service,
    changes,
    controller_service,
)
from headgate.dashboards.cluster.host_facts import HostFacts, HostFailed, findings
from headgate.dashboards.cluster.host_links import HostBoard, HostStep, see_command, steps_on_each
from headgate.dashboards.cluster.host_survey import KEEPER, surveyed
from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached, VmEntry
from headgate.dashboards.cluster.wheels import WheelSet
from headgate.dashboards.runs.connection import asked
from headgate.dashboards.terminal.access_commands import default_folder
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys import signing_keys
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import CONTROLLER as CONTROLLER_KEY
from headgate.topology_runtime.keys.keyring import LOCAL, SHARED, SHARED_KEY, TRUST, Keyring, read_key
from headgate.topology_runtime.platform.addresses import tcp
from headgate.topology_runtime.platform.clock import monotonic_ns

# ── Makes a host as it should be: the steps of `host_changes.py`, one after the other ───────────────────

FOLDERS = ("wheels", "versions", "services", "log")
UNITS = "/etc/systemd/system"


def steps_of(change: HostChange, wanted: HostWanted, wheels: WheelSet) -> Iterator[HostStep]:
    """What is asked of the host. What is not whole is not switched to: the change comes last."""
    says, name = change.line(), change.names[0]
    match change.thing:
        case "wheels":
            for number, wheel in enumerate(change.names, 1):
                told = f"wheel {number} of {len(change.names)}: {wheel}"
                yield _put(told, f"wheels/{wheel}", wheels.others[wheel])
        case "version":
            yield _put(says, wheels.requirement, wheels.own)
            requirement = f"{wanted.home}/{wheels.requirement}"
            yield HostStep(
                says,
                "install",
                {"version": wheels.version, "requirement": requirement, "offline": wheels.offline},
            )
        case "file":
            yield _put(says, name, wanted.files[name])
        case "current":
            yield HostStep(says, "switch", {"version": wanted.version})
        case "service":
            service = next(one for one in wanted.services if one.name == name)
            if service.unit:
                path = f"{UNITS}/headgate-{wanted.cluster}-{name}.service"
                yield _put(says, path, service.unit.encode(), outside=True, mode=0o644)
            else:
                yield _put(says, f"services/{name}.json", service.settings)
            yield HostStep(says, "start", {"service": name, "systemd": bool(service.unit)})


def _put(says: str, path: str, body: bytes | Path, mode: int = MODE, outside: bool = False) -> HostStep:
    return HostStep(says, "put", {"path": path, "mode": mode, "outside": outside}, body)


# ── What each host of a cluster should be: its version, its keys, its services ──────────────────────────


class ClusterKeys:
    """The keys of a cluster, at the operator's side: each host gets its own and no other. dry: none is made."""

    def __init__(self, cluster: str, dry: bool = False) -> None:
        self.folder = cluster_folder(cluster) / "keys"
        self.dry = dry

    def make(self, vms: Iterable[VmEntry], shared: bool = False) -> None:
        """Those that are missing. shared: the controller needs one to ask its topologies' with. Raises InvalidInput."""
        if not self.dry:
            ring = Keyring.at(self.folder)
            if shared:
                ring.ensure("operator", SHARED)
            for vm in vms:
                ring.ensure("agent", vm.name)
            if not self.signing.exists():
                signing_keys.make(self.signing.parent, signing_keys.own_name())

    @property
    def signing(self) -> Path:
        """The key that signs the operator's code; hosts get its public half."""
        return default_folder() / signing_keys.SECRET

    @property
    def ring(self) -> Keyring:
        return Keyring(self.folder)

    def content(self, name: str) -> bytes:
        """A file of the folder; of one that would be made nothing yet."""
        path = (self.signing.parent if name == SIGNER else self.folder) / name
        return b"" if self.dry and not path.exists() else path.read_bytes()

    def digest(self, *names: str) -> str:
        return hashlib.sha256(b"".join(map(self.content, names))).hexdigest()[:16]

    def operator(self) -> Path:
        return self.ring.path("operator", LOCAL)


def wanted_on(
    hosts: ClusterHosts, on: Reached, facts: HostFacts, wheels: WheelSet, keys: ClusterKeys
) -> HostWanted:
    """One host, with all that the file says of it."""
    home, version, services, files = hosts.home(on), wheels.version, [], {}
    if not facts.systemd:
        files[KEEPER] = resources.files("headgate.dashboards.cluster.on_host").joinpath(KEEPER).read_bytes()
    if on.host == hosts.controller.on.host:
        own = (
            CONTROLLER_KEY,
            *([SHARED_KEY] if hosts.controller.shared else []),
        )
        files |= {f"keys/{name}": keys.content(name) for name in (*own, TRUST)}
        secret = keys.digest(*own)
        services.append(controller_service(hosts, home, version, secret, facts.systemd))
    for vm in hosts.vms_on(on.host):
        key = f"{agent_name(vm.name)}.key"
        files |= {name: keys.content(name) for name in (key, SIGNER)}
        services.append(agent_service(hosts, vm, home, version, keys.digest(key, SIGNER), facts.systemd))
    sizes = {name: path.stat().st_size for name, path in wheels.others.items()}
    return HostWanted(home, version, sizes, files, tuple(services))


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

REGISTERED_S, LOOK_S = 60.0, 0.2
STAGED = ("wheels", "version")


@dataclass
class BroughtUp:
    """What came of it. steps: per host, what differs; it was done, or would be. install_s: of the longest pip."""

    steps: dict[str, tuple[HostChange, ...]] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)  # of services: as the hosts tell them
    registered: tuple[str, ...] = ()
    install_s: float = 0.0

    @property
    def restarts(self) -> list[HostChange]:
        return [step for steps in self.steps.values() for step in steps if step.is_restart]


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


async def bring_up(up: BringUp, board: HostBoard) -> BroughtUp:
    """Failures are on the board; the others go on. Nothing is done when the controller's host fails."""
    found, wanted = BroughtUp(), dict[str, HostWanted]()
    hosts = msgspec.structs.replace(up.hosts, vms=up.vms())
    async with surveyed(hosts, board, "" if up.dry else up.why) as (links, facts):
        judge(hosts, facts, board)
        if hosts.controller.on.host in board.failures:
            return found
        up.keys.make(up.vms(), up.hosts.controller.shared)
        for on in hosts.hosts():
            if on.host in facts and on.host not in board.failures:
                wanted[on.host] = wanted_on(hosts, on, facts[on.host], up.wheels, up.keys)
                found.steps[on.host] = changes(wanted[on.host], facts[on.host])
                found.others[on.host] = facts[on.host].others
                found.pids |= {name: one.pid for name, one in facts[on.host].services.items()}
        if up.dry:
            return found
        refuse_restarts(up, found)

        def steps_on(host: str) -> Iterator[HostStep]:
            own = [one for one in found.steps[host] if not up.staged or one.thing in STAGED]
            if own:
                yield HostStep("begin", "folder", {"names": FOLDERS})
            for change in own:
                yield from steps_of(change, wanted[host], up.wheels)

        answers = await steps_on_each({host: links[host] for host in wanted}, board, steps_on)
    for answer in itertools.chain.from_iterable(answers.values()):
        found.pids |= answer.get("pids", {})
        found.install_s = max(found.install_s, answer.get("seconds", 0.0))
    if hosts.controller.on.host not in board.failures and not up.staged:
        await registered(up, found, board)
    return found


def refuse_restarts(up: BringUp, found: BroughtUp) -> None:
    """Of all services at once, while rows flow. Raises Conflict."""
    if up.staged or up.only is not None or not found.restarts:
        return
    try:
        running = running_of(asked(contact_of(up.hosts, up.keys), "status"))
    except HeadgateError:
        return  # a controller that does not answer is what `up` is there to mend
    if running:
        raise Conflict(
            f"{', '.join(running)} runs, and services would be started again all at once",
            faults=[step.line() for step in found.restarts],
            hint="`headgate cluster upgrade` does it one after the other, or `headgate stop` before",
        )


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
        hint = "headgate cluster check says which ports are not reached"
        log = f"tail {up.hosts.home(vm.on)}/log/{agent_name(vm.name)}"
        what = f"{vm.name} did not register within {REGISTERED_S:g} s: {trouble}"
        board.fail(vm.on.host, HostFailed(what, hint=hint, see=see_command(vm.on, log)))


def contact_of(hosts: ClusterHosts, keys: ClusterKeys) -> Contact:
    """To the controller, as its operator; through ssh where hosts are reached by that alone."""
    forwards.hold(hosts)
    c = hosts.controller
    return read_key(keys.operator()).contact(tcp(c.address, c.command_port))
