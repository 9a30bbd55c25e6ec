"""From what stands in a topology (plain JSON values) to a `Format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.errors import InvalidInput


def open_format(format: str = "json", *, type: str | None = None, **options: Any) -> Format:
    """The format that a topology names. format: json, msgpack, avro, csv or raw. type: "module:Name" of a
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


def _json(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.json_format import JsonFormat

    return JsonFormat()


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


def _avro(options: Options) -> Format:
    from headgate.topology_runtime.connectors.formats.avro_format import AvroFormat
    from headgate.topology_runtime.connectors.formats.framing import Framing
    from headgate.topology_runtime.connectors.formats.schema_registry import SchemaRegistry

    framing = None
    if "registry" in options:
        login = {name: options[name] for name in ("user", "password") if name in options}
        registry = SchemaRegistry(options["registry"], **login)
        framing = Framing(registry, options.get("subject", ""), options.get("register", False))
    elif told := [name for name in REGISTRY if name in options]:
        raise InvalidInput(f"format 'avro' has {told[0]}= and no registry=")
    return AvroFormat(options.get("schema"), framing)


MAKERS: dict[str, tuple[Callable[[Options], Format], tuple[str, ...]]] = {
    "json": (_json, ()),
    "msgpack": (_msgpack, ()),
    "csv": (_csv, ("columns", "types", "delimiter")),
    "avro": (_avro, ("schema", *REGISTRY)),
    "raw": (_raw, ()),
}
