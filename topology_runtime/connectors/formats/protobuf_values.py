"""Protobuf messages of one type as rows and back, and the field at which bytes are none of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format import (
    below,
    fits_float32,
    mismatch,
    too_deep,
    whole_text,
)
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows.row_values import DEEPEST

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
INT32, INT64, UINT32, UINT64, DOUBLE, FLOAT, BOOL, ENUM, STRING, MESSAGE = range(1, 11)  # protobuf's cpp_type
BYTES = 12  # its type
WHOLE = {
    INT32: ("int32", -(1 << 31), (1 << 31) - 1),
    INT64: ("int64", -(1 << 63), (1 << 63) - 1),
    UINT32: ("uint32", 0, (1 << 32) - 1),
    UINT64: ("uint64", 0, (1 << 64) - 1),
}
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
VARINT, I64, LEN, GROUP, END, I32 = range(6)  # how a field stands in bytes
STANDS = ("a varint", "8 bytes", "bytes with a length", "a group", "the end of a group", "4 bytes")


class MessageType:
    """Of a descriptor. A row has every field. One that is not set is None where the schema says whether a field is set
    (`optional`, `oneof`, messages), else its default. Enums are names, or the number if it has no name; Timestamp is a
    datetime and Duration a timedelta, both to the microsecond; wrappers are their value. Fields that this schema does
    not know are left out."""

    def __init__(self, descriptor: Any, known: dict[str, MessageType] | None = None) -> None:
        self._unknown_of = needed("google.protobuf.unknown_fields", "protobuf").UnknownFieldSet
        known = {} if known is None else known
        known[descriptor.full_name] = self  # it may hold itself
        self.descriptor, self.name = descriptor, str(descriptor.full_name)
        self._fields = [_Field(field, known) for field in descriptor.fields]
        self._named = {field.name: field for field in self._fields}

    def row(self, message: Any, path: str = "$", depth: int = 0) -> Any:
        """What the message says. BadRow with the path of what cannot be a row."""
        if depth > DEEPEST:
            raise too_deep(path)
        if self.name == "google.protobuf.Timestamp":
            return _moment(message, path)
        if self.name == "google.protobuf.Duration":
            return timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))
        if self.name in WRAPPERS:
            return message.value
        if unknown := self._unknown_of(message):
            self._look(unknown, path)
        row = {}
        for field in self._fields:
            name = field.name
            if field.optional and not message.HasField(name):
                row[name] = field.default
            elif field.plain:
                row[name] = getattr(message, name)
            else:
                row[name] = field.value(getattr(message, name), path, depth)
        return row

    def _look(self, unknown: Any, path: str) -> None:
        """A field of another type is among those that are unknown: it would be missing without a word."""
        for one in unknown:
            if (field := self.descriptor.fields_by_number.get(one.field_number)) is not None:
                if field.enum_type is not None and one.wire_type == VARINT:
                    raise BadRow(
                        f"{below(path, field.name)}: {one.data} is no value of {field.enum_type.name}"
                    )
                raise BadRow(
                    f"{below(path, field.name)}: expected {_type_name(field)}, got {STANDS[one.wire_type]}"
                )

    def fill(self, message: Any, row: Any, path: str = "$", depth: int = 0) -> None:
        """BadRow with the path of what does not fit; a field that is missing is not set."""
        if depth > DEEPEST:
            raise too_deep(path)
        if self.name in SPECIAL:
            message.seconds, message.nanos = SPECIAL[self.name](row, path)
        elif self.name in WRAPPERS:
            self._fields[0].set(message, row, path, depth)
        elif type(row) is not dict:
            raise mismatch(path, "a dict", row)
        else:
            self._fill(message, row, path, depth)

    def _fill(self, message: Any, row: dict[Any, Any], path: str, depth: int) -> None:
        chosen: dict[str, str] = {}
        for name, value in row.items():
            here = below(path, name)
            if (field := self._named.get(name)) is None:
                raise BadRow(f"{here}: the schema has no such field")
            if value is None and field.optional:
                continue
            if field.one_of:
                if field.one_of in chosen:
                    raise BadRow(f"{here}: {chosen[field.one_of]!r} is set too, of oneof {field.one_of!r}")
                chosen[field.one_of] = name
            field.set(message, value, here, depth)


class _Field:
    """optional: is it known whether it is set? plain: is what protobuf gives a row's value already?"""

    def __init__(self, field: Any, known: dict[str, MessageType]) -> None:
        self.name, self.optional = str(field.name), bool(field.has_presence)
        self.one_of = field.containing_oneof.name if field.containing_oneof is not None else ""
        kind = field.message_type
        entry = kind is not None and kind.GetOptions().map_entry
        self._map, self._many = entry, field.is_repeated
        self._key = _Scalar(kind.fields_by_name["key"]) if entry else None
        inner = kind.fields_by_name["value"] if entry else field
        self._message = None
        if inner.message_type is not None:
            self._message = known.get(inner.message_type.full_name) or MessageType(inner.message_type, known)
        self._scalar = _Scalar(inner)
        self.plain = self._message is None and not self._many and not self._scalar.names
        self.default = None
        if field.has_default_value:
            self.default = self._scalar.names.get(field.default_value, field.default_value)

    def _one(self, value: Any, path: str, depth: int) -> Any:
        if self._message is not None:
            return self._message.row(value, path, depth + 1)
        return self._scalar.names.get(value, value)

    def value(self, value: Any, path: str, depth: int) -> Any:
        if self._message is None and not self._scalar.names and not self._map:
            return list(value)
        path = below(path, self.name)
        if self._map:
            return {key: self._one(value[key], below(path, key), depth + 1) for key in value}
        if self._many:
            return [self._one(one, below(path, place), depth + 1) for place, one in enumerate(value)]
        return self._one(value, path, depth)

    def set(self, message: Any, value: Any, path: str, depth: int) -> None:
        if self._map:
            self._set_map(getattr(message, self.name), value, path, depth)
        elif self._many:
            if type(value) not in (list, tuple):
                raise mismatch(path, "a list", value)
            items = getattr(message, self.name)
            for place, one in enumerate(value):
                here = below(path, place)
                if self._message is not None:
                    self._message.fill(items.add(), one, here, depth + 2)
                else:
                    items.append(self._scalar.checked(one, here))
        elif self._message is not None:
            inner = getattr(message, self.name)
            inner.SetInParent()
            self._message.fill(inner, value, path, depth + 1)
        else:
            setattr(message, self.name, self._scalar.checked(value, path))

    def _set_map(self, items: Any, value: Any, path: str, depth: int) -> None:
        if type(value) is not dict:
            raise mismatch(path, "a dict", value)
        assert self._key is not None
        for key, one in value.items():
            here = below(path, key)
            key = self._key.checked(key, here)
            if self._message is not None:
                self._message.fill(items[key], one, here, depth + 2)
            else:
                items[key] = self._scalar.checked(one, here)


class _Scalar:
    """names: of an enum, by number."""

    def __init__(self, field: Any) -> None:
        self._cpp, self._bytes = field.cpp_type, field.type == BYTES
        kind = field.enum_type
        self.names = (
            {value.number: value.name for value in reversed(kind.values)} if kind else {}
        )  # first alias
        self._numbers: dict[str, int] = {value.name: value.number for value in kind.values} if kind else {}
        self._closed = kind is not None and kind.is_closed
        self._name = _type_name(field)

    def checked(self, value: Any, path: str) -> Any:
        """The value as protobuf takes it: it would take 3.0 and bytes for others too."""
        cpp, kind = self._cpp, type(value)
        if cpp == STRING:
            if kind is not (bytes if self._bytes else str):
                raise mismatch(path, self._name, value)
            if kind is str and not whole_text(value):
                raise BadRow(f"{path}: expected text that is valid Unicode", cause=ascii(value)[:200])
        elif cpp in WHOLE:
            if kind is not int or not WHOLE[cpp][1] <= value <= WHOLE[cpp][2]:
                got = f"a number of {value.bit_length()} bits" if kind is int else ""
                raise (
                    BadRow(f"{path}: expected {self._name}, got {got}")
                    if got
                    else mismatch(path, self._name, value)
                )
        elif cpp in (DOUBLE, FLOAT):
            if kind is not float and kind is not int:
                raise mismatch(path, self._name, value)
            if cpp == FLOAT and not fits_float32(value):
                raise BadRow(
                    f"{path}: expected float, got a number beyond its range", cause=repr(value)[:200]
                )
        elif cpp == BOOL:
            if kind is not bool:
                raise mismatch(path, "bool", value)
        else:
            return self._number(value, path)
        return value

    def _number(self, value: Any, path: str) -> int:
        if type(value) is str and value in self._numbers:
            return self._numbers[value]
        low, high = WHOLE[INT32][1:]
        if type(value) is int and (value in self.names or (not self._closed and low <= value <= high)):
            return int(value)
        raise BadRow(f"{path}: no value of {self._name}", cause=repr(value)[:200])


def _type_name(field: Any) -> str:
    if field.enum_type is not None or field.message_type is not None:
        return str((field.enum_type or field.message_type).name)
    if field.cpp_type in WHOLE:
        return WHOLE[field.cpp_type][0]
    if field.cpp_type == STRING:
        return "bytes" if field.type == BYTES else "string"
    return {DOUBLE: "double", FLOAT: "float"}.get(field.cpp_type, "bool")


def _moment(message: Any, path: str) -> datetime:
    try:
        return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError as error:
        text = f"{path}: {message.seconds} s since 1970 are none of the years 1 to 9999"
        raise BadRow(text) from error


def _of_moment(value: Any, path: str) -> tuple[int, int]:
    if type(value) is not datetime or value.tzinfo is None:
        raise mismatch(path, "a datetime with its offset from UTC", value)
    seconds, rest = divmod(value - EPOCH, SECOND)
    return seconds, rest // MICROSECOND * 1000


def _of_duration(value: Any, path: str) -> tuple[int, int]:
    if type(value) is not timedelta:
        raise mismatch(path, "a timedelta", value)
    seconds, rest = divmod(abs(value), SECOND)
    sign = -1 if value < timedelta() else 1
    return sign * seconds, sign * (rest // MICROSECOND) * 1000


SPECIAL: dict[str, Callable[[Any, str], tuple[int, int]]] = {
    "google.protobuf.Timestamp": _of_moment,
    "google.protobuf.Duration": _of_duration,
}


# ── where bytes are no message ──────────────────────────────────────────────────────────────────


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(the number there, the byte behind it). Raises ValueError."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("a number that does not end")


def look(descriptor: Any, data: bytes, path: str = "$", start: int = 0) -> None:
    """BadRow with the field that the parser refused, as far as it is found. start: where data begins in the message."""
    at = 0
    try:
        while at < len(data):
            tag, at = varint(data, at)
            number, stands = tag >> 3, tag & 7
            field = descriptor.fields_by_number.get(number) if descriptor is not None else None
            here = below(path, field.name if field is not None else number)
            if not number or stands > I32:
                raise BadRow(f"{path}: byte {start + at - 1:,} begins no field")
            size = {VARINT: 0, I64: 8, I32: 4}.get(stands, 0)
            if stands in (VARINT, LEN):
                value, behind = _at(data, at, here, start)
                at, size = behind, value if stands == LEN else 0
            if at + size > len(data):
                left = len(data) - at
                raise BadRow(f"{here}: {size:,} bytes are said, and {left:,} are left (byte {start + at:,})")
            if stands == LEN and field is not None:
                _inside(field, data[at : at + size], here, start + at)
            at += size
    except ValueError as error:
        raise BadRow(f"{path}: {error} (byte {start + at:,})") from error


def _at(data: bytes, at: int, path: str, start: int) -> tuple[int, int]:
    try:
        return varint(data, at)
    except ValueError as error:
        raise BadRow(f"{path}: {error} (byte {start + at:,})") from error


def _inside(field: Any, data: bytes, path: str, start: int) -> None:
    if field.message_type is not None and path.count(".") < DEEPEST:
        look(field.message_type, data, path, start)
    elif field.cpp_type == STRING and field.type != BYTES:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise BadRow(
                f"{path}: byte {start + error.start:,} is no UTF-8", cause=repr(data[:80])
            ) from error
