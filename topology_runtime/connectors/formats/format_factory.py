"""From what stands in a topology (plain JSON values) to a `Format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.errors import InvalidInput

if TYPE_CHECKING:
    from headgate.topology_runtime.connectors.formats.framing import Framing


def open_format(format: str = "json", *, type: str | None = None, **options: Any) -> Format:
    """The format that a topology names. format: json, msgpack, avro, protobuf, csv or raw. type: "module:Name" of a
    msgspec Struct or dataclass that each row must be. options: of the format.

    Raises InvalidInput for what it does not have, and for a package that is missing.

    >>> open_format("csv", columns=["id", "name"], types={"id": "int"}).decode(b"7,Ada")
    {'id': 7, 'name': 'Ada'}
    """
    if format not in MAKERS:
        raise InvalidInput(f"there is no format {format!r}", hint=f"one of {', '.join(MAKERS)}")
    make, known = MAKERS[format]
    if unknown := sorted(set(options) - set(known)):
        hint = f"it has: {', '.join((*known, 'type'))}"
        raise InvalidInput(f"format {format!r} has no option {unknown[0]!r}", hint=hint)
    made = make(options)
    if type is None:
        return made
    from headgate.topology_runtime.connectors.formats.typed_rows import TypedRows, named

    return TypedRows(made, named(type, "type"))


Options = Mapping[str, Any]


def _msgpack(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.json_format import MsgpackFormat

    return MsgpackFormat()


def _raw(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.json_format import RawFormat

    return RawFormat()


def _csv(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.csv_format import CsvFormat

    return CsvFormat(**options)


REGISTRY = ("registry", "user", "password", "subject", "register")


def _framing(options: Options) -> Framing | None:
    from headgate.topology_runtime.connectors.formats.framing import Framing
    from headgate.topology_runtime.connectors.formats.schema_registry import SchemaRegistry

    if "registry" not in options:
        if told := [name for name in REGISTRY if name in options]:
            raise InvalidInput(f"option {told[0]}= needs registry=")
        return None
    login = {name: options[name] for name in ("user", "password") if name in options}
    registry = SchemaRegistry(options["registry"], **login)
    return Framing(registry, options.get("subject", ""), options.get("register", False))


def _json(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.json_format import JsonFormat

    framing = _framing(options)
    if framing is None and "schema" not in options:
        return JsonFormat()
    from headgate.topology_runtime.connectors.formats.registered_json import RegisteredJson

    return RegisteredJson(options.get("schema"), framing)


def _avro(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.avro_format import AvroFormat

    return AvroFormat(options.get("schema"), _framing(options))


def _protobuf(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.protobuf_format import ProtobufFormat

    return ProtobufFormat(options.get("schema", ""), options.get("message", ""), _framing(options))


MAKERS: dict[str, tuple[Callable[[Options], Format], tuple[str, ...]]] = {
    "json": (_json, ("schema", *REGISTRY)),
    "msgpack": (_msgpack, ()),
    "csv": (_csv, ("columns", "types", "delimiter")),
    "avro": (_avro, ("schema", *REGISTRY)),
    "protobuf": (_protobuf, ("schema", "message", *REGISTRY)),
    "raw": (_raw, ()),
}
