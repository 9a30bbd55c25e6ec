"""`headgate cluster status`, `logs`, `exec`: what runs where. They change nothing, and wait for nobody's lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.dashboards.cluster.bring_up import ClusterKeys, contact_of
from headgate.dashboards.cluster.cluster_changes import hosts_argument, told_hosts
from headgate.dashboards.cluster.forwards import forwarding, run_forwards
from headgate.dashboards.cluster.host_changes import agent_name
from headgate.dashboards.cluster.host_facts import (
    CONTROLLER,
    HERE,
    HostFacts,
    HostFailed,
    HostFinding,
    HostsFailed,
    findings,
    lines_of,
    matrix,
    unreached,
)
from headgate.dashboards.cluster.host_links import (
    LONG_S,
    HostBoard,
    HostLink,
    all_linked,
    on_each,
    see_command,
)
from headgate.dashboards.cluster.host_survey import (
    PortsSeen,
    is_running,
    read_hosts,
    surveyed,
    try_ports,
)
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.runs.connection import asked
from headgate.topology_runtime.commands.output import Format, emit, format_options, write_table
from headgate.topology_runtime.errors import HeadgateError, InvalidInput

STATUS_SCHEMA = "headgate/cluster-status/v1"
LINES = 50


@click.command()
@hosts_argument
@format_options
def status(hosts: Path, output: Format) -> None:
    """What runs on each host of HOSTS, in which version, and which agents the controller hears.

    Ends 100 and the number of hosts that do not answer, or on which something does not run.
    """
    told, board = read_hosts(hosts), HostBoard(quiet=True)
    facts = board.run(_facts(told, board))
    control = facts.get(told.controller.on.host)
    runs = control is not None and is_running(control.services.get(CONTROLLER))
    heard, trouble = _heard(told) if runs else ({}, "it does not run")
    rows = [
        row for on in told.hosts() if on.host in facts for row in _rows(told, on.host, facts[on.host], heard)
    ]
    _judge(told, rows, board)
    document = {
        "schema": STATUS_SCHEMA,
        "cluster": told.name,
        "controller": trouble or "answers",
        "services": rows,
    }
    emit(output, document, rows)
    if trouble and output == "table":
        click.echo(f"the controller does not answer: {trouble}", err=True)
    board.raise_failures()


async def _facts(hosts: ClusterHosts, board: HostBoard) -> dict[str, HostFacts]:
    async with surveyed(hosts, board) as (_, facts):
        return facts


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
        only = {known[name].host: known[name] for name in chosen}
        async with surveyed(told, board, only=only.values()) as (links, _):

            async def of(link: HostLink) -> None:
                for name in (one for one in chosen if known[one].host == link.on.host):
                    service = name if name == CONTROLLER else agent_name(name)
                    text = (await link.ask("logs", service=service, lines=lines))["text"]
                    click.echo("".join(f"{name} | {line}\n" for line in text.splitlines()), nl=False)

            await on_each(links, board, of)

    board.run(look())
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

    board.run(run())
    board.raise_failures()


@click.command()
@hosts_argument
def forward(hosts: Path) -> None:
    """Hold the forwards of HOSTS, which reach each other through ssh alone (only_ssh = true), until Ctrl-C.

    `up` starts it by itself beside your commands; this is for a service of your own, on a machine that stays up. One
    machine holds them: `headgate cluster down`, or the end of this, lets them go."""
    told = read_hosts(hosts)
    if not told.only_ssh:
        raise InvalidInput(
            f"{hosts} needs no forwards", hint="only_ssh = true makes hosts reach each other by ssh"
        )
    run_forwards(told)


# ── `headgate cluster check`: would `up` do on these hosts, and do they reach each other? Nothing is
# changed there

CHECK_SCHEMA = "headgate/cluster-check/v1"


@click.command()
@click.argument("hosts", type=click.Path(path_type=Path), default="hosts.toml")
@format_options
def check(hosts: Path, output: Format) -> None:
    """Look at all hosts of HOSTS (hosts.toml) at once: Python, control groups, clock, disk, root, ports between them.

    Ends 0 when `headgate cluster up` may begin; else 100 and the number of hosts that something is wrong with.
    """
    asked = read_hosts(hosts)
    board = HostBoard(quiet=output != "table")
    facts, seen = board.run(_looked(asked, board))
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
    async with surveyed(hosts, board) as (links, facts), forwarding(hosts) as without:
        for host, why in without.items():
            if host not in board.failures:
                board.fail(host, HostFailed(f"its ports are not forwarded: {why}"))
        seen = await try_ports(hosts, links, board, {h: one for h, one in facts.items() if h not in without})
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
        "schema": CHECK_SCHEMA,
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
