"""What a host says of itself, and what is wrong with that. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Literal

import msgspec

from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached
from headgate.topology_runtime.errors import HeadgateError

GB = 1_000_000_000
FREE_LEAST = 2 * GB  # an installation takes half of it, traces the rest
CLOCK_MOST_S, CLOCK_WARN_S = 1.0, 0.05
CONTROLLER = "controller"
MACHINES = ("x86_64", "aarch64")


class ServiceFacts(msgspec.Struct, frozen=True):
    """digest: of the settings that it runs with; pid: of the service itself, 0 while it waits to be started again."""

    running: bool
    pid: int = 0
    keeper: int = 0
    restarts: int = 0
    digest: str = ""
    last_exit: int | None = None


class HostFacts(msgspec.Struct, frozen=True):
    """identity: the same for two names of one host. writable: why a file cannot be written, "" when it can. cgroups:
    v1, v2 or none. files: digest and mode of each that was asked for, "" when it is not there. others: services that
    were not asked for. beside: other clusters in the same directory."""

    python: str
    executable: str
    machine: str
    system: str
    identity: str
    cores: int
    memory_bytes: int
    uid: int
    venv: bool
    ensurepip: bool
    cgroups: str
    systemd: bool
    free_bytes: int
    writable: str
    versions: tuple[str, ...]
    current: str
    wheels: tuple[str, ...]
    files: dict[str, str]
    services: dict[str, ServiceFacts]
    others: tuple[str, ...]
    cluster: bool
    beside: tuple[str, ...] = ()
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0

    def row(self) -> dict[str, Any]:
        """For a table."""
        return {
            "python": self.python, "machine": self.machine, "cores": self.cores, "cgroups": self.cgroups,
            "root": self.uid == 0, "systemd": self.systemd, "free_gb": round(self.free_bytes / GB, 1),
            "clock_ms": round(self.clock_offset_s * 1e3, 1), "clock_error_ms": round(self.clock_error_s * 1e3, 1),
        }  # fmt: skip


class HostFinding(msgspec.Struct, frozen=True):
    """Something wrong with a host. see: the command, on the host, that shows it."""

    host: str
    level: Literal["fault", "warning"]
    what: str
    hint: str = ""
    see: str = ""


def findings(hosts: ClusterHosts, facts: Mapping[str, HostFacts]) -> Iterator[HostFinding]:
    """Of every host that answered."""
    for on in hosts.hosts():
        if on.host in facts:
            yield from of_host(on, facts[on.host])
            yield from _of_slots(hosts, on, facts[on.host])
    yield from _copied(hosts, facts)
    first: dict[str, str] = {}
    for host, one in facts.items():
        if first.setdefault(one.identity, host) != host:
            what = f"it is the same host as {first[one.identity]}"
            yield HostFinding(host, "fault", what, "name each host once in hosts.toml", "hostname")
    machines = {host: one.machine for host, one in facts.items()}
    usual = max(set(machines.values()), key=list(machines.values()).count, default="")
    for host, machine in machines.items():
        if machine in MACHINES and machine != usual:
            hint = "wheels for both must be in the wheelhouse, and models hold for one kind of machine"
            yield HostFinding(host, "warning", f"it is {machine}, most others {usual}", hint)


def _copied(hosts: ClusterHosts, facts: Mapping[str, HostFacts]) -> Iterator[HostFinding]:
    """A file under another name would make a second cluster of the same hosts, unless it says that it shall."""
    for on in () if hosts.named else hosts.hosts():
        one = facts.get(on.host)
        if one is not None and one.beside and not one.cluster:
            what = (
                f"cluster {', '.join(one.beside)} is there already, and this would be another, {hosts.name}"
            )
            hint = (
                f'name = "{one.beside[0]}" in hosts.toml for the same one, name = "{hosts.name}" for a second'
            )
            yield HostFinding(on.host, "fault", what, hint, f"ls {on.directory}")


def of_host(on: Reached, facts: HostFacts) -> Iterator[HostFinding]:
    """What stands in the way of an installation, and what makes one worse."""
    if facts.system != "Linux" or facts.machine not in MACHINES:
        what = f"{facts.system} on {facts.machine} is not supported"
        yield HostFinding(on.host, "fault", what, f"Linux on {' or '.join(MACHINES)}", "uname -sm")
    if facts.writable:
        hint = "name another directory in hosts.toml, or fix it"
        if facts.uid != 0:
            hint = "give the user sudo without a password, or name a directory of his in hosts.toml"
        yield HostFinding(on.host, "fault", f"{on.directory} cannot be written: {facts.writable}", hint,
                      f"touch {on.directory}/probe; df -h {on.directory}")  # fmt: skip
    elif facts.free_bytes < FREE_LEAST and not facts.versions:
        what = (
            f"{facts.free_bytes / GB:.1f} GB are free for {on.directory}, {FREE_LEAST / GB:.0f} GB are needed"
        )
        yield HostFinding(
            on.host, "fault", what, "make room, or name another directory", f"df -h {on.directory}"
        )
    if not facts.venv:
        yield HostFinding(on.host, "fault", "its Python has no venv module", "Debian: apt-get install python3-venv",
                      f"{facts.executable} -m venv --help")  # fmt: skip
    off_s = abs(facts.clock_offset_s) - facts.clock_error_s
    if off_s > CLOCK_WARN_S:
        way = "ahead" if facts.clock_offset_s > 0 else "behind"
        what = f"its clock is {abs(facts.clock_offset_s):,.3f} s {way} (± {facts.clock_error_s:.3f} s)"
        level: Literal["fault", "warning"] = "fault" if off_s > CLOCK_MOST_S else "warning"
        yield HostFinding(
            on.host, level, what, "run a time service there: chrony or timesyncd", "timedatectl; date -u"
        )
    if facts.cgroups == "none":
        what = "no control groups can be made: slots are kept to cores, their memory is not limited"
        yield HostFinding(
            on.host, "warning", what, "root, or a delegated control group", "ls -ld /sys/fs/cgroup"
        )
    if facts.uid != 0:
        what = (
            "no root: no systemd unit, no limits, tasks may do what their agent may; a keeper of headgate's own "
            "starts it again when it dies"
        )
        yield HostFinding(on.host, "warning", what, "sudo without a password for this user", "sudo -n true")


def _of_slots(hosts: ClusterHosts, on: Reached, facts: HostFacts) -> Iterator[HostFinding]:
    needed = sum(vm.slots * vm.slot_cores for vm in hosts.vms_on(on.host))
    if needed > facts.cores:
        what = f"its slots want {needed:g} cores, it has {facts.cores}"
        yield HostFinding(on.host, "warning", what, "fewer slots, or a smaller slot_cores", "nproc")
    others = [vm.name for vm in hosts.vms_on(on.host) if vm.workers_as not in ("", "agent")]
    if others and facts.uid != 0:
        what = f"tasks of {', '.join(others)} cannot run as another user: there is no root"
        hint = 'sudo without a password for this user, or workers_as = "agent"'
        yield HostFinding(on.host, "fault", what, hint, "sudo -n true")


# ── Which ports must be reached from where, and which are. Pure ───
#
# Workers on any two hosts send each other rows, on ports that the system chooses; agents reach the controller
# on its port for agents. The machine that commands are given on reaches the ports for commands and for the
# stream.

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
    workers = (vm.worker_ports[:1] or (ANY,) for vm in hosts.vms_on(host))
    return (*own, *itertools.chain.from_iterable(workers))


def ports_in_use(hosts: ClusterHosts, host: str, running: Set[str]) -> dict[int, bool]:
    """Those that services of the cluster have already; False: of a worker that may not be there."""
    c, found = hosts.controller, dict[int, bool]()
    if CONTROLLER in running:
        found = dict.fromkeys((c.port, c.command_port, c.stream_port), True)
    for vm in hosts.vms_on(host):
        if f"agent.{vm.name}" in running:
            found |= dict.fromkeys(vm.worker_ports, False)
    return found


def addresses(hosts: ClusterHosts) -> dict[str, str]:
    """Where each host is reached by the others."""
    return {vm.on.host: vm.address for vm in hosts.vms} | {hosts.controller.on.host: hosts.controller.address}


def targets_from(
    hosts: ClusterHosts, source: str, listening: Mapping[str, tuple[Target, ...]]
) -> list[Target]:
    """What a host must reach, of all that listen."""
    c, found = hosts.controller, []
    controllers = c.port, c.command_port, c.stream_port
    for host, targets in listening.items():
        for target in targets:
            between_vms = target.wanted not in controllers and host != source and bool(hosts.vms_on(source))
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
            if hosts.only_ssh:
                hint = "it goes through ssh: does sshd there allow it (AllowTcpForwarding, PermitOpen)?"
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


# ── What went wrong on a host: one line with the remedy and the command that shows it. Pure ─────────────

FIRST_EXIT, MOST_COUNTED = 100, 25  # exit code 101: one host failed; 125: so many or more


class HostFailed(HeadgateError):
    """One host. see: the command that shows it."""

    code = "HG-HOST"

    def __init__(self, what: str, *, hint: str = "", see: str = "") -> None:
        super().__init__(what, hint=hint or None)
        self.see = see

    def line(self) -> str:
        parts = [self.what, f"try: {self.hint}" if self.hint else "", f"see: {self.see}" if self.see else ""]
        return " · ".join(part for part in parts if part)


class HostsFailed(HeadgateError):
    """Some hosts; the others went on. The exit code tells how many."""

    code = "HG-HOSTS"

    def __init__(self, what: str, lines: Iterable[str], failed: int) -> None:
        super().__init__(what, faults=lines)
        self.exit_code = FIRST_EXIT + min(failed, MOST_COUNTED)


def lines_of(failures: Mapping[str, HostFailed]) -> list[str]:
    return [f"{host}: {failure.line()}" for host, failure in failures.items()]
