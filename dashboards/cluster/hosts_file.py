"""`hosts.toml`: which hosts a cluster has. Pure: from text to entries, or to every fault with its place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headgate.topology_runtime.api.cluster import (
    MIB,
    SLOT_CORES,
    SLOT_MEMORY_LEAST,
    bandwidth_fault,
    parse_bytes,
)
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.platform.addresses import LOOPBACK
from headgate.topology_runtime.wording import NAME, Suggestions, shown

SCHEMA = "headgate/hosts/v1"
HOST = re.compile(
    r"[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]{0,254}"
)  # a name, an IPv4 or IPv6 address, an alias of ~/.ssh/config
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
WHOSE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
PATH = re.compile(r"/[A-Za-z0-9_./+@-]{1,200}")
SLOTS_MOST, VMS_MOST, PRICE_MOST = 256, 1024, 100_000.0
LOCAL = "local"  # this machine, without ssh
PORTS = (7311, 7312, 7313)  # of the controller: agents, commands, stream
WORKER_PORT, PORT_MOST = 7400, 65535
TOPOLOGY_PORT, TOPOLOGY_PORTS = 7500, 192  # of a shared controller: three for each topology


class Reached(msgspec.Struct, frozen=True):
    """One host: how to log in, where headgate lives there, which Python it uses ("": the newest that will do)."""

    host: str
    user: str = ""
    ssh_port: int = 0
    directory: str = "/var/lib/headgate"
    python: str = ""

    @property
    def is_local(self) -> bool:
        return self.host == LOCAL

    @property
    def login(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    def shell_words(self) -> str:
        """The ssh command that leads there, for people."""
        return " ".join(["ssh", *(["-p", str(self.ssh_port)] if self.ssh_port else []), self.login])


class ControllerEntry(msgspec.Struct, frozen=True):
    """address: where the others reach it. shared: it runs several topologies, whose controllers take ports from
    topology_port on."""

    on: Reached
    address: str
    port: int = PORTS[0]
    command_port: int = PORTS[1]
    stream_port: int = PORTS[2]
    shared: bool = False
    topology_port: int = TOPOLOGY_PORT

    @property
    def topology_ports(self) -> range:
        return range(
            self.topology_port, self.topology_port + TOPOLOGY_PORTS if self.shared else self.topology_port
        )


class VmEntry(msgspec.Struct, frozen=True):
    name: str
    on: Reached
    address: str
    slots: int = 4
    slot_cores: float = SLOT_CORES
    slot_memory: str = ""
    workers_as: str = ""
    rack: str = "r1"
    usd_per_hour: float = 0.0
    bandwidth_mbps: float = 0.0  # of its link; 0: nobody knows
    devices: bool = False  # the host's, for tasks
    worker_port: int = 0  # of its first slot, one more for each; 0: any port

    @property
    def worker_ports(self) -> tuple[int, ...]:
        return tuple(range(self.worker_port, self.worker_port + self.slots)) if self.worker_port else ()


class ClusterHosts(msgspec.Struct, frozen=True):
    """All of a hosts file. name: the cluster's; named: the file says it, else it is the file's own. only_ssh: hosts
    reach each other through forwards of ssh alone, each port of the cluster being the same on the loopback of all."""

    name: str
    controller: ControllerEntry
    vms: tuple[VmEntry, ...]
    named: bool = True
    only_ssh: bool = False
    file: str = ""  # where it was read from

    def hosts(self) -> tuple[Reached, ...]:
        """Each host once, the controller's first: a VM may be on it too."""
        return tuple({on.host: on for on in (self.controller.on, *(vm.on for vm in self.vms))}.values())

    def home(self, on: Reached) -> str:
        """The cluster's folder there."""
        return f"{on.directory}/{self.name}"

    def vms_on(self, host: str) -> tuple[VmEntry, ...]:
        return tuple(vm for vm in self.vms if vm.on.host == host)


Judge = Callable[[Any], str | None]  # what was expected, where it is not that


def _text(pattern: re.Pattern[str], expected: str) -> Judge:
    return lambda value: None if isinstance(value, str) and pattern.fullmatch(value) else expected


def _whole(low: int, high: int) -> Judge:
    expected = f"a whole number from {low} to {high}"
    is_whole: Callable[[Any], bool] = lambda v: isinstance(v, int) and not isinstance(v, bool)  # noqa: E731
    return lambda value: None if is_whole(value) and low <= value <= high else expected


def _number(low: float, high: float, open_low: bool) -> Judge:
    expected = (
        f"a number {'above' if open_low else 'from'} {low:g} {'and at most' if open_low else 'to'} {high:g}"
    )

    def judge(value: Any) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return expected
        return None if low <= value <= high and not (open_low and value == low) else expected

    return judge


def _link(value: Any) -> str | None:
    fault = bandwidth_fault(value)
    return None if fault is None else fault.removeprefix("expected ")


def _slot_memory(value: Any) -> str | None:
    try:
        enough = isinstance(value, str) and parse_bytes(value) >= SLOT_MEMORY_LEAST
    except UsageError:
        enough = False
    least = f"{SLOT_MEMORY_LEAST // MIB}M for a worker"
    return None if enough else f"an amount of memory, for example 512M, at least {least}"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


_PORT = _whole(1, 65535)
_REACHED: dict[str, Judge] = {
    "user": _text(USER, "a user's name"),
    "ssh_port": _PORT,
    "directory": _text(PATH, "an absolute path of letters, digits and ._/+@-"),
    "python": _text(PATH, "the absolute path of a Python"),
}
_SIZED: dict[str, Judge] = {
    "slots": _whole(1, SLOTS_MOST),
    "slot_cores": _number(0, 1, True),
    "slot_memory": _slot_memory,
    "workers_as": _text(WHOSE, "own, agent or a user of the host"),
}
_HOST = _text(HOST, f"a host's name or address, or {LOCAL}")
_KEYS: dict[str, dict[str, Judge]] = {
    "": {"schema": lambda value: None if value == SCHEMA else SCHEMA, "name": _text(NAME, "a name"),
         "only_ssh": _flag, "worker_port": _PORT},
    "defaults": {**_REACHED, **_SIZED},
    "controller": {
        "host": _HOST, "address": _HOST, **_REACHED, "port": _PORT, "command_port": _PORT, "stream_port": _PORT,
        "shared": _flag, "topology_port": _PORT,
    },
    "vm": {
        "name": _text(NAME, "a name of 1 to 64 letters, digits, '.', '_' and '-'"),
        "host": _HOST, "address": _HOST, **_REACHED, **_SIZED,
        "rack": _text(NAME, "a name"), "usd_per_hour": _number(0, PRICE_MOST, False),
        "bandwidth_mbps": _link, "devices": _flag, "worker_port": _PORT,
    },
}  # fmt: skip
_REQUIRED = {"controller": ("host",), "vm": ("name", "host")}


def parse(text: str, name: str) -> tuple[ClusterHosts | None, list[str]]:
    """(the hosts, faults): None when there is any. name: the cluster's, where the file tells none."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return None, [f"it is no TOML: {error}"]
    if faults := list(_faults(data)):
        return None, faults
    hosts = _hosts(data, name)
    return (None, faults) if (faults := _taken(hosts)) else (hosts, [])


def _faults(data: dict[str, Any]) -> Iterator[str]:
    suggestions = Suggestions()
    tables = {**_KEYS[""], "defaults": _table, "controller": _table, "vm": _tables}
    if "schema" not in data:
        yield f'schema: missing; the file begins with schema = "{SCHEMA}"'
    yield from _of_table(data, tables, "", suggestions)
    for part in ("defaults", "controller"):
        if isinstance(data.get(part), dict):
            yield from _of_table(data[part], _KEYS[part], part, suggestions)
    if "controller" not in data:
        yield "controller: missing; it is a table with the key host"
    vms = data.get("vm")
    if vms is None:
        yield "vm: missing; each VM is a table [[vm]] with name and host"
    elif isinstance(vms, list):
        if not 1 <= len(vms) <= VMS_MOST:
            yield f"vm: expected 1 to {VMS_MOST} VMs, got {len(vms)}"
        for number, vm in enumerate(vms):
            if isinstance(vm, dict):
                yield from _of_table(vm, _KEYS["vm"], f"vm[{number}]", suggestions)
        yield from _twice([vm for vm in vms if isinstance(vm, dict)])
    if isinstance(data.get("controller"), dict):
        yield from _ports(data["controller"])
        yield from _of_shared(data["controller"], data.get("only_ssh") is True)
    yield from _forwarded(data)


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str | None:
    whole = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return None if whole else "tables [[vm]]"


def _of_table(
    data: dict[str, Any], known: dict[str, Judge], place: str, suggestions: Suggestions
) -> Iterator[str]:
    """Keys that are unknown, missing, or have a value that is none."""
    inside = f"{place}." if place else ""
    for key, value in data.items():
        if key not in known:
            near = suggestions.text(key, known) or f" (known: {', '.join(known)})"
            yield f"{inside}{shown(key)[1:-1]}: unknown key{near}"
        elif (expected := known[key](value)) is not None:
            yield f"{inside}{key}: expected {expected}, got {shown(value)}"
    for key in _REQUIRED.get(place.partition("[")[0], ()):
        if key not in data:
            yield f"{inside}{key}: missing"


def _twice(vms: list[dict[str, Any]]) -> Iterator[str]:
    for key in ("name", "host"):
        first: dict[str, int] = {}
        for number, vm in enumerate(vms):
            value = vm.get(key)
            if isinstance(value, str) and first.setdefault(value, number) != number:
                yield f"vm[{number}].{key}: {shown(value)} is there twice, also as vm[{first[value]}]"


def _ports(controller: dict[str, Any]) -> Iterator[str]:
    names = ("port", "command_port", "stream_port")
    ports = [controller.get(name, default) for name, default in zip(names, PORTS, strict=True)]
    for name, port in zip(names, ports, strict=True):
        if isinstance(port, int) and ports.count(port) > 1:
            yield f"controller.{name}: {port} is used twice"


def _of_shared(controller: dict[str, Any], only_ssh: bool) -> Iterator[str]:
    """What cannot be together with a shared controller, or only with one."""
    if controller.get("shared") is not True:
        if "topology_port" in controller:
            yield "controller.topology_port: only with shared = true"
    elif only_ssh:
        yield "controller.shared: not with only_ssh = true: ports of topologies are not forwarded"


def _forwarded(data: dict[str, Any]) -> Iterator[str]:
    """What cannot be together with forwards."""
    vms = [vm for vm in data["vm"] if isinstance(vm, dict)] if isinstance(data.get("vm"), list) else []
    if data.get("only_ssh") is not True:
        if any("worker_port" in one for one in (data, *vms)):
            yield "worker_port: only with only_ssh = true: else workers take any port"
        return
    for place, one in (
        ("controller", data.get("controller")),
        *((f"vm[{n}]", vm) for n, vm in enumerate(vms)),
    ):
        if isinstance(one, dict) and "address" in one:
            yield f"{place}.address: not with only_ssh = true: all is reached on loopback"


def _taken(hosts: ClusterHosts) -> list[str]:
    """Ports that are meant twice, or are none."""
    c, found = hosts.controller, []
    used = dict.fromkeys((c.port, c.command_port, c.stream_port), "the controller")
    if c.topology_ports and c.topology_ports[-1] > PORT_MOST:
        found.append(f"controller: the ports of its topologies end above {PORT_MOST}: a lower topology_port")
    if both := sorted(used.keys() & set(c.topology_ports)):
        found.append(f"controller: port {both[0]} is one of its topologies' ({c.topology_port} and on), too")
    for number, vm in enumerate(hosts.vms):
        if vm.worker_ports and vm.worker_ports[-1] > PORT_MOST:
            found.append(f"vm[{number}]: its workers' ports end above {PORT_MOST}: a lower worker_port")
        for port in vm.worker_ports:
            if (whose := used.setdefault(port, vm.name)) != vm.name:
                found.append(f"vm[{number}]: port {port} of its workers is of {whose}: another worker_port")
    return found


def _hosts(data: dict[str, Any], name: str) -> ClusterHosts:
    """Of data without faults."""
    defaults = data.get("defaults", {})
    told, only_ssh = data["controller"], data.get("only_ssh", False)
    controller = ControllerEntry(
        on=_reached(told, defaults),
        address=LOOPBACK if only_ssh else _address(told),
        **{key: told[key] for key in ("port", "command_port", "stream_port") if key in told},
        shared=told.get("shared", False),
        topology_port=told.get("topology_port", TOPOLOGY_PORT),
    )
    vms = tuple(_vm({**defaults, **vm}, _reached(vm, defaults), _address(vm)) for vm in data["vm"])
    if only_ssh:
        first, placed = data.get("worker_port", WORKER_PORT), []
        for vm, of in zip(vms, data["vm"], strict=True):
            first = of.get("worker_port", first)
            placed.append(msgspec.structs.replace(vm, address=LOOPBACK, worker_port=first))
            first += vm.slots
        vms = tuple(placed)
    return ClusterHosts(data.get("name", name), controller, vms, "name" in data, only_ssh)


def _vm(told: dict[str, Any], on: Reached, address: str) -> VmEntry:
    given: dict[str, Any] = {
        key: told[key] for key in ("slots", "slot_memory", "workers_as", "rack", "devices") if key in told
    }
    given |= {
        key: float(told[key]) for key in ("slot_cores", "usd_per_hour", "bandwidth_mbps") if key in told
    }
    return VmEntry(told["name"], on, address, **given)


def _reached(told: dict[str, Any], defaults: dict[str, Any]) -> Reached:
    both = {**defaults, **told}
    return Reached(host=told["host"], **{key: both[key] for key in _REACHED if key in both})


def _address(told: dict[str, Any]) -> str:
    """Where the others reach it."""
    host: str = told.get("address", told["host"])
    return LOOPBACK if host == LOCAL else host
