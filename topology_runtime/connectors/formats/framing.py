"""What stands before each message where there is a schema registry: a zero byte and the schema's number."""

from __future__ import annotations

import struct

from headgate.topology_runtime.connectors.formats.schema_registry import RegisteredSchema, SchemaRegistry
from headgate.topology_runtime.errors import BadRow, InvalidInput

HEAD = struct.Struct(">bI")
FORMS = {"PROTOBUF": "?format=serialized"}  # compiled, in base64: its text would have to be parsed here


class Framing:
    """Of one subject. subject: under which schemas are found and registered that rows are written with. register: put
    our own schema there; else rows are written with its latest."""

    def __init__(self, registry: SchemaRegistry, subject: str = "", register: bool = False) -> None:
        self._registry, self._subject, self.register = registry, subject, register
        self._number: int | None = None

    def close(self) -> None:
        self._registry.close()

    def open(self, data: bytes) -> tuple[int, bytes]:
        """(the schema's number, what comes behind it)."""
        if len(data) < HEAD.size:
            raise BadRow(f"$: {len(data)} bytes are too few for a schema's number", cause=repr(data))
        magic, number = HEAD.unpack_from(data)
        if magic:
            text = f"$: byte 0 is {data[0]}, and 0 before a schema's number"
            raise BadRow(text, cause=repr(data[:80]), hint="was it written without a registry?")
        return number, data[HEAD.size :]

    def framed(self, number: int, body: bytes) -> bytes:
        return HEAD.pack(0, number) + body

    def schema(self, number: int, kind: str) -> RegisteredSchema:
        """BadRow if the registry has no such schema, or one of another format."""
        found = self._registry.schema(number, FORMS.get(kind, ""))
        if found.kind != kind:
            raise BadRow(f"$: schema {number} is of format {found.kind}, and {kind} is expected")
        return found

    def number_to_write(self, kind: str, text: str | None) -> int:
        """Of the schema that rows are written with."""
        if self._number is None:
            if not self._subject:
                raise InvalidInput(
                    "rows cannot be written with a registry", hint='subject="TOPIC-value" is needed'
                )
            if self.register:
                if text is None:
                    raise InvalidInput("there is no schema to register", hint="schema= is needed")
                self._number = self._registry.register(self._subject, kind, text)
            else:
                self._number = self._registry.latest(self._subject, kind)
        return self._number
