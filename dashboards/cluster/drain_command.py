"""`headgate cluster drain`: what runs on some VMs moves to the others, for as long as somebody works at their hosts."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.dashboards.cluster.bringing_up import contact_of
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.cluster.surveying import read_hosts
from headgate.dashboards.cluster.up_command import told_hosts
from headgate.dashboards.cluster.wanting import ClusterKeys
from headgate.dashboards.terminal.connection import asked
from headgate.dashboards.terminal.cordon import deadline_option, force_option, until_drained
from headgate.topology_runtime.errors import InvalidInput


@click.command()
@told_hosts
@click.argument("vms", nargs=-1, required=True)
@deadline_option
@force_option
def drain(hosts: Path, vms: tuple[str, ...], deadline: float, force: bool) -> None:
    """Move all that runs on VMS of HOSTS to the others, and plan without them until `headgate uncordon`.

    Where the others would carry less than is planned for it is refused (exit code 6); at the deadline it ends 8 and the
    draining goes on. Their agents go on running: `remove` and `upgrade` are free to stop them then.
    """
    told = read_hosts(hosts)
    check_names(told, hosts, vms)
    contact = contact_of(told, ClusterKeys(told.name))
    asked(contact, "drain", {"vms": list(vms), "force": force})
    if deadline > 0:
        until_drained(contact, vms, deadline)
    words = "drained: nothing is left there" if deadline > 0 else "draining"
    click.echo(f"{', '.join(vms)}: {words}. `headgate uncordon {' '.join(vms)}` lets them be used again")


def check_names(told: ClusterHosts, hosts: Path, vms: tuple[str, ...]) -> None:
    """Raises InvalidInput for a VM that the file does not name."""
    unknown = [name for name in vms if name not in {vm.name for vm in told.vms}]
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)}: no such VM in {hosts}")
