"""`headgate cluster upgrade`: another version, host after host, each only when the one before is well."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import click

from dashboards.cluster.bringing_up import BringUp, bring_up
from dashboards.cluster.host_board import HostBoard
from dashboards.cluster.surveying import read_hosts
from dashboards.cluster.up_command import hosts_argument, installing, print_diff
from dashboards.cluster.wanting import ClusterKeys
from dashboards.cluster.wheels import wheel_set


@click.command()
@hosts_argument
@installing
def upgrade(hosts: Path, wheel: Path | None, wheelhouse: Path | None, dry: bool) -> None:
    """Bring this headgate to HOSTS: first beside what runs, on all of them; then the controller, then agent after
    agent, each when the one before has registered again. It stops at the first that does not.
    """
    told, board = read_hosts(hosts), HostBoard(quiet=dry)
    whole = BringUp(told, wheel_set(wheel, wheelhouse), ClusterKeys(told.name, dry), "cluster upgrade", dry)
    if dry:
        print_diff(asyncio.run(bring_up(whole, board)))
        board.raise_failures()
        return
    with board:
        asyncio.run(bring_up(dataclasses.replace(whole, staged=True), board))
        for only in ((), *((vm.name,) for vm in told.vms)):
            if not board.failures:
                asyncio.run(bring_up(dataclasses.replace(whole, only=only), board))
    board.raise_failures()
    click.echo(f"{told.name} runs {whole.wheels.version}: the controller and {len(told.vms)} agents")
