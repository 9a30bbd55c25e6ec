"""Calling a batched task: all rows at once, and a result for each. Pure but for the user's code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.logic import BATCHED_COLUMNS, RowId, Sink, batched_of
from headgate.topology_runtime.errors import BadBatch, BadRow
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart, WireFrame
from headgate.topology_runtime.worker.rows.columns import Columns, article, columns_in, grouped
from headgate.topology_runtime.worker.rows.row_runs import Run

PIECES = (str, bytes, bytearray, dict)  # no rows, though they can be iterated over
LISTS = (list, tuple)
NO_LISTS = (*PIECES, set, frozenset)


class BatchCall:
    """The function of a batched task over the rows of a call."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self._function = function

    def __call__(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The results, one for each row. The list that the function gets is its own: it may change it."""
        results = listed(self._function(list(rows)))
        if len(results) != len(rows):
            raise wrong_number(len(results), len(rows))
        return results

    def one(self, row: Any) -> Any:
        """The result for a row in a call of its own."""
        return self([row])[0]


class SinkCall(BatchCall):
    """`write` of a sink, over rows with their names."""

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink

    def __call__(self, rows: Sequence[tuple[Any, RowId]]) -> Sequence[Any]:
        self._sink.write([row for row, _ in rows], [name for _, name in rows])
        return [row for row, _ in rows]


class ColumnCall(BatchCall):
    """The same of one that takes and gives columns. Rows that are not alike are in calls of their own; what is wrong
    with one of these is no matter of the others, so they are tried apart, as halves of a call that raised are."""

    def __call__(self, rows: Sequence[Any]) -> Sequence[Any]:
        groups = grouped(rows)
        if len(groups) == 1:
            return self._call(groups[0][1])
        results: list[Any] = [None] * len(rows)
        for places, columns in groups:
            try:
                found = self._call(columns)
            except BadBatch as error:
                raise RuntimeError(error.what) from error
            for place, result in zip(places, found, strict=True):
                results[place] = result
        return results

    def _call(self, columns: Columns) -> Columns:
        found = columns_in(self._function(columns.given))
        if len(found) != len(columns):
            raise wrong_number(len(found), len(columns))
        return found


def call_of(logic: Any) -> BatchCall | None:
    """How this task is called if it takes many rows at once."""
    if isinstance(logic, Sink):
        return SinkCall(logic)
    form = batched_of(logic)
    return (ColumnCall if form == BATCHED_COLUMNS else BatchCall)(logic) if form else None


def joined(calls: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The results of several calls, as columns if they can be."""
    if len(calls) == 1:
        return calls[0]
    columns = [some for some in calls if isinstance(some, Columns)]
    found = Columns.joined(columns) if columns and len(columns) == len(calls) else None
    return list(chain.from_iterable(calls)) if found is None else found


def rows_read(source: Any, position: int, limit: int) -> Sequence[Any]:
    """What a source that can be read twice has there, `limit` rows at most."""
    rows = source.read(position, limit)
    if batched_of(source) != BATCHED_COLUMNS:
        rows = list(rows)
        del rows[limit:]
        return rows
    if rows is None or (isinstance(rows, dict | tuple | list) and not rows):
        return []
    rows = columns_in(rows)
    return rows[:limit] if len(rows) > limit else rows


def listed(answer: Any) -> list[Any]:
    """The results in what a batched function gave: a list, whatever else gives results one by one, or an array."""
    tolist = getattr(answer, "tolist", None)
    if tolist is not None:
        answer = tolist()
    if isinstance(answer, NO_LISTS) or not isinstance(answer, Iterable):
        raise BadBatch(
            f"a batched task gave {article(type(answer).__name__)} for its rows",
            cause="it is to give a list with a result for each row, in their order",
            hint="return a list as long as the one it takes",
        )
    return list(answer)


def rows_of(answer: Any) -> list[Any]:
    """The rows that a call gave for one row, window or key. A dict or a text would go on in pieces."""
    if type(answer) not in LISTS and (isinstance(answer, PIECES) or not isinstance(answer, Iterable)):
        what = "None" if answer is None else article(type(answer).__name__)
        raise BadRow(f"the task returned {what} for its rows", hint="return [row], or [] for none")
    return list(answer)


def wrong_number(given: int, rows: int) -> BadBatch:
    return BadBatch(
        f"a batched task gave {given:,} results for {rows:,} rows",
        cause="which result is whose cannot be known, so all rows of this call are dead letters",
        hint="return a result for each row: @keep_if leaves rows out, @flat_map gives many, a Window unites rows",
    )


# ── Frames that wait for a batched task, taken together: the more wait, the more rows are in a call. Pure
#
# Taking frames is one event then, with one ack for each root of theirs: it cancels all the ids that they came
# with, and adds the shares of what goes out (acks.py). No id goes out for a part of them, so none is shared
# between them [A1].


def rows_in(sent: Frame | WireFrame) -> int:
    """Without reading them."""
    frame = sent.frame if isinstance(sent, WireFrame) else sent
    return sum(run[2] for run in frame.runs)


def edge_of(sent: Frame | WireFrame) -> int:
    return sent.frame.edge if isinstance(sent, WireFrame) else sent.edge


def gathered(frames: Sequence[Frame]) -> Frame:
    """One frame with the rows of all of these, which came by one edge. A root of several has the XOR of its ids."""
    if len(frames) == 1:
        return frames[0]
    roots: list[RootPart] = []
    runs: list[Run] = []
    places: dict[RootKey, int] = {}
    for frame in frames:
        numbers = [_place(root, roots, places) for root in frame.roots]
        for root, number in zip(frame.roots, numbers, strict=True):
            along = roots[number].along
            along += [numbers[other] for other in root.along if numbers[other] not in along]
        runs += [(numbers[number], at, count, way) for number, at, count, way in frame.runs]
    return replace(frames[0], roots=roots, runs=runs, rows=joined([frame.rows for frame in frames]))


def _place(root: RootPart, roots: list[RootPart], places: dict[RootKey, int]) -> int:
    """The number of this root in the whole."""
    number = places.setdefault(root.key, len(roots))
    if number == len(roots):
        roots.append(replace(root, along=[]))
    else:
        known = roots[number]
        known.id ^= root.id
        known.floor = max(known.floor, root.floor)
    return number
