"""JSON with a schema registry: the number of its JSON Schema stands before each value."""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.connectors.formats.avro_format import schema_of
from headgate.topology_runtime.connectors.formats.avro_schema import Schema
from headgate.topology_runtime.connectors.formats.format import Format, Row
from headgate.topology_runtime.connectors.formats.framing import Framing
from headgate.topology_runtime.connectors.formats.json_format import JsonFormat
from headgate.topology_runtime.errors import InvalidInput


class RegisteredJson(Format):
    """schema: the JSON Schema to register, or its file. The number must be of a JSON Schema in the registry. Values are
    not looked at by it: `type=` says what rows must be."""

    def __init__(self, schema: Schema, framing: Framing | None) -> None:
        if framing is None:
            raise InvalidInput("option schema= of format 'json' needs registry=", hint='type="module:Name"')
        if (schema is not None) != framing.register:
            raise InvalidInput("options schema= and register=True of format 'json' belong together")
        self._framing, self._json = framing, JsonFormat()
        self._text = None if schema is None else msgspec.json.encode(schema_of(schema)).decode()

    def _decode(self, data: bytes) -> Row:
        number, body = self._framing.open(data)
        self._framing.schema(number, "JSON")
        return self._json.decode(body)

    def _encode(self, row: Row) -> bytes:
        number = self._framing.number_to_write("JSON", self._text)
        return self._framing.framed(number, self._json.encode(row))

    def close(self) -> None:
        self._framing.close()
