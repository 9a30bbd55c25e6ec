"""`headgate state get`: the state of one key, as a running task has it."""

from __future__ import annotations

from typing import Any

import click

from headgate.dashboards.runs.connection import asked, controller_option
from headgate.topology_runtime.commands.output import Format, emit, format_options, to_json


@click.command()
@click.argument("task")
@click.argument("key")
@controller_option
@format_options
def get(task: str, key: str, controller: str | None, output: Format) -> None:
    """The state of KEY in the running TASK, as JSON, and who has it.

    KEY is JSON, a tuple is a list; a text that is no JSON is taken as it is.

    \b
    headgate state get count berlin
    headgate state get count '["berlin", 17]'
    headgate state get count '{"date": "2026-11-29"}'
    """
    found = asked(controller, "state", {"task": task, "key": key})
    where = f"thread {found['thread']} in {found['vm']}/{found['slot']}"
    lines = [to_json(found["state"], 2), *map(_timer, found["timers"])]
    lines.append(f"({task}, key {to_json(found['key'])}: range {found['range']}, {where}, {found['asked']})")
    if output == "table":
        click.echo("\n".join(lines))
    else:
        emit(output, found, [found])


def _timer(timer: dict[str, Any]) -> str:
    name = f" {timer['name']!r}" if timer["name"] else ""
    kind = "by the clock" if timer["by_clock"] else "by event time"
    return f"timer{name} {kind} at {timer['at_us']:,} µs since 1970"
