"""What runs on the hosts of a cluster: a controller, and an agent per VM. Pure: command lines, units, settings.

A service's digest is that of all that it runs with: another command, version or key means that it is started again.
A controller is ended by SIGKILL, for SIGTERM would end its run too: the next one takes over what goes on.
"""

from __future__ import annotations

import hashlib
import json

import msgspec

from headgate.dashboards.cluster.hosts_file import ClusterHosts, VmEntry
from headgate.topology_runtime.addresses import is_loopback, tcp

CONTROLLER = "controller"
SIGNER = "signing.pub"  # of whose code agents run
KEEPER = "{keeper}"  # in a command: the process that keeps it
UNIT = """\
# headgate cluster {cluster}; {version}; {digest}
[Unit]
Description=headgate {name} of cluster {cluster}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=60
ExecStart={command}
WorkingDirectory={home}
Restart=always
RestartSec=2
Delegate=yes
KillMode=mixed
KillSignal={signal}
TimeoutStopSec=40
LimitNOFILE=65536
LimitCORE=0
TasksMax=16384
OOMPolicy=continue
UMask=0077

[Install]
WantedBy=multi-user.target
"""


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
    ]  # fmt: skip
    return _service(hosts.name, CONTROLLER, command, home, (version, secret), systemd)


def agent_service(
    hosts: ClusterHosts, vm: VmEntry, home: str, version: str, secret: str, systemd: bool
) -> ServiceWanted:
    name = agent_name(vm.name)
    command = [
        *_python(home, "headgate.dashboards.cli"), "agent", "run", "--run", hosts.name, "--vm", vm.name,
        "--controller", tcp(hosts.controller.address, hosts.controller.port),
        "--key", f"{home}/{name}.key", "--trust-signer", f"{home}/{SIGNER}", "--directory", f"{home}/agents/{vm.name}",
        "--listen", listen(vm.address), "--advertise", vm.address,
        "--slots", str(vm.slots), "--slot-cores", f"{vm.slot_cores:g}",
        "--rack", vm.rack, *(["--usd-per-hour", f"{vm.usd_per_hour:g}"] if vm.usd_per_hour else []),
        *(["--bandwidth-mbps", f"{vm.bandwidth_mbps:g}"] if vm.bandwidth_mbps else []),
        *(["--slot-memory", vm.slot_memory] if vm.slot_memory else []),
        *(["--workers-as", vm.workers_as] if vm.workers_as else []),
    ]  # fmt: skip
    return _service(hosts.name, name, command, home, (version, secret), systemd)


def listen(advertised: str) -> str:
    """On every address of the host, of the kind that is told: what is told may lead there through a router."""
    if is_loopback(advertised):
        return advertised
    return "::" if ":" in advertised else "0.0.0.0"


def _python(home: str, module: str) -> list[str]:
    return [f"{home}/current/bin/python", "-P", "-m", module]


def _service(
    cluster: str, name: str, command: list[str], home: str, of: tuple[str, str], systemd: bool
) -> ServiceWanted:
    whole = {"name": name, "command": command, "version": of[0], "key": of[1]}
    digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
    words, end = " ".join(command).replace("%", "%%"), "SIGKILL" if name == CONTROLLER else "SIGTERM"
    if systemd:
        unit = UNIT.format(
            cluster=cluster, name=name, version=of[0], digest=digest, home=home, command=words, signal=end
        )
        return ServiceWanted(name, hashlib.sha256(unit.encode()).hexdigest(), b"", unit)
    settings = {"name": name, "command": [*command, "--owner", KEEPER], "digest": digest, "signal": end}
    return ServiceWanted(name, digest, json.dumps(settings, indent=1).encode() + b"\n", "")
