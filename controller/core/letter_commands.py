"""Answers to what clients ask about dead letters. Pure, as commands.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from headgate.controller.execute.ending import Ending
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.letters import Letter, Letters
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.utc import utc_iso
from headgate.topology_runtime.worker import rows as wire

Arguments = dict[str, Any]
NUMBERS_MOST = 100_000  # in one command
TAKEN_IN_MOST = 500  # letters of an earlier run in one command
LIST_HINT = "`headgate deadletter list` shows those that are kept"


class LetterRun(Protocol):
    """What these commands ask of the loop."""

    knowledge: Knowledge
    ending: Ending


class FromTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A letter of an earlier run, as its trace has it."""

    number: int
    task: str
    source: str
    partition: int
    position: int
    thread: int
    row: str
    error: str
    traceback: str
    variant: int
    feeder: str
    shape: int
    data: bytes


def _told(letters: Letters) -> dict[str, Any]:
    """How many rows died, in all (distinct source positions) and by task, and of how many the letter is kept."""
    kept = Counter(letter.task for letter in letters.of())
    rows = dict.fromkeys(kept, 0) | letters.counts()
    return {
        "dead_lettered": letters.count,
        "dropped": letters.dropped,
        "replayed": letters.replayed,
        "replaying": len(letters.asked),
        "tasks": [{"task": t, "rows": rows[t], "kept": kept[t]} for t in sorted(rows)],
    }


def _row(letters: Letters, letter: Letter) -> dict[str, Any]:
    """A letter as `headgate deadletter list` has it."""
    return {
        "id": letter.number,
        "time": utc_iso(letter.wall_ns),
        "task": letter.task,
        "source": letter.source,
        "partition": letter.partition,
        "position": letter.position,
        "n": letters.times.get(letter.number, 1),
        "error": letter.error,
    }


def listed(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    """Letters after a number, oldest first, and how many rows there are of each task."""
    after, most = whole(arguments, "after", 0, 0, 1 << 62), whole(arguments, "most", 500, 1, 500)
    letters, task = run.knowledge.counts.letters, arguments.get("task")
    found = [letter for letter in letters.of(task) if letter.number > after]
    return {**_told(letters), "letters": [_row(letters, one) for one in found[:most]]}


def shown(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    letters = run.knowledge.counts.letters
    letter = _letter(letters, whole(arguments, "id", 0, 0, 1 << 62))
    more = {"thread": letter.thread, "row": letter.row, "traceback": letter.traceback}
    return {**_row(letters, letter), **more}


def drop(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    """Forget letters: by their ids, of a task, or all. An id that is none: nothing is dropped."""
    letters = run.knowledge.counts.letters
    dropped = sum(letters.drop(letter.number) for letter in _chosen(letters, arguments))
    make_room(run, letters)
    turn.event("dead_letters_dropped", f"an operator dropped {dropped:,} dead letters")
    return {"dropped": dropped, **_told(letters)}


def make_room(run: LetterRun, letters: Letters) -> None:
    """Alarms of tasks of which more letters can be kept now are over."""
    for task in letters.counts():
        if letters.keeps(task):
            run.knowledge.alarms.pop(f"dead letters {task}", None)


def replay(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    """Have the rows of letters sent again: by their ids, of a task, or all. When one of them cannot be, none is.
    `dry`: only say which. `skip`: leave out those whose rows cannot be read back."""
    letters, topology = run.knowledge.counts.letters, _running(run)
    task = arguments.get("task")
    if task is not None and task not in topology.by_name:
        raise _no_task(topology, [task])
    chosen = _chosen(letters, arguments)
    gone = sorted({letter.task for letter in chosen} - topology.by_name.keys())
    if gone:
        raise _no_task(topology, gone)
    bad = {letter.number: why for letter in chosen if (why := unsendable(topology, letter))}
    if bad and not arguments.get("skip"):
        number, why = next(iter(bad.items()))
        more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
        raise InvalidInput(
            f"dead letter {number}{more} cannot be sent again",
            cause=why,
            hint="--skip-unreadable sends the others; `headgate deadletter show` has the row as text",
        )
    numbers = [letter.number for letter in chosen if letter.number not in bad]
    fresh = 0 if arguments.get("dry") else sum(map(letters.ask, numbers))
    if fresh:
        turn.event("dead_letters_replayed", f"an operator has the rows of {fresh:,} dead letters sent again")
    return {"ids": numbers, "unreadable": sorted(bad), "asked": fresh}


def replaying(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    """What has become of these letters: still to be done, letters as before, or none any more."""
    letters = run.knowledge.counts.letters
    ids = _ids(arguments)
    waiting = [number for number in ids if number in letters.asked]
    again = [number for number in ids if number in letters.kept and number not in letters.asked]
    return {
        "waiting": len(waiting),
        "died_again": again,
        "done": len(ids) - len(waiting) - len(again),
        "stage": run.ending.stage,
    }


def take_in(run: LetterRun, turn: Turn, arguments: Arguments) -> Any:
    """Letters of an earlier run become letters of this one. When one of them cannot be, none does. `dry`: only
    whether they could."""
    letters, topology = run.knowledge.counts.letters, _running(run)
    name = arguments.get("run")
    if not isinstance(name, str) or not name:
        raise InvalidInput("the run that the dead letters are of has no name")
    try:
        given = msgspec.convert(arguments.get("letters"), list[FromTrace], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput("the dead letters are none", cause=str(error)) from error
    if len(given) > TAKEN_IN_MOST:
        raise InvalidInput(f"{len(given):,} dead letters at once", cause=f"at most {TAKEN_IN_MOST}")
    gone = sorted({letter.task for letter in given} - topology.by_name.keys())
    if gone:
        raise _no_task(topology, gone)
    made = [_of_run(letter, name, turn.now.wall_ns) for letter in given]
    for letter in made:
        if why := unsendable(topology, letter):
            raise InvalidInput(f"dead letter {letter.of} of {name} cannot be sent again", cause=why)
    return {"ids": [] if arguments.get("dry") else [letters.take_in(letter) for letter in made]}


def _of_run(given: FromTrace, run: str, wall_ns: int) -> Letter:
    fields = {name: getattr(given, name) for name in given.__struct_fields__ if name != "number"}
    return Letter(0, wall_ns, **fields, of=max(1, given.number), run=run)


def unsendable(topology: Topology, letter: Letter) -> str:
    """Why the row of a letter cannot be given to its task; empty when it can."""
    if not letter.data:
        return "its row was not kept: it was too large, came in a flood, or is one that the task gave on"
    if letter.feeder not in {edge.source for _, edge in topology.in_edges(letter.task)}:
        return f"no rows of {letter.feeder or 'another task'} go to {letter.task} here"
    try:
        count = len(wire.read(letter.data, letter.shape))
    except msgspec.DecodeError as error:
        return f"its row cannot be read back: {error}"
    return "" if count == 1 else f"its row cannot be read back: {count} rows"


def _running(run: LetterRun) -> Topology:
    topology = run.knowledge.topology
    if topology is None or run.ending.stage != "running" or run.knowledge.durable.rollout is None:
        raise Conflict(
            "no run is going on that could process rows",
            cause="it has not begun, or ends",
            hint="replay into a later run: headgate deadletter replay --from TRACE",
        )
    return topology


def _no_task(topology: Topology, names: list[str]) -> InvalidInput:
    return InvalidInput(
        f"there is no task {', '.join(names)} in {topology.name}",
        cause=f"its tasks are {', '.join(task.name for task in topology.tasks)}",
        hint="rows can only be sent again to a task of the same name",
    )


def _ids(arguments: Arguments) -> list[int]:
    ids = arguments.get("ids") or []
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise InvalidInput("the ids of dead letters are whole numbers", hint=LIST_HINT)
    if len(ids) > NUMBERS_MOST:
        raise InvalidInput(f"{len(ids):,} ids at once", cause=f"at most {NUMBERS_MOST:,}")
    return ids


def _chosen(letters: Letters, arguments: Arguments) -> Iterable[Letter]:
    """By their ids, of a task, or all; each once."""
    chosen = [_letter(letters, number) for number in _ids(arguments)]
    if arguments.get("all") or arguments.get("task") is not None:
        chosen += letters.of(arguments.get("task"))
    return list({letter.number: letter for letter in chosen}.values())


def _letter(letters: Letters, number: int) -> Letter:
    letter = letters.kept.get(number)
    if letter is None:
        raise InvalidInput(f"there is no dead letter {number}", hint=LIST_HINT)
    return letter


def whole(arguments: Arguments, name: str, default: int, least: int, most: int) -> int:
    value = arguments.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


COMMANDS = {
    "deadletters": listed,
    "deadletter": shown,
    "deadletter_drop": drop,
    "deadletter_replay": replay,
    "deadletter_replaying": replaying,
    "deadletter_take_in": take_in,
}
