"""What a row must be for an Avro schema, field by field; and the field at which bytes are none of it."""

from __future__ import annotations

import io
import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

from headgate.topology_runtime.connectors.formats.avro_schema import (
    EXACT_DECIMAL,
    AvroSchema,
    Schema,
    kind_of,
)
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

BITS = {"int": 31, "long": 63}
EPOCH = datetime(1970, 1, 1)


def to_write(schemas: AvroSchema, schema: Schema, row: Any, path: str = "$", depth: int = 0) -> Any:
    """The row as fastavro writes it: which branch of each union it takes is said. BadRow with the path of what does not
    fit."""
    schema = schemas.named(schema)
    if depth > DEEPEST:
        raise too_deep(path)
    kind = kind_of(schema)
    if kind == "union":
        return _branch(schemas, schema, row, path, depth)
    if kind == "record":
        return _record(schemas, schema, row, path, depth)
    if kind == "array":
        if type(row) not in (list, tuple):
            raise mismatch(path, "a list", row)
        items = enumerate(row)
        return [to_write(schemas, schema["items"], item, below(path, n), depth + 1) for n, item in items]
    if kind == "map":
        if type(row) is not dict:
            raise mismatch(path, "a dict", row)
        for name in row:
            _scalar("string", name, path)
        values = schema["values"]
        return {
            name: to_write(schemas, values, item, below(path, name), depth + 1) for name, item in row.items()
        }
    return _scalar(schema, row, path)


def _record(schemas: AvroSchema, schema: Schema, row: Any, path: str, depth: int) -> dict[str, Any]:
    if type(row) is not dict:
        raise mismatch(path, f"a dict ({schema['name']})", row)
    made = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in row:
            value = row[name]
        elif "default" in field:
            value = field["default"]
        else:
            raise BadRow(f"{below(path, name)}: this field is not there, and has no default")
        made[name] = to_write(schemas, field["type"], value, below(path, name), depth + 1)
    if others := [name for name in row if name not in made]:
        raise BadRow(f"{below(path, others[0])}: the schema has no such field")
    return made


def _branch(schemas: AvroSchema, schema: list[Schema], row: Any, path: str, depth: int) -> Any:
    faults = []
    branches = [schemas.named(one) for one in schema]
    exact = {int: ("int", "long"), float: ("double", "float")}.get(type(row), ())
    for branch in sorted(
        branches, key=lambda one: kind_of(one) not in exact
    ):  # 3 is a long before it is a double
        try:
            value = to_write(schemas, branch, row, path, depth + 1)
        except BadRow as error:
            faults.append(error.what)
        else:
            kind = kind_of(branch)
            return None if kind == "null" else (branch["name"] if _is_named(branch) else kind, value)
    deepest = max(faults, key=lambda what: len(what.split(": ")[0]), default=path)
    if deepest.split(": ")[0] != path:
        raise BadRow(deepest)
    raise mismatch(path, " or ".join(_shown(one) for one in branches), row)


def _is_named(schema: Schema) -> bool:
    return isinstance(schema, dict) and "name" in schema


def _shown(schema: Schema) -> str:
    if _is_named(schema):
        return str(schema["name"])
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return str(logical or kind_of(schema)).removeprefix("headgate-")


def _scalar(schema: Schema, row: Any, path: str) -> Any:
    kind, logical = kind_of(schema), schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if make := LOGICAL.get(logical):
        made = make(schema, row)
        if made is None:
            raise mismatch(path, _logical_shown(schema), row)
        return made
    good = False
    if kind in BITS:
        good = type(row) is int and -(1 << BITS[kind]) <= row < 1 << BITS[kind]
        if type(row) is int and not good:
            raise BadRow(f"{path}: expected {kind}, got a number of {row.bit_length()} bits")
    elif kind in ("float", "double"):
        good = type(row) is float or (type(row) is int and abs(row) <= 1 << (53 if kind == "double" else 24))
        if good and kind == "float" and not fits_float32(row):
            raise BadRow(f"{path}: expected float, got a number beyond its range", cause=repr(row))
    elif kind == "string":
        good = type(row) is str and whole_text(row)
    elif kind == "bytes":
        good = type(row) is bytes
    elif kind == "fixed":
        good = type(row) is bytes and len(row) == schema["size"]
    elif kind == "enum":
        good = type(row) is str and row in schema["symbols"]
        if not good:
            raise mismatch(path, f"one of {', '.join(schema['symbols'])}"[:200], row)
    else:
        good = (kind == "null" and row is None) or (kind == "boolean" and type(row) is bool)
    if not good:
        raise mismatch(path, f"{schema['size']} bytes" if kind == "fixed" else kind, row)
    return row


def _timestamp(step: int, aware: bool) -> Any:
    def made(_: Schema, row: Any) -> Any:
        fits = type(row) is datetime and (row.tzinfo is not None) == aware and not row.microsecond % step
        return row if fits else None

    return made


def _time(step: int) -> Any:
    return lambda _, row: row if type(row) is time and not row.tzinfo and not row.microsecond % step else None


def _decimal(schema: Schema, row: Any) -> bytes | None:
    """Its digits as bytes; None if it has more than the schema says."""
    if type(row) is not Decimal or not row.is_finite():
        return None
    sign, digits, exponent = row.as_tuple()
    shift = int(exponent) + schema.get("scale", 0)
    if shift > schema["precision"]:
        return None if row else b"\0" * schema.get("size", 1)
    number = int("".join(map(str, digits)) or "0")
    if shift < 0:
        number, rest = divmod(number, 10**-shift)
        if rest:
            return None
    else:
        number *= 10**shift
    if number >= 10 ** schema["precision"]:
        return None
    number = -number if sign else number
    size = schema.get("size") or number.bit_length() // 8 + 1
    try:
        return int(number).to_bytes(int(size), "big", signed=True)
    except OverflowError:
        return None


def _logical_shown(schema: Schema) -> str:
    name = _shown(schema)
    if name == "decimal":
        return f"a decimal of {schema['precision']} digits, {schema.get('scale', 0)} of them behind the point"
    return {
        "timestamp-millis": "a datetime with its offset from UTC, to the millisecond",
        "timestamp-micros": "a datetime with its offset from UTC",
        "local-timestamp-millis": "a datetime without an offset, to the millisecond",
        "local-timestamp-micros": "a datetime without an offset",
        "time-millis": "a time to the millisecond",
        "time-micros": "a time",
    }.get(name, f"a {name}")


LOGICAL: dict[str, Any] = {
    "timestamp-millis": _timestamp(1000, True),
    "timestamp-micros": _timestamp(1, True),
    "local-timestamp-millis": _timestamp(1000, False),
    "local-timestamp-micros": _timestamp(1, False),
    "time-millis": _time(1000),
    "time-micros": _time(1),
    "date": lambda _, row: row if type(row) is date else None,
    "uuid": lambda _, row: row if type(row) is UUID else None,
    EXACT_DECIMAL: _decimal,
}


# ── where bytes are not what a schema says: asked only when a row was refused, or may nest without end ──


class Locator:
    """Reads a value leaf by leaf."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None, data: bytes) -> None:
        self._writer, self._readers, self._file, self._size = writer, reader, io.BytesIO(data), len(data)
        self._read = needed("fastavro", "avro").schemaless_reader

    def look(self) -> None:
        """BadRow with the field and the byte; nothing if each leaf can be read."""
        reader = self._readers.parsed if self._readers else None
        self._value(self._writer.parsed, reader, "$", 0)

    def _value(self, schema: Schema, reader: Schema, path: str, depth: int) -> None:
        schema = self._writer.named(schema)
        reader = self._readers.named(reader) if self._readers else None
        kind = kind_of(schema)
        if depth > DEEPEST:
            raise too_deep(path)
        if kind == "union":
            branch = self._leaf("long", None, path)
            if not 0 <= branch < len(schema):
                self._refuse(path, f"expected one of {len(schema)} branches, got number {branch}")
            self._value(schema[branch], None if kind_of(reader or "") == "union" else reader, path, depth)
        elif kind == "record":
            fields = reader["fields"] if reader and kind_of(reader) == "record" else []
            for field in schema["fields"]:
                same = [f for f in fields if field["name"] in (f["name"], *f.get("aliases", ()))]
                self._value(
                    field["type"], same[0]["type"] if same else None, below(path, field["name"]), depth + 1
                )
        elif kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            self._blocks(schema[inner], (reader or {}).get(inner) if kind_of(reader or "") == kind else None,
                         kind == "map", path, depth)  # fmt: skip
        else:
            self._leaf(schema, reader if reader and kind_of(reader) != "union" else None, path)

    def _blocks(self, schema: Schema, reader: Schema, keys: bool, path: str, depth: int) -> None:
        place = 0
        while count := self._leaf("long", None, path):
            if count < 0:
                count = -count
                self._leaf("long", None, path)
            if count > self._size:
                self._refuse(path, f"expected {count:,} items")
            for _ in range(count):
                key = self._leaf("string", None, path) if keys else place
                self._value(schema, reader, below(path, key), depth + 1)
                place += 1

    def _leaf(self, schema: Schema, reader: Schema, path: str) -> Any:
        begin = self._file.tell()
        try:
            value = self._read(self._file, schema, reader)
        except Exception as error:  # what fastavro raises of bad data is of any type
            self._file.seek(begin)
            kind = _shown(schema)
            if isinstance(error, (EOFError, IndexError, struct.error)):
                text = f"expected {kind}, and the bytes end or say no such value"
            else:
                text = error.what if isinstance(error, BadRow) else f"expected {kind}: {error}"[:300]
            self._refuse(path, text, error)
        return value

    def _refuse(self, path: str, text: str, error: Exception | None = None) -> NoReturn:
        raise BadRow(f"{path}: {text} (byte {self._file.tell():,} of {self._size:,})") from error
