"""`headgate events`: what happened in a run, and with `-f` what happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit, emit_line, format_options

EVERY_S = 0.5  # how old a followed event may be


@click.command()
@controller_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until the run ends.")
@click.option(
    "--since", type=click.IntRange(0), default=0, metavar="NUMBER", help="Only events after this one."
)
@format_options
def events(controller: str | None, follow: bool, since: int, output: Format) -> None:
    """List the events of a run: VMs that join and leave, plans, deaths of workers, dead letters, alarms."""
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
