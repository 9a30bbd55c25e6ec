"""Rows mean the same whether they stay in a process or cross one: types survive the wire exactly.

A frame's rows are written in the cheapest way that keeps every type; `shape` says which:

    PLAIN   scalars, or flat lists and dicts of scalars: msgpack as it is
    TUPLES  tuples of scalars: arrays that are read back as tuples
    NESTED  anything else that is plain: tuples and naive datetimes are wrapped in extension types

Whoever sends checks, also on hops inside a worker: what is not a plain value is a `BadRow` everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from topology_runtime.errors import BadRow

PLAIN, TUPLES, NESTED = range(3)
EXT_TUPLE, EXT_NAIVE = 1, 2
SCALARS = frozenset({int, float, str, bytes, bool, type(None)})
_STR = frozenset({str})
DEEPEST = 32  # levels of nesting

_encode = msgspec.msgpack.Encoder().encode
_plain = msgspec.msgpack.Decoder(list)
_tuples = msgspec.msgpack.Decoder(list[tuple])  # type: ignore[type-arg]


def shape_of(rows: Sequence[Any]) -> int:
    """The shape of these rows; BadRow if one of them is not a plain value."""
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
    if kind in SCALARS or kind is datetime:
        return
    if depth > DEEPEST:
        raise BadRow(f"a row is nested more than {DEEPEST} levels deep")
    if kind is tuple or kind is list:
        for item in value:
            _check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise BadRow(f"a dict in a row has the key {key!r}; keys are strings")
            _check(item, depth + 1)
    else:
        raise BadRow(
            f"a row holds a {kind.__module__}.{kind.__qualname__}; rows are plain values",
            hint="emit None, bool, int, float, str, bytes, datetime, or tuples, lists and dicts of them",
        )


def write(rows: Sequence[Any], shape: int) -> bytes:
    """Rows → bytes. BadRow when a number does not fit 64 bits."""
    try:
        return _encode(rows if shape != NESTED else [_wrap(row) for row in rows])
    except (OverflowError, UnicodeEncodeError) as error:
        raise BadRow(
            "a row cannot be written", cause=str(error), hint="whole numbers have 64 bits"
        ) from error


def read(data: bytes | msgspec.Raw, shape: int) -> list[Any]:
    """Bytes → rows; msgspec.DecodeError (or ValidationError) for bytes that are none."""
    if shape == PLAIN:
        return _plain.decode(data)
    if shape == TUPLES:
        return _tuples.decode(data)
    return _nested.decode(data)


def _wrap(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return msgspec.msgpack.Ext(EXT_TUPLE, _encode([_wrap(item) for item in value]))
    if kind is list:
        return [_wrap(item) for item in value]
    if kind is dict:
        return {key: _wrap(item) for key, item in value.items()}
    if kind is datetime and value.tzinfo is None:
        return msgspec.msgpack.Ext(EXT_NAIVE, value.isoformat().encode())
    if kind is datetime:
        return value.astimezone(UTC)
    return value


def _unwrap(code: int, data: memoryview) -> Any:
    if code == EXT_TUPLE:
        return tuple(_nested.decode(data))
    if code == EXT_NAIVE:
        return datetime.fromisoformat(bytes(data).decode())
    raise msgspec.ValidationError(f"unknown extension type {code} in a row")


_nested = msgspec.msgpack.Decoder(list, ext_hook=_unwrap)


def good_rows(rows: Sequence[Any]) -> tuple[list[int], list[tuple[int, BadRow]]]:
    """Which rows can travel (places), and which cannot (place, why)."""
    good: list[int] = []
    bad: list[tuple[int, BadRow]] = []
    for place, row in enumerate(rows):
        try:
            write([row], shape_of([row]))
        except BadRow as error:
            bad.append((place, error))
        else:
            good.append(place)
    return good, bad


def key_bytes(key: Any) -> bytes:
    """The bytes of a key, the same in every process: equal keys of one type give equal bytes."""
    return _encode(_wrap(key))
