"""JSON and MessagePack, by msgspec."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from math import isfinite
from typing import Any

import msgspec

from headgate.topology_runtime.connectors.formats.format import (
    Format,
    Row,
    finite_fault,
    plain_fault,
    utf8,
    walk,
)
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows.row_values import DEEPEST

SMALL_BYTES = 1 << 16
SIGNS = bytes.maketrans(b"123456789[", b"000000000{")  # digits, and what nests
HALF = re.compile(rb"\\u[dD]")  # halves of characters
LONG = b"0" * 19  # whole numbers of more than 64 bits
TEXT, FEW = {str}, {str, int, float, bool, type(None)}
AT = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)


def located(error: Exception) -> BadRow:
    """What msgspec says of a value, with the field first."""
    text, path = AT.fullmatch(str(error)).groups()  # type: ignore[union-attr]
    text = text.replace("`", "")
    return BadRow(f"{path or '$'}: {text[:1].lower()}{text[1:]}")


class JsonFormat(Format):
    """One JSON value a message. Numbers beyond 64 bits are refused. Of a key that stands twice the last counts."""

    def __init__(self) -> None:
        self._read, self._write = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode

    def decode(self, data: bytes) -> Row:
        """As any format does; what JSON says is plain, so only numbers, texts and nesting that may be too much for a
        row are looked at."""
        if len(data) > SMALL_BYTES:
            return super().decode(data)
        signs = data.translate(SIGNS)
        escapes = data.find(b"\\") >= 0 and HALF.search(data)  # `find` takes half as long as `in`
        if escapes or signs.find(LONG) >= 0 or signs.count(b"{") > DEEPEST:
            return super().decode(data)
        try:
            return self._read(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _no_json(error, data) from error

    def _decode(self, data: bytes) -> Row:
        try:
            return self._read(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _no_json(error, data) from error

    def encode_all(self, rows: Sequence[Row]) -> list[bytes]:
        """As any format does; flat rows are looked at together."""
        return self._flat(rows) or super().encode_all(rows)

    def _flat(self, rows: Sequence[Row]) -> list[bytes]:
        """Nothing if one of them is not flat, or JSON may not hold it."""
        if not _are_flat(rows):
            return []
        try:
            found = [self._write(row) for row in rows]
        except UnicodeEncodeError:
            return []
        return found if LONG not in b",".join(found).translate(SIGNS) else []

    def _encode(self, row: Row) -> bytes:
        walk(row, _json_fault, text_keys=True)
        return self._write(row)


def _are_flat(rows: Sequence[Row]) -> bool:
    """Are they dicts by text of numbers, which are finite, texts, truth values and null?"""
    if {*map(type, rows)} != {dict} or not TEXT.issuperset(map(type, chain.from_iterable(rows))):
        return False
    types = {*map(type, chain.from_iterable(map(dict.values, rows)))}
    values = chain.from_iterable(map(dict.values, rows)) if float in types else ()
    return types <= FEW and all(isfinite(value) for value in values if type(value) is float)


def _no_json(error: Exception, data: bytes) -> BadRow:
    if isinstance(error, msgspec.ValidationError):
        return located(error)
    try:
        utf8(data)
    except BadRow as found:
        return found
    text = str(error).removeprefix("JSON is malformed: ")
    return BadRow(f"$: no JSON: {text}", cause=repr(data[:80]))


def _json_fault(value: Any) -> str | None:
    if type(value) in (bool, int, float, str, type(None)):
        return finite_fault(value) or plain_fault(value)
    return "what JSON has"


class MsgpackFormat(Format):
    """One MessagePack value a message: all of JSON, bytes, and moments (the timestamp extension, in UTC)."""

    def __init__(self) -> None:
        self._read, self._write = msgspec.msgpack.Decoder().decode, msgspec.msgpack.Encoder().encode

    def _decode(self, data: bytes) -> Row:
        try:
            return self._read(data)
        except msgspec.ValidationError as error:
            raise located(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = str(error).removeprefix("MessagePack data is malformed: ")
            raise BadRow(f"$: no MessagePack: {text}", cause=repr(data[:80])) from error

    def _encode(self, row: Row) -> bytes:
        walk(row, _msgpack_fault, text_keys=False)
        return self._write(row)


def _msgpack_fault(value: Any) -> str | None:
    if type(value) is datetime:
        return None if value.tzinfo else "a datetime with its offset from UTC"
    if type(value) in (bool, int, float, str, bytes, type(None)):
        return plain_fault(value)
    return "what MessagePack has"


class RawFormat(Format):
    """The bytes themselves."""

    def _decode(self, data: bytes) -> Row:
        return bytes(data)

    def _encode(self, row: Row) -> bytes:
        if type(row) is not bytes:
            raise BadRow(f"$: expected bytes, got {type(row).__name__}")
        return row
