"""`headgate deadletter replay`: have the rows of dead letters processed by the running topology."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from headgate.dashboards.terminal.connection import asked, contact_of, controller_option
from headgate.dashboards.terminal.dead_letters import rows_from_trace
from headgate.topology_runtime.errors import CheckFailed, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.output import Format, emit, format_options

LOOK_S = 0.5
LINE_S = 5.0  # between two lines of progress where they cannot be drawn in place
PART_LETTERS, PART_BYTES = 400, 400_000  # of an earlier run in one command
NAMED_MOST = 10  # ids in a message


@click.command()
@click.argument("numbers", metavar="[ID]...", nargs=-1, type=click.IntRange(1))
@click.option("--task", metavar="TASK", help="Only of this task.")
@click.option("--all", "everything", is_flag=True, help="All that are kept.")
@click.option(
    "--from",
    "trace",
    metavar="TRACE",
    type=click.Path(path_type=Path),
    help="Of an earlier run: its trace folder (all that it kept, or --task, or IDs).",
)
@click.option("--skip-unreadable", is_flag=True, help="Leave out those whose rows were not kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@controller_option
@format_options
def replay(
    numbers: tuple[int, ...],
    task: str | None,
    everything: bool,
    trace: Path | None,
    controller: str | None,
    output: Format,
    **flags: bool,
) -> None:
    """Send the rows of dead letters to their task once more, in the running topology: the cause is mended.

    A letter goes when its row is done, and not before. One whose row fails three times again stays, with
    its new traceback; then the command ends with exit code 8. It waits for all; interrupted, the replay goes on.
    """
    named = bool(numbers) + (task is not None) + everything
    if named > 1 or (not named and trace is None):
        hint = "either their IDs, or --task TASK, or --all; of an earlier run: --from TRACE"
        raise UsageError("say which dead letters to replay", hint=hint)
    skip = flags["skip_unreadable"]
    parts, left_out = _parts_of(trace, numbers, task, skip) if trace is not None else ([], 0)
    contact = contact_of(controller)
    if trace is not None:
        count = sum(map(len, parts))
        for part in parts:
            asked(contact, "deadletter_take_in", {"run": _run_of(trace), "letters": part, "dry": True})
    else:
        desired = {"ids": list(numbers), "task": task, "all": everything, "skip": skip}
        found = asked(contact, "deadletter_replay", {**desired, "dry": True})
        ids, count, left_out = found["ids"], len(found["ids"]), len(found["unreadable"])
    if left_out:
        click.echo(f"{left_out:,} are left out: their rows were not kept", err=True)
    if count and not flags["yes"]:
        _confirm(count)
    if trace is not None:
        ids = list(_taken_in(contact, _run_of(trace), parts))
    done = _replayed(contact, ids) if ids else {"waiting": 0, "done": 0, "died_again": []}
    _say(done, len(ids), left_out, output)


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"{count:,} rows would be processed again", hint="say so: --yes")
    click.confirm(f"Process the rows of {count:,} dead letters again?", abort=True, err=True)


# ── of an earlier run ───────────────────────────────────────────────────────────────────────────


def _run_of(trace: Path) -> str:
    return trace.resolve().name


def _parts_of(
    trace: Path, numbers: tuple[int, ...], task: str | None, skip: bool
) -> tuple[list[list[dict[str, Any]]], int]:
    """The letters of a trace, as many at a time as go into one command, and how many are left out."""
    letters = {letter["number"]: letter for letter in rows_from_trace(trace)}
    missing = [number for number in numbers if number not in letters]
    if missing:
        hint = f"headgate deadletter list --trace {trace}"
        raise InvalidInput(f"there is no dead letter {missing[0]} in {trace}", hint=hint)
    chosen = [
        x for x in letters.values() if (not numbers or x["number"] in numbers) and task in (None, x["task"])
    ]
    if task is not None and not chosen:
        raise InvalidInput(
            f"there is no dead letter of {task} in {trace}", hint="leave --task out to see all"
        )
    readable = [letter for letter in chosen if letter["data"]]
    if len(readable) < len(chosen) and not skip:
        bad = next(letter["number"] for letter in chosen if not letter["data"])
        raise InvalidInput(
            f"dead letter {bad} of {trace} cannot be sent again",
            cause="its row was not kept: it was too large, came in a flood, is one that the task gave on, or the "
            "trace is of an earlier version",
            hint="--skip-unreadable sends the others; `headgate deadletter show` has the row as text",
        )
    parts: list[list[dict[str, Any]]] = []
    size = PART_BYTES
    for letter in readable:
        weight = sum(len(value) for value in letter.values() if isinstance(value, str))
        if size + weight > PART_BYTES or len(parts[-1]) >= PART_LETTERS:
            parts.append([])
            size = 0
        parts[-1].append(letter)
        size += weight
    return parts, len(chosen) - len(readable)


def _taken_in(contact: Contact, run: str, parts: Sequence[list[dict[str, Any]]]) -> Iterator[int]:
    for part in parts:
        yield from asked(contact, "deadletter_take_in", {"run": run, "letters": part})["ids"]


# ── until they are done ─────────────────────────────────────────────────────────────────────────


def _replayed(contact: Contact, ids: list[int]) -> dict[str, Any]:
    """Ask for them, and wait until each is done or has died again."""
    asked(contact, "deadletter_replay", {"ids": ids})
    told_s, drawn = time.monotonic(), False
    try:
        while True:
            done: dict[str, Any] = asked(contact, "deadletter_replaying", {"ids": ids})
            if not done["waiting"] or done["stage"] not in ("running", "ending", "draining"):
                return done
            line = f"{done['done']:,} of {len(ids):,} done, {len(done['died_again']):,} died again"
            if sys.stderr.isatty():
                click.echo(f"\r{line} ", nl=False, err=True)
                drawn = True
            elif time.monotonic() - told_s >= LINE_S:
                told_s = time.monotonic()
                click.echo(line, err=True)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        click.echo("\nthe replay goes on; `headgate deadletter list` shows what is left", err=True)
        raise
    except Unreachable as error:
        hint = "what is not done is a dead letter still: in the next life of this controller, or in the run's trace"
        raise Unreachable(
            "the controller went away before all were done", cause=error.what, hint=hint
        ) from error
    finally:
        if drawn:
            click.echo("\r\033[K", nl=False, err=True)


def _say(done: dict[str, Any], count: int, left_out: int, output: Format) -> None:
    again, waiting = done["died_again"], done["waiting"]
    told = {
        "asked": count,
        "done": done["done"],
        "died_again": again,
        "waiting": waiting,
        "left_out": left_out,
    }
    if output == "table":
        click.echo(
            f"{done['done']:,} dead letters are done" if count else "there is no dead letter to replay"
        )
    else:
        emit(
            output, {"schema": "headgate/deadletter-replay/v1", **told}, [{**told, "died_again": len(again)}]
        )
    if again:
        some = ", ".join(map(str, again[:NAMED_MOST])) + (", …" if len(again) > NAMED_MOST else "")
        raise CheckFailed(
            f"{len(again):,} of {count:,} rows failed three times again: {some}",
            hint=f"headgate deadletter show {again[0]} has the new traceback",
        )
    if waiting:
        raise CheckFailed(
            f"the run ended before {waiting:,} of {count:,} rows were done",
            hint="they are dead letters still: replay them into another run with --from TRACE",
        )
