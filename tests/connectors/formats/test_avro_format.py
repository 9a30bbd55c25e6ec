"""Avro with a schema registry over HTTP: what other schemas wrote is read by the rules, bad bytes say where."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pytest
from registry_server import Registry

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

Opened = Callable[..., Format]


@pytest.fixture
def opened(opened_format: Opened) -> Opened:
    return partial(opened_format, "avro")


def record(*fields: Any) -> Any:
    made = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": "R", "fields": made}


def written(schema: Any, row: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), row)
    return file.getvalue()


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
A = {"type": "enum", "name": "E", "symbols": ["A"]}
A_ELSE = {**A, "default": "A"}


@pytest.mark.parametrize(
    ("writer", "row", "reader", "read"),
    [
        (record(("a", "int")), {"a": 1}, record(("a", "int"), ("b", "string", "x")), {"a": 1, "b": "x"}),
        (record(("a", "int"), ("b", "int")), {"a": 1, "b": 2}, record(("b", "int")), {"b": 2}),
        (record(("a", "int")), {"a": 1}, record(("a", "long")), {"a": 1}),
        (record(("a", "long")), {"a": 1}, record(("a", "double")), {"a": 1.0}),
        (record(("a", "int")), {"a": 1}, record(("a", ["null", "int"])), {"a": 1}),
        (record(("a", AB)), {"a": "B"}, record(("a", A_ELSE)), {"a": "A"}),
        (
            record(("a", "int")),
            {"a": 1},
            record(("a", "int"), ("b", "bytes", "\xff")),
            {"a": 1, "b": b"\xff"},
        ),
        (
            record(("a", "int")),
            {"a": 1},
            record(("a", "int"), ("at", MOMENT, 0)),
            {"a": 1, "at": datetime(1970, 1, 1, tzinfo=UTC)},
        ),
        (
            record(("a", "int")),
            {"a": 1},
            {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "aliases": ["a"]}]},
            {"n": 1},
        ),
    ],
    ids=[
        "added",
        "removed",
        "wider",
        "to double",
        "in-union",
        "enum-default",
        "default-bytes",
        "default-moment",
        "renamed",
    ],
)
def test_rows_of_an_older_schema_are_read(
    registry: Registry, opened: Opened, writer: Any, row: Any, reader: Any, read: Any
) -> None:
    format = opened(schema=reader, registry=registry.url)
    assert format.decode(framed(registry.put(writer), written(writer, row))) == read


@pytest.mark.parametrize(
    ("writer", "row", "reader", "what"),
    [
        (record(("a", AB)), {"a": "B"}, record(("a", A)), r"^\$\.a: .*B not found"),
        (record(("a", "long")), {"a": 1}, record(("a", "int")), r"^\$\.a: .*mismatch"),
        (record(("a", "int")), {"a": 1}, record(("a", "int"), ("b", "int")), r"^\$: .*No default value.*b"),
    ],
    ids=["enum", "narrower", "no default"],
)
def test_what_does_not_resolve_is_a_bad_row(
    registry: Registry, opened: Opened, writer: Any, row: Any, reader: Any, what: str
) -> None:
    format = opened(schema=reader, registry=registry.url)
    with pytest.raises(BadRow, match=what):
        format.decode(framed(registry.put(writer), written(writer, row)))


NODE = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "data", "what"),
    [
        (record(("a", "int"), ("s", "string")), b"\x02\x10ab", r"^\$\.s: .*\(byte 1 of 4\)"),
        (record(("s", "string")), b"\x02\xff", r"^\$\.s: expected string: .*utf-8"),
        (record(("u", ["null", "int"])), b"\x08", r"^\$\.u: expected one of 2 branches, got number 4"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x7f\x01", r"^\$: "),
        ({"type": "int"}, b"\x02\x03", r"^\$: 1 bytes are left"),
        (record(("at", MOMENT)), b"\xfe" + b"\xff" * 8 + b"\x01", r"^\$\.at: "),
        (record(("c", CENTS)), b"\x08\x7f\xff\xff\xff", r"^\$\.c: expected a decimal of 4 digits"),
        (NODE, b"\x02" * 50 + b"\0", "nested more than 32 levels deep"),
    ],
)
def test_bad_bytes_say_where(schema: Any, data: bytes, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        open_format("avro", schema=schema).decode(data)


@pytest.mark.parametrize(
    ("schema", "row", "what"),
    [
        (record(("a", "int")), {"a": 1 << 40}, r"\$\.a: expected int, got a number of 41 bits"),
        (record(("a", "int")), {"a": 1.5}, r"\$\.a: expected int, got float"),
        (record(("a", "float")), {"a": 1e300}, r"\$\.a: expected float, got a number beyond"),
        (record(("a", CENTS)), {"a": Decimal("1.234")}, r"\$\.a: expected a decimal of 4 digits, 2 of them"),
        (record(("a", MOMENT)), {"a": datetime(2020, 1, 1)}, r"\$\.a: expected a datetime with its offset"),
        (record(("a", "int")), {"a": 1, "z": 2}, r"\$\.z: the schema has no such field"),
        (
            record(("a", {"type": "array", "items": "int"})),
            {"a": [1, "x"]},
            r"\$\.a\[1\]: expected int, got str",
        ),
    ],
)
def test_what_avro_cannot_hold_is_refused(schema: Any, row: Any, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        open_format("avro", schema=schema).encode(row)


def test_unions_keep_the_type_of_a_value() -> None:
    format = open_format("avro", schema=["null", "double", "long", "bytes", "string"])
    for value in (None, 3, 3.0, b"a", "a"):
        back = format.decode(format.encode(value))
        assert (back, type(back)) == (value, type(value))


def test_items_without_bytes_are_refused() -> None:
    with pytest.raises(InvalidInput):
        open_format("avro", schema={"type": "array", "items": "null"})


def test_a_schema_is_asked_for_once_and_a_missing_one_is_a_bad_row(
    registry: Registry, opened: Opened
) -> None:
    number = registry.put("int")
    format = opened(registry=registry.url, user="ada", password="secret")
    assert [format.decode(framed(number, b"\x02")) for _ in range(3)] == [1, 1, 1]
    for _ in range(3):
        with pytest.raises(BadRow, match=r"has no schema 77"):
            format.decode(framed(77, b"\x02"))
    assert registry.asked == [f"GET /schemas/ids/{number}", "GET /schemas/ids/77"]
    assert registry.logins == {"Basic YWRhOnNlY3JldA=="}


def test_rows_are_written_with_the_latest_schema_or_one_that_is_registered(
    registry: Registry, opened: Opened
) -> None:
    number = registry.put(record(("a", "int")), "old")
    assert opened(registry=registry.url, subject="old").encode({"a": 1}) == framed(number, b"\x02")
    new = opened(schema={"type": "long"}, registry=registry.url, subject="new", register=True)
    assert new.decode(new.encode(7)) == 7
    assert registry.subjects["new"] == [number + 1]


def test_a_registry_that_is_away_is_said_and_comes_back(registry: Registry, opened: Opened) -> None:
    with Registry() as unheard:
        url = unheard.url  # closed again: nobody listens there
    with pytest.raises(ServiceAway) as away:
        opened(registry=url, password="secret", user="ada").decode(framed(1, b"\x02"))
    assert "secret" not in "\n".join(away.value.lines())
