"""`headgate status`, `top` and `events`: what a running controller sees and wants, and what happened."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import click

from headgate.dashboards.runs.connection import asked, contact_of, controller_option, data_of
from headgate.dashboards.runs.live_view import NewLines, TerminalPicture, picture, tick_line
from headgate.dashboards.runs.run_tables import VIEWS, StatusReading
from headgate.dashboards.terminal.audit_shown import audited, show_audit
from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import (
    Format,
    Row,
    console,
    emit,
    emit_line,
    format_options,
    write_table,
)
from headgate.topology_runtime.errors import CheckFailed, HeadgateError, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Request
from headgate.topology_runtime.wire.wire_version import REMEDY
from headgate.topology_runtime.wording import counted

# Columns of the tasks' table that a narrow terminal does without, the first one first
SPARE = ("of slot", "load", "off model", "cores", "busy")


@click.command()
@controller_option
@click.option("--check", is_flag=True, help="End 8 unless the verdict is stable and there is no alarm.")
@click.option("--watch", is_flag=True, help="Show it again and again, until the run ends.")
@click.option("--every", "every_s", type=Number(0.1), metavar="SECONDS", help="With --watch: so often [1].")
@click.option("--seconds", type=Number(0, min_open=True), help="With --watch: end after so long.")
@format_options
def status(
    controller: str | None,
    check: bool,
    watch: bool,
    every_s: float | None,
    seconds: float | None,
    output: Format,
) -> None:
    """Show what the controller of a run sees: rates, verdict, plan, slots, tasks, alarms.

    Of a shared controller: its topologies; --controller WHERE/TOPOLOGY is one of them.

    As csv and jsonl: one row per slot. With --watch a picture on a terminal, a line per second elsewhere, and as
    json or jsonl one status per line.
    """
    if watch:
        watched(ticks(contact_of(controller), every_s or EVERY_TICK_S, seconds), output)
        return
    if every_s is not None or seconds is not None:
        raise UsageError("--every and --seconds need --watch", hint="headgate status --watch")
    found = status_of(controller)
    if found["schema"] == SHARED and output == "table" and not found["topologies"]:
        click.echo(empty_line(found))
        return
    if found["schema"] == SHARED:
        emit(output, found, topology_rows(found, wide=output != "table"))
        return
    if output == "table":
        print_status(found)
    else:
        emit(output, found, slot_rows(found))
    if check:
        check_stable(found)


SHARED = "headgate/topologies/v1"  # of a controller that several topologies share


IN_THE_TABLE = "topology", "stage", "priority", "needs", "gets", "slots", "usd_per_hour", "text"


def topology_rows(found: Mapping[str, Any], wide: bool) -> list[Row]:
    """A row per topology; `slots` are those that it has. wide: with all that is known."""
    rows: list[Row] = [{**one, "slots": " ".join(one["slots"])} for one in found["topologies"]]
    return rows if wide else [{name: row[name] for name in IN_THE_TABLE} for row in rows]


def empty_line(found: Mapping[str, Any]) -> str:
    """Of a shared controller that no topology was given to."""
    there = f"{counted(found['slots'], 'slot')} on {counted(len(found['vms']), 'VM')}"
    return f"no topology was submitted yet; {there}: `headgate submit FILE:FLOW`"


def status_of(controller: str | None) -> dict[str, Any]:
    """Raises Unreachable, of a run that has ended with what is left of it and open."""
    try:
        found: dict[str, Any] = asked(controller, "status")
    except Unreachable as error:
        from headgate.dashboards.up.ended_run import has_ended

        raise has_ended(controller) or error from error
    return found


def check_stable(found: Mapping[str, Any]) -> None:
    """Raises CheckFailed unless the verdict is `stable` and there is no alarm."""
    verdict = found.get("verdict") or {}
    word = verdict.get("verdict", "unknown")
    if word != "stable":
        raise CheckFailed(f"the topology is {word}", cause=verdict.get("text"), hint="`headgate explain`")
    alarms = [alarm["text"] for alarm in found.get("alarms") or ()]
    if alarms:
        raise CheckFailed(
            "the topology is stable, but there are alarms", faults=alarms, hint="`headgate events`"
        )


def slot_rows(found: Mapping[str, Any]) -> list[Row]:
    return [{"vm": vm["vm"], "vm_state": vm["state"], **slot} for vm in found["vms"] for slot in vm["slots"]]


def path_words(path: Mapping[str, Any]) -> str:
    ends = f"{path['path'][0]} → {'… → ' * (len(path['path']) > 2)}{path['path'][-1]} within {path['limit_ms']:g} ms"
    if path["most_ms"] is None:
        return f"{ends}: no rows yet"
    done = {
        "leave earlier": path["shortened"], "leave later": path["lengthened"], "threads are chained": path["chained"]
    }  # fmt: skip
    text = f"{ends}: {path['most_ms']:.1f} ms on the slowest way, {path['least_ms']:.1f} on the quickest"
    text += "".join(f"; {n} {'' if 'chained' in what else 'buffers '}{what}" for what, n in done.items() if n)
    return text + (f"\nnothing helps: {path['text']}" if path["standing"] == "helpless" else "")


def print_status(found: Mapping[str, Any]) -> None:
    """The picture of `up`, tasks, the last decision."""
    console(sys.stdout).print(picture(found, (), None))
    if found.get("tasks"):
        sys.stdout.write("\n")
        titles = [column.title for column in VIEWS[0].columns]
        rows = VIEWS[0].rows(StatusReading(found))
        write_table([dict(zip(titles, row, strict=True)) for row in rows], spare=SPARE)
    for path in found.get("paths") or ():
        sys.stdout.write(f"\n{path_words(path)}\n")
    for vm in found["vms"]:
        if vm.get("skew"):
            theirs, ours = (f"headgate {one['headgate']} (wire version {one['wire']})" for one in (vm, found))
            sys.stdout.write(f"\n{vm['vm']} runs {theirs}, the controller {ours}: {REMEDY}\n")
        if behind_ms := vm.get("clock_behind_ms"):
            off = (
                f"{abs(behind_ms) / 1000:,.3f} s {'behind' if behind_ms > 0 else 'ahead of'} the controller's"
            )
            sys.stdout.write(
                f"\nthe clock of {vm['vm']} is {off} (± {vm['clock_error_ms']:.1f} ms); it is corrected\n"
            )
    decision = found.get("last_decision")
    if decision:
        sys.stdout.write(
            f"\nlast decision, {decision['time']}: {decision.get('action')}: {decision.get('text')}\n"
        )


# ── `headgate status --watch`: a picture on a terminal, a line per tick elsewhere ───────────────────────

EVERY_TICK_S = 1.0


def watched(statuses: Iterator[dict[str, Any]], output: Format) -> None:
    if output in ("json", "jsonl"):
        for status in statuses:
            emit_line(status)
    elif output == "csv":
        raise UsageError("--watch has no csv", hint="headgate status --watch -o jsonl")
    elif sys.stdout.isatty():
        with closing(TerminalPicture(sys.stdout, None)) as screen:
            for status in statuses:
                screen.show(status)
    else:
        new = NewLines()
        for status in statuses:
            if new.take(line := tick_line(status), time.monotonic_ns()):
                click.echo(line)


def ticks(contact: Contact, every_s: float, seconds: float | None) -> Iterator[dict[str, Any]]:
    """Statuses until the run has ended. Raises Unreachable when there never was an answer."""
    yield asked(contact, "status")
    began = time.monotonic()
    while seconds is None or time.monotonic() - began + every_s <= seconds:
        time.sleep(every_s)
        try:
            yield asked(contact, "status")
        except Unreachable:
            click.echo(f"the controller at {contact.endpoint} has ended", err=True)
            return


# ── `headgate top`: a run on a whole terminal, with keys. Needs the extra `top` ─────────────────────────

ANSWER_S = 1.5  # then the picture is stale anyway
EVENTS_MOST, DECISIONS_MOST = 500, 100


@click.command()
@controller_option
def top(controller: str | None) -> None:
    """Watch tasks, slots, VMs, decisions and events of a run; keys sort, filter and freeze (? lists them).

    `headgate status --watch` is the same for logs and pipes."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "`headgate top` needs a terminal", hint="`headgate status --watch` or `headgate status -o json`"
        )
    try:
        from headgate.dashboards.terminal.top_app import Top
    except ModuleNotFoundError as error:
        raise missing(error) from error
    reader = StatusReader(contact_of(controller))
    reader.read()  # what is wrong is said before the screen is taken
    Top(reader.read_or_none, time.monotonic).run()


def missing(error: ModuleNotFoundError) -> UsageError:
    """The extra is not installed."""
    return UsageError(
        "`headgate top` needs Textual, which is not installed",
        cause=str(error),
        hint="pip install 'headgate[top]', or use `headgate status --watch`",
    )


class StatusReader:
    """Asks a controller for its status, its decisions, and the events since the last time."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_MOST)
        self._last = self._boot = 0

    def read(self) -> StatusReading:
        """Raises Unreachable, Refused."""
        status = self._ask("status")
        if status["boot"] != self._boot:  # a new life of the controller counts its events anew
            self._boot, self._last = status["boot"], 0
        told = self._ask("events", since=self._last)
        self._events += [event for event in told["events"] if event["number"] > self._last]
        self._last = max(self._last, told["last"])
        decisions = self._ask("explain", last=DECISIONS_MOST)["decisions"]
        return StatusReading(status, tuple(self._events), tuple(decisions))

    def read_or_none(self) -> StatusReading | None:
        """None while there is no answer, or a refusal."""
        try:
            return self.read()
        except HeadgateError:
            return None

    def _ask(self, command: str, **arguments: Any) -> Any:
        return data_of(ask(self._contact, Request(command, arguments), ANSWER_S))


# ── `headgate events`: what happened in a run, and with `-f` what happens ───────────────────────────────

EVERY_S = 0.5  # how old a followed event may be


@click.command()
@controller_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until the run ends.")
@click.option(
    "--since", type=click.IntRange(0), default=0, metavar="NUMBER", help="Only events after this one."
)
@click.option(
    "--audit", is_flag=True, help="Commands instead: who asked for what, when, and what came of it."
)
@format_options
def events(controller: str | None, follow: bool, since: int, audit: bool, output: Format) -> None:
    """List the events of a run: VMs that join and leave, plans, deaths of workers, dead letters, alarms.

    With --audit: the commands of operators, from a controller or from the state directory of one that does not run.
    Ends 8 when lines were changed or removed.
    """
    if audit:
        if follow:
            raise UsageError("--audit and -f exclude each other", hint="give one of them")
        show_audit(audited(controller), since, output)
        return
    contact = contact_of(controller)
    if follow:
        for event in following(contact, since):
            if output == "table":
                click.echo(line_of(event))
            else:
                emit_line(event)
        return
    found = asked(contact, "events", {"since": since})
    if output == "table":
        for event in found["events"]:
            click.echo(line_of(event))
    else:
        emit(output, found, found["events"])


def line_of(event: dict[str, Any]) -> str:
    return f"{event['time']}  {event['kind']:<16} {event['text']}"


def following(contact: Contact, since: int) -> Iterator[dict[str, Any]]:
    """Events as they come, until the controller is gone. Raises Unreachable when it never was there."""
    found = asked(contact, "events", {"since": since})
    while True:
        yield from found["events"]
        time.sleep(EVERY_S)
        try:
            found = asked(contact, "events", {"since": found["last"]})
        except Unreachable:
            click.echo(f"the controller at {contact.endpoint} has ended", err=True)
            return
