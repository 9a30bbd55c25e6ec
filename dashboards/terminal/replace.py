"""`headgate replace`: other code for a running topology, slot by slot, while rows flow; `--back`: the code before."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.dashboards.terminal.cordon import wait_option
from headgate.dashboards.terminal.shipping import Shipment, code_options
from headgate.dashboards.terminal.submit import read_documents
from headgate.topology_runtime.errors import CheckFailed, UsageError
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit, format_options
from headgate.topology_runtime.progress import bar

LOOK_S = 0.3
DEADLINE_S = 300.0


@click.command()
@click.argument("topology", required=False)
@click.option("--back", is_flag=True, help="Bring the code before back.")
@click.option(
    "--models", type=click.Path(path_type=Path), help="A folder of models, where they are others now."
)
@code_options
@wait_option(DEADLINE_S, "all slots have it")
@controller_option
@format_options
def replace(topology: str | None, back: bool, output: Format, deadline: float, **options: Any) -> None:
    """Give a running topology other code: that of TOPOLOGY, which has the same tasks and edges.

    Code, and params of tasks that are no sources, may change; models may come with it. Threads of the new code begin in
    free slots and take over, what they left is free for the next ones: no row and no state is lost, and in between rows
    go from tasks of the one code to tasks of the other. Without a free slot it is refused (exit code 6). When its tasks
    cannot be built, or it does not prove itself, the code before comes back by itself (exit code 8).
    """
    if sum((topology is not None, options["package"] is not None, back)) != 1:
        raise UsageError("give TOPOLOGY, --package FILE or --back")
    contact = contact_of(options["controller"])
    done = asked(contact, "replace", {"back": True}) if back else _given(contact, topology, options)
    if deadline > 0:
        until_replaced(contact, done, deadline)
    if output != "table":
        emit(output, {"schema": "headgate/replace/v1", **done}, [done])
    elif deadline > 0:
        click.echo(f"all slots of run {done['run']} have {'the code before' if back else 'the new code'}")
    else:
        click.echo(f"{counted(done['slots'], 'slot')} of run {done['run']} to change, one after the other")


def _given(contact: Contact, topology: str | None, options: dict[str, Any]) -> Any:
    """Shipped where it has to be, and asked for."""
    with Shipment() as shipment:
        found = shipment.loaded(topology, contact, options)
        if shipment.digest:
            shipment.send(partial(asked, contact))
        arguments = {
            "topology": msgspec.to_builtins(found.topology),
            "models": read_documents(options["models"]) if options["models"] is not None else [],
            "user_paths": found.user_paths,
            "package": shipment.digest,
        }
        return asked(contact, "replace", arguments)


def until_replaced(contact: Contact, done: dict[str, Any], deadline_s: float) -> None:
    """Wait until every slot has it. Raises CheckFailed at the deadline, and when the code before came back."""
    until, total = time.monotonic() + deadline_s, done["slots"]
    with bar("slots with the other code", total) as step:
        ready = 0
        while True:
            status = asked(contact, "status")
            if status["code"]["number"] != done["code"]:
                raise CheckFailed(
                    "the other code did not prove itself, and the code before came back",
                    cause=_why_undone(contact),
                    hint="`headgate events` and the logs of workers tell more",
                )
            left = status["code"]["slots_before"]
            step(total - left, max(0, total - left - ready))
            ready = max(ready, total - left)
            if not left and status["stage"] == "committed":
                return
            if time.monotonic() > until:
                raise CheckFailed(
                    f"{counted(left, 'slot')} left to change after {deadline_s:g} s",
                    faults=[alarm["text"] for alarm in status["alarms"]],
                    hint="it goes on: `headgate status` shows how far it is, `headgate replace --back` ends it",
                )
            time.sleep(LOOK_S)


def _why_undone(contact: Contact) -> str | None:
    """As the controller told it when it went back."""
    events = asked(contact, "events", {"since": 0})["events"]
    return next((str(one["text"]) for one in reversed(events) if one.get("reason") == "rolled_back"), None)
