"""Rows mean the same whether they stay in a process or cross one: types survive the wire exactly.

A frame's rows are written in the cheapest way that keeps every type; `shape` says which:

    PLAIN   scalars, or flat dicts of scalars: msgpack as it is
    TUPLES  tuples of scalars: arrays that are read back as tuples
    NESTED  anything else that is plain: what msgpack has no type for is wrapped in extension types
    COLUMNS columns (columns.py): of numbers as their bytes, of objects as rows

What is not a plain value is a `BadRow`. All rows that leave a worker are looked at, and of those that stay a
part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from itertools import chain, islice
from math import nan
from typing import Any
from uuid import UUID

import msgspec

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows.columns import OBJECTS, Columns
from headgate.topology_runtime.worker.rows.row_remedies import refused

PLAIN, TUPLES, NESTED, COLUMNS = range(4)
EXT_TUPLE, EXT_DATETIME = 1, 2  # a tuple's items; a datetime as ISO text, which keeps its offset
EXT_DECIMAL, EXT_DATE, EXT_TIME, EXT_SPAN, EXT_UUID, EXT_ZONED = range(3, 9)
EXT_DICT, EXT_SET, EXT_FROZENSET = range(9, 12)  # a dict of which some key is no text: pairs; items
SCALARS = frozenset({int, float, str, bytes, bool, type(None)})
TOLD_APART = frozenset({str, int, bytes})  # types of which no value is a NaN
FLAT_ENOUGH = frozenset({float, bytes, bool, type(None)})  # every value of which can be written
NESTS = frozenset({tuple, list, dict})
CONTAINERS = frozenset({tuple, list, dict, set, frozenset})
LEAVES = SCALARS | {datetime, Decimal, date, time, timedelta, UUID}
_STR = frozenset({str})
DEEPEST = 32  # levels of nesting
LEAST_INT, MOST_INT = -(1 << 63), (1 << 64) - 1  # what msgpack can hold

_encode = msgspec.msgpack.Encoder().encode


def shape_of(rows: Sequence[Any]) -> int:
    """The shape of these rows; BadRow if one of them is not a plain value."""
    if type(rows) is Columns:
        for values in rows.objects:
            shape_of(values)
        return COLUMNS
    types = set(map(type, rows))
    if types <= SCALARS:
        return PLAIN
    if len(types) == 1:
        kind = types.pop()
        if kind is tuple and set(map(type, chain.from_iterable(rows))) <= SCALARS:
            return TUPLES
        if kind is dict and _flat_dicts(rows):
            return PLAIN
    for row in rows:
        _check(row, 0)
    return NESTED


def _flat_dicts(rows: Sequence[dict[Any, Any]]) -> bool:
    return (
        set(map(type, chain.from_iterable(rows))) <= _STR
        and set(map(type, chain.from_iterable(map(dict.values, rows)))) <= SCALARS
    )


def is_flat(value: dict[Any, Any] | tuple[Any, ...], most: int) -> bool:
    """Has it so many values at most, all of them scalars, by text if it is a dict?"""
    if len(value) > most:
        return False
    if type(value) is dict:
        return SCALARS.issuperset(map(type, value.values())) and _STR.issuperset(map(type, value))
    return SCALARS.issuperset(map(type, value))


def room_left(value: Any, most: int) -> int:
    """Of so many values how many more might be in a list, tuple or dict, at any depth; below 0: it has more, or some
    that are not sure to be plain. What is left is to be written, for it may have numbers and texts that cannot be."""
    most -= len(value)
    if type(value) is dict:
        if not _STR.issuperset(map(type, value)):
            return -1
        value = value.values()
    for inner in value:
        kind = type(inner)
        if kind not in SCALARS:
            if most < 0 or kind not in NESTS:
                return -1
            most = room_left(inner, most)
    return most


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is int or kind is str:
        _check_size(value)
    elif kind in LEAVES:
        return
    elif depth > DEEPEST:
        raise BadRow(f"a row is nested more than {DEEPEST} levels deep")
    elif kind is tuple or kind is list or kind is set or kind is frozenset:
        for item in value:
            _check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            _check(key, depth + 1)
            _check(item, depth + 1)
    else:
        raise refused(value)


def _check_size(value: int | str) -> None:
    """Whole numbers have 64 bits and text is UTF-8."""
    if isinstance(value, int):
        if not LEAST_INT <= value <= MOST_INT:
            raise _unwritable(f"{value.bit_length()} bits")
    elif not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _unwritable(str(error)) from error


def _unwritable(cause: str) -> BadRow:
    return BadRow(
        "a row cannot be written", cause=cause, hint="whole numbers have 64 bits, text is valid Unicode"
    )


def check(rows: Sequence[Any]) -> int:
    """The shape of rows that can travel; BadRow if one of them cannot.

    Flat rows are written and thrown away: at 20 ns a row that is cheaper than looking at their numbers and texts
    one by one."""
    if type(rows) is Columns:
        for values in rows.objects:
            check(values)
        return COLUMNS
    shape = shape_of(rows)
    if shape != NESTED:
        write(rows, shape)
    return shape


def write(rows: Sequence[Any], shape: int) -> bytes:
    """Rows → bytes. BadRow when a number does not fit 64 bits, or what is nested is no plain value."""
    if shape == COLUMNS:
        return _write_columns(rows)
    try:
        return _encode(rows if shape != NESTED else [_wrap(row) for row in rows])
    except (OverflowError, UnicodeEncodeError) as error:
        raise _unwritable(str(error)) from error
    except RecursionError as error:
        raise BadRow(f"a row is nested more than {DEEPEST} levels deep") from error


def write_one(row: Any) -> bytes:
    """As `write`, a row that could be one of shape PLAIN, without what is before it."""
    try:
        return _encode(row)
    except (OverflowError, UnicodeEncodeError) as error:
        raise _unwritable(str(error)) from error


def _write_columns(rows: Any) -> bytes:
    parts = []
    for code, axes, data in rows.parts:
        if code == OBJECTS:
            shape = shape_of(data)
            axes, data = [*axes, shape], write(data, shape)
        parts.append((code, axes, data))
    return _encode((rows.form, rows.names, parts))


def _read_columns(data: bytes | msgspec.Raw) -> Columns:
    form, names, written = _columns.decode(data)
    parts = []
    for code, axes, some in written:
        if code == OBJECTS:
            *axes, shape = axes
            if shape == COLUMNS:
                raise ValueError("columns in columns")
            parts.append((code, axes, read(bytes(some), shape)))
        else:
            parts.append((code, axes, some))
    return Columns.of_parts(form, names, parts)


def read(data: bytes | msgspec.Raw, shape: int) -> Any:
    """Bytes → rows; msgspec.DecodeError (ValidationError is one) for bytes that are none. Columns are not copied."""
    if shape == COLUMNS:
        try:
            return _read_columns(data)
        except ValueError as error:
            raise msgspec.ValidationError(f"not the bytes of columns: {error}") from error
    decoder = _DECODERS.get(shape)
    if decoder is None:
        raise msgspec.ValidationError(f"unknown shape {shape} of rows")
    try:
        rows: list[Any] = decoder.decode(data)
        return rows
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        raise msgspec.ValidationError(f"not the bytes of rows: {error}") from error


# Rows that were written in pieces: what msgpack has of them is a head, which says how many there are, and they.

_HEADS = {0xDC: 3, 0xDD: 5}  # its bytes, by the first of them; else one
_FEW, _MANY = 16, 1 << 16  # from so many rows on it is longer


def together(pieces: Sequence[tuple[int, bytes]], rows: int) -> tuple[int, bytes]:
    """(shape, bytes) of pieces of so many rows in all, as those of all of them. None is of columns.

    >>> together([(PLAIN, write([1], PLAIN)), (TUPLES, write([(2, 3)], TUPLES))], 2)[0] == NESTED
    True
    """
    shapes = {shape for shape, _ in pieces}
    if TUPLES in shapes and len(shapes) > 1:
        pieces = [
            (NESTED, data if shape != TUPLES else _encode(raw_rows(data, shape))) for shape, data in pieces
        ]
    shape = max((shape for shape, _ in pieces), default=PLAIN)  # what is plain is in both the same bytes
    return shape, with_head([without_head(data) for _, data in pieces], rows)


def without_head(data: bytes) -> bytes:
    """Rows that were written, one behind the other: not of columns."""
    return data[_HEADS.get(data[0], 1) :]


def with_head(pieces: Iterable[bytes], rows: int) -> bytes:
    """So many rows in all, as `write` has them."""
    if rows < _FEW:
        head = bytes((0x90 | rows,))
    else:
        head = b"\xdc" + rows.to_bytes(2) if rows < _MANY else b"\xdd" + rows.to_bytes(4)
    return b"".join((head, *pieces))


# Pairs [key, value] of which the values are moved, not read: rows of shape NESTED.


def read_pairs(data: bytes) -> list[tuple[Any, msgspec.Raw]]:
    """Raises msgspec.DecodeError."""
    return _pairs.decode(data)


def write_pairs(pairs: Iterable[tuple[Any, msgspec.Raw]]) -> bytes:
    return _encode([(key if type(key) in SCALARS else _wrap(key), value) for key, value in pairs])


def raw_rows(data: bytes, shape: int) -> list[msgspec.Raw]:
    """Each row as it is written in NESTED. Raises msgspec.DecodeError."""
    if shape in (PLAIN, NESTED):
        return _raws.decode(data)
    return [msgspec.Raw(_encode(_wrap(row))) for row in read(data, shape)]


def _wrap(value: Any) -> Any:
    """As msgpack has it. BadRow for what is no plain value: msgpack would make another type of it."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is tuple:
        return msgspec.msgpack.Ext(EXT_TUPLE, _encode([_wrap(item) for item in value]))
    if kind is list:
        return value if SCALARS.issuperset(map(type, value)) else [_wrap(item) for item in value]
    if kind is dict:
        if set(map(type, value)) <= _STR:
            return {key: _wrap(item) for key, item in value.items()}
        return msgspec.msgpack.Ext(
            EXT_DICT, _encode([[_wrap(key), _wrap(item)] for key, item in value.items()])
        )
    if kind is datetime and value.tzinfo is UTC:
        return value
    if kind in LEAVES:
        return _leaf(value, kind)
    if kind is set or kind is frozenset:
        code = EXT_SET if kind is set else EXT_FROZENSET
        return msgspec.msgpack.Ext(code, _encode([_wrap(item) for item in value]))
    raise refused(value)


def _leaf(value: Any, kind: type) -> Any:
    if kind is datetime or kind is time:
        zone = value.tzinfo.key if type(value.tzinfo).__module__ == "zoneinfo" else None
        if zone or value.fold:
            clock = value.replace(tzinfo=None) if zone else value
            return msgspec.msgpack.Ext(EXT_ZONED, _encode((clock.isoformat(), value.fold, zone or "")))
        code, text = EXT_DATETIME if kind is datetime else EXT_TIME, value.isoformat()
    elif kind is date:
        code, text = EXT_DATE, value.isoformat()
    elif kind is Decimal:
        code, text = EXT_DECIMAL, str(value)
    elif kind is timedelta:
        return msgspec.msgpack.Ext(EXT_SPAN, _encode((value.days, value.seconds, value.microseconds)))
    else:
        return msgspec.msgpack.Ext(EXT_UUID, value.bytes)
    return msgspec.msgpack.Ext(code, text.encode())


def _unwrap(code: int, data: memoryview) -> Any:
    make = _MAKE.get(code)
    return _refuse(code, data) if make is None else make(data)


def _zoned(data: memoryview) -> datetime | time:
    from zoneinfo import ZoneInfo

    text, fold, zone = _three.decode(data)
    clock = datetime.fromisoformat(text) if "T" in text else time.fromisoformat(text)
    return clock.replace(tzinfo=ZoneInfo(zone) if zone else clock.tzinfo, fold=fold)


def _refuse(code: int, _: memoryview) -> Any:
    raise msgspec.ValidationError(f"unknown extension type {code} in a row")


_columns = msgspec.msgpack.Decoder(tuple[int, list[str], list[tuple[str, list[int], memoryview]]])
_nested = msgspec.msgpack.Decoder(list, ext_hook=_unwrap)
_pairs = msgspec.msgpack.Decoder(list[tuple[Any, msgspec.Raw]], ext_hook=_unwrap)
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_three = msgspec.msgpack.Decoder(tuple[str, int, str])
_span = msgspec.msgpack.Decoder(tuple[int, int, int])
_MAKE: dict[int, Callable[[memoryview], Any]] = {
    EXT_TUPLE: lambda data: tuple(_nested.decode(data)),
    EXT_DATETIME: lambda data: datetime.fromisoformat(bytes(data).decode()),
    EXT_DECIMAL: lambda data: Decimal(bytes(data).decode()),
    EXT_DATE: lambda data: date.fromisoformat(bytes(data).decode()),
    EXT_TIME: lambda data: time.fromisoformat(bytes(data).decode()),
    EXT_SPAN: lambda data: timedelta(*_span.decode(data)),
    EXT_UUID: lambda data: UUID(bytes=bytes(data)),
    EXT_ZONED: _zoned,
    EXT_DICT: lambda data: dict(_nested.decode(data)),
    EXT_SET: lambda data: set(_nested.decode(data)),
    EXT_FROZENSET: lambda data: frozenset(_nested.decode(data)),
}
_DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    PLAIN: msgspec.msgpack.Decoder(list, ext_hook=_refuse),
    TUPLES: msgspec.msgpack.Decoder(list[tuple], ext_hook=_refuse),  # type: ignore[type-arg]
    NESTED: _nested,
}


def good_rows(rows: Sequence[Any]) -> tuple[list[int], list[tuple[int, BadRow]]]:
    """Which rows can travel (places), and which cannot (place, why)."""
    good: list[int] = []
    bad: list[tuple[int, BadRow]] = []
    for place, row in enumerate(rows):
        try:
            check([row])
        except BadRow as error:
            bad.append((place, error))
        else:
            good.append(place)
    return good, bad


# ── Keys: equal ones of one type are one, in every process ─────────────────────────────────────────


def key_bytes(key: Any) -> bytes:
    """The bytes of a key, the same in every process: equal keys of one type give equal bytes. BadRow for what is no
    plain value."""
    kind = type(key)
    try:
        if kind is not str and kind is not int:
            _check(key, 0)
            key = _wrap(_canonical(key))
        return _encode(key)
    except (BadRow, OverflowError, UnicodeEncodeError) as error:
        hint = getattr(error, "hint", None)
        raise BadRow("a key cannot be written", cause=str(error).replace("a row", "it"), hint=hint) from error


def one_key(key: Hashable) -> Hashable:
    """The key that stands for this one in a dict: a NaN equals no other, not even itself when it came over a wire."""
    kind = type(key)
    if isinstance(key, tuple) and TOLD_APART.issuperset(map(type, key)):
        return key
    if kind is tuple or kind is frozenset:
        return kind(map(one_key, key))  # type: ignore[call-overload]
    if key == key:
        return key
    return _DECIMAL_NAN if kind is Decimal else nan if kind is float else key


def key_place(key: Hashable) -> Hashable:
    """Where a key is in a dict in which equal keys of several types are several, as they are to the routes."""
    kind = type(key)
    if kind is str or kind is int or kind is bytes:
        return key
    return (kind, *map(key_place, key)) if kind is tuple else (kind, one_key(key))  # type: ignore[call-overload]


_DECIMAL_NAN = Decimal("NaN")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _canonical(key: Any) -> Any:
    """Equal numbers, moments and sets in one form."""
    kind = type(key)
    if kind is float:
        return key + 0.0 if key == key else nan  # −0.0 is 0.0
    if kind is Decimal:
        if not key.is_finite():
            return _DECIMAL_NAN if key.is_nan() else key
        return _EXACT.normalize(key) if key else Decimal(0)
    if kind is datetime and key.tzinfo is not None:
        return key.astimezone(UTC)
    if kind is time and key.utcoffset() is not None:
        return "time", timedelta(
            hours=key.hour, minutes=key.minute, seconds=key.second, microseconds=key.microsecond
        ) - key.utcoffset()
    if kind is tuple:
        return tuple(map(_canonical, key))
    if kind is frozenset:
        return "frozenset", sorted(map(key_bytes, key))
    return key


# ── Which rows are looked at before they go on inside a worker. Pure ───
#
# Every row that goes to another process is looked at where it is written. One that stays was looked at just
# as closely, which took a third of a frame's time: so of every fourth larger frame a part is looked at, every
# time another one, and after a row that cannot travel all rows of the next frames. A function that returns
# what cannot travel does so again and again: what is passed over reaches the next task as it is, and is found
# some frames later, or where it leaves the worker.

WHOLE_MOST = 32  # rows in a frame of which all are looked at
TURNS = 4  # of larger ones every fourth is looked at
ONE_IN, LOOKED_AT = 8, 32  # … one row in eight, or, where that is more, some 32
CAREFUL_FRAMES = 256  # are looked at as a whole after a row that cannot travel


class RowChecks:
    """Of what one thread gives on. every: all rows are looked at."""

    def __init__(self) -> None:
        self.every = False
        self._careful = self._begin = 0

    def pass_on(self, rows: Sequence[Any]) -> bool:
        """May these rows go on? Else one that was looked at cannot travel."""
        if type(rows) is Columns and rows.sound:
            return True
        if self.every or self._careful or len(rows) <= WHOLE_MOST:
            self._careful = max(0, self._careful - 1)
        elif self._begin % TURNS:
            self._begin += 1
            return True
        else:
            step = max(ONE_IN, len(rows) // LOOKED_AT)
            rows = rows[(1 + self._begin // TURNS) % step :: step]
            self._begin += 1
        try:
            check(rows)
        except BadRow:
            self._careful = CAREFUL_FRAMES
            return False
        return True


# ── How large rows are in memory, about, as a source gives them and as a task makes them: so that what is
# in flight can be bounded in bytes. Pure.
#
# Some rows of a root or frame are looked at, every time others, and of a row no more than its first values;
# the mean is of some sixty rows, all of them of the first roots. A root of large rows is a small one, so of
# these more is seen. What a root is when it is written is known from all of its rows.

TOLD_FROM_BYTES = 4096  # of what a task made of a root
LOOK_EVERY_FRAMES = 16  # while it makes less
OTHER_BYTES = 64  # of what is no plain value, or nested deeper
MEASURED_ROWS = 4  # rows of a root
MEAN_OF = 64  # rows
VALUES_MOST = 64  # of a list or dict that are looked at
MEASURED_DEPTH = 6
LOOKED_TOGETHER = 16  # rows
SURPRISE = 4  # rows that are so many times as large as those before are looked at as the first ones are
FLAT = frozenset((int, float, str, bytes, bool, type(None)))


class RowSizes:
    """Of one thread. mean_bytes: of a row; 0 before there was one."""

    def __init__(self) -> None:
        self.mean_bytes = 0.0
        self._begin = self._seen = 0

    @property
    def sure(self) -> bool:
        """Is the mean of as many rows as it will ever be?"""
        return self._seen == MEAN_OF

    def saw(self, rows: Sequence[Any]) -> None:
        """These rows were read."""
        if not len(rows):
            return
        if type(rows) is Columns:
            rest = (sum(map(bytes_of, values[:MEASURED_ROWS])) / MEASURED_ROWS for values in rows.objects)
            size, looked_at = rows.row_bytes + sum(rest), len(rows)
        else:
            size, looked_at = self._some(rows, max(MEASURED_ROWS, MEAN_OF - self._seen))
            if size > SURPRISE * self.mean_bytes > 0.0:  # rows are others now
                self._seen = 0
                size, looked_at = self._some(rows, MEAN_OF)
        self._seen = min(MEAN_OF, self._seen + looked_at)
        self.mean_bytes += (size - self.mean_bytes) * min(1.0, looked_at / self._seen)

    def _some(self, rows: Sequence[Any], most: int) -> tuple[float, int]:
        """The mean of so many rows at most, and how many there were."""
        step = max(1, len(rows) // most)
        some = rows[self._begin % step :: step][:most]
        self._begin += 1
        return sum([bytes_of(row) for row in some]) / len(some), len(some)


class MadeSizes:
    """Of what one thread makes of rows."""

    def __init__(self) -> None:
        self._sizes = RowSizes()
        self._unlooked = 0  # so many frames may pass before one is looked at again

    @property
    def mean_bytes(self) -> float:
        """Of what is made of a row, as far as was looked."""
        return self._sizes.mean_bytes

    def made_bytes(self, rows: Sequence[Any], roots: int) -> int:
        """Of what came of a frame of so many roots, the part of each, about; 0 where that is little."""
        if self._unlooked:
            self._unlooked -= 1
            return 0
        self._sizes.saw(rows)
        each = int(self._sizes.mean_bytes * len(rows)) // roots
        if each >= TOLD_FROM_BYTES:
            return each
        self._unlooked = LOOK_EVERY_FRAMES - 1
        return 0


def fitting(rows: Sequence[Any], most: int) -> tuple[int, int]:
    """How many rows, from the first on, are no more than so many bytes when they are written, and how many bytes
    these are. One fits always. All are looked at."""
    lists, each = (rows.objects, rows.row_bytes) if type(rows) is Columns else ([rows], 0)
    total = 0

    def between(start: int, stop: int) -> int:
        return each * (stop - start) + sum(_written_bytes(values[start:stop]) for values in lists)

    for start in range(0, len(rows), LOOKED_TOGETHER):
        stop = min(start + LOOKED_TOGETHER, len(rows))
        if (size := between(start, stop)) <= most - total:
            total += size
            continue
        for place in range(start, stop):
            size = between(place, place + 1)
            if place and size > most - total:
                return place, total
            total += size
    return len(rows), total


def _written_bytes(values: Sequence[Any]) -> int:
    try:
        return len(_encode(values))
    except (TypeError, ValueError, OverflowError, RecursionError):  # not all are plain
        return sum(map(bytes_of, values))


def bytes_of(value: Any, depth: int = 0) -> int:
    """Of a value in memory, about."""
    kind = type(value)
    if kind in FLAT:
        return int(value.__sizeof__())
    if depth == MEASURED_DEPTH or not (kind is tuple or kind is list or kind is dict):
        return OTHER_BYTES
    inside = value.values() if kind is dict else value
    many = len(value)
    if many > VALUES_MOST:
        inside = islice(inside, VALUES_MOST)
    sizes = [one.__sizeof__() if type(one) in FLAT else bytes_of(one, depth + 1) for one in inside]
    return int(value.__sizeof__()) + sum(sizes) * many // max(1, len(sizes))
