"""Avro: one value a message, without a file's header; with the id of its schema before it where there is a registry."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.connectors.formats.avro_schema import AvroSchema, Schema
from headgate.topology_runtime.connectors.formats.avro_values import Locator, to_write
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format import Format, Row
from headgate.topology_runtime.connectors.formats.framing import Framing
from headgate.topology_runtime.errors import BadRow, InvalidInput


def schema_of(place: Schema) -> Schema:
    """What the file at a path says, as JSON; what is no path is the schema itself. Raises InvalidInput."""
    if not isinstance(place, str):
        return place
    try:
        return msgspec.json.decode(Path(place).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"cannot read the schema {place!r}", cause=str(error)) from error


class AvroFormat(Format):
    """schema: what rows are (of the reader). framing: with a registry, each message says what it was written with,
    and is read as `schema`, if there is one, by Avro's rules of resolution."""

    def __init__(self, schema: Schema = None, framing: Framing | None = None) -> None:
        if schema is None and framing is None:
            raise InvalidInput("format 'avro' needs schema= or registry=")
        self._fastavro = needed("fastavro", "avro")
        self._text = schema_of(schema)
        self._schema = AvroSchema(self._text) if schema is not None else None
        self._framing = framing
        self._writers: dict[int, AvroSchema] = {}

    def _decode(self, data: bytes) -> Row:
        if self._framing is None:
            assert self._schema is not None
            return self._read(data, self._schema, None)
        number, body = self._framing.open(data)
        return self._read(body, self._writer(number), self._schema)

    def close(self) -> None:
        if self._framing is not None:
            self._framing.close()

    def _writer(self, number: int) -> AvroSchema:
        if number not in self._writers:
            assert self._framing is not None
            found = self._framing.schema(number, "AVRO")
            try:
                others = [msgspec.json.decode(other) for _, other in found.others]
                self._writers[number] = AvroSchema(avro_json(found.text), others)
            except (InvalidInput, msgspec.DecodeError) as error:
                cause = getattr(error, "cause", None) or str(error)
                raise BadRow(f"$: schema {number} of the registry cannot be used", cause=cause) from error
        return self._writers[number]

    def _read(self, data: bytes, writer: AvroSchema, reader: AvroSchema | None) -> Row:
        if writer.recursive:
            Locator(writer, None, data).look()  # fastavro takes no notice of depth
        file = io.BytesIO(data)
        try:
            row: Row = self._fastavro.schemaless_reader(
                file, writer.parsed, reader.parsed if reader else None
            )
        except Exception as error:  # what fastavro raises of bad data is of any type
            Locator(writer, reader, data).look()
            text = error.what if isinstance(error, BadRow) else f"{error}"[:300]
            raise BadRow(f"$: the message does not fit the schema: {text}") from error
        if file.tell() != len(data):
            raise BadRow(
                f"$: {len(data) - file.tell():,} bytes are left behind the value (byte {file.tell():,})"
            )
        return row

    def _encode(self, row: Row) -> bytes:
        number, schema = 0, self._schema
        if self._framing is not None:
            number = self._framing.number_to_write("AVRO", None if schema is None else _one_text(self._text))
            if schema is None or not self._framing.register:
                schema = self._writer(number)
        assert schema is not None
        file = io.BytesIO()
        self._fastavro.schemaless_writer(file, schema.parsed, to_write(schema, schema.parsed, row))
        return self._framing.framed(number, file.getvalue()) if self._framing else file.getvalue()


def avro_json(text: str) -> Any:
    """A schema as registries give it: `"string"` may stand there without quotes."""
    return msgspec.json.decode(text) if text.strip()[:1] in '"{[' else text.strip()


def _one_text(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()
