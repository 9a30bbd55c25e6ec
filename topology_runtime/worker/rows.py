"""Rows mean the same whether they stay in a process or cross one: types survive the wire exactly.

A frame's rows are written in the cheapest way that keeps every type; `shape` says which:

    PLAIN   scalars, or flat dicts of scalars: msgpack as it is
    TUPLES  tuples of scalars: arrays that are read back as tuples
    NESTED  anything else that is plain: tuples and datetimes are wrapped in extension types
    COLUMNS columns (columns.py): of numbers as their bytes, of objects as rows

What is not a plain value is a `BadRow`. All rows that leave a worker are looked at, and of those that stay a
part (row_checks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.columns import OBJECTS, Columns

PLAIN, TUPLES, NESTED, COLUMNS = range(4)
EXT_TUPLE, EXT_DATETIME = 1, 2  # a tuple's items; a datetime as ISO text, which keeps its offset
SCALARS = frozenset({int, float, str, bytes, bool, type(None)})
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


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is int or kind is str:
        _check_size(value)
    elif kind in SCALARS or kind is datetime:
        return
    elif depth > DEEPEST:
        raise BadRow(f"a row is nested more than {DEEPEST} levels deep")
    elif kind is tuple or kind is list:
        for item in value:
            _check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise BadRow(f"a dict in a row has the key {key!r}; keys are strings")
            _check_size(key)
            _check(item, depth + 1)
    else:
        raise BadRow(
            f"a row holds a {kind.__module__}.{kind.__qualname__}; rows are plain values",
            hint="emit None, bool, int, float, str, bytes, datetime, or tuples, lists and dicts of them",
        )


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
    """Rows → bytes. BadRow when a number does not fit 64 bits."""
    if shape == COLUMNS:
        return _write_columns(rows)
    try:
        return _encode(rows if shape != NESTED else [_wrap(row) for row in rows])
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
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise msgspec.ValidationError(f"not the bytes of rows: {error}") from error


def _wrap(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return msgspec.msgpack.Ext(EXT_TUPLE, _encode([_wrap(item) for item in value]))
    if kind is list:
        return [_wrap(item) for item in value]
    if kind is dict:
        return {key: _wrap(item) for key, item in value.items()}
    if kind is datetime and value.tzinfo is not UTC:
        return msgspec.msgpack.Ext(EXT_DATETIME, value.isoformat().encode())
    return value


def _unwrap(code: int, data: memoryview) -> Any:
    if code == EXT_TUPLE:
        return tuple(_nested.decode(data))
    if code == EXT_DATETIME:
        return datetime.fromisoformat(bytes(data).decode())
    return _refuse(code, data)


def _refuse(code: int, _: memoryview) -> Any:
    raise msgspec.ValidationError(f"unknown extension type {code} in a row")


_columns = msgspec.msgpack.Decoder(tuple[int, list[str], list[tuple[str, list[int], memoryview]]])
_nested = msgspec.msgpack.Decoder(list, ext_hook=_unwrap)
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


def key_bytes(key: Any) -> bytes:
    """The bytes of a key, the same in every process: equal keys of one type give equal bytes."""
    kind = type(key)
    return _encode(key if kind is str or kind is int else _wrap(_canonical(key)))


def _canonical(key: Any) -> Any:
    """Equal floats and equal moments in one form."""
    if type(key) is float:
        return key + 0.0  # −0.0 is 0.0
    if type(key) is datetime and key.tzinfo is not None:
        return key.astimezone(UTC)
    if type(key) is tuple:
        return tuple(map(_canonical, key))
    return key
