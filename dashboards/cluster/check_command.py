"""`headgate cluster check`: would `up` do on these hosts, and do they reach each other? Nothing is changed there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from headgate.dashboards.cluster.host_board import HostBoard, all_linked
from headgate.dashboards.cluster.host_facts import HostFacts, HostFinding, findings
from headgate.dashboards.cluster.host_failures import HostFailed, HostsFailed, lines_of
from headgate.dashboards.cluster.host_links import see_command
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.cluster.port_matrix import HERE, matrix, unreached
from headgate.dashboards.cluster.surveying import AskedFor, PortsSeen, read_hosts, survey, try_ports
from headgate.topology_runtime.output import Format, emit, format_options, write_table

SCHEMA = "headgate/cluster-check/v1"


@click.command()
@click.argument("hosts", type=click.Path(path_type=Path), default="hosts.toml")
@format_options
def check(hosts: Path, output: Format) -> None:
    """Look at all hosts of HOSTS (hosts.toml) at once: Python, control groups, clock, disk, root, ports between them.

    Ends 0 when `headgate cluster up` may begin; else 100 and the number of hosts that something is wrong with.
    """
    asked = read_hosts(hosts)
    board = HostBoard(quiet=output != "table")
    with board:
        facts, seen = asyncio.run(_looked(asked, board))
    found = [*findings(asked, facts), *seen.taken, *unreached(seen.reached, asked)]
    document = _document(asked, facts, found, seen, board)
    if output == "table":
        _print(document)
    else:
        emit(output, document, document["hosts"])
    bad = {one.host for one in found if one.level == "fault"} | board.failures.keys()
    if bad:
        faults = [one for one in found if one.level == "fault"]
        lines = [*lines_of(board.failures), *(fault_line(asked, one) for one in faults)]
        raise HostsFailed(
            f"{len(bad)} of {len(asked.hosts())} hosts cannot be used as they are", lines, len(bad)
        )


async def _looked(hosts: ClusterHosts, board: HostBoard) -> tuple[dict[str, HostFacts], PortsSeen]:
    async with all_linked(hosts.hosts(), board) as links:
        controller = hosts.controller.on.host
        facts = await survey(hosts, links, board, {controller: AskedFor(services=("controller",))})
        seen = await try_ports(hosts, links, board, facts)
    for host in facts:
        board.step(host, "looked at")
    return facts, seen


def fault_line(hosts: ClusterHosts, one: HostFinding) -> str:
    """A finding as one line, with the command that shows it."""
    on = next((on for on in hosts.hosts() if on.host == one.host), None)
    see = see_command(on, one.see) if on is not None and one.host != HERE else one.see
    return f"{one.host}: {HostFailed(one.what, hint=one.hint, see=see).line()}"


def _document(
    hosts: ClusterHosts,
    facts: dict[str, HostFacts],
    found: list[HostFinding],
    seen: PortsSeen,
    board: HostBoard,
) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for on in hosts.hosts():
        names = [vm.name for vm in hosts.vms_on(on.host)]
        roles = ["controller"] if on.host == hosts.controller.on.host else []
        told = facts[on.host].row() if on.host in facts else {}
        rows.append({"host": on.host, "is": ", ".join([*roles, *names]), **told})
    return {
        "schema": SCHEMA,
        "cluster": hosts.name,
        "hosts": rows,
        "ports": matrix(seen.reached),
        "failures": [
            {"host": host, "what": failure.what, "hint": failure.hint, "see": failure.see}
            for host, failure in board.failures.items()
        ],
        "findings": [
            {"host": one.host, "level": one.level, "what": one.what, "hint": one.hint, "see": one.see}
            for one in found
        ],
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """The clock in one column."""
    rest = {key: value for key, value in row.items() if not key.startswith("clock_")}
    clock = f"{row['clock_ms']:g} ± {row['clock_error_ms']:g}" if "clock_ms" in row else None
    return {**rest, "clock ms": clock}


def _print(document: dict[str, Any]) -> None:
    write_table([_short(row) for row in document["hosts"]])
    if document["ports"]:
        click.echo()
        write_table(document["ports"], "who reaches whom")
    for one in document["findings"]:
        if one["level"] == "warning":
            click.echo(f"{one['host']}: {one['what']} · try: {one['hint']}")
