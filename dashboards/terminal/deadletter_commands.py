"""`headgate deadletter list|show|replay|drop`: rows on which a task failed three times."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.runs.connection import asked, contact_of, controller_option
from headgate.topology_runtime.commands.output import FILE, Format, answer, emit, format_options
from headgate.topology_runtime.errors import CheckFailed, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.traces.trace_tables import DEAD_LETTERS, RUN_FILE
from headgate.topology_runtime.wire.dead_letter_messages import told_place
from headgate.topology_runtime.wording import utc_iso

# ── The dead letters of a run that is over, from `dead_letters.jsonl` of its trace ──────────────────────

ALWAYS = ("number", "task", "source", "partition", "position", "thread", "row", "error", "traceback")
LATELY: dict[str, Any] = {"variant": 0, "feeder": "", "shape": 0, "data": ""}  # not in older traces

Found = dict[str, Any]
Spans = list[tuple[int, int]]  # begin … end − 1 each


def from_trace(folder: Path) -> Found:
    """As the controller tells them, with row and traceback of each. Raises InvalidInput."""
    records = _records(folder)
    letters, dropped, replayed = _standing(records)
    kept = Counter(letter["task"] for letter in letters.values())
    everywhere: defaultdict[tuple[str, int], Spans] = defaultdict(list)
    of_task: defaultdict[tuple[str, str, int], Spans] = defaultdict(list)
    for r in records:
        if r["record"] == "dead":
            everywhere[r["source"], r["partition"]].append((r["begin"], r["end"]))
            of_task[r["task"], r["source"], r["partition"]].append((r["begin"], r["end"]))
    rows = Counter[str]()
    for (task, _, _), spans in of_task.items():
        rows[task] += length(spans)
    return {
        "dead_lettered": sum(map(length, everywhere.values())),
        "dropped": dropped,
        "replayed": replayed,
        "tasks": [{"task": t, "rows": rows[t], "kept": kept[t]} for t in sorted(rows.keys() | kept.keys())],
        "letters": [_letter(record) for _, record in sorted(letters.items())],
    }


def rows_from_trace(folder: Path) -> list[Found]:
    """Letters that are neither dropped nor done, with what it takes to send their rows again (`data` is base64, empty
    when the row was not kept). Raises InvalidInput."""
    letters, _, _ = _standing(_records(folder))
    return [
        {
            **{name: one[name] for name in ALWAYS},
            **{name: one.get(name, bare) for name, bare in LATELY.items()},
        }
        for _, one in sorted(letters.items())
    ]


def _standing(records: list[Found]) -> tuple[dict[int, Found], int, int]:
    """Letters by number as they were at the end, how many were dropped, how many were sent again and are done."""
    letters: dict[int, Found] = {}
    gone: dict[str, set[int]] = {"dropped": set(), "replayed": set()}
    for record in records:
        kind, number = record["record"], record.get("number")
        if kind == "letter" and number is not None:
            letters[number] = record
        elif kind in gone and number in letters:
            gone[kind].add(number)
        elif kind == "died_again" and number in letters:
            letters[number] = {**letters[number], "error": record["error"], "traceback": record["traceback"]}
    left = {n: one for n, one in letters.items() if n not in gone["dropped"] | gone["replayed"]}
    return left, len(gone["dropped"]), len(gone["replayed"])


def length(spans: Iterable[tuple[int, int]]) -> int:
    """Of their union."""
    total, at = 0, -1
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, at))
        at = max(at, end)
    return total


def _records(folder: Path) -> list[Found]:
    file = folder / DEAD_LETTERS
    if not (folder / RUN_FILE).exists() and not file.exists():
        raise InvalidInput(f"not a trace: {folder}", hint="name a folder traces/TOPOLOGY/RUN")
    try:
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line]
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{file} cannot be read", cause=str(error)) from error


def _letter(record: Found) -> Found:
    return {
        "id": record["number"],
        "time": utc_iso(record["wall_ns"]),
        "task": record["task"],
        **told_place(
            record["source"],
            record["partition"],
            record["position"],
            record["row"],
            record.get("feeder", ""),
        ),
        "n": 1,
        **{name: record[name] for name in ("error", "thread", "row", "traceback")},
    }


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

PLACE = ("source", "partition", "position")  # in the table `of` says it
WIDE = ("thread", "row", "traceback")  # of `show` only
ERROR_MOST = 80  # letters of an error in the table

trace_option = click.option("--trace", type=FILE, help="Of a run that is over: its trace folder.")
all_option = click.option("--all", "everything", is_flag=True, help="All that are kept.")
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
        rows = [{n: v for n, v in one.items() if n not in PLACE} for one in letters]
        emit(output, found, [{**one, "error": _short(one["error"])} for one in rows])
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
    lines = (
        f"dead letter {letter['id']}: {letter['task']} failed on {letter.get('of', 'a row')}, at {letter['time']}",
        f"error: {letter['error']}",
        f"row:   {letter['row'] or 'not kept: too many died at once'}",
        f"\n{letter['traceback']}".rstrip(),
    )
    answer(output, "headgate/deadletter/v1", letter, "\n".join(lines))


def _of_trace(folder: Path, number: int) -> Found:
    letters: dict[int, Found] = {letter["id"]: letter for letter in from_trace(folder)["letters"]}
    if number in letters:
        return letters[number]
    raise InvalidInput(f"unknown dead letter {number} in {folder}", hint="`headgate deadletter list`")


@click.command()
@click.argument("numbers", metavar="ID", nargs=-1, type=click.IntRange(1))
@task_option
@all_option
@controller_option
@format_options
def drop(
    numbers: tuple[int, ...], task: str | None, everything: bool, controller: str | None, output: Format
) -> None:
    """Forget dead letters of a running topology: by ID, of a task, or all.

    Their rows stay counted as dead letters; they are only listed no more, which makes room for new ones.
    """
    if bool(numbers) + (task is not None) + everything != 1:
        raise UsageError("no dead letters named", hint="give either their IDs, or --task TASK, or --all")
    done = asked(controller, "deadletter_drop", {"ids": list(numbers), "task": task, "all": everything})
    words = f"{done['dropped']:,} dead letters are forgotten; {words_of({**done, 'dropped': 0})}"
    answer(output, "headgate/deadletter-drop/v1", done, words, [{"dropped": done["dropped"]}])


# ── `headgate deadletter replay`: have the rows of dead letters processed by the running topology ───────

LOOK_S = 0.5
LINE_S = 5.0  # between two lines of progress where they cannot be drawn in place
PART_LETTERS, PART_BYTES = 400, 400_000  # of an earlier run in one command
NAMED_MOST = 10  # ids in a message


@click.command()
@click.argument("numbers", metavar="[ID]...", nargs=-1, type=click.IntRange(1))
@task_option
@all_option
@click.option(
    "--trace",
    type=FILE,
    metavar="TRACE",
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
    """Send the rows of dead letters to their task once more, in the running topology: the cause is fixed.

    A dead letter goes when its row is done, and not before. One whose row fails three times again stays, with
    its new traceback; then the command ends with exit code 8. It waits for all; interrupted, the replay goes on.
    """
    named = bool(numbers) + (task is not None) + everything
    if named > 1 or (not named and trace is None):
        hint = "either their IDs, or --task TASK, or --all; of an earlier run: --trace TRACE"
        raise UsageError("no dead letters named", hint=hint)
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
        if not sys.stdin.isatty():
            raise UsageError(f"{count:,} rows would be processed again", hint="confirm it: --yes")
        click.confirm(f"Process the rows of {count:,} dead letters again?", abort=True, err=True)
    if trace is not None:
        arguments = ({"run": _run_of(trace), "letters": part} for part in parts)
        ids = [one for taken in arguments for one in asked(contact, "deadletter_take_in", taken)["ids"]]
    done = _replayed(contact, ids) if ids else {"waiting": 0, "done": 0, "died_again": []}
    _say(done, len(ids), left_out, output)


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
        raise InvalidInput(f"unknown dead letter {missing[0]} in {trace}", hint=hint)
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
        **{name: done[name] for name in ("done", "died_again", "waiting")},
        "left_out": left_out,
    }
    words = f"{done['done']:,} dead letters are done" if count else "there is no dead letter to replay"
    answer(output, "headgate/deadletter-replay/v1", told, words, [{**told, "died_again": len(again)}])
    if again:
        some = ", ".join(map(str, again[:NAMED_MOST])) + (", …" if len(again) > NAMED_MOST else "")
        raise CheckFailed(
            f"{len(again):,} of {count:,} rows failed three times again: {some}",
            hint=f"headgate deadletter show {again[0]} has the new traceback",
        )
    if waiting:
        raise CheckFailed(
            f"the run ended before {waiting:,} of {count:,} rows were done",
            hint="they are dead letters still: `headgate deadletter replay --trace TRACE` in another run",
        )
