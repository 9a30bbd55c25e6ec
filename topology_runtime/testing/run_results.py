"""What a test sees of a run: rows of sinks, rows that failed, states; and how a sink's rows are seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.api.logic import (
    BATCHED,
    BATCHED_COLUMNS,
    Keyed,
    Window,
    batched_of,
    concurrent,
    kind_of,
)
from headgate.topology_runtime.api.references import HERE
from headgate.topology_runtime.api.task_functions import is_async
from headgate.topology_runtime.api.timed import Timed
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from headgate.topology_runtime.wire.messages import DeadLetter

_PLACE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)


@dataclass(frozen=True)
class FailedRow:
    """A row on which a task failed three times. row: its value, or as text where it cannot be written. file, line:
    where the task's code raised."""

    task: str
    row: Any
    error: str
    file: str
    line: int
    source: str
    position: int
    traceback: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        return f"{place}task {self.task!r} failed on {self.row!r}: {self.error}"


@dataclass(frozen=True, repr=False)
class Result:
    """rows: sink → what its calls returned; where a call returned None, the row that it was given. states: keyed
    task → key → state at the end."""

    rows: dict[str, list[Any]]
    dead_letters: list[FailedRow]
    states: dict[str, dict[Any, Any]]

    def __repr__(self) -> str:
        sinks = [f"{sink} {counted(len(rows), 'row')}" for sink, rows in self.rows.items()]
        return f"<result: {', '.join(sinks)}; {counted(len(self.dead_letters), 'dead letter')}>"


def failed_row(letter: DeadLetter) -> FailedRow:
    """A dead letter as tests see it."""
    from headgate.topology_runtime.worker.rows import row_values

    row = row_values.read(letter.data, letter.shape)[0] if letter.data else letter.row
    places = [(file, int(line)) for file, line in _PLACE.findall(letter.traceback)]
    theirs = [place for place in places if not place[0].startswith(HERE)]
    file, line = (theirs or places or [("", 0)])[-1]
    return FailedRow(
        letter.task, row, letter.error, file, line, letter.source, letter.position, letter.traceback
    )


# ── a sink that is watched ──────────────────────────────────────────────────────────────────────

See = Callable[[Iterable[Any]], None]


def watched(logic: Any, see: See) -> Any:
    """This task object; `see` is given what its calls return (of calls that returned None: the rows)."""
    if isinstance(logic, Window):
        _watch(logic, "finish", see, list)
    elif isinstance(logic, Keyed):
        _watch(logic, "process", see, lambda answer: answer[1])
        _watch(logic, "process_all", see, lambda answer: answer[0])
        _watch(logic, "finish", see, list)
    elif isinstance(logic, Timed):
        _watch(logic, "process", see, lambda answer: answer[1])
        _watch(logic, "on_timer", see, lambda answer: answer[1])
        _watch(logic, "finish", see, list)
    else:
        return _watched_call(logic, see)
    return logic


def _watch(logic: Any, name: str, see: See, seen: Callable[[Any], Any]) -> None:
    from headgate.topology_runtime.worker.calls.batches import rows_of  # only where something is run

    method = getattr(logic, name)

    @wraps(method)
    def call(*arguments: Any) -> Any:
        answer = method(*arguments)
        if name in ("process", "on_timer"):
            answer = answer[0], rows_of(answer[1])
        elif name == "finish":
            answer = rows_of(answer)
        see(seen(answer))
        return answer

    setattr(logic, name, call)


def _seen(kind: str, row: Any, answer: Any) -> Iterable[Any]:
    """What is seen of a call."""
    if kind == "flat_map":
        return answer  # type: ignore[no-any-return]
    return (row,) if answer is None or kind == "filter" else (answer,)


def _watched_await(logic: Any, see: See) -> Any:
    """One call after the other, so that what is seen is always the same."""
    from headgate.topology_runtime.worker.process.async_calls import awaited  # with asyncio: few need it

    kind = kind_of(logic)
    call = awaited(logic, kind)

    @concurrent(1)
    async def one(row: Any) -> Any:
        answer = await call(row)
        if kind != "filter" or answer:
            see(_seen(kind, row, answer))
        return answer

    return one


def _watched_call(logic: Any, see: See) -> Any:
    from headgate.topology_runtime.worker.calls.batches import listed
    from headgate.topology_runtime.worker.rows.columns import columns_in

    if is_async(logic):
        return _watched_await(logic, see)
    kind, form = kind_of(logic), batched_of(logic)

    def one(row: Any) -> Any:
        answer = logic(row)
        if kind == "flat_map":
            answer = list(answer)
        if kind != "filter" or answer:
            see(_seen(kind, row, answer))
        return answer

    def together(rows: Any) -> Any:
        answers = logic(rows)
        if form == BATCHED_COLUMNS:
            given, made = columns_in(rows).rows(), columns_in(answers).rows()
        else:
            answers = listed(answers)
            given, made = rows, answers
        if len(given) == len(made):  # else they are dead letters
            for row, answer in zip(given, made, strict=True):
                if kind != "filter" or answer:
                    see(_seen(kind, row, answer))
        return answers

    call: Any = together if form else one
    call.__headgate_kind__ = kind
    if form:
        setattr(call, BATCHED, form)
    for name in ("open", "close"):
        if hasattr(logic, name):
            setattr(call, name, getattr(logic, name))
    return call
