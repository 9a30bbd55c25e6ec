"""What a host says of itself, and what is wrong with that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached

GB = 1_000_000_000
FREE_LEAST = 2 * GB  # an installation takes half of it, traces the rest
CLOCK_MOST_S, CLOCK_WARN_S = 1.0, 0.05
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
    were not asked for."""

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


def of_host(on: Reached, facts: HostFacts) -> Iterator[HostFinding]:
    """What stands in the way of an installation, and what makes one worse."""
    if facts.system != "Linux" or facts.machine not in MACHINES:
        what = f"{facts.system} on {facts.machine} is not supported"
        yield HostFinding(on.host, "fault", what, f"Linux on {' or '.join(MACHINES)}", "uname -sm")
    if facts.writable:
        hint = "name another directory in hosts.toml, or mend it"
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
