"""Protobuf, alone and with a schema registry: rows come back, older schemas are read, what does not fit says where."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_server import Registry

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.errors import BadRow, InvalidInput

Opened = Callable[..., Format]
Fields = dict[str, Any]
F = descriptor_pb2.FieldDescriptorProto
OWN = "google/protobuf/"


def field(message: Any, number: int, name: str, kind: str, **more: Any) -> None:
    """kind: of protobuf, a message (`.pkg.Name`) or an enum (`enum .pkg.Name`); ahead `repeated` or `optional`."""
    word, _, rest = kind.partition(" ")
    label = F.LABEL_REPEATED if word == "repeated" else F.LABEL_OPTIONAL
    kind = rest if word in ("repeated", "optional") else kind
    new = message.field.add(name=name, number=number, label=label, **more)
    if kind.startswith("."):
        new.type, new.type_name = F.TYPE_MESSAGE, kind
    elif kind.startswith("enum "):
        new.type, new.type_name = F.TYPE_ENUM, kind[5:]
    else:
        new.type = getattr(F, f"TYPE_{kind.upper()}")
    if word == "optional":
        new.proto3_optional, new.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def file_of(
    fields: Fields, name: str = "shop.proto", syntax: str = "proto3", values: str = "NEW PAID"
) -> Any:
    """message Order with these fields {name: (number, kind)}, message Item, and enum State."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax=syntax)
    file.dependency.extend(OWN + one for one in ("timestamp.proto", "duration.proto", "wrappers.proto"))
    state = file.enum_type.add(name="State")
    for number, value in enumerate(values.split()):
        state.value.add(name=value, number=number)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    field(entry, 1, "key", "string")
    field(entry, 2, "value", "int32")
    for one, (number, kind) in fields.items():
        field(order, number, one, kind)
    item = file.message_type.add(name="Item")
    field(item, 1, "name", "string")
    field(item, 2, "n", "int32")
    field(item, 3, "inside", ".shop.Item")
    return file


def set_of(folder: Path, file: Any, *before: Any) -> str:
    """A file as `protoc -o` writes it."""
    place = folder / f"{len(list(folder.iterdir()))}.pb"
    place.write_bytes(descriptor_pb2.FileDescriptorSet(file=[*before, file]).SerializeToString())
    return str(place)


def order(folder: Path, fields: Fields, **more: Any) -> Format:
    return open_format("protobuf", schema=set_of(folder, file_of(fields, **more)), message="shop.Order")


ALL: Fields = {
    "i32": (1, "int32"), "u64": (2, "uint64"), "s64": (3, "sint64"), "f": (4, "float"), "d": (5, "double"),
    "yes": (6, "bool"), "text": (7, "string"), "raw": (8, "bytes"), "state": (9, "enum .shop.State"),
    "items": (10, "repeated .shop.Item"), "ns": (11, "repeated int64"),
    "counts": (12, "repeated .shop.Order.CountsEntry"),
    "at": (13, ".google.protobuf.Timestamp"), "took": (14, ".google.protobuf.Duration"),
    "maybe": (15, "optional int32"), "wrapped": (16, ".google.protobuf.Int64Value"), "item": (17, ".shop.Item"),
    "states": (18, "repeated enum .shop.State"),
}  # fmt: skip
FULL: Fields = {
    "i32": -1, "u64": (1 << 64) - 1, "s64": -(1 << 63), "f": 0.5, "d": 0.1, "yes": True, "text": "é", "raw": b"\xff\0",
    "state": "PAID", "items": [{"name": "a", "n": 1, "inside": None}], "ns": [1 << 62, -1], "counts": {"a": 1},
    "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "took": timedelta(seconds=-1, microseconds=-5),
    "maybe": 0, "wrapped": 0, "item": {"name": "b", "n": 0, "inside": {"name": "", "n": 2, "inside": None}},
    "states": ["NEW", 7],
}  # fmt: skip
EMPTY: Fields = {
    "i32": 0, "u64": 0, "s64": 0, "f": 0.0, "d": 0.0, "yes": False, "text": "", "raw": b"", "state": "NEW", "items": [],
    "ns": [], "counts": {}, "at": None, "took": None, "maybe": None, "wrapped": None, "item": None, "states": [],
}  # fmt: skip


@pytest.mark.parametrize("row", [FULL, EMPTY], ids=["full", "empty"])
def test_a_row_comes_back(tmp_path: Path, row: Fields) -> None:
    format = order(tmp_path, ALL)
    assert format.decode(format.encode(row)) == row


def test_fields_that_are_not_there_have_their_default_or_none(tmp_path: Path) -> None:
    format = order(tmp_path, ALL)
    assert format.encode({}) == b""
    assert format.decode(b"") == EMPTY


def test_what_protobuf_itself_wrote_is_read_and_the_other_way_round(tmp_path: Path) -> None:
    pool = descriptor_pool.DescriptorPool()
    for name in ("timestamp", "duration", "wrappers"):
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file_of(ALL))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        i32=-1, u64=(1 << 64) - 1, s64=-(1 << 63), f=0.5, d=0.1, yes=True, text="é", raw=b"\xff\0", state=1,
        items=[{"name": "a", "n": 1}], ns=[1 << 62, -1], counts={"a": 1}, maybe=0, wrapped={}, states=[0, 7],
        at={"seconds": -1, "nanos": 999_999_000}, took={"seconds": -1, "nanos": -5000},
        item={"name": "b", "inside": {"n": 2}},
    )  # fmt: skip
    format = order(tmp_path, ALL)
    assert format.decode(message.SerializeToString()) == FULL
    assert type(message).FromString(format.encode(FULL)) == message


def test_a_generated_class_is_a_schema() -> None:
    format = open_format("protobuf", schema="google.protobuf.timestamp_pb2:Timestamp")
    moment = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    assert format.decode(timestamp_pb2.Timestamp(seconds=1_795_953_600).SerializeToString()) == moment
    assert timestamp_pb2.Timestamp.FromString(format.encode(moment)).seconds == 1_795_953_600


OLD: Fields = {"a": (1, "int32"), "b": (2, "string")}


@pytest.mark.parametrize(
    ("new", "read"),
    [
        ({"a": (1, "int32")}, {"a": 7}),
        ({**OLD, "c": (3, "int32"), "d": (4, "optional string")}, {"a": 7, "b": "x", "c": 0, "d": None}),
        ({"renamed": (1, "int32"), "b": (2, "string")}, {"renamed": 7, "b": "x"}),
        ({"a": (1, "int64"), "b": (2, "bytes")}, {"a": 7, "b": b"x"}),
        ({"a": (1, "repeated int32"), "b": (2, "string")}, {"a": [7], "b": "x"}),
        ({"a": (1, "enum .shop.State"), "b": (2, "string")}, {"a": 7, "b": "x"}),
        ({"a": (1, "sint32"), "b": (2, "string")}, {"a": -4, "b": "x"}),
    ],
    ids=[
        "removed",
        "added",
        "renamed",
        "wider",
        "repeated",
        "enum without the value",
        "other coding, unseen",
    ],
)
def test_rows_of_an_older_schema_are_read(tmp_path: Path, new: Fields, read: Fields) -> None:
    assert order(tmp_path, new).decode(order(tmp_path, OLD).encode({"a": 7, "b": "x"})) == read


def test_a_field_that_became_narrower_loses_bits_without_a_word(tmp_path: Path) -> None:
    data = order(tmp_path, {"a": (1, "int64")}).encode({"a": (1 << 32) + 5})
    assert order(tmp_path, {"a": (1, "int32")}).decode(data) == {"a": 5}


ITEM: Fields = {"item": (1, ".shop.Item"), "items": (2, "repeated .shop.Item")}


@pytest.mark.parametrize(
    ("fields", "data", "what"),
    [
        ({"a": (1, "int32")}, b"\x0a\x01x", r"^\$\.a: expected int32, got bytes with a length$"),
        (ITEM, b"\x0a\x02\x08\x01", r"^\$\.item\.name: expected string, got a varint$"),
        (ITEM, b"\x12\x00\x12\x02\x08\x01", r"^\$\.items\[1\]\.name: expected string, got a varint$"),
        (ITEM, b"\x0a\x03\x0a\x05a", r"^\$\.item\.name: 5 bytes are said, and 1 are left \(byte 4\)"),
        (ITEM, b"\x0a\x03\x0a\x01\xff", r"^\$\.item\.name: byte 4 is no UTF-8"),
        ({"a": (1, "int32")}, b"\x08", r"^\$\.a: a number that does not end \(byte 1\)"),
        ({"a": (1, "int32")}, b"\x00", r"^\$: byte 0 begins no field"),
        (ITEM, b"\x0a\x02\x1a\x00" * 3 + b"\x0a", r"^\$\.item: a number that does not end"),
        ({"at": (1, ".google.protobuf.Timestamp")}, b"\x0a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
         r"^\$\.at: 9,?223.* s since 1970"),
    ],
)  # fmt: skip
def test_bad_bytes_say_where(tmp_path: Path, fields: Fields, data: bytes, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        order(tmp_path, fields).decode(data)


def test_nesting_has_an_end(tmp_path: Path) -> None:
    data = b"\x0a\x00"
    for _ in range(60):
        data = b"\x1a" + bytes([len(data)]) + data if len(data) < 120 else data
    with pytest.raises(BadRow, match="nested more than 32 levels deep"):
        order(tmp_path, ITEM).decode(b"\x0a" + bytes([len(data)]) + data)
    row: Any = None
    for _ in range(60):
        row = {"inside": row}
    with pytest.raises(BadRow, match="nested more than 32 levels deep"):
        order(tmp_path, ITEM).encode({"item": row})


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"i32": 1 << 31}, r"\$\.i32: expected int32, got a number of 32 bits"),
        ({"i32": 1.0}, r"\$\.i32: expected int32, got float"),
        ({"i32": True}, r"\$\.i32: expected int32, got bool"),
        ({"i32": None}, r"\$\.i32: expected int32, got null"),
        ({"u64": -1}, r"\$\.u64: expected uint64, got a number of 1 bits"),
        ({"f": 1e300}, r"\$\.f: expected float, got a number beyond"),
        ({"yes": 1}, r"\$\.yes: expected bool, got int"),
        ({"text": b"a"}, r"\$\.text: expected string, got bytes"),
        ({"text": "\ud800"}, r"\$\.text: expected text that is valid Unicode"),
        ({"raw": "a"}, r"\$\.raw: expected bytes, got str"),
        ({"state": "GONE"}, r"\$\.state: no value of State"),
        ({"items": [{}, {"n": "x"}]}, r"\$\.items\[1\]\.n: expected int32, got str"),
        ({"ns": 1}, r"\$\.ns: expected a list, got int"),
        ({"counts": {"a": "x"}}, r"\$\.counts\.a: expected int32, got str"),
        ({"counts": {1: 1}}, r"\$\.counts\[1\]: expected string, got int"),
        ({"at": datetime(2020, 1, 1)}, r"\$\.at: expected a datetime with its offset"),
        ({"took": 1}, r"\$\.took: expected a timedelta, got int"),
        ({"z": 1}, r"\$\.z: the schema has no such field"),
        ([1], r"\$: expected a dict, got list"),
    ],
)
def test_what_the_schema_cannot_hold_is_refused(tmp_path: Path, row: Any, what: str) -> None:
    with pytest.raises(BadRow, match=what):
        order(tmp_path, ALL).encode(row)


def test_one_field_of_a_oneof_is_set(tmp_path: Path) -> None:
    file = file_of({})
    file.message_type[0].oneof_decl.add(name="how")
    for number, name in ((1, "card"), (2, "cash")):
        field(file.message_type[0], number, name, "int32", oneof_index=0)
    format = open_format("protobuf", schema=set_of(tmp_path, file), message="shop.Order")
    assert format.decode(format.encode({"cash": 0})) == {"card": None, "cash": 0}
    with pytest.raises(BadRow, match=r"\$\.cash: 'card' is set too, of oneof 'how'"):
        format.encode({"card": 1, "cash": 2})


def test_defaults_required_fields_and_closed_enums_of_proto2(tmp_path: Path) -> None:
    file = file_of({"state": (3, "enum .shop.State")}, syntax="proto2")
    field(file.message_type[0], 1, "n", "int32", default_value="5")
    field(file.message_type[0], 2, "must", "int32")
    file.message_type[0].field[2].label = F.LABEL_REQUIRED
    format = open_format("protobuf", schema=set_of(tmp_path, file), message="shop.Order")
    assert format.decode(b"\x10\x01") == {"state": None, "n": 5, "must": 1}
    with pytest.raises(BadRow, match=r"\$\.must: required, and not set"):
        format.decode(b"")
    with pytest.raises(BadRow, match=r"\$\.must: required, and not set"):
        format.encode({})
    with pytest.raises(BadRow, match=r"\$\.state: 9 is no value of State"):
        format.decode(b"\x10\x01\x18\x09")
    with pytest.raises(BadRow, match=r"\$\.state: no value of State"):
        format.encode({"must": 1, "state": 9})


def test_schemas_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.proto").write_text('syntax = "proto3"; message Order {}')
    alone = file_of({})
    alone.dependency.append("other.proto")
    for options, what in [
        ({}, "needs schema= or registry="),
        ({"schema": str(tmp_path / "text.proto"), "message": "Order"}, "is no descriptor set"),
        ({"schema": str(tmp_path / "none.pb"), "message": "Order"}, "cannot read the schema"),
        ({"schema": set_of(tmp_path, file_of({})), "message": "shop.Cart"}, "has no message 'shop.Cart'"),
        ({"schema": set_of(tmp_path, alone), "message": "shop.Order"}, "the schema cannot be used"),
        ({"schema": "datetime:date"}, "is no message"),
        ({"schema": "x:y", "subject": "s"}, "subject= needs registry="),
    ]:
        with pytest.raises(InvalidInput, match=what):
            open_format("protobuf", **options)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_row_or_a_bad_row(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        format = order(Path(folder), ALL)
    whole = bytearray(format.encode(FULL))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = bytes(whole[data.draw(st.integers(0, 5)) : len(whole) - data.draw(st.integers(0, 20))])
    try:
        row = format.decode(cut)
    except BadRow as error:
        assert error.what.startswith("$")
    else:
        assert repr(format.decode(format.encode(row))) == repr(row)


# ── with a registry ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def opened(opened_format: Opened, registry: Registry) -> Opened:
    return partial(opened_format, "protobuf", registry=registry.url)


def base64(file: Any) -> str:
    return b64encode(file.SerializeToString()).decode()


def shop() -> Any:
    """Order, Refund and Refund.Why, each with an id."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    for name in ("Order", "Refund"):
        field(file.message_type.add(name=name), 1, "id", "int64")
    field(file.message_type[1].nested_type.add(name="Why"), 1, "id", "int64")
    return file


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("shop.Order", b"\0\0\0\0\x01\x00\x08\x07"),
        ("shop.Refund", b"\0\0\0\0\x01\x02\x02\x08\x07"),
        ("shop.Refund.Why", b"\0\0\0\0\x01\x04\x02\x00\x08\x07"),
    ],
)
def test_messages_are_as_confluents_own_serializer_writes_them(
    registry: Registry, opened: Opened, tmp_path: Path, message: str, data: bytes
) -> None:
    """data: of ProtobufSerializer, confluent-kafka 2.16.1."""
    registry.put(base64(shop()), "shop", "PROTOBUF")
    schema = set_of(tmp_path, shop())
    for options in ({}, {"message": message}, {"schema": schema, "message": message}):
        assert opened(**options).decode(data) == {"id": 7}
    for options in ({"message": message}, {"schema": schema, "message": message}):
        assert opened(subject="shop", **options).encode({"id": 7}) == data


def test_a_schema_is_registered_compiled(registry: Registry, opened: Opened, tmp_path: Path) -> None:
    options = {"schema": set_of(tmp_path, shop()), "message": "shop.Refund"}
    format = opened(subject="new", register=True, **options)
    assert format.decode(format.encode({"id": 7})) == {"id": 7}
    assert registry.schemas == [{"schema": base64(shop()), "schemaType": "PROTOBUF", "references": []}]


def test_another_message_of_the_topic_is_a_bad_row(registry: Registry, opened: Opened) -> None:
    number = registry.put(base64(shop()), "shop", "PROTOBUF").to_bytes(4, "big")
    with pytest.raises(BadRow, match=r"is a shop\.Refund, and shop\.Order is expected"):
        opened(message="shop.Order").decode(b"\0" + number + b"\x02\x02\x08\x07")
    for head, what in [(b"\x02\x08", r"no message at \[4\]"), (b"\x01", "no place"), (b"\xff", "no place"),
                       (b"\x02\x01", "no place"), (b"", "no place")]:  # fmt: skip
        with pytest.raises(BadRow, match=what):
            opened().decode(b"\0" + number + head)


def test_messages_that_were_moved_in_their_file_are_found(
    registry: Registry, opened: Opened, tmp_path: Path
) -> None:
    newer = shop()
    newer.message_type.insert(0, descriptor_pb2.DescriptorProto(name="Cart"))
    number = registry.put(base64(newer), "shop", "PROTOBUF").to_bytes(4, "big")
    format = opened(schema=set_of(tmp_path, shop()), message="shop.Order")
    assert format.decode(b"\0" + number + b"\x02\x02\x08\x07") == {"id": 7}


def test_files_that_a_schema_imports_are_of_the_registry(registry: Registry, opened: Opened) -> None:
    registry.put(base64(file_of({})), "items", "PROTOBUF")
    cart = descriptor_pb2.FileDescriptorProto(name="cart.proto", package="cart", syntax="proto3")
    cart.dependency.append("shop.proto")
    field(cart.message_type.add(name="Cart"), 1, "item", ".shop.Item")
    reference = {"name": "shop.proto", "subject": "items", "version": 1}
    number = registry.put(base64(cart), "carts", "PROTOBUF", [reference]).to_bytes(4, "big")
    read = opened().decode(b"\0" + number + b"\0\x0a\x03\x0a\x01a")
    assert read == {"item": {"name": "a", "n": 0, "inside": None}}


def test_a_registry_that_gives_no_compiled_schema_is_said(registry: Registry, opened: Opened) -> None:
    number = registry.put('syntax = "proto3"; message A {}', "s", "PROTOBUF").to_bytes(4, "big")
    with pytest.raises(BadRow, match="schema 1 of the registry cannot be used"):
        opened().decode(b"\0" + number + b"\0")


def test_json_has_the_number_of_its_schema(registry: Registry, opened_format: Opened) -> None:
    schema = {"type": "object"}
    new = opened_format("json", registry=registry.url, schema=schema, register=True, subject="a")
    data = new.encode({"n": 1})
    assert data == b'\0\0\0\0\x01{"n":1}'
    read = opened_format("json", registry=registry.url, subject="a")
    assert (read.decode(data), read.encode({"n": 1})) == ({"n": 1}, data)
    number = registry.put("int", "b").to_bytes(4, "big")
    with pytest.raises(BadRow, match="schema 2 is of format AVRO, and JSON is expected"):
        read.decode(b"\0" + number + b"{}")
    with pytest.raises(BadRow, match="byte 0 is 123, and 0 before a schema's number"):
        read.decode(b'{"n":1}')
    with pytest.raises(InvalidInput, match="needs registry="):
        open_format("json", schema=schema)
