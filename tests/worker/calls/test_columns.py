"""A task by columns gives what the row form gives, and no row is made of columns before somebody wants rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from queue import SimpleQueue
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from test_batched_tasks import outcome
from test_task_logic import HOME, S, flow, frame, outputs, root, sent

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Source, batched
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge
from headgate.topology_runtime.errors import BadBatch
from headgate.topology_runtime.wire.messages import Frame, Route, Tuples, WireFrame
from headgate.topology_runtime.worker.calls.batches import joined, rows_read
from headgate.topology_runtime.worker.calls.router import Router
from headgate.topology_runtime.worker.links.frame_encoding import FRAME_BYTES_MOST, BadRows, read, written
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters.row_copies import Copies
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.columns import Columns, columns_in, grouped
from headgate.topology_runtime.worker.rows.row_values import RowChecks

by_columns = batched(columns=True)
decode = msgspec.msgpack.Decoder(Tuples).decode


def as_columns(rows: Sequence[Any]) -> Columns:
    ((places, columns),) = grouped(rows)
    assert list(places) == list(range(len(rows)))
    return columns


def over(rows: Any) -> Any:
    """Over the wire and back."""
    return wire.read(msgspec.Raw(wire.write(rows, shape := wire.check(rows))), shape)


# ── frames ──────────────────────────────────────────────────────────────────────────────────────────


def frames_over(one: Frame) -> list[Frame]:
    """As the taking thread has them."""
    bad: BadRows = SimpleQueue()
    numbers = random.Random(3)
    found = []
    for data in written(one, bad, lambda: numbers.getrandbits(64)):
        assert len(data) <= FRAME_BYTES_MOST + 4096
        message = decode(data)
        assert isinstance(message, WireFrame)
        taken = read(message)
        assert taken is not None
        found.append(taken)
    assert bad.empty()
    return found


def frame_of(columns: Columns) -> Frame:
    return Frame(3, 1, HOME, 1, 5, [root()], [(0, 0, len(columns), 0)], columns, 0, 0)  # type: ignore[arg-type]


def test_a_frame_of_columns_arrives_as_columns() -> None:
    (found,) = frames_over(frame_of(as_columns([(n, float(n), "x") for n in range(100)])))
    assert type(found.rows) is Columns and list(found.rows) == [(n, float(n), "x") for n in range(100)]


@pytest.mark.parametrize("width", [600, 4000, 90_000])
def test_columns_that_are_too_many_bytes_are_parted_as_columns(width: int) -> None:
    rows = [{"n": n, "v": [float(n)] * width} for n in range(400_000 // width)]
    found = frames_over(frame_of(as_columns(rows)))
    assert len(found) > 1 and all(type(one.rows) is Columns for one in found)
    assert [row for one in found for row in one.rows] == rows
    value = 0
    for one in found:
        value ^= one.roots[0].id
    assert value == root().id


def test_a_row_of_columns_that_is_too_large_is_told_and_the_others_go() -> None:
    bad: BadRows = SimpleQueue()
    rows = [{"n": n, "t": "x" * (900_000 if n == 3 else 300_000)} for n in range(5)]
    parts = [read(decode(data)) for data in written(frame_of(as_columns(rows)), bad, lambda: 1)]  # type: ignore[arg-type]
    assert [row["n"] for one in parts if one is not None for row in one.rows] == [0, 1, 2, 4]
    _, [(place, error)] = bad.get_nowait()
    assert place == 3 and "768 KiB" in error.what


@pytest.mark.parametrize("reads", [True, False])
def test_columns_go_to_peers_that_read_them_and_rows_to_others(reads: bool) -> None:
    peer = Slot("vm", 9)
    board = Switchboard(HOME, 1, {peer} if reads else set())
    board.slot_of = {5: peer}
    assert board.deliver([frame_of(as_columns([(1, 2.0), (3, 4.0)]))]) > 0
    with board.out.taken(1) as waiting:
        [(to, data)] = waiting
    message = decode(data)
    assert to == peer and isinstance(message, WireFrame)
    assert (message.shape == wire.COLUMNS) == reads
    assert list(wire.read(message.rows, message.shape)) == [(1, 2.0), (3, 4.0)]


def test_copies_of_columns_for_a_profile_are_rows() -> None:
    copies = Copies(rows=3)
    copies.add("source", as_columns([{"a": n} for n in range(5)]))
    assert copies.full and copies.samples() == [("source", {"a": n}) for n in range(3)]


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────


def doing(kind: str, bad: set[int]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The same as a function of a row and as one of columns."""

    def row_form(row: Any) -> Any:
        if row[0] in bad:
            raise ValueError(f"{row[0]} is bad")
        return row[1] > 0 if kind == "filter" else {"n": row[0], "half": row[1] / 2, "text": row[2]}

    @by_columns
    def columns_form(columns: Any) -> Any:
        numbers, values, texts = columns
        if found := bad & set(numbers.tolist()):
            raise ValueError(f"{min(found) if len(numbers) > 1 else numbers[0]} is bad")
        return values > 0 if kind == "filter" else {"n": numbers, "half": values / 2, "text": texts}

    return row_form, columns_form


@searching(200)
@given(
    st.sampled_from(("map", "filter")),
    st.lists(st.tuples(st.integers(0, 30), st.integers(-9, 9).map(float), st.text(max_size=3)), max_size=40),
    st.sets(st.integers(0, 30), max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_a_task_by_columns_gives_what_the_row_form_gives(
    kind: str, rows: list[Any], bad: set[int], sink: bool, come: bool
) -> None:
    row_form, columns_form = doing(kind, bad)
    given: Any = as_columns(rows) if come and rows else rows
    assert outcome(flow(columns_form, kind, sink=sink), given) == outcome(
        flow(row_form, kind, sink=sink), rows
    )


def test_between_two_tasks_by_columns_there_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (flow(by_columns(lambda columns: columns * 2)) for _ in range(2))
    first.take(frame([1.0, 2.0, 3.0]), S)
    monkeypatch.setattr(Columns, "rows", lambda self: pytest.fail("made into rows"))
    (out,) = first.results.outputs.flush(S, everything=True)
    (came,) = frames_over(out)
    for one in (out, came):
        second.take(one, S)
    assert [frame.rows.given.tolist() for frame in second.results.outputs.flush(S, everything=True)] == [
        [4.0, 8.0, 12.0] * 2
    ]


def test_a_row_task_after_columns_has_ordinary_rows() -> None:
    seen: list[Any] = []
    task = flow(lambda row: seen.append(row) or row)
    task.take(frame_of(as_columns([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])), S)
    assert seen == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}] and type(seen[0]["a"]) is int


def test_columns_go_by_key_as_columns() -> None:
    rows = [{"key": n % 5, "n": float(n)} for n in range(50)]
    by_rows, of_columns = [outputs("fields", threads=2, key=lambda row: row["key"]) for _ in range(2)]
    for out, some in ((by_rows, rows), (of_columns, as_columns(rows))):
        out.put(some, [(0, 0, 50, 0)], [root()], S)
    frames = {one.target: one.rows for one in of_columns.flush(S, everything=True)}
    assert {target: list(some) for target, some in frames.items()} == {
        one.target: one.rows for one in by_rows.flush(S, everything=True)
    }
    assert all(type(some) is Columns for some in frames.values())


@pytest.mark.parametrize("key", ["a", "b", "none", 0, -1, 2, "test_columns:first"])
@pytest.mark.parametrize("form", [dict, tuple, None])
def test_a_key_is_that_of_the_row(key: Any, form: Any) -> None:
    """Whatever the key: what is found without making rows is what is found with them."""
    plain = [{"a": n % 7, "b": f"k{n % 5}"} for n in range(40)]
    rows: list[Any] = (
        plain
        if form is dict
        else [tuple(row.values()) for row in plain]
        if form
        else [n % 3 for n in range(40)]
    )
    edge = Edge("t", "u", grouping="fields", key=key)
    route = Route(0, ((10, 0.5), (11, 0.5)), ((10, KEY_RANGES // 2), (11, KEY_RANGES // 2)))
    found = []
    for some in (rows, as_columns(rows), over_the_wire(as_columns(rows))):
        router = Router(edge, route, frozenset(), key_function(key), lambda _: 256, 5)
        parts = sorted((thread, list(places)) for thread, places in router.split(some))
        found.append((parts, [place for place, _ in router.unroutable]))
    assert found[0] == found[1] == found[2]


def first(row: Any) -> Any:
    return next(iter(row.values())) if isinstance(row, dict) else row[0] if isinstance(row, tuple) else row


def over_the_wire(columns: Columns) -> Any:
    return wire.read(wire.write(columns, wire.COLUMNS), wire.COLUMNS)


def test_rows_that_are_not_alike_are_in_calls_of_their_own() -> None:
    calls: list[Any] = []

    @by_columns
    def call(columns: Any) -> Any:
        calls.append(sorted(columns))
        return {**columns, "n": columns["n"] * 2}

    task = flow(call)
    task.take(frame([{"n": 1}, {"n": 2, "more": "x"}, {"n": 3}]), S)
    assert sent(task) == [{"n": 2}, {"n": 4, "more": "x"}, {"n": 6}]
    assert calls == [["n"], ["more", "n"]] and not task.results.letters


@pytest.mark.parametrize("wrong", [lambda values: values[1:], lambda values: [*values, 0]])
def test_what_is_wrong_with_some_rows_is_no_matter_of_others_in_the_frame(wrong: Any) -> None:
    @by_columns
    def call(columns: Any) -> Any:
        return {"n": wrong(columns["n"])} if "more" in columns else columns

    task = flow(call)
    task.take(frame([{"n": 1}, {"n": 2, "more": "x"}, {"n": 3}, {"n": 4, "more": "y"}]), S)
    assert sent(task) == [{"n": 1}, {"n": 3}]
    assert [letter.position for letter in task.results.letters] == [101, 103]
    assert all("results for 1 rows" in letter.error for letter in task.results.letters)


def test_buffers_join_columns_of_a_kind_and_make_rows_of_others() -> None:
    for second, kind in ((np.array([3.0]), Columns), (np.array([3]), list), ({"a": np.array([3.0])}, list)):
        out = outputs("shuffle")
        for columns in (columns_in(np.array([1.0, 2.0])), columns_in(second)):
            out.put(columns, [(0, 0, len(columns), 0)], [root()], S)
        (one,) = out.flush(S, everything=True)
        assert type(one.rows) is kind and len(one.rows) == 3
        assert type(list(one.rows)[2]) is type(columns_in(second)[0])
    calls = [columns_in(np.array([1.0])), columns_in(np.array([2.0]))]
    assert type(joined(calls)) is Columns and list(joined([*calls, [3]])) == [1.0, 2.0, 3]


# ── what a task by columns may give ─────────────────────────────────────────────────────────────────

GIVEN: dict[str, tuple[Any, list[Any]]] = {
    "whole numbers": (np.array([1, 2], dtype=np.uint8), [1, 2]),
    "small floats": (np.array([0.5, 2], dtype=np.float32), [0.5, 2.0]),
    "half floats": (np.array([0.5, 2], dtype=np.float16), [0.5, 2.0]),
    "texts of numpy": (np.array(["a", "bc"]), ["a", "bc"]),
    "bytes of numpy": (np.array([b"a", b"bc"]), [b"a", b"bc"]),
    "moments": (np.array(["2024-02-29", "NaT"], dtype="datetime64[ns]"), [datetime(2024, 2, 29), None]),
    "what is missing": (np.ma.masked_array([1, 2], [False, True]), [1, None]),
    "lists": ({"a": [1, 2], "b": ["x", None]}, [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    "a matrix": (np.arange(4.0).reshape(2, 2).T, [[0.0, 2.0], [1.0, 3.0]]),
    "empty lists": (np.zeros((2, 0)), [[], []]),
    "objects": (np.array([datetime(2024, 1, 1), None], dtype=object), [datetime(2024, 1, 1), None]),
    "others' bytes": (np.array([1.5, 2.5], dtype=">f8"), [1.5, 2.5]),
    "arrow": ((pa.array([1, 2]), pa.array(["a", "b"])), [(1, "a"), (2, "b")]),
}  # fmt: skip


@pytest.mark.parametrize("what", GIVEN)
def test_columns_of_all_kinds_are_rows_of_plain_values(what: str) -> None:
    given, rows = GIVEN[what]
    for columns in (columns_in(given), over(columns_in(given))):
        assert repr(list(columns)) == repr(rows)


WRONG: dict[str, tuple[Any, str]] = {
    "a number": (3.0, "a float as column"),
    "nothing": (None, "a NoneType as column"),
    "an array of no axis": (np.array(3.0), "a ndarray as column"),
    "no column": ({}, "no column"),
    "a name that is none": ({1: np.zeros(2)}, "columns without names"),
    "two lengths": ({"a": np.zeros(2), "b": np.zeros(3)}, "columns of 2 and of 3 values"),
    "complex numbers": ({"a": np.zeros(2, dtype=complex)}, "type complex128 in column 'a'"),
    "spans of time": (np.array([1, 2], dtype="timedelta64[s]"), "type timedelta64[s] in column"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_column_fails_the_rows_of_the_call(what: str) -> None:
    given, words = WRONG[what]
    with pytest.raises(BadBatch) as caught:
        columns_in(given)
    assert words in caught.value.what and caught.value.cause and caught.value.hint
    task = flow(by_columns(lambda columns: given))
    task.take(frame([1, 2]), S)
    assert not sent(task) and len(task.results.letters) == 2


def test_a_strange_object_in_a_column_costs_its_row() -> None:
    task = flow(by_columns(lambda columns: {"a": columns, "b": np.array([None, 1j, None], dtype=object)}))
    task.take(frame([1, 2, 3]), S)
    assert sent(task) == [{"a": 1, "b": None}, {"a": 3, "b": None}]
    (letter,) = task.results.letters
    assert letter.error.startswith("BadRow") and letter.position == 101


def test_columns_of_numbers_need_not_be_looked_at() -> None:
    checks = RowChecks()
    assert checks.pass_on(as_columns([1, 2])) and checks.pass_on(as_columns(["a", None]))
    assert not checks.pass_on(columns_in(np.array([1, 2j], dtype=object)))


def test_a_source_may_give_columns() -> None:
    @by_columns
    class Numbers(Source):
        def read(self, position: int, limit: int) -> Any:
            return {"n": np.arange(position, min(position + limit + 5, 20))}

    rows = rows_read(Numbers(), 10, 4)
    assert type(rows) is Columns and list(rows) == [{"n": n} for n in (10, 11, 12, 13)]
    assert len(rows_read(Numbers(), 20, 4)) == 0


def test_a_source_that_gives_more_rows_than_are_asked_for_is_asked_for_the_others_again() -> None:
    class Numbers(Source):
        def read(self, position: int, limit: int) -> Any:
            return range(position, position + 2 * limit)

    assert rows_read(Numbers(), 10, 4) == [10, 11, 12, 13]
