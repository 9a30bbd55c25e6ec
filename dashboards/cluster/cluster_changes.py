"""`headgate cluster up`, `add`: from bare hosts to a running cluster; run again, what differs is changed, no more."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from headgate.dashboards.cluster.bring_up import (
    REGISTERED_S,
    BringUp,
    BroughtUp,
    ClusterKeys,
    bring_up,
    contact_of,
)
from headgate.dashboards.cluster.cluster_runs import ClusterRun, drain_all, running_of, runs_of
from headgate.dashboards.cluster.forwards import cluster_folder, let_go
from headgate.dashboards.cluster.host_changes import MODE, agent_name
from headgate.dashboards.cluster.host_facts import CONTROLLER
from headgate.dashboards.cluster.host_links import HostBoard, HostStep, steps_on_each
from headgate.dashboards.cluster.host_survey import read_hosts, surveyed
from headgate.dashboards.cluster.hosts_file import ClusterHosts
from headgate.dashboards.cluster.wheels import wheel_set
from headgate.dashboards.runs import connection as contexts
from headgate.dashboards.runs.connection import CommandRefused, asked
from headgate.dashboards.terminal.operate_commands import deadline_option, force_option, until_drained
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.keyring import TRUST, read_key
from headgate.topology_runtime.platform.clock import monotonic_ns

F = TypeVar("F", bound=Callable[..., Any])

hosts_argument = click.argument("hosts", type=click.Path(path_type=Path), default="hosts.toml")
told_hosts = click.argument("hosts", type=click.Path(path_type=Path))


def installing(command: F) -> F:
    """Options of what is installed from where."""
    command = click.option(
        "--dry-run", "dry", is_flag=True, help="Show what would be done, as a diff, and do nothing."
    )(command)
    command = setting(
        "--wheelhouse",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Folder of wheels of all that headgate needs (and of pip): copied to the hosts, no index is asked.",
    )(command)
    return setting(
        "--wheel",
        type=click.Path(path_type=Path, dir_okay=False),
        help="headgate's own wheel [built from the tree that this headgate runs from].",
    )(command)


@click.command(cls=SettingsCommand)
@hosts_argument
@installing
def up(hosts: Path, wheel: Path | None, wheelhouse: Path | None, dry: bool) -> None:
    """Install headgate on all hosts of HOSTS (hosts.toml), start the controller and an agent per VM, wait until all are
    registered, and let commands speak to this cluster.

    Run again, it changes what differs and no more. Ends 100 and the number of hosts that failed; the others go on.
    """
    asked = read_hosts(hosts)
    brought(BringUp(asked, wheel_set(wheel, wheelhouse), ClusterKeys(asked.name, dry), "cluster up", dry))


@click.command(cls=SettingsCommand)
@told_hosts
@click.argument("vms", nargs=-1, required=True)
@installing
def add(hosts: Path, vms: tuple[str, ...], wheel: Path | None, wheelhouse: Path | None, dry: bool) -> None:
    """Bring up the VMS of HOSTS and leave all others alone: a running controller learns of them when they register."""
    asked = read_hosts(hosts)
    check_names(asked, hosts, vms)
    keys = ClusterKeys(asked.name, dry)
    brought(BringUp(asked, wheel_set(wheel, wheelhouse), keys, f"cluster add {' '.join(vms)}", dry, vms))


def brought(up: BringUp) -> None:
    """Do it, and say what came of it. Raises HostsFailed."""
    began_ns, board = monotonic_ns(), HostBoard(quiet=up.dry)
    found = board.run(bring_up(up, board))
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
    if done := sum(map(len, found.steps.values())):
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
    known = contexts.KnownController(endpoint, read_key(up.keys.operator()), up.hosts.only_ssh)
    contexts.remember(up.hosts.name, known)


# ── `headgate cluster drain`: what runs on some VMs moves to the others, for as long as somebody works at
# their hosts


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
    runs, until = drain_all(contact, list(vms), force), time.monotonic() + deadline
    for run in runs if deadline > 0 else ():
        until_drained(run.contact, vms, until - time.monotonic())
    words = "drained: nothing is left there" if deadline > 0 else "draining"
    click.echo(f"{', '.join(vms)}: {words}. {_used_again(told, vms, runs)}")


def _used_again(told: ClusterHosts, vms: tuple[str, ...], runs: list[ClusterRun]) -> str:
    names = " ".join(vms)
    if not told.controller.shared:
        return f"`headgate uncordon {names}` lets them be used again"
    each = [f"`headgate uncordon {names} --controller {told.name}/{run.topology}`" for run in runs]
    return f"{', '.join(each)}: so they are used again" if each else "nothing runs"


def check_names(told: ClusterHosts, hosts: Path, vms: tuple[str, ...]) -> None:
    """Raises InvalidInput for a VM that the file does not name."""
    unknown = [name for name in vms if name not in {vm.name for vm in told.vms}]
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)}: no such VM in {hosts}", hint="write it there first: [[vm]]"
        )


# ── `headgate cluster remove`, `down`: takes away what `up` has made ────────────────────────────────────

KEPT = "traces"
ENDING = ("ending", "draining", "settling", "leaving", "over")  # stages of a run that was stopped
ENDING_MOST_S = 60.0


@click.command()
@hosts_argument
@click.option(
    "--with-traces",
    "traces",
    is_flag=True,
    help="Traces of runs too; else they stay on the controller's host.",
)
@click.option("--force", is_flag=True, help="Also while a topology runs.")
def down(hosts: Path, traces: bool, force: bool) -> None:
    """Stop the agents and the controller of HOSTS, and take away all that `up` has made there and here."""
    asked_hosts, board = read_hosts(hosts), HostBoard()
    if not force:
        refuse_running(asked_hosts)
    board.run(_down(asked_hosts, traces, board))
    if not board.failures:
        let_go(asked_hosts)
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
        if not (names := ", ".join(running_of(status))):
            return
        stages = {one["stage"] for one in status.get("topologies", [status])} - {"over"}
        if not stages <= {*ENDING} or time.monotonic() > until:
            raise Conflict(f"a topology runs: {names}", hint="headgate stop, or --force")
        if not told:
            click.echo(f"{names} was stopped and ends: it is waited for", err=True)
        told = True
        time.sleep(0.3)


async def _down(hosts: ClusterHosts, traces: bool, board: HostBoard) -> None:
    async with surveyed(hosts, board, "cluster down") as (links, facts):
        there = {host: links[host] for host in facts}
        control = {host: link for host, link in there.items() if host == hosts.controller.on.host}

        def agents(host: str) -> list[HostStep]:
            """And whatever else is kept there in the cluster's name; the controller comes last."""
            names = {*facts[host].services, *facts[host].others} - {CONTROLLER}
            return [stopping(name) for name in sorted(names)]

        clear = HostStep("take everything away", "clear", {"keep": [] if traces else [KEPT]})
        await steps_on_each(there, board, agents)
        await steps_on_each(control, board, lambda _: [stopping(CONTROLLER)])
        await steps_on_each(there, board, lambda _: [clear])


def stopping(service: str) -> HostStep:
    return HostStep(f"stop {service}", "stop", {"service": service})


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
    board.run(_remove(asked_hosts, vms, keys, board))
    board.raise_failures()
    click.echo(f"removed: {', '.join(vms)}. Take them out of {hosts}, or the next `up` brings them back")


def refuse_used(hosts: ClusterHosts, keys: ClusterKeys, vms: tuple[str, ...]) -> None:
    """Raises Conflict when threads of the plan in force are there."""
    used = {vm for run in runs_of(contact_of(hosts, keys)) for vm in run.threads_on()}
    if used & set(vms):
        raise Conflict(
            f"threads run on {', '.join(sorted(used & set(vms)))}",
            hint="`headgate cluster drain` moves them; --force: they go on elsewhere, as after a loss",
        )


async def _remove(hosts: ClusterHosts, vms: tuple[str, ...], keys: ClusterKeys, board: HostBoard) -> None:
    going, control = [vm for vm in hosts.vms if vm.name in vms], hosts.controller.on
    needed = {on.host: on for on in (control, *(vm.on for vm in going))}
    async with surveyed(hosts, board, f"cluster remove {' '.join(vms)}", needed.values()) as (links, _):
        if control.host not in board.failures:
            for vm in going:
                try:
                    keys.ring.revoke("agent", vm.name)
                except InvalidInput as error:
                    board.step(vm.on.host, str(error.what))
            trust = {"path": f"keys/{TRUST}", "mode": MODE}
            revoke = HostStep("revoke keys", "put", trust, keys.content(TRUST))
            await steps_on_each({control.host: links[control.host]}, board, lambda _: [revoke])
        if control.host in board.failures:
            return

        def steps(host: str) -> Iterator[HostStep]:
            names = [agent_name(vm.name) for vm in going if vm.on.host == host]
            yield from map(stopping, names)
            if host == control.host or len(names) < len(hosts.vms_on(host)):
                own = [path for vm in going for path in (f"{agent_name(vm.name)}.key", f"agents/{vm.name}")]
                yield HostStep(f"remove {', '.join(names)}", "remove", {"names": own})
            else:
                yield HostStep("take everything away", "clear", {"keep": []})

        theirs = {vm.on.host for vm in going}
        await steps_on_each({host: link for host, link in links.items() if host in theirs}, board, steps)


# ── `headgate cluster upgrade`: another version, host after host, each only when the one before is well ───

LOOK_S = 0.2


@click.command(cls=SettingsCommand)
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
        staged = asyncio.run(bring_up(dataclasses.replace(whole, staged=True), board))
        board.raise_failures()
        again = {name for step in staged.restarts for name in step.names}
        restarts = frozenset(vm.name for vm in told.vms if agent_name(vm.name) in again)
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
    drained = restarts and drain_for_upgrade(whole, vm, board, deadline_s, force)
    try:
        asyncio.run(bring_up(dataclasses.replace(whole, only=(vm,)), board))
    finally:
        if drained and board.failures:
            click.echo(f"{vm} stays drained: `headgate uncordon {vm}` once it is well", err=True)
    if drained and not board.failures:
        for run in runs_of(contact_of(whole.hosts, whole.keys)):
            asked(run.contact, "uncordon", {"vms": [vm]})


def drain_for_upgrade(whole: BringUp, vm: str, board: HostBoard, deadline_s: float, force: bool) -> bool:
    """Is it drained, so that it has to be uncordoned? Raises what `headgate drain` does, but where forced."""
    contact = contact_of(whole.hosts, whole.keys)
    if not running_of(answering(whole)):
        return False
    host = next(one.on.host for one in whole.hosts.vms if one.name == vm)
    board.step(host, f"drain {vm}")
    try:
        runs = drain_all(contact, [vm])
    except CommandRefused as error:
        if not force:
            raise
        board.step(host, f"{vm} is not drained: {error.what}")
        return False
    for run in runs:
        until_drained(run.contact, (vm,), deadline_s)
    return bool(runs)


def refuse_undrained(whole: BringUp, vms: frozenset[str]) -> None:
    """Before anything is changed. Raises Conflict where a VM could not be drained, each by itself."""
    try:
        runs = runs_of(contact_of(whole.hosts, whole.keys))
    except Unreachable:
        return  # a controller that does not answer is what an upgrade may be there to mend
    faults = []
    pairs = [(run, vm) for run in runs for vm in sorted(vms & {one["vm"] for one in run.status["vms"]})]
    for run, vm in pairs:
        try:
            asked(run.contact, "drain", {"vms": [vm], "check": True})
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
            starting = any(one["stage"] == "starting" for one in status.get("topologies", ()))
            if (names <= joined and not starting) or time.monotonic() > until:
                return status
        time.sleep(LOOK_S)
