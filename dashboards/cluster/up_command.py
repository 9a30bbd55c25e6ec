"""`headgate cluster up`, `add`: from bare hosts to a running cluster; run again, what differs is changed, no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.dashboards.cluster.bringing_up import BringUp, BroughtUp, bring_up, contact_of
from headgate.dashboards.cluster.host_board import HostBoard
from headgate.dashboards.cluster.surveying import read_hosts
from headgate.dashboards.cluster.wanting import ClusterKeys
from headgate.dashboards.cluster.wheels import wheel_set
from headgate.dashboards.terminal import contexts
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.keys.keyring import read_key

F = TypeVar("F", bound=Callable[..., Any])

hosts_argument = click.argument("hosts", type=click.Path(path_type=Path), default="hosts.toml")
told_hosts = click.argument("hosts", type=click.Path(path_type=Path))


def installing(command: F) -> F:
    """Options of what is installed from where."""
    command = click.option(
        "--dry-run", "dry", is_flag=True, help="Show what would be done, as a diff, and do nothing."
    )(command)
    command = click.option(
        "--wheelhouse",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Folder of wheels of all that headgate needs (and of pip): copied to the hosts, no index is asked.",
    )(command)
    return click.option(
        "--wheel",
        type=click.Path(path_type=Path, dir_okay=False),
        help="headgate's own wheel [built from the tree that this headgate runs from].",
    )(command)


@click.command()
@hosts_argument
@installing
def up(hosts: Path, wheel: Path | None, wheelhouse: Path | None, dry: bool) -> None:
    """Install headgate on all hosts of HOSTS (hosts.toml), start the controller and an agent per VM, wait until all are
    registered, and let commands speak to this cluster.

    Run again, it changes what differs and no more. Ends 100 and the number of hosts that failed; the others go on.
    """
    asked = read_hosts(hosts)
    brought(BringUp(asked, wheel_set(wheel, wheelhouse), ClusterKeys(asked.name, dry), "cluster up", dry))


@click.command()
@told_hosts
@click.argument("vms", nargs=-1, required=True)
@installing
def add(hosts: Path, vms: tuple[str, ...], wheel: Path | None, wheelhouse: Path | None, dry: bool) -> None:
    """Bring up the VMS of HOSTS and leave all others alone: a running controller learns of them when they register."""
    asked = read_hosts(hosts)
    unknown = [name for name in vms if name not in {vm.name for vm in asked.vms}]
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)}: no such VM in {hosts}", hint="write it there first: [[vm]]"
        )
    keys = ClusterKeys(asked.name, dry)
    brought(BringUp(asked, wheel_set(wheel, wheelhouse), keys, f"cluster add {' '.join(vms)}", dry, vms))


def brought(up: BringUp) -> None:
    """Do it, and say what came of it. Raises HostsFailed."""
    began_ns, board = monotonic_ns(), HostBoard(quiet=up.dry)
    with board:
        found = asyncio.run(bring_up(up, board))
    if up.dry:
        print_diff(found)
    elif up.hosts.controller.on.host not in board.failures:
        use_context(up)
        print_outcome(up, found, (monotonic_ns() - began_ns) / 1e9)
    board.raise_failures()


def print_diff(found: BroughtUp) -> None:
    for host, steps in found.steps.items():
        click.echo(f"{host}:{'' if steps else ' no change'}")
        for step in steps:
            click.echo(f"  {step.line()}")
    tell_others(found)


def print_outcome(up: BringUp, found: BroughtUp, seconds: float) -> None:
    if found.changed:
        done = sum(len(steps) for steps in found.steps.values())
        click.echo(f"{done} steps on {sum(map(bool, found.steps.values()))} hosts in {seconds:.1f} s")
        if found.install_s:
            click.echo(f"the longest installation: {found.install_s:.1f} s of them")
    else:
        click.echo(f"no change ({seconds:.1f} s)")
    click.echo(
        f"registered: {', '.join(sorted(found.registered)) or 'none'} ({len(found.registered)} of {len(up.vms())})"
    )
    click.echo(f"commands speak to {up.hosts.name} now: headgate submit …, headgate status")
    tell_others(found)


def tell_others(found: BroughtUp) -> None:
    for host, names in found.others.items():
        for name in names:
            click.echo(f"{host}: {name} runs there too, and is not in the file: `headgate cluster remove`")


def use_context(up: BringUp) -> None:
    """Commands find the cluster from now on. Raises InvalidInput."""
    endpoint = contact_of(up.hosts, up.keys).endpoint
    contexts.remember(up.hosts.name, contexts.KnownController(endpoint, read_key(up.keys.operator())))
