"""`headgate deadletter list|show|drop` (replay: replay_letters.py): rows on which a task failed three times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.dashboards.terminal.dead_letters import from_trace
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.output import Format, emit, format_options

WIDE = ("thread", "row", "traceback")  # of `show` only
ERROR_MOST = 80  # letters of an error in the table

trace_option = click.option(
    "--trace", type=click.Path(path_type=Path), help="Of a run that is over: its trace folder."
)
task_option = click.option("--task", metavar="TASK", help="Only of this task.")


@click.command("list")
@controller_option
@trace_option
@task_option
@format_options
def list_letters(controller: str | None, trace: Path | None, task: str | None, output: Format) -> None:
    """List dead letters: rows that made a task raise three times. They count as done, not as acked.

    Of each task the first 2,000 are kept with row and traceback; how many there are is exact.
    """
    found = from_trace(trace) if trace else from_controller(controller, task)
    letters = [
        {name: value for name, value in letter.items() if name not in WIDE}
        for letter in found["letters"]
        if task in (None, letter["task"])
    ]
    if output != "table":
        emit(output, {"schema": "headgate/deadletters/v1", **found, "letters": letters}, letters)
        return
    if letters:
        emit(output, found, [{**one, "error": _short(one["error"])} for one in letters])
        click.echo()
    click.echo(words_of(found))


def from_controller(where: str | None, task: str | None) -> dict[str, Any]:
    """All that are kept, part by part."""
    contact, letters = contact_of(where), list[dict[str, Any]]()
    while True:
        after = letters[-1]["id"] if letters else 0
        found: dict[str, Any] = asked(contact, "deadletters", {"after": after, "task": task})
        letters += found["letters"]
        if not found["letters"]:
            return {**found, "letters": letters}


def words_of(found: dict[str, Any]) -> str:
    """How many there are."""
    if not found["tasks"]:
        return "no dead letters"
    tasks = "; ".join(f"{t['task']} {t['rows']:,} ({t['kept']:,} kept)" for t in found["tasks"])
    more = {name: found.get(name, 0) for name in ("dropped", "replayed", "replaying")}
    words = "".join(f"; {count:,} {name}" for name, count in more.items() if count)
    return f"{found['dead_lettered']:,} rows are dead letters: {tasks}{words}"


def _short(error: str) -> str:
    line = error.partition("\n")[0]
    return line if len(line) <= ERROR_MOST else f"{line[: ERROR_MOST - 1]}…"


@click.command()
@click.argument("number", metavar="ID", type=click.IntRange(1))
@controller_option
@trace_option
@format_options
def show(number: int, controller: str | None, trace: Path | None, output: Format) -> None:
    """Show dead letter ID of the list: its row as the task got it, and the traceback."""
    letter = _of_trace(trace, number) if trace else asked(controller, "deadletter", {"id": number})
    if output != "table":
        emit(output, {"schema": "headgate/deadletter/v1", **letter}, [letter])
        return
    click.echo(f"dead letter {letter['id']}: {letter['task']} failed on row {letter['position']} of "
               f"{letter['source']}, partition {letter['partition']}, at {letter['time']}")  # fmt: skip
    click.echo(f"error: {letter['error']}")
    click.echo(f"row:   {letter['row'] or 'not kept: too many died at once'}")
    click.echo(f"\n{letter['traceback']}".rstrip())


def _of_trace(folder: Path, number: int) -> dict[str, Any]:
    for letter in from_trace(folder)["letters"]:
        if letter["id"] == number:
            found: dict[str, Any] = letter
            return found
    raise InvalidInput(f"there is no dead letter {number} in {folder}", hint="`headgate deadletter list`")


@click.command()
@click.argument("numbers", metavar="ID", nargs=-1, type=click.IntRange(1))
@task_option
@click.option("--all", "everything", is_flag=True, help="All that are kept.")
@controller_option
@format_options
def drop(
    numbers: tuple[int, ...], task: str | None, everything: bool, controller: str | None, output: Format
) -> None:
    """Forget dead letters of a running topology: by ID, of a task, or all.

    Their rows stay counted as dead letters; they are only listed no more, which makes room for new ones.
    """
    if bool(numbers) + (task is not None) + everything != 1:
        raise UsageError("say which dead letters to drop", hint="either their IDs, or --task TASK, or --all")
    done = asked(controller, "deadletter_drop", {"ids": list(numbers), "task": task, "all": everything})
    if output == "table":
        click.echo(f"{done['dropped']:,} dead letters are forgotten; {words_of({**done, 'dropped': 0})}")
    else:
        emit(output, {"schema": "headgate/deadletter-drop/v1", **done}, [{"dropped": done["dropped"]}])
