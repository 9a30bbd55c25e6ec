"""`headgate logs`: what the tasks of a run printed and logged, live and past."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import click

from headgate.dashboards.runs.connection import asked, contact_of, controller_option
from headgate.dashboards.runs.run_places import RUNS
from headgate.dashboards.runs.task_lines import Line, lines_of, lines_of_slots
from headgate.dashboards.terminal.history_commands import newest_trace
from headgate.topology_runtime.commands.output import FILE, Format, emit, emit_line, format_options
from headgate.topology_runtime.errors import InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.traces.trace_tables import RUN_FILE
from headgate.topology_runtime.wire.output_messages import is_of, line_words
from headgate.topology_runtime.wording import did_you_mean, utc_iso, utc_ns

SCHEMA = "headgate/logs/v1"
NS = 1_000_000_000
LAST_LINES, PAGE_LINES = 200, 1_000
EVERY_S = 0.5  # how old a followed line may be
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SINCE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


@click.command()
@click.argument("who", metavar="[TASK|TASK/THREAD|VM|VM/SLOT]", required=False, default="")
@controller_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed, until the run ends.")
@click.option(
    "--since", metavar="5m|TIME", help="Only lines of the last 30s, 5m, 2h or 1d, or since a time (UTC)."
)
@click.option("--last", type=click.IntRange(1), help=f"So many lines [{LAST_LINES}; with --since: all].")
@click.option("--trace", type=FILE, help="Of a run that is over: its trace.")
@format_options
def logs(
    who: str,
    controller: str | None,
    follow: bool,
    since: str | None,
    last: int | None,
    trace: Path | None,
    output: Format,
) -> None:
    """Show what tasks print and log, with warnings and tracebacks: a line begins with its task and thread.

    Of a run that goes on; without one, of the newest below ./traces. What C code and processes of tasks write has the
    slot in front (vm1/0 | …). A TIME is like 2026-01-31T12:00:00Z.
    """
    began = _ago(since) if since is not None else 0
    last = last or (10**9 if since is not None else LAST_LINES)
    if trace is None:
        try:
            contact = contact_of(controller)
            if follow:
                return _follow(contact, who, began, last, output)
            run, lines = _live(contact, who, began, last)
            return _print(run, lines, output)
        except Unreachable:
            trace = newest_trace()
            if controller is not None or trace is None:
                raise
            click.echo(f"no controller is running; this is from {trace}", err=True)
    if follow:
        raise UsageError(
            "-f needs a run that goes on", cause=f"{trace} is over", hint="headgate logs without -f"
        )
    _print(trace.name, _past(trace, who, since, last), output)


def _ago(since: str) -> int:
    """When that was (UTC, ns). Raises UsageError."""
    if span_ns := _span_ns(since):
        return time.time_ns() - span_ns
    try:
        at = datetime.fromisoformat(since)
    except ValueError as error:
        raise UsageError(
            f"--since: {since!r} is neither a span nor a time",
            hint="for example --since 5m, --since 2026-01-31T12:00:00Z",
        ) from error
    return utc_ns((at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat())


def _span_ns(since: str) -> int:
    found = SINCE.fullmatch(since)
    return int(float(found[1]) * UNITS[found[2]] * NS) if found is not None else 0


# ── of a run that goes on ───────────────────────────────────────────────────────────────────────


def _live(contact: Contact, who: str, began_ns: int, last: int) -> tuple[str, list[Line]]:
    status = asked(contact, "status")
    _check(who, [task["task"] for task in status.get("tasks") or ()], [vm["vm"] for vm in status["vms"]])
    lines, _ = _newest(contact, who, began_ns, last)
    return status["run"], lines


def _newest(contact: Contact, who: str, began_ns: int, last: int) -> tuple[list[Line], int]:
    """The lines that the controller still has, and the number of the last one."""
    lines, found = list[Line](), {"last": 1}
    while True:
        found = asked(contact, "logs", {"after": found["last"], "who": who, "since_ns": began_ns})
        lines += found["lines"]
        if len(found["lines"]) < PAGE_LINES:
            return lines[-last:], found["last"]


def _follow(contact: Contact, who: str, began_ns: int, last: int, output: Format) -> None:
    if output == "csv":
        raise UsageError("-f has no csv", hint="headgate logs -f -o jsonl")
    status = asked(contact, "status")
    _check(who, [task["task"] for task in status.get("tasks") or ()], [vm["vm"] for vm in status["vms"]])
    lines, number = _newest(contact, who, began_ns, last)
    while True:
        for line in lines:
            if output == "table":
                click.echo(_words(line))
            else:
                emit_line(line)
        if len(lines) < PAGE_LINES:
            time.sleep(EVERY_S)
        try:
            found = asked(contact, "logs", {"after": number, "who": who})
        except Unreachable:
            click.echo(f"the controller at {contact.endpoint} has ended", err=True)
            return
        lines, number = found["lines"], found["last"]


# ── of a run that is over ───────────────────────────────────────────────────────────────────────


def _past(trace: Path, who: str, since: str | None, last: int) -> Iterable[Line]:
    """A span of time ends with the run."""
    run = trace / RUN_FILE
    if not run.exists():
        raise InvalidInput(
            f"{trace} is no trace of a run", cause=f"there is no {RUN_FILE} in it", hint="headgate history"
        )
    mine = deque(_matching(trace, who), maxlen=last)
    if who and not mine:
        tasks = [task["name"] for task in json.loads(run.read_bytes())["topology"]["tasks"]]
        _check(who, tasks, {line["vm"] for line in lines_of(trace)})
    if since is None or not mine:
        return mine
    span_ns = _span_ns(since)
    began = utc_iso(utc_ns(mine[-1]["time"]) - span_ns if span_ns else _ago(since))
    return [line for line in mine if line["time"] >= began]


def _matching(trace: Path, who: str) -> Iterator[Line]:
    there = lines_of(trace)
    first = next(there, None)
    lines = chain((first,), there) if first is not None else lines_of_slots(RUNS / trace.name)
    return (line for line in lines if is_of(line, who))


# ── ─────────────────────────────────────────────────────────────────────────────────────────────


def _check(who: str, tasks: Iterable[str], vms: Iterable[str]) -> None:
    """Raises UsageError when nothing is called so."""
    name, known = who.partition("/")[0], sorted({*tasks, *vms})
    if who and name not in known:
        raise UsageError(
            f"no task or VM is called {name!r}{did_you_mean(name, known)}",
            hint=f"there are {', '.join(known)}",
        )


def _print(run: str, lines: Iterable[Line], output: Format) -> None:
    if output == "table":
        for line in lines:
            click.echo(_words(line))
    else:
        rows = list(lines)
        emit(output, {"schema": SCHEMA, "run": run, "lines": rows}, rows)


def _words(line: Line) -> str:
    return f"{line['time'][:23].replace('T', ' ')}  {line_words(line)}"
