"""`headgate cluster remove`, `down`: takes away what `up` has made."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import click

from headgate.dashboards.cluster.bringing_up import contact_of, hold
from headgate.dashboards.cluster.drain_command import check_names
from headgate.dashboards.cluster.host_board import HostBoard, all_linked, on_each
from headgate.dashboards.cluster.host_links import LONG_S, HostLink
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.cluster.services import CONTROLLER, agent_name
from headgate.dashboards.cluster.surveying import read_hosts, survey
from headgate.dashboards.cluster.up_command import hosts_argument, told_hosts
from headgate.dashboards.cluster.wanting import ClusterKeys, asked_for, cluster_folder
from headgate.dashboards.terminal import contexts
from headgate.dashboards.terminal.connection import asked
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.keys.keyring import TRUST

KEPT = "traces"
ENDING = ("ending", "draining", "settling", "leaving", "over")  # stages of a run that was stopped
ENDING_MOST_S = 60.0


@click.command()
@hosts_argument
@click.option("--traces", is_flag=True, help="Traces of runs too; else they stay on the controller's host.")
@click.option("--force", is_flag=True, help="Also while a topology runs.")
def down(hosts: Path, traces: bool, force: bool) -> None:
    """Stop the agents and the controller of HOSTS, and take away all that `up` has made there and here."""
    asked_hosts, board = read_hosts(hosts), HostBoard()
    if not force:
        refuse_running(asked_hosts)
    with board:
        asyncio.run(_down(asked_hosts, traces, board))
    if not board.failures:
        shutil.rmtree(cluster_folder(asked_hosts.name), ignore_errors=True)
        contexts.forget(asked_hosts.name)
        click.echo(
            f"{asked_hosts.name} is down: nothing of it runs" + ("" if traces else ", its traces stay")
        )
    board.raise_failures()


def refuse_running(hosts: ClusterHosts) -> None:
    """Raises Conflict while a topology runs; one that was stopped is waited for. A controller that cannot be asked runs
    none that could be saved."""
    until, told = time.monotonic() + ENDING_MOST_S, False
    while True:
        try:
            status = asked(contact_of(hosts, ClusterKeys(hosts.name)), "status")
        except HeadgateError:
            return
        if status["topology"] is None:
            return
        if status["stage"] not in ENDING or time.monotonic() > until:
            raise Conflict(f"a topology runs: {status['topology']}", hint="headgate stop, or --force")
        if not told:
            click.echo(f"{status['topology']} was stopped and ends: it is waited for", err=True)
        told = True
        time.sleep(0.3)


async def _down(hosts: ClusterHosts, traces: bool, board: HostBoard) -> None:
    async with all_linked(hosts.hosts(), board) as links:
        await hold(hosts, links, "cluster down", board)
        facts = await survey(hosts, links, board, asked_for(hosts))
        there = {host: links[host] for host in facts if host not in board.failures}

        async def stop(link: HostLink) -> None:
            """Agents, and whatever else is kept there in the cluster's name; the controller comes last."""
            known = facts[link.on.host]
            for name in sorted({*known.services, *known.others} - {CONTROLLER}):
                board.step(link.on.host, f"stop {name}")
                await link.ask("stop", timeout_s=LONG_S, service=name)

        await on_each(there, board, stop)
        controller = hosts.controller.on.host
        if controller in there and controller not in board.failures:
            board.step(controller, "stop the controller")
            await on_each(
                {controller: there[controller]}, board, lambda link: link.ask("stop", service=CONTROLLER)
            )

        async def clear(link: HostLink) -> None:
            board.step(link.on.host, "take everything away")
            await link.ask("clear", timeout_s=LONG_S, keep=[] if traces else [KEPT])
            board.step(link.on.host, "nothing is left")

        await on_each({h: link for h, link in there.items() if h not in board.failures}, board, clear)


@click.command()
@told_hosts
@click.argument("vms", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also where the plan in force has threads there.")
def remove(hosts: Path, vms: tuple[str, ...], force: bool) -> None:
    """Stop the agents of VMS, take away what `up` has made there, and revoke their keys."""
    asked_hosts, board = read_hosts(hosts), HostBoard()
    check_names(asked_hosts, hosts, vms)
    keys = ClusterKeys(asked_hosts.name)
    if not force:
        refuse_used(asked_hosts, keys, vms)
    with board:
        asyncio.run(_remove(asked_hosts, vms, keys, board))
    board.raise_failures()
    click.echo(f"removed: {', '.join(vms)}. Take them out of {hosts}, or the next `up` brings them back")


def refuse_used(hosts: ClusterHosts, keys: ClusterKeys, vms: tuple[str, ...]) -> None:
    """Raises Conflict when threads of the plan in force are there."""
    status = asked(contact_of(hosts, keys), "status")
    used = {vm["vm"] for vm in status["vms"] if any(slot["threads"] for slot in vm["slots"])}
    if used & set(vms):
        raise Conflict(
            f"threads run on {', '.join(sorted(used & set(vms)))}",
            hint="`headgate cluster drain` moves them; --force: they go on elsewhere, as after a loss",
        )


async def _remove(hosts: ClusterHosts, vms: tuple[str, ...], keys: ClusterKeys, board: HostBoard) -> None:
    going = [vm for vm in hosts.vms if vm.name in vms]
    needed = {on.host: on for on in (hosts.controller.on, *(vm.on for vm in going))}
    async with all_linked(needed.values(), board) as links:
        await hold(hosts, links, f"cluster remove {' '.join(vms)}", board)
        await survey(hosts, links, board, {})
        if hosts.controller.on.host in board.failures:
            return
        for vm in going:
            try:
                keys.ring.revoke("agent", vm.name)
            except InvalidInput as error:
                board.step(vm.on.host, str(error.what))
        controller = links[hosts.controller.on.host]
        await controller.ask("put", keys.content(TRUST), path=f"keys/{TRUST}", mode=0o600)

        async def clear(link: HostLink) -> None:
            host = link.on.host
            names = [agent_name(vm.name) for vm in going if vm.on.host == host]
            for name in names:
                board.step(host, f"stop {name}")
                await link.ask("stop", timeout_s=LONG_S, service=name)
            stays = host == hosts.controller.on.host or len(names) < len(hosts.vms_on(host))
            if stays:
                own = [path for vm in going for path in (f"{agent_name(vm.name)}.key", f"agents/{vm.name}")]
                await link.ask("remove", names=own)
            else:
                await link.ask("clear", timeout_s=LONG_S, keep=[])
            board.step(host, f"removed: {', '.join(names)}")

        on_hosts = {host: link for host, link in links.items() if any(vm.on.host == host for vm in going)}
        await on_each(on_hosts, board, clear)
