"""The contract of every format: the bytes of one message ↔ one row. What is no row is a `BadRow` with its place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from headgate.topology_runtime.connectors.text_files import LINE_MOST_BYTES
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows.row_values import DEEPEST, LEAST_INT, MOST_INT, check

Row = Any
MOST_BYTES = LINE_MOST_BYTES  # of one message: a row has room for 768 KiB on the wire
PLAIN_NAMES = {
    type(None): "null",
    Decimal: "decimal",
    datetime: "datetime",
    date: "date",
    time: "time",
    timedelta: "timedelta",
    UUID: "UUID",
}


class Format(ABC):
    """Bytes of one message ↔ a row of plain values. Not to be shared by threads: each builds its own.

    >>> from headgate.topology_runtime.connectors.formats.json_format import JsonFormat
    >>> JsonFormat().decode(b'{"a": [1, 2.5]}'), JsonFormat().encode({"a": None})
    ({'a': [1, 2.5]}, b'{"a":null}')
    """

    def decode(self, data: bytes) -> Row:
        """The row that one message says. Raises BadRow, which names the field ("$.user.age: expected int, got str")
        or the byte; ServiceAway if a schema registry that is needed does not answer: try the same message again."""
        if len(data) > MOST_BYTES:
            raise BadRow(f"$: {len(data):,} bytes are more than a row may have, {MOST_BYTES:,}")
        try:
            row = self._decode(data)
        except RecursionError as error:
            raise too_deep("$") from error
        try:
            check((row,))
        except BadRow:
            must_be_plain(row)
            raise
        return row

    def encode(self, row: Row) -> bytes:
        """The bytes of one message. Raises BadRow, which names the field, for what this format cannot hold;
        ServiceAway as `decode` does."""
        try:
            return self._encode(row)
        except RecursionError as error:
            raise too_deep("$") from error

    def encode_all(self, rows: Sequence[Row]) -> list[bytes]:
        """Each of them, as `encode`."""
        return [self.encode(row) for row in rows]

    def close(self) -> None:
        """Give back what it has open: a registry's connection."""
        return None

    @abstractmethod
    def _decode(self, data: bytes) -> Row:
        """As `decode`; it need not look at sizes and depth."""

    @abstractmethod
    def _encode(self, row: Row) -> bytes:
        """As `encode`."""


def mismatch(path: str, expected: str, value: Any) -> BadRow:
    """ "$.user.age: expected int, got str"."""
    return BadRow(f"{path}: expected {expected}, got {kind_of(value)}", cause=repr(value)[:200])


def too_deep(path: str) -> BadRow:
    return BadRow(f"{path}: nested more than {DEEPEST} levels deep")


def kind_of(value: Any) -> str:
    kind = type(value)
    return PLAIN_NAMES.get(kind, kind.__name__)


def below(path: str, key: object) -> str:
    """The path of what stands there under a name or number.

    >>> below("$.users", 3), below("$", "age"), below("$", "first name")
    ('$.users[3]', '$.age', "$['first name']")
    """
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}"
    return f"{path}[{key!r}]"[:400]


def utf8(data: bytes) -> str:
    """Bytes as text. BadRow with the byte that is no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRow(f"$: byte {error.start:,} is no UTF-8", cause=repr(data[:80])) from error


Refusal = Callable[[Any], str | None]  # what a scalar value should be instead; None if it is good


def must_be_plain(row: Row) -> None:
    """BadRow with the path of what rows cannot hold."""
    walk(row, lambda value: None if type(value) in PLAIN_NAMES else plain_fault(value), text_keys=False)


def plain_fault(value: Any) -> str | None:
    kind = type(value)
    if kind is int:
        return None if LEAST_INT <= value <= MOST_INT else "a whole number of 64 bits"
    if kind is str:
        return None if whole_text(value) else "text that is valid Unicode"
    return None if kind in (bool, float, bytes, type(None)) else "a plain value"


def whole_text(value: str) -> bool:
    """Can it be written as UTF-8?"""
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def walk(value: Any, fault: Refusal, text_keys: bool, path: str = "$", depth: int = 0) -> None:
    """Look at every scalar in a row. BadRow with the path of the first that `fault` says something of, of a key that is
    no text (text_keys), and of what is nested too deep."""
    kind = type(value)
    if kind is dict:
        if depth > DEEPEST:
            raise too_deep(path)
        for key, item in value.items():
            if type(key) is not str:
                if text_keys:
                    raise mismatch(path, "keys that are str", key)
                walk(key, fault, text_keys, below(path, key), depth + 1)
            elif not whole_text(key):
                raise BadRow(f"{path}: expected keys that are valid Unicode", cause=ascii(key)[:200])
            walk(item, fault, text_keys, below(path, key), depth + 1)
    elif kind in (list, tuple) or (not text_keys and kind in (set, frozenset)):
        if depth > DEEPEST:
            raise too_deep(path)
        for place, item in enumerate(value):
            walk(item, fault, text_keys, below(path, place), depth + 1)
    elif expected := fault(value):
        shown = ascii(value)[:200] if kind is not int or value.bit_length() < 1000 else "a very long number"
        raise BadRow(f"{path}: expected {expected}, got {kind_of(value)}", cause=shown)


def fits_float32(value: float) -> bool:
    """Is it in the range of 32 bits? It is rounded to the nearest there."""
    return not isfinite(value) or abs(value) < 3.4028235677973366e38


def finite_fault(value: Any) -> str | None:
    return None if type(value) is not float or isfinite(value) else "a number that is finite"
