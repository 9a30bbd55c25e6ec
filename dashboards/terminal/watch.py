"""`headgate watch`: status, again and again. A picture on a terminal, a line per tick elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.dashboards.terminal.live_view import tick_line
from headgate.dashboards.up.screens import TerminalPicture
from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit_line, format_options


@click.command()
@controller_option
@click.option(
    "--every", "every_s", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS"
)
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="End after so long (default: with the run)."
)
@format_options
def watch(controller: str | None, every_s: float, seconds: float | None, output: Format) -> None:
    """Watch a run until it ends. With -o json or jsonl: one status per line."""
    statuses = ticks(contact_of(controller), every_s, seconds)
    if output in ("json", "jsonl"):
        for status in statuses:
            emit_line(status)
    elif sys.stdout.isatty() and output == "table":
        draw(statuses)
    else:
        for status in statuses:
            click.echo(tick_line(status))


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


def draw(statuses: Iterator[dict[str, Any]]) -> None:
    """One picture, drawn again in place."""
    with closing(TerminalPicture(sys.stdout, None)) as screen:
        for status in statuses:
            screen.show(status)
