"""Rows as columns: values and types survive, over the wire too; what is none is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from examples import searching
from hypothesis import example, given
from hypothesis import strategies as st
from wire_values import frames_of_rows, same

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker.columns import Columns, array_of, columns_in, grouped


def as_columns(rows: Sequence[Any]) -> Columns:
    ((places, columns),) = grouped(rows)
    assert list(places) == list(range(len(rows)))
    return columns


def over(rows: Any) -> Any:
    """Over the wire and back."""
    return wire.read(msgspec.Raw(wire.write(rows, shape := wire.check(rows))), shape)


# ── rows into columns and back ──────────────────────────────────────────────────────────────────────

ALIKE = st.one_of(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.text()), min_size=1),
    st.lists(st.builds(lambda a, b: {"a": a, "b": b}, st.booleans(), st.none() | st.integers()), min_size=1),
    st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1),
    st.lists(st.floats() | st.text(), min_size=1),
    st.lists(st.tuples(st.datetimes(), st.binary(), st.tuples(st.integers(0, 9))), min_size=1),
)


@searching(200)
@given(ALIKE, st.data())
def test_rows_that_are_alike_come_out_of_their_columns_as_they_went_in(
    rows: list[Any], data: st.DataObject
) -> None:
    columns = as_columns(rows)
    assert same(list(columns), rows) and len(columns) == len(rows)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    assert same(list(columns[start:stop]), rows[start:stop])
    assert same(list(columns[start::3]), rows[start::3]) and same(columns[-1], rows[-1])
    places = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    assert same(list(columns.take(places)), [rows[place] for place in places])
    if all(-(2**63) <= n < 2**64 for row in rows if isinstance(row, dict) for n in [row["b"] or 0]):
        assert same(list(over(columns)), rows)
        assert same(list(over(over(columns))[start:stop]), rows[start:stop])


@searching(100)
@given(frames_of_rows)
def test_all_rows_come_out_of_their_groups(rows: list[Any]) -> None:
    found: list[Any] = [None] * len(rows)
    for places, columns in grouped(rows):
        for place, row in zip(places, columns, strict=True):
            found[place] = row
    assert found == rows or not same(rows, rows)  # a whole number among floats is a float; NaN is not itself


def test_what_a_column_is_of() -> None:
    one = {"n": 1, "x": 0.5, "ok": True, "t": "a", "v": [1.0, 2.0], "mixed": 1, "gap": None}
    other = {"n": 2, "x": 1.5, "ok": False, "t": "b", "v": [3.0, 4.5], "mixed": 2.5, "gap": 3}
    columns = as_columns([one, other])
    arrays = columns.given
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "n": "int64", "x": "float64", "ok": "bool", "t": "object", "v": "float64", "mixed": "float64", "gap": "object",
    }  # fmt: skip
    assert arrays["v"].shape == (2, 2)
    assert isinstance(as_columns([(1, 2)]).given, tuple) and isinstance(as_columns([1, 2]).given, np.ndarray)
    large = as_columns([2**60 + 1, 0.5]).given
    assert large.dtype == object, "as a float it would be another number"


MIXED = st.floats() | st.sampled_from([1, 0, True, None, "x", b"123456789", [1.0], 2**70, (1.0,)])


@searching(300)
@given(st.lists(MIXED) | st.lists(st.floats()) | st.lists(st.lists(MIXED, min_size=2, max_size=2)),
       st.sampled_from([1, 16, 17, 300]))  # fmt: skip
@example([[1.0], (1.0,)], 1)
def test_floats_are_told_from_all_else(values: list[Any], times: int) -> None:
    """A column of floats is one of nothing else, however long it or its lists are."""
    wide = [value * times if isinstance(value, list) else value for value in values] or [0.5] * times
    for some in (wide, wide * times):
        array = array_of(some)
        types = {type(value) for row in some for value in (row if type(row) is list else [row])}
        if types == {float} or array.dtype == object:
            assert same(array.tolist(), some)
        else:
            assert types in ({int, float}, {int}, {bool}) and repr(array.tolist()) == repr(numbers(some))


def numbers(values: list[Any]) -> list[Any]:
    """Whole numbers among floats as floats."""
    flat = [value for row in values for value in (row if type(row) is list else [row])]
    if not any(type(value) is float for value in flat):
        return values
    return [[float(one) for one in row] if type(row) is list else float(row) for row in values]


def test_nobody_writes_into_columns() -> None:
    mine = np.zeros(3)
    for columns in (
        as_columns([1, 2, 3]),
        over(as_columns([1, 2, 3])),
        columns_in(mine),
        columns_in({"a": mine})[1:],
    ):
        with pytest.raises(ValueError, match="read-only"):
            columns.arrays[0][0] = 7
    with pytest.raises(ValueError, match="read-only"):
        mine[0] = 7


def test_what_came_over_the_wire_is_not_copied_where_it_lies_well() -> None:
    columns = as_columns([[float(n)] * 64 for n in range(10)])
    data = wire.write(columns, wire.COLUMNS)
    for pad in range(8):  # one of these lies well
        buffer = bytes(pad) + data
        (array,) = wire.read(memoryview(buffer)[pad:], wire.COLUMNS).arrays
        assert array.flags.aligned and array[9].tolist() == [9.0] * 64


def test_numpy_is_not_imported_by_whoever_wants_rows() -> None:
    data = wire.write(
        as_columns([{"a": 1, "v": [0.5, 1.5], "t": "x"}, {"a": 2, "v": [2.5, 3.5], "t": "y"}]), wire.COLUMNS
    )
    code = f"""
import sys
from headgate.topology_runtime.worker import rows
from headgate.topology_runtime.worker.user_code import UserCode
print(list(rows.read({data!r}, rows.COLUMNS)), 'numpy' in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == "[{'a': 1, 'v': [0.5, 1.5], 't': 'x'}, {'a': 2, 'v': [2.5, 3.5], 't': 'y'}] False"
    )


# ── hostile bytes ───────────────────────────────────────────────────────────────────────────────────

SOUND = [1, [], [["d", [2], b"\0" * 16]]]
HOSTILE: list[Any] = [
    [7, [], SOUND[2]], [1, ["a"], SOUND[2]], [2, ["a", "a"], SOUND[2] * 2], [2, [], SOUND[2]], [0, [], []], [1, [], []],
    [0, [], SOUND[2] * 2], [1, [], [["d", [3], b"\0" * 16]]],
    [1, [], [["d", [2], b"\0" * 16], ["d", [1], b"\0" * 8]]],
    [1, [], [["z", [2], b"\0" * 16]]], [1, [], [["d", [], b"\0" * 8]]], [1, [], [["d", [1 << 40, 0], b""]]],
    [1, [], [["d", [-2, -1], b"\0" * 16]]], [1, [], [["d", [-2], b"\0" * 16]]],
    [1, [], [["d", [1, 1, 1, 1, 2], b"\0" * 16]]],
    [1, [], [["O", [1 << 40, 0], b"\x90"]]], [1, [], [["O", [0, 3], b"\x90"]]], [1, [], [["O", [0, 9], b"\x90"]]],
    [1, [], [["O", [1, 0], b"\xdd\xff\xff\xff\xff"]]], [1, [], [["O", [], b"\x90"]]],
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_columns_that_are_none_are_refused(value: Any) -> None:
    assert list(wire.read(msgspec.msgpack.encode(SOUND), wire.COLUMNS)) == [(0.0,), (0.0,)]
    with pytest.raises(msgspec.DecodeError):
        wire.read(msgspec.msgpack.encode(value), wire.COLUMNS)


@searching(200)
@given(ALIKE, st.data())
def test_damaged_columns_are_refused_or_read(rows: list[Any], data: st.DataObject) -> None:
    try:
        whole = bytearray(wire.write(as_columns(rows), wire.COLUMNS))
    except BadRow:
        return
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(list(wire.read(bytes(whole), wire.COLUMNS))) >= 0
    except msgspec.DecodeError:
        return
