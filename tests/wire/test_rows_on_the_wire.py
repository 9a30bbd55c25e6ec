"""Rows keep their values and types over the wire, or are refused by name."""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import numpy as np
import pandas as pd
import pydantic
import pytest
from examples import searching
from hypothesis import example, given
from hypothesis import strategies as st
from wire_values import INT64, frames_of_rows, offsets, same

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.columns import Columns, array_of, columns_in, grouped


def over(rows: list[Any]) -> list[Any]:
    return wire.read(wire.write(rows, shape := wire.check(rows)), shape)


@searching(400)
@given(frames_of_rows)
def test_rows_come_out_as_they_went_in(rows: list[Any]) -> None:
    assert same(over(rows), rows)


EXACT = [
    *(True, False, None, 0, -(2**63), 2**63 - 1, 2**64 - 1, float("inf"), float("-inf"), -0.0, 5e-324),
    *("", "ä€😀", b"", b"\xff\x00", (), (1,), [], [()], ((),), {}, {"a": (1, [2, (3,)])}),
    *(datetime(2024, 2, 29, 1, 2, 3, 4), datetime.min, datetime.max),
    *(datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),  # before the year 1 in UTC
    {"true": True, "one": 1, "float": 1.0},
    *map(Decimal, ("1.50", "-0", "1E+30", "NaN", "Infinity", "0.1234567890123456789012345678901")),
    *(date(2024, 2, 29), time(1, 2, 3, 4), time(1, tzinfo=timezone(timedelta(hours=2))), time.max),
    *(timedelta(-1, 5, 7), timedelta.max, UUID(int=2**128 - 1)),
    *(datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=fold) for fold in (0, 1)),
    time(7, tzinfo=ZoneInfo("Europe/Vienna")),
    *(
        {1: 2},
        {(1, "a"): {2.5: None}},
        {date(2024, 1, 1): [Decimal("0.10")]},
        {1, 2},
        frozenset({"a", (1,)}),
        set(),
    ),
]


@pytest.mark.parametrize("row", EXACT, ids=map(str, range(len(EXACT))))
@pytest.mark.parametrize("beside", [(), [[]]], ids=["alone", "beside a list"])
def test_a_row_keeps_its_type(row: Any, beside: list[Any]) -> None:
    assert same(over([row, *beside]), [row, *beside])


def test_nan_stays_nan() -> None:
    (row,) = over([(float("nan"), 1)])
    assert row[0] != row[0] and row[1] == 1


def test_a_named_zone_keeps_its_clock_and_its_moment() -> None:
    moment = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1)
    (row,) = over([[moment]])
    assert row[0].timestamp() == moment.timestamp()
    assert row[0].utcoffset() == timedelta(hours=1) and row[0].hour == 2


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        ([1, "a", None], wire.PLAIN),
        ([{"a": 1}, {"b": b""}], wire.PLAIN),
        ([(1, "a"), (2.0, None)], wire.TUPLES),
        ([(1, (2,))], wire.NESTED),
        ([{"a": [1]}], wire.NESTED),
        ([1, (1,)], wire.NESTED),
        ([datetime(2024, 1, 1)], wire.NESTED),
    ],
)
def test_the_cheapest_shape_is_taken(rows: list[Any], shape: int) -> None:
    assert wire.check(rows) == wire.shape_of(rows) == shape


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────


class Colour(enum.IntEnum):
    RED = 1


@dataclass
class Thing:
    a: int = 1


Point = collections.namedtuple("Point", "x y")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list[Any]:
    row: list[Any] = []
    row.append(row)
    return row


class Frozen(pydantic.BaseModel):
    a: int


class Struct(msgspec.Struct):
    a: int = 1


@attrs.define
class Attrs:
    a: int = 1


MOMENT = datetime(2026, 11, 28, 19, 0, 0, 5)
REFUSED = {  # what is refused, and the line that makes a row of it
    "numpy.float64": (np.float64(1.5), lambda x: x.item()),
    "numpy.int64": (np.int64(1), lambda x: x.item()),
    "numpy.bool": (np.bool_(True), lambda x: x.item()),
    "numpy.str_": (np.str_("a"), lambda x: x.item()),
    "numpy.longdouble": (np.longdouble(1.5), lambda x: float(x)),
    "numpy.datetime64": (np.datetime64(MOMENT, "ns"), lambda x: x.astype("datetime64[us]").item()),
    "numpy.timedelta64": (np.timedelta64(5, "ns"), lambda x: x.astype("timedelta64[us]").item()),
    "numpy.ndarray": (np.zeros(2), lambda x: x.tolist()),
    "pandas.Timestamp": (pd.Timestamp(MOMENT), lambda x: x.to_pydatetime()),
    "pandas.Timedelta": (pd.Timedelta(1), lambda x: x.to_pytimedelta()),
    "pandas.api.typing.NaTType": (pd.NaT, lambda x: None),
    "pandas.api.typing.NAType": (pd.NA, lambda x: None),
    "pandas.DataFrame": (pd.DataFrame({"a": [1]}), lambda x: x.to_dict("records")),
    "pandas.Series": (pd.Series([1]), lambda x: x.to_dict()),
    "Colour": (Colour.RED, lambda x: x.value),
    "Thing": (Thing(), dataclasses.asdict),
    "Point": (Point(1, 2), lambda x: {"x": x.x, "y": x.y}),
    "Struct": (Struct(), msgspec.to_builtins),
    "Frozen": (Frozen(a=1), lambda x: x.model_dump()),
    "Attrs": (Attrs(), attrs.asdict),
    "collections.Counter": (collections.Counter("ab"), lambda x: dict(x)),
    "collections.deque": (collections.deque([1]), lambda x: list(x)),
    "builtins.bytearray": (bytearray(b"a"), lambda x: bytes(x)),
    "builtins.complex": (1j, lambda x: (x.real, x.imag)),
    "builtins.range": (range(3), lambda x: list(x)),
    "builtins.object": (object(), None),
    "nested more than": (nested(40), None),
    "levels deep": (endless(), None),
    "cannot be written": (2**64, None),
    "cannot be written ": (-(2**63) - 1, None),
    "cannot be written  ": ("\ud800", None),
}


@pytest.mark.parametrize("what", REFUSED, ids=str.strip)
@pytest.mark.parametrize("inside", ["itself", "tuple", "list", "dict", "deep"])
def test_what_is_not_plain_is_refused_by_name(what: str, inside: str) -> None:
    value, _ = REFUSED[what]
    row = {
        "itself": value,
        "tuple": (1, value),
        "list": [value],
        "dict": {"a": value},
        "deep": {"a": ([value],)},
    }
    with pytest.raises(BadRow) as caught:
        wire.check([row[inside]])
    assert what.strip() in caught.value.what
    assert caught.value.hint or "deep" in caught.value.what


@pytest.mark.parametrize("what", [what for what, (_, remedy) in REFUSED.items() if remedy])
def test_what_is_refused_is_told_its_remedy_and_that_works(what: str) -> None:
    value, remedy = REFUSED[what]
    with pytest.raises(BadRow) as caught:
        wire.check([value])
    said = re.search(r"give (.+); rows hold", caught.value.hint or "")
    assert said, caught.value.hint
    given = eval(said[1], {"x": value, "dataclasses": dataclasses, "attrs": attrs, "msgspec": msgspec})
    assert remedy is not None and same(given, remedy(value))
    assert same(over([given]), [given])


def test_deep_but_not_too_deep() -> None:
    assert same(over([nested(wire.DEEPEST)]), [nested(wire.DEEPEST)])


@pytest.mark.parametrize("rows", [[(1,), (2**64,), (3,)], [1, 2j, 3], [{"a": 1}, {"a": "\ud800"}, {"a": 3}]])
def test_good_rows_are_told_from_bad_ones(rows: list[Any]) -> None:
    good, bad = wire.good_rows(rows)
    assert good == [0, 2]
    assert [(place, type(error)) for place, error in bad] == [(1, BadRow)]


def test_a_text_key_that_cannot_be_written_is_refused_too() -> None:
    with pytest.raises(BadRow):
        wire.check([{"\ud800": [1]}])


# ── hostile bytes ───────────────────────────────────────────────────────────────────────────────────


@searching(500)
@given(st.binary(max_size=60), st.integers(-1, 4))
def test_random_bytes_are_rows_or_refused(data: bytes, shape: int) -> None:
    try:
        assert isinstance(wire.read(data, shape), list)
    except msgspec.DecodeError:
        return


@searching(300)
@given(frames_of_rows, st.data())
def test_damaged_rows_are_rows_or_refused(rows: list[Any], data: st.DataObject) -> None:
    shape = wire.check(rows)
    whole = bytearray(wire.write(rows, shape))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged in (bytes(whole), bytes(whole[:cut])):
        try:
            wire.read(damaged, shape)
        except msgspec.DecodeError:
            continue


def deep_extensions(levels: int) -> bytes:
    data = b"\x90"
    for _ in range(levels):
        data = b"\x91\xc9" + len(data).to_bytes(4, "big") + b"\x01" + data
    return data


HOSTILE = {
    "deep arrays": b"\x91" * 100_000,
    "deep extensions": deep_extensions(2000),
    "not a moment": b"\x91\xc7\x03\x02abc",
    "not text": b"\x91\xc7\x02\x02\xff\xfe",
    "a moment out of range": b"\x91\xc7\x0c\xff" + b"\xff" * 12,
    "an unknown extension": b"\x91\xc7\x01\x63\x00",
    "a dict as a key": b"\x91\x81\x80\x02",
    "not a list": b"\x81\xa1a\x01",
    **{f"extension {code} of nonsense": b"\x91\xc7\x03" + bytes([code]) + b"\xc0ab" for code in range(3, 12)},
    "a zone that is not there": b"\x91\xc7\x0d\x08" + msgspec.msgpack.encode(("10:00", 0, "No/W")),
    "a decimal that is none": b"\x91\xc7\x03\x03abc",
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("shape", [wire.PLAIN, wire.TUPLES, wire.NESTED])
def test_hostile_rows_are_refused_in_one_way(what: str, shape: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.read(HOSTILE[what], shape)


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────

GOLDEN = {
    "text": ("taxi-7", 433),
    "empty": ("", 442),
    "zero": (0, 82),
    "negative": (-5, 211),
    "large": (2**63 - 1, 788),
    "float": (2.5, 203),
    "bytes": (b"taxi", 224),
    "none": (None, 420),
    "true": (True, 903),
    "pair": (("north", 7), 368),
    "moment": (datetime(2024, 7, 1, 12, tzinfo=UTC), 4),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_key_has_one_range_in_every_process_and_every_version(name: str) -> None:
    """Values written down once: another one would tear running topologies and saved states apart."""
    key, expected = GOLDEN[name]
    assert range_of(key) == expected


@searching(200)
@given(INT64 | st.text() | st.binary() | st.tuples(st.text(), INT64))
def test_a_key_finds_its_range_after_it_crossed_the_wire(key: Any) -> None:
    assert range_of(over([[key]])[0][0]) == range_of(key)


@searching(100)
@given(
    st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)), offsets
)
def test_equal_moments_have_one_range(moment: datetime, zone: timezone) -> None:
    assert range_of(moment.astimezone(zone)) == range_of(moment)


def test_equal_zeros_have_one_range() -> None:
    assert range_of((0.0, "a")) == range_of((-0.0, "a")) and range_of(0.0) == range_of(-0.0)


@pytest.mark.parametrize("parts", [2, 3, 8])
@pytest.mark.parametrize(
    "keys", [range(128), [f"sensor-{i}" for i in range(128)], [i / 2 for i in range(128)]]
)
def test_few_keys_spread_over_the_ranges(keys: Any, parts: int) -> None:
    counts = collections.Counter(range_of(key) * parts // 1024 for key in keys)
    assert max(counts.values()) < 2 * 128 / parts and len(counts) == parts


# ── Rows as columns: values and types survive, over the wire too; what is none is refused ───────────────


def as_columns(rows: Sequence[Any]) -> Columns:
    ((places, columns),) = grouped(rows)
    assert list(places) == list(range(len(rows)))
    return columns


def columns_over(rows: Any) -> Any:
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
        assert same(list(columns_over(columns)), rows)
        assert same(list(columns_over(columns_over(columns))[start:stop]), rows[start:stop])


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
        columns_over(as_columns([1, 2, 3])),
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
from headgate.topology_runtime.worker.rows import row_values as rows
from headgate.topology_runtime.worker.calls.user_code import UserCode
print(list(rows.read({data!r}, rows.COLUMNS)), 'numpy' in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == "[{'a': 1, 'v': [0.5, 1.5], 't': 'x'}, {'a': 2, 'v': [2.5, 3.5], 't': 'y'}] False"
    )


# ── hostile bytes ───────────────────────────────────────────────────────────────────────────────────

SOUND = [1, [], [["d", [2], b"\0" * 16]]]
HOSTILE_COLUMNS: list[Any] = [
    [7, [], SOUND[2]], [1, ["a"], SOUND[2]], [2, ["a", "a"], SOUND[2] * 2], [2, [], SOUND[2]], [0, [], []], [1, [], []],
    [0, [], SOUND[2] * 2], [1, [], [["d", [3], b"\0" * 16]]],
    [1, [], [["d", [2], b"\0" * 16], ["d", [1], b"\0" * 8]]],
    [1, [], [["z", [2], b"\0" * 16]]], [1, [], [["d", [], b"\0" * 8]]], [1, [], [["d", [1 << 40, 0], b""]]],
    [1, [], [["d", [-2, -1], b"\0" * 16]]], [1, [], [["d", [-2], b"\0" * 16]]],
    [1, [], [["d", [1, 1, 1, 1, 2], b"\0" * 16]]],
    [1, [], [["O", [1 << 40, 0], b"\x90"]]], [1, [], [["O", [0, 3], b"\x90"]]], [1, [], [["O", [0, 9], b"\x90"]]],
    [1, [], [["O", [1, 0], b"\xdd\xff\xff\xff\xff"]]], [1, [], [["O", [], b"\x90"]]],
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE_COLUMNS, ids=map(str, range(len(HOSTILE_COLUMNS))))
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
