"""What is said on the wire, written down by `python -P scripts/makers/freeze_wire.py`: tests/wire/frozen/wire_N.json.

A file holds of one wire version every type that a message is made of (fields in their order, types, defaults, how they
are encoded), what each channel says, the columns of samples, and examples as bytes. `breaks` tells what of it peers of
that version could no longer read, or would miss; `Frozen` makes decoders of that version out of it, without its code.
The rules: docs/explanation/protocol.md, Versions. The file of the version that is spoken is written again only when
nothing breaks.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire import wire_version
from headgate.topology_runtime.wire.report_messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS
from headgate.topology_runtime.worker.rows import row_values as rows

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "wire" / "frozen"
CHANNELS: dict[str, Any] = {
    "FromController": m.FromController,
    "FromAgent": m.FromAgent,
    "FromAgentToWorker": m.FromAgentToWorker,
    "FromWorker": m.FromWorker,
    "Tuples": m.Tuples,
    "Request": m.Request,
    "Reply": m.Reply,
}
COLUMNS = {"samples": SAMPLE_COLUMNS, "slots": SLOT_COLUMNS, "links": LINK_COLUMNS}
ROWS: tuple[tuple[Any, ...], ...] = (
    (1, -2.5, "ä", b"\x00", None, True),
    ((1, "a"), (2, "b")),
    ({"a": [1, (2,)]},),
)
VARIANTS = 5  # examples of each message: every kind of a union is in one
DEEPEST = 3  # of types that hold themselves
PLAIN = {int: "int", float: "float", str: "str", bytes: "bytes", bool: "bool", type(None): "None", Any: "Any",
         dict: "dict", list: "list", tuple: "tuple", msgspec.UnsetType: "UnsetType"}  # fmt: skip
RAISE = "raise the wire version (docs/explanation/protocol.md, Versions)"


def described() -> dict[str, Any]:
    """This headgate's wire."""
    structs: dict[str, Any] = {}
    channels = {name: [kind.__name__ for kind in _kinds(union)] for name, union in CHANNELS.items()}
    for union in CHANNELS.values():
        for kind in _kinds(union):
            _describe(kind, structs)
    return {
        "schema": "headgate/wire/v1",
        "wire": wire_version.WIRE,
        "retired": sorted(wire_version.RETIRED),
        "channels": channels,
        "columns": {name: list(columns) for name, columns in COLUMNS.items()},
        "structs": structs,
        "examples": {name: [_text(data) for data in _encoded(union)] for name, union in CHANNELS.items()},
        "rows": [
            [rows.shape_of(some), _text(rows.write(some, rows.shape_of(some))), repr(some)] for some in ROWS
        ],
    }


def _kinds(union: Any) -> tuple[Any, ...]:
    return typing.get_args(union) or (union,)


def _describe(kind: type[msgspec.Struct], into: dict[str, Any]) -> None:
    """Of this type, after those that it is made of."""
    if kind.__name__ in into:
        return
    into[kind.__name__] = {}
    hints = typing.get_type_hints(kind)
    for name in kind.__struct_fields__:
        for part in _structs_in(hints[name]):
            _describe(part, into)
    del into[kind.__name__]
    config = kind.__struct_config__
    into[kind.__name__] = {
        "tag": config.tag,
        "array_like": config.array_like,
        "forbid_unknown_fields": config.forbid_unknown_fields,
        "omit_defaults": config.omit_defaults,
        "fields": [_field(one, hints[one.name]) for one in msgspec.structs.fields(kind)],
    }


def _structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in typing.get_args(kind) if typing.get_origin(kind) is not typing.Literal else ():
        yield from _structs_in(part)


def _field(one: Any, hint: Any) -> list[Any]:
    """Name, type, default ("": none), name on the wire."""
    default = ""
    if one.default is not msgspec.NODEFAULT:
        default = repr(one.default)
    elif one.default_factory is not msgspec.NODEFAULT:
        default = repr(one.default_factory())
    return [one.name, written(hint), default, one.encode_name]


def written(kind: Any) -> str:
    """A type as its text."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"Literal{list(arguments)!r}"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(written, arguments))
    if origin in (list, dict, tuple):
        inner = ", ".join("..." if part is Ellipsis else written(part) for part in arguments)
        return f"{origin.__name__}[{inner}]"
    if isinstance(kind, type):
        return kind.__name__
    raise TypeError(f"no text for {kind!r}")


# ── examples ─────────────────────────────────────────────────────────────────────────────────────


def _encoded(union: Any) -> list[bytes]:
    """Each message with nothing but what it must have, and with all that it may have."""
    found = [example(kind, variant) for kind in _kinds(union) for variant in (None, *range(VARIANTS))]
    return list(dict.fromkeys(map(msgspec.msgpack.encode, found)))


def example(kind: type[msgspec.Struct], variant: int | None) -> Any:
    """variant None: what has a default is left out."""
    return _value(kind, variant, itertools.count(1), 0)


def _value(kind: Any, variant: int | None, numbers: Iterator[int], depth: int) -> Any:
    plain = {
        int: lambda: next(numbers), float: lambda: next(numbers) + 0.5, str: lambda: f"text{next(numbers)}",
        bytes: lambda: b"\x07%d" % next(numbers), bool: lambda: True, type(None): lambda: None,
        dict: lambda: {"a": 1}, list: lambda: [1], tuple: lambda: (1,),
        Any: lambda: [1, "a"], msgspec.Raw: lambda: msgspec.Raw(msgspec.msgpack.encode([1, 2])),
    }  # fmt: skip
    if kind in plain:
        return plain[kind]()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        fields = [one for one in msgspec.structs.fields(kind) if variant is not None or one.required]
        return kind(**{one.name: _value(hints[one.name], variant, numbers, depth + 1) for one in fields})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return arguments[(variant or 0) % len(arguments)]
    if origin in (typing.Union, types.UnionType):
        real = [part for part in arguments if part not in (type(None), msgspec.UnsetType)]
        return (
            None if depth > 2 * DEEPEST else _value(real[(variant or 0) % len(real)], variant, numbers, depth)
        )
    if origin is dict:
        return {_value(arguments[0], variant, numbers, depth): _value(arguments[1], variant, numbers, depth)}
    many = arguments[:1] * 2 if origin is list or arguments[-1] is Ellipsis else arguments
    made = [_value(part, variant, numbers, depth) for part in many]
    return made if origin is list else tuple(made)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# ── what was frozen ──────────────────────────────────────────────────────────────────────────────


class Frozen:
    """The wire of a version as its file tells it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told, self.wire = told, told["wire"]
        module = types.ModuleType(f"frozen_wire_{self.wire}")
        module.__dict__.update(Any=Any, Literal=typing.Literal)
        module.__dict__.update(
            {name: getattr(msgspec, name) for name in ("Raw", "Struct", "UNSET", "UnsetType")}
        )
        sys.modules[module.__name__] = module  # where msgspec looks for what types are called
        exec("from __future__ import annotations\n" + "\n".join(self._source()), module.__dict__)
        self.kinds = {name: module.__dict__[name] for name in told["structs"]}
        self.decoders = {
            name: msgspec.msgpack.Decoder(typing.Union[tuple(self.kinds[kind] for kind in kinds)])  # noqa: UP007
            for name, kinds in told["channels"].items()
        }

    def _source(self) -> Iterator[str]:
        for name, struct in self.told["structs"].items():
            flags = ", ".join(f"{flag}={struct[flag]!r}" for flag in struct if flag != "fields")
            renamed = {field[0]: field[3] for field in struct["fields"] if field[0] != field[3]}
            yield f"class {name}(Struct, kw_only=True, frozen=True, rename={renamed!r}, {flags}):\n    pass"
            for field, kind, default, _ in struct["fields"]:
                yield f"    {field}: {kind}" + (f" = {default}" if default else "")

    def examples(self) -> Iterator[tuple[str, bytes]]:
        """(channel, bytes)."""
        for channel, texts in self.told["examples"].items():
            for text in texts:
                yield channel, base64.b64decode(text)


def frozen(wire: int) -> Frozen:
    return Frozen(json.loads((FOLDER / f"wire_{wire}.json").read_text("utf-8")))


def breaks(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What of `before` peers that speak it could not read now, or would miss; none: both may run side by side."""
    found = [
        f"columns of {name} are others: {RAISE}"
        for name in before["columns"] if before["columns"][name] != now["columns"].get(name)
    ]  # fmt: skip
    for channel, kinds in before["channels"].items():
        there = now["channels"].get(channel, [])
        found += [f"{channel} says {kind} no more: {RAISE}" for kind in kinds if kind not in there]
        found += [
            f"{channel} says {kind}, which wire {before['wire']} cannot read: say it only to who speaks more, and name "
            "it in wire_version.NEW_KINDS" for kind in there if kind not in (*kinds, *wire_version.NEW_KINDS)
        ]  # fmt: skip
    for name, struct in before["structs"].items():
        if name in now["structs"]:
            found += _struct_breaks(name, struct, now["structs"][name], set(before["retired"]))
        else:
            found.append(f"there is no {name} any more: {RAISE}")
    return found


def _struct_breaks(
    name: str, before: dict[str, Any], now: dict[str, Any], retired: set[str]
) -> Iterator[str]:
    for flag in ("tag", "array_like"):
        if before[flag] != now[flag]:
            yield f"{name}: {flag} was {before[flag]!r}, is {now[flag]!r}: {RAISE}"
    old, new = ({field[3]: field[1:3] for field in struct["fields"]} for struct in (before, now))
    for field, (kind, default) in old.items():
        if field not in new:
            if f"{name}.{field}" not in retired:
                yield f"{name}.{field} is gone or has another name: name it in wire_version.RETIRED first. {RAISE}"
        elif new[field][0] != kind:
            yield f"{name}.{field} was {kind}, is {new[field][0]}: {RAISE}"
        elif default and not new[field][1]:
            yield f"{name}.{field} has no default any more, and may be left out: {RAISE}"
        elif before["omit_defaults"] and default != new[field][1]:
            yield f"{name}.{field} is left out where it is {default}, and would be read as {new[field][1]}: {RAISE}"
    added = [field for field in new if field not in old]
    yield from (f"{name}.{field} has no default, and is not sent yet: give it one. {RAISE}"
                for field in added if not new[field][1])  # fmt: skip
    if added and before["forbid_unknown_fields"] and not now["omit_defaults"]:
        yield f"{name} takes no unknown fields, and {', '.join(added)} is new: {RAISE}"
    if before["array_like"] and list(new)[: len(old)] != list(old):
        yield f"{name} is an array, and its fields stand in another order: new ones go to its end. {RAISE}"


def write() -> None:
    """Raises SystemExit when something of what is written down breaks."""
    now, path = described(), FOLDER / f"wire_{wire_version.WIRE}.json"
    faults = breaks(json.loads(path.read_text("utf-8")), now) if path.exists() else []
    if wire_version.OLDEST != wire_version.WIRE:
        faults += breaks(frozen(wire_version.OLDEST).told, now)
    if faults:
        raise SystemExit("\n".join(faults))
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for old in FOLDER.glob("wire_*.json"):
        if int(old.stem.partition("_")[2]) < wire_version.OLDEST:
            old.unlink()
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    write()
