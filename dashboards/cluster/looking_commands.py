"""`headgate cluster status`, `logs`, `exec`: what runs where. They change nothing, and wait for nobody's lock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from headgate.dashboards.cluster.bringing_up import contact_of
from headgate.dashboards.cluster.host_board import HostBoard, all_linked, on_each
from headgate.dashboards.cluster.host_facts import HostFacts
from headgate.dashboards.cluster.host_failures import HostFailed
from headgate.dashboards.cluster.host_links import LONG_S, HostLink, see_command
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.cluster.services import CONTROLLER, agent_name
from headgate.dashboards.cluster.surveying import is_running, read_hosts, survey
from headgate.dashboards.cluster.up_command import hosts_argument, told_hosts
from headgate.dashboards.cluster.wanting import ClusterKeys, asked_for
from headgate.dashboards.terminal.connection import asked
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.output import Format, emit, format_options

SCHEMA = "headgate/cluster-status/v1"
LINES = 50


@click.command()
@hosts_argument
@format_options
def status(hosts: Path, output: Format) -> None:
    """What runs on each host of HOSTS, in which version, and which agents the controller hears.

    Ends 100 and the number of hosts that do not answer, or on which something does not run.
    """
    told, board = read_hosts(hosts), HostBoard(quiet=True)
    with board:
        facts = asyncio.run(_facts(told, board))
    control = facts.get(told.controller.on.host)
    runs = control is not None and is_running(control.services.get(CONTROLLER))
    heard, trouble = _heard(told) if runs else ({}, "it does not run")
    rows = [
        row for on in told.hosts() if on.host in facts for row in _rows(told, on.host, facts[on.host], heard)
    ]
    _judge(told, rows, board)
    document = {"schema": SCHEMA, "cluster": told.name, "controller": trouble or "answers", "services": rows}
    emit(output, document, rows)
    if trouble and output == "table":
        click.echo(f"the controller does not answer: {trouble}", err=True)
    board.raise_failures()


async def _facts(hosts: ClusterHosts, board: HostBoard) -> dict[str, HostFacts]:
    async with all_linked(hosts.hosts(), board) as links:
        return await survey(hosts, links, board, asked_for(hosts))


def _heard(hosts: ClusterHosts) -> tuple[dict[str, str], str]:
    """(each VM's state as the controller has it, why it cannot be asked)."""
    try:
        found: dict[str, Any] = asked(contact_of(hosts, ClusterKeys(hosts.name)), "status")
    except HeadgateError as error:
        return {}, error.what
    return {vm["vm"]: vm["state"] for vm in found["vms"]}, ""


def _rows(hosts: ClusterHosts, host: str, facts: HostFacts, heard: dict[str, str]) -> list[dict[str, Any]]:
    states = {agent_name(vm): state for vm, state in heard.items()}
    rows: list[dict[str, Any]] = []
    for name, service in facts.services.items():
        rows.append(
            {
                "host": host,
                "service": name,
                "version": facts.current or None,
                "runs": service.running and service.pid > 0,
                "pid": service.pid or None,
                "restarts": service.restarts,
                "heard": None if name == CONTROLLER else states.get(name, "no"),
            }
        )
    return rows


def _judge(hosts: ClusterHosts, rows: list[dict[str, Any]], board: HostBoard) -> None:
    for row in rows:
        if not row["runs"] and row["host"] not in board.failures:
            on = next(on for on in hosts.hosts() if on.host == row["host"])
            see = see_command(on, f"tail {hosts.home(on)}/log/{row['service']}")
            what = f"{row['service']} does not run"
            board.fail(on.host, HostFailed(what, hint="headgate cluster up", see=see))


@click.command()
@told_hosts
@click.argument("names", nargs=-1)
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=LINES, show_default=True)
def logs(hosts: Path, names: tuple[str, ...], lines: int) -> None:
    """The last lines of the logs of NAMES: VMs of HOSTS, or `controller`; of all when none is named."""
    told, board = read_hosts(hosts), HostBoard(quiet=True)
    known = {CONTROLLER: told.controller.on, **{vm.name: vm.on for vm in told.vms}}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)}: no such VM in {hosts}", hint=", ".join(known))
    chosen = names or tuple(known)

    async def look() -> None:
        async with all_linked({known[name].host: known[name] for name in chosen}.values(), board) as links:
            await survey(told, links, board, {})

            async def of(link: HostLink) -> None:
                for name in (one for one in chosen if known[one].host == link.on.host):
                    service = name if name == CONTROLLER else agent_name(name)
                    text = (await link.ask("logs", service=service, lines=lines))["text"]
                    click.echo("".join(f"{name} | {line}\n" for line in text.splitlines()), nl=False)

            await on_each(links, board, of)

    with board:
        asyncio.run(look())
    board.raise_failures()


@click.command("exec", context_settings={"ignore_unknown_options": True})
@told_hosts
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(hosts: Path, command: tuple[str, ...]) -> None:
    """Run COMMAND on every host of HOSTS at once: `headgate cluster exec hosts.toml -- df -h`; as root where possible.

    Ends 100 and the number of hosts on which it failed.
    """
    told, board = read_hosts(hosts), HostBoard(quiet=True)

    async def run() -> None:
        async with all_linked(told.hosts(), board) as links:

            async def one(link: HostLink) -> None:
                done = await link.ask("exec", timeout_s=LONG_S, command=list(command))
                lines = done["text"].splitlines()
                click.echo("".join(f"{link.on.host} | {line}\n" for line in lines), nl=False)
                if done["exit_code"]:
                    raise link.failed(f"{command[0]} ended with exit code {done['exit_code']}")

            await on_each(links, board, one)

    with board:
        asyncio.run(run())
    board.raise_failures()
