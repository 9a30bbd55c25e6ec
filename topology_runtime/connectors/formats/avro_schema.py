"""An Avro schema as it is read and written here: parsed by fastavro, with what would not end refused, and with what
fastavro takes silently (decimals that are too long, defaults of bytes and moments) made exact."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from decimal import MAX_PREC, Context, Decimal
from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.errors import BadRow, InvalidInput

Schema = Any  # JSON, as the Avro specification has it
EXACT_DECIMAL = "headgate-decimal"  # a logical type of our own: fastavro rounds to the schema's precision
_EXACT = Context(prec=MAX_PREC)


class AvroSchema:
    """A schema whose named types are known. parsed: as fastavro takes it. recursive: may its data nest without end?

    Raises InvalidInput for what is no Avro schema."""

    def __init__(self, text: Schema, others: Sequence[Schema] = ()) -> None:
        fastavro = needed("fastavro", "avro")
        fastavro.read.LOGICAL_READERS[f"bytes-{EXACT_DECIMAL}"] = _read_decimal
        fastavro.read.LOGICAL_READERS[f"fixed-{EXACT_DECIMAL}"] = _read_decimal
        self.names: dict[str, Any] = {}
        try:
            for other in others:
                fastavro.parse_schema(_own_decimals(other), named_schemas=self.names)
            self.parsed = fastavro.parse_schema(_own_decimals(text), named_schemas=self.names)
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
            raise InvalidInput("invalid Avro schema", cause=f"{error}"[:400]) from error
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            cause = f"{type(error).__name__}: {error}"[:400]
            raise InvalidInput("invalid Avro schema", cause=cause) from error
        self.recursive = self._look(self.parsed, ())
        for known in (self.parsed, *self.names.values()):
            self._exact_defaults(known)

    def named(self, schema: Schema) -> Schema:
        """The schema itself where a name stands for it."""
        return self.names.get(schema, schema) if isinstance(schema, str) else schema

    def _look(self, schema: Schema, inside: tuple[str, ...]) -> bool:
        """Does it hold itself? Raises InvalidInput for arrays of items that take no byte: a few bytes could say that
        there are 2⁶² of them."""
        schema = self.named(schema)
        if isinstance(schema, list):
            return any([self._look(branch, inside) for branch in schema])
        kind = kind_of(schema)
        if kind == "record":
            if schema["name"] in inside:
                return True
            fields = [self._look(field["type"], (*inside, schema["name"])) for field in schema["fields"]]
            return any(fields)
        if kind == "array" and self._takes_nothing(schema["items"], ()):
            raise InvalidInput("invalid Avro schema", cause="the items of an array take no bytes")
        return kind in ("array", "map") and self._look(
            schema["items" if kind == "array" else "values"], inside
        )

    def _takes_nothing(self, schema: Schema, inside: tuple[str, ...]) -> bool:
        schema = self.named(schema)
        kind = kind_of(schema)
        if kind == "record":
            if schema["name"] in inside:
                raise InvalidInput("invalid Avro schema", cause=f"{schema['name']} holds itself, always")
            names = (*inside, schema["name"])
            return all(self._takes_nothing(field["type"], names) for field in schema["fields"])
        return kind == "null" or (kind == "fixed" and not schema["size"])

    def _exact_defaults(self, schema: Schema) -> None:
        """Defaults as values of rows: fastavro gives them as they stand in the schema, bytes as text."""
        if isinstance(schema, list):
            for branch in schema:
                self._exact_defaults(branch)
        elif kind_of(schema) == "record":
            for field in schema["fields"]:
                self._exact_defaults(field["type"])
                if "default" in field:
                    field["default"] = self._default(field["type"], field["default"])
        elif isinstance(schema, dict):
            for inner in ("items", "values"):
                self._exact_defaults(schema.get(inner))

    def _default(self, schema: Schema, value: Any) -> Any:
        schema = self.named(schema)
        if not isinstance(value, (str, int, float, list, dict)):
            return value  # done: a named schema is met once more under its name
        if isinstance(schema, list):  # a default is of the first branch; newer schemas name any
            return next(
                (self._default(one, value) for one in schema if _is_default(self.named(one), value)), value
            )
        kind = kind_of(schema)
        if kind == "array" and isinstance(value, list):
            return [self._default(schema["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._default(schema["values"], item) for name, item in value.items()}
        if kind == "record" and isinstance(value, dict):
            given = {field["name"]: field.get("default") for field in schema["fields"]} | value
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {name: self._default(types[name], item) for name, item in given.items() if name in types}
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        if not isinstance(schema, dict) or "logicalType" not in schema or kind in ("bytes", "fixed"):
            read = schema.get("logicalType") == EXACT_DECIMAL if isinstance(schema, dict) else False
            return _read_decimal(value, schema) if read and isinstance(value, bytes) else value
        fastavro = needed("fastavro", "avro")
        raw = io.BytesIO()
        fastavro.schemaless_writer(raw, {"type": kind}, value)
        return fastavro.schemaless_reader(io.BytesIO(raw.getvalue()), schema, None)


def kind_of(schema: Schema) -> str:
    """ "record", "int", "union", …"""
    if isinstance(schema, list):
        return "union"
    kind = schema.get("type", "") if isinstance(schema, Mapping) else schema
    return kind if isinstance(kind, str) else ""


def _own_decimals(schema: Schema) -> Schema:
    """The same schema, in which decimals are of the logical type that reads them exactly."""
    if isinstance(schema, list):
        return [_own_decimals(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: _own_decimals(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
    }
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    whole = type(precision) is int and type(scale) is int and 0 <= scale <= precision
    if schema.get("logicalType") == "decimal" and whole:
        made["logicalType"] = EXACT_DECIMAL
    return made


def _read_decimal(data: Any, writer: Schema = None, reader: Schema = None) -> Decimal:
    precision, scale = writer["precision"], writer.get("scale", 0)
    digits = int.from_bytes(data, "big", signed=True)
    if abs(digits) >= 10**precision:
        raise BadRow(f"expected a decimal of {precision} digits, got more")
    return Decimal(digits).scaleb(-scale, _EXACT)


def _is_default(schema: Schema, value: Any) -> bool:
    kinds = {
        type(None): ("null",),
        bool: ("boolean",),
        int: ("int", "long", "float", "double"),
        float: ("float", "double"),
        str: ("string", "bytes", "fixed", "enum"),
        list: ("array",),
        dict: ("map", "record"),
    }
    return kind_of(schema) in kinds.get(type(value), ())
