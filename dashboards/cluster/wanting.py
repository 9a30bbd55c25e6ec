"""What each host of a cluster should be: its version, its keys, its services."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from headgate.dashboards.cluster.host_changes import HostWanted
from headgate.dashboards.cluster.host_facts import HostFacts
from headgate.dashboards.cluster.hosts_file import ClusterHosts, Reached, VmEntry
from headgate.dashboards.cluster.services import (
    CONTROLLER,
    SIGNER,
    agent_name,
    agent_service,
    controller_service,
)
from headgate.dashboards.cluster.surveying import AskedFor
from headgate.dashboards.cluster.wheels import WheelSet
from headgate.dashboards.terminal.keys import default_folder
from headgate.topology_runtime.keys.keyring import CONTROLLER as CONTROLLER_KEY
from headgate.topology_runtime.keys.keyring import LOCAL, TRUST, Keyring
from headgate.topology_runtime.packages import signing_keys
from headgate.topology_runtime.settings_folder import settings_folder

KEEPER = "keeper.py"


def cluster_folder(cluster: str) -> Path:
    """Where the operator keeps what belongs to a cluster."""
    return settings_folder() / "clusters" / cluster


class ClusterKeys:
    """The keys of a cluster, at the operator's side: each host gets its own and no other. dry: none is made."""

    def __init__(self, cluster: str, dry: bool = False) -> None:
        self.folder = cluster_folder(cluster) / "keys"
        self.dry = dry

    def make(self, vms: Iterable[VmEntry]) -> None:
        """Those that are missing. Raises InvalidInput."""
        if not self.dry:
            ring = Keyring.at(self.folder)
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


def asked_for(hosts: ClusterHosts) -> dict[str, AskedFor]:
    """What each host shall tell of."""
    found = {}
    for on in hosts.hosts():
        names = [agent_name(vm.name) for vm in hosts.vms_on(on.host)]
        files = [KEEPER, SIGNER, *(f"{name}.key" for name in names)]
        if on.host == hosts.controller.on.host:
            files += [f"keys/{TRUST}", f"keys/{CONTROLLER_KEY}"]
            names = [CONTROLLER, *names]
        found[on.host] = AskedFor(tuple(files), tuple(names))
    return found


def wanted_on(
    hosts: ClusterHosts, on: Reached, facts: HostFacts, wheels: WheelSet, keys: ClusterKeys
) -> HostWanted:
    """One host, with all that the file says of it."""
    home, version, services, files = hosts.home(on), wheels.version, [], {}
    if not facts.systemd:
        files[KEEPER] = resources.files("headgate.dashboards.cluster.on_host").joinpath(KEEPER).read_bytes()
    if on.host == hosts.controller.on.host:
        files |= {f"keys/{name}": keys.content(name) for name in (CONTROLLER_KEY, TRUST)}
        secret = keys.digest(CONTROLLER_KEY)
        services.append(controller_service(hosts, home, version, secret, facts.systemd))
    for vm in hosts.vms_on(on.host):
        key = f"{agent_name(vm.name)}.key"
        files |= {name: keys.content(name) for name in (key, SIGNER)}
        services.append(agent_service(hosts, vm, home, version, keys.digest(key, SIGNER), facts.systemd))
    sizes = {name: path.stat().st_size for name, path in wheels.others.items()}
    return HostWanted(home, version, sizes, files, tuple(services))
