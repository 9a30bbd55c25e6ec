"""`headgate cluster upgrade`: another version, host after host, each only when the one before is well."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headgate.dashboards.cluster.bringing_up import REGISTERED_S, BringUp, bring_up, contact_of
from headgate.dashboards.cluster.host_board import HostBoard
from headgate.dashboards.cluster.services import agent_name
from headgate.dashboards.cluster.surveying import read_hosts
from headgate.dashboards.cluster.up_command import hosts_argument, installing, print_diff
from headgate.dashboards.cluster.wanting import ClusterKeys
from headgate.dashboards.cluster.wheels import wheel_set
from headgate.dashboards.terminal.connection import CommandRefused, asked
from headgate.dashboards.terminal.cordon import deadline_option, until_drained
from headgate.topology_runtime.errors import Conflict, Unreachable, UsageError

LOOK_S = 0.2


@click.command()
@hosts_argument
@installing
@deadline_option
@click.option(
    "--force",
    is_flag=True,
    help="Also agents that cannot be drained first: what they had is sent again, as after a loss.",
)
def upgrade(
    hosts: Path, wheel: Path | None, wheelhouse: Path | None, dry: bool, deadline: float, force: bool
) -> None:
    """Bring this headgate to HOSTS: first beside what runs, on all of them; then the controller, then agent after
    agent: what runs there moves to the others before, and the next one's turn comes when it has registered again.

    It stops at the first that does not. Where the others would carry too little without one of them, nothing is changed
    (exit code 6). The deadline is that of each agent's draining.
    """
    told, board = read_hosts(hosts), HostBoard(quiet=dry)
    whole = BringUp(told, wheel_set(wheel, wheelhouse), ClusterKeys(told.name, dry), "cluster upgrade", dry)
    if dry:
        print_diff(asyncio.run(bring_up(whole, board)))
        board.raise_failures()
        return
    with board:
        asyncio.run(bring_up(dataclasses.replace(whole, staged=True), board))
        board.raise_failures()
        restarts = restarting(whole)
        if not force:
            refuse_undrained(whole, restarts)
        asyncio.run(bring_up(dataclasses.replace(whole, only=()), board))
        for vm in told.vms:
            if not board.failures:
                one_agent(whole, vm.name, board, vm.name in restarts, deadline, force)
    board.raise_failures()
    click.echo(f"{told.name} runs {whole.wheels.version}: the controller and {len(told.vms)} agents")


def one_agent(
    whole: BringUp, vm: str, board: HostBoard, restarts: bool, deadline_s: float, force: bool
) -> None:
    """Drain it, bring it up to date, let it be used again. Where that fails it stays drained."""
    drained = restarts and drain(whole, vm, board, deadline_s, force)
    try:
        asyncio.run(bring_up(dataclasses.replace(whole, only=(vm,)), board))
    finally:
        if drained and board.failures:
            click.echo(f"{vm} stays drained: `headgate uncordon {vm}` once it is well", err=True)
    if drained and not board.failures:
        asked(contact_of(whole.hosts, whole.keys), "uncordon", {"vms": [vm]})


def drain(whole: BringUp, vm: str, board: HostBoard, deadline_s: float, force: bool) -> bool:
    """Is it drained, so that it has to be uncordoned? Raises what `headgate drain` does, but where forced."""
    contact = contact_of(whole.hosts, whole.keys)
    if answering(whole)["topology"] is None:
        return False
    host = next(one.on.host for one in whole.hosts.vms if one.name == vm)
    board.step(host, f"drain {vm}")
    try:
        asked(contact, "drain", {"vms": [vm]})
    except CommandRefused as error:
        if not force:
            raise
        board.step(host, f"{vm} is not drained: {error.what}")
        return False
    until_drained(contact, (vm,), deadline_s)
    return True


def restarting(whole: BringUp) -> frozenset[str]:
    """VMs whose agents would be started again."""
    found = asyncio.run(bring_up(dataclasses.replace(whole, dry=True), HostBoard(quiet=True)))
    services = {
        name for steps in found.steps.values() for one in steps if one.is_restart for name in one.names
    }
    return frozenset(vm.name for vm in whole.hosts.vms if agent_name(vm.name) in services)


def refuse_undrained(whole: BringUp, vms: frozenset[str]) -> None:
    """Before anything is changed. Raises Conflict where a VM could not be drained, each by itself."""
    try:
        status = asked(contact_of(whole.hosts, whole.keys), "status")
    except Unreachable:
        return  # a controller that does not answer is what an upgrade may be there to mend
    known = {vm["vm"] for vm in status["vms"]}
    faults = []
    for vm in sorted(vms & known) if status["topology"] is not None else ():
        try:
            asked(contact_of(whole.hosts, whole.keys), "drain", {"vms": [vm], "check": True})
        except CommandRefused as error:
            if error.code == UsageError.code:
                return  # it is of before there was such a command; once it is upgraded it says so itself
            faults.append(f"{vm}: {error.what}{f' ({error.cause})' if error.cause else ''}")
    if faults:
        raise Conflict(
            "nothing was changed: agents could not be drained while a topology runs",
            faults=faults,
            hint="add a VM (`headgate cluster add`), or --force: what they had is sent again, as after a loss",
        )


def answering(whole: BringUp) -> Mapping[str, Any]:
    """What the controller tells, once it has come back and heard of all VMs. Raises Unreachable."""
    names, until = {vm.name for vm in whole.hosts.vms}, time.monotonic() + REGISTERED_S
    while True:
        try:
            status: Mapping[str, Any] = asked(contact_of(whole.hosts, whole.keys), "status")
        except Unreachable:
            if time.monotonic() > until:
                raise
        else:
            joined = {vm["vm"] for vm in status["vms"] if vm["state"] == "joined"}
            if names <= joined or time.monotonic() > until:
                return status
        time.sleep(LOOK_S)
