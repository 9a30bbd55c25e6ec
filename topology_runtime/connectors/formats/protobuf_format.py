"""Protobuf: one message of one type; with a schema registry, its schema's number and its place in that before it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format import Format, Row
from headgate.topology_runtime.connectors.formats.framing import Framing
from headgate.topology_runtime.connectors.formats.protobuf_values import MessageType, look, varint
from headgate.topology_runtime.errors import BadRow, InvalidInput

KIND, OWN_FILES = "PROTOBUF", "google/protobuf/"  # files that the package has
NESTED_MOST = 32


class ProtobufFormat(Format):
    """schema: a descriptor set (`protoc --include_imports -o shop.pb shop.proto`), with message "shop.Order" in it, or
    "module:Order" of generated code. framing: with a registry, each message says what it was written with; it is read
    as our own schema, if there is one, and must be of the same name."""

    def __init__(self, schema: str = "", message: str = "", framing: Framing | None = None) -> None:
        if not schema and framing is None:
            raise InvalidInput("format 'protobuf' needs schema= or registry=")
        needed("google.protobuf", "protobuf")
        self._factory = needed("google.protobuf.message_factory", "protobuf")
        self._broken = needed("google.protobuf.message", "protobuf").DecodeError
        self._framing, self._message = framing, message
        self._own = _own_type(schema, message) if schema else None
        self._files: dict[int, Any] = {}  # number → of the file that it means
        self._types: dict[tuple[int, str], MessageType] = {}

    def _decode(self, data: bytes) -> Row:
        kind = self._own
        if self._framing is not None:
            number, data = self._framing.open(data)
            path, data = _places(data)
            kind = self._written(number, path)
        assert kind is not None
        message = self._factory.GetMessageClass(kind.descriptor)()
        try:
            message.ParseFromString(data)
        except self._broken as error:
            look(kind.descriptor, data)
            raise BadRow(f"$: no {kind.name}: {error}") from error
        _whole(message)
        return kind.row(message)

    def _encode(self, row: Row) -> bytes:
        kind, head = self._own, b""
        if self._framing is not None:
            file = self._own.descriptor.file if self._own is not None else None
            register = _text(file) if self._framing.register and file is not None else None
            number = self._framing.number_to_write(KIND, register)
            if not self._framing.register:
                kind = self._to_write(number)
            assert kind is not None
            head = self._framing.framed(number, _head(kind.descriptor))
        assert kind is not None
        message = self._factory.GetMessageClass(kind.descriptor)()
        kind.fill(message, row)
        _whole(message)
        return head + bytes(message.SerializeToString())

    def close(self) -> None:
        if self._framing is not None:
            self._framing.close()

    def _written(self, number: int, path: list[int]) -> MessageType:
        """What a message with this before it is read as."""
        file = self._file(number)
        try:
            found = list(file.message_types_by_name.values())[path[0]]
            for place in path[1:]:
                found = list(found.nested_types)[place]
        except IndexError as error:
            raise BadRow(f"$: schema {number} has no message at {path}") from error
        if (expected := self._own.name if self._own else self._message) and found.full_name != expected:
            raise BadRow(f"$: the message is a {found.full_name}, and {expected} is expected")
        return self._own or self._type(number, found)

    def _to_write(self, number: int) -> MessageType:
        """Of the registry's schema: the message of our name, or its first."""
        file, name = self._file(number), self._own.name if self._own else self._message
        found = [
            one for one in _messages(file.message_types_by_name.values()) if not name or one.full_name == name
        ]
        if not found:
            raise InvalidInput(f"schema {number} of the registry has no message {name!r}")
        return self._type(number, found[0])

    def _type(self, number: int, descriptor: Any) -> MessageType:
        key = number, str(descriptor.full_name)
        if key not in self._types:
            self._types[key] = MessageType(descriptor)
        return self._types[key]

    def _file(self, number: int) -> Any:
        if number not in self._files:
            assert self._framing is not None
            found = self._framing.schema(number, KIND)
            try:
                files = [_parsed(name, text) for name, text in (*found.others, ("headgate-own", found.text))]
                self._files[number] = _pool(files).FindFileByName("headgate-own")
            except (InvalidInput, ValueError, self._broken) as error:
                cause = getattr(error, "cause", None) or str(error)
                raise BadRow(f"$: schema {number} of the registry cannot be used", cause=cause) from error
        return self._files[number]


def _own_type(schema: str, message: str) -> MessageType:
    """Raises InvalidInput."""
    if not message:
        from headgate.topology_runtime.connectors.formats.typed_rows import named

        made = getattr(named(schema, "schema"), "DESCRIPTOR", None)
        if not hasattr(made, "fields_by_number"):
            raise InvalidInput(
                f"{schema!r} is no message", hint='a descriptor set needs message="package.Name"'
            )
        return MessageType(made)
    try:
        files = needed("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet.FromString(
            Path(schema).read_bytes()
        )
    except OSError as error:
        raise InvalidInput(f"cannot read the schema {schema!r}", cause=str(error)) from error
    except needed("google.protobuf.message", "protobuf").DecodeError as error:
        hint = "protoc --include_imports -o shop.pb shop.proto"
        raise InvalidInput(f"{schema!r} is no descriptor set", cause=str(error), hint=hint) from error
    try:
        return MessageType(_pool(files.file).FindMessageTypeByName(message))
    except KeyError as error:
        there = ", ".join(
            f"{file.package}.{one.name}".strip(".") for file in files.file for one in file.message_type
        )
        raise InvalidInput(f"{schema!r} has no message {message!r}", hint=f"it has {there}"[:400]) from error


def _pool(files: Iterable[Any]) -> Any:
    """Of these files, each after those that it imports. Raises InvalidInput."""
    pools = needed("google.protobuf.descriptor_pool", "protobuf")
    found, there = pools.DescriptorPool(), set[str]()
    for file in files:
        for name in (name for name in file.dependency if name.startswith(OWN_FILES) and name not in there):
            _add_own(found, name, there)
        if file.name not in there:
            there.add(file.name)
            try:
                found.Add(file)
            except TypeError as error:
                hint = "protoc --include_imports takes along what a file imports"
                raise InvalidInput("the schema cannot be used", cause=str(error), hint=hint) from error
    return found


def _add_own(pool: Any, name: str, there: set[str]) -> None:
    """A file of the package itself, such as google/protobuf/timestamp.proto."""
    module = needed(name.removesuffix(".proto").replace("/", ".") + "_pb2", "protobuf")
    file = needed("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto.FromString(
        module.DESCRIPTOR.serialized_pb
    )
    for other in file.dependency:
        if other not in there:
            _add_own(pool, other, there)
    there.add(name)
    pool.Add(file)


def _parsed(name: str, text: str) -> Any:
    """A file as registries give it: base64. Raises ValueError for a .proto's text."""
    files = needed("google.protobuf.descriptor_pb2", "protobuf")
    file = files.FileDescriptorProto.FromString(b64decode(text, validate=True))
    file.name = name
    return file


def _text(file: Any) -> str:
    """A file as a registry takes it. Raises InvalidInput where it names others, which would have to be there first."""
    if others := [one.name for one in file.dependencies if not one.name.startswith(OWN_FILES)]:
        hint = "register it as your build does, and leave register= out"
        raise InvalidInput(f"{file.name} cannot be registered: it imports {others[0]}", hint=hint)
    return b64encode(file.serialized_pb).decode()


def _messages(found: Iterable[Any]) -> Iterable[Any]:
    for one in found:
        yield one
        yield from _messages(one.nested_types)


def _places(data: bytes) -> tuple[list[int], bytes]:
    """(which message of the file, as the place on each level; what comes behind)."""
    try:
        count, at = _signed(data, 0)
        if not 0 <= count <= NESTED_MOST:
            raise ValueError(f"{count} levels of messages")
        path = []
        for _ in range(count):
            place, at = _signed(data, at)
            if place < 0:
                raise ValueError(f"message {place}")
            path.append(place)
    except ValueError as error:
        raise BadRow(f"$: no place of a message in its schema: {error}", cause=repr(data[:80])) from error
    return path or [0], data[at:]


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _head(descriptor: Any) -> bytes:
    path: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        beside = above.nested_types if above else descriptor.file.message_types_by_name.values()
        path.insert(0, [one.full_name for one in beside].index(descriptor.full_name))
        descriptor = above
    if path == [0]:
        return b"\0"  # as it mostly is
    return b"".join(map(_varint, [2 * len(path), *(2 * place for place in path)]))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _whole(message: Any) -> None:
    """BadRow for a required field that is not set."""
    if not message.IsInitialized():
        raise BadRow(f"$.{message.FindInitializationErrors()[0]}: required, and not set")
