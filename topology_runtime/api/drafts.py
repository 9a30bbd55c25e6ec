"""From plain data to topology types, noting every fault of type instead of stopping at the first.

The walk follows the fields of the structs in `topology.py`. What cannot be used becomes None in the
draft, so that places keep their numbers and the rules still see all the rest.
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from headgate.topology_runtime.api.topology import (
    ON_THE_WIRE,
    SCHEMA,
    Edge,
    LatencyConstraint,
    Task,
    Topology,
)
from headgate.topology_runtime.wording import Suggestions, shown

S = TypeVar("S", bound=msgspec.Struct)

_UNUSABLE: Any = object()


@dataclass(frozen=True)
class Draft:
    """A topology as far as it could be read; None where a task, an edge or a constraint is unusable.

    `kinds_given`: numbers of the tasks that say their kind. `whole`: all tasks and edges are usable."""

    name: str | None
    schema: str | None
    tasks: tuple[Task | None, ...]
    edges: tuple[Edge | None, ...]
    latency_constraints: tuple[LatencyConstraint | None, ...]
    kinds_given: frozenset[int]
    whole: bool


def draft_of(data: object) -> tuple[Draft, list[str]]:
    """(draft, faults of type) of a file's data or of a Topology built in Python."""
    walk = _Walk()
    top = walk.record(Topology, data, "") or {}
    edges_absent = isinstance(data, dict) and "edges" not in data
    tasks, edges = top.get("tasks"), top.get("edges", () if edges_absent else None)
    draft = Draft(
        name=top.get("name"),
        schema=top.get("schema", SCHEMA),
        tasks=tasks or (),
        edges=edges or (),
        latency_constraints=top.get("latency_constraints", ()),
        kinds_given=frozenset(_kinds_given(data)),
        whole=tasks is not None and edges is not None and None not in tasks and None not in edges,
    )
    return draft, walk.faults


def topology_from(draft: Draft) -> Topology:
    """The topology of a draft without faults."""
    assert draft.name is not None and draft.schema is not None
    return Topology(
        name=draft.name,
        tasks=tuple(task for task in draft.tasks if task is not None),
        edges=tuple(edge for edge in draft.edges if edge is not None),
        latency_constraints=tuple(limit for limit in draft.latency_constraints if limit is not None),
        schema=draft.schema,
    )


def _kinds_given(data: object) -> typing.Iterator[int]:
    """A struct cannot tell a given `map` from the default; there, any other kind counts as given."""
    tasks = data.get("tasks", ()) if isinstance(data, dict) else getattr(data, "tasks", ())
    for number, task in enumerate(tasks if isinstance(tasks, list | tuple) else ()):
        if isinstance(task, dict):
            if "kind" in task:
                yield number
        elif getattr(task, "kind", "map") != "map":
            yield number


class _Walk:
    def __init__(self) -> None:
        self.faults: list[str] = []
        self._suggestions = Suggestions()

    def fault(self, place: str, what: str) -> None:
        self.faults.append(f"{place or 'topology'}: {what}")

    def struct(self, kind: type[S], data: object, place: str) -> S | None:
        """An instance of `kind`; None when it, or a field it must have, is unusable."""
        values = self.record(kind, data, place)
        if values is None:
            return None
        required = (info.name for info in _fields(kind).values() if info.required)
        return kind(**values) if all(name in values for name in required) else None

    def record(self, kind: type[msgspec.Struct], data: object, place: str) -> dict[str, Any] | None:
        """The usable fields of a struct by attribute name; None when it is no mapping at all."""
        fields = _fields(kind)
        if isinstance(data, kind):
            given = {key: getattr(data, info.name) for key, info in fields.items()}
            data = {key: value for key, value in given.items() if value is not msgspec.UNSET}
        if not isinstance(data, dict):
            self.fault(place, f"expected a mapping with the keys {', '.join(fields)}, got {shown(data)}")
            return None
        self._unknown_keys(data, fields, place)
        values: dict[str, Any] = {}
        for key, info in fields.items():
            value = self._field(key, info, data, place)
            if value is not _UNUSABLE:
                values[info.name] = value
        return values

    def _unknown_keys(self, data: dict[Any, Any], fields: dict[str, FieldInfo], place: str) -> None:
        for key in data:
            if not isinstance(key, str):
                self.fault(place, f"the key {shown(key)} is not text")
            elif key not in fields:
                near = self._suggestions.text(key, fields) or f" (known: {', '.join(fields)})"
                self.fault(_inside(place, shown(key)[1:-1]), f"unknown key{near}")

    def _field(self, key: str, info: FieldInfo, data: dict[Any, Any], place: str) -> Any:
        if key in data:
            return self.value(info.type, data[key], _inside(place, key))
        if info.required:
            self.fault(_inside(place, key), "missing")
        return _UNUSABLE

    def value(self, desired: Any, data: object, place: str) -> Any:
        """The value as `desired`, or `_UNUSABLE`."""
        if _is_optional_struct(desired):
            if data is None:
                return None
            desired = typing.get_args(desired)[0]
        if _is_struct(desired):
            return self.struct(desired, data, place) or _UNUSABLE
        if typing.get_origin(desired) is tuple:
            return self._sequence(typing.get_args(desired)[0], data, place)
        try:
            return msgspec.convert(data, desired)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError):
            near = self._near_choice(desired, data)
            self.fault(place, f"expected {_expected(desired)}, got {shown(data)}{near}")
            return _UNUSABLE

    def _near_choice(self, desired: Any, data: object) -> str:
        if typing.get_origin(desired) is typing.Literal and isinstance(data, str):
            return self._suggestions.text(data, typing.get_args(desired))
        return ""

    def _sequence(self, desired: Any, data: object, place: str) -> Any:
        """Structs keep their place as None when unusable; one unusable plain item spoils the sequence."""
        if not isinstance(data, list | tuple):
            self.fault(place, f"expected a list, got {shown(data)}")
            return _UNUSABLE
        values = [self.value(desired, item, f"{place}[{i}]") for i, item in enumerate(data)]
        if _is_struct(desired):
            return tuple(None if value is _UNUSABLE else value for value in values)
        return _UNUSABLE if any(value is _UNUSABLE for value in values) else tuple(values)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """Key in the file → field; cached because reading the types is slow."""
    return {
        info.name if info.name in ON_THE_WIRE else info.encode_name: info
        for info in msgspec.structs.fields(kind)
    }


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _is_struct(desired: Any) -> bool:
    return isinstance(desired, type) and issubclass(desired, msgspec.Struct)


def _is_optional_struct(desired: Any) -> bool:
    is_union = typing.get_origin(desired) in (typing.Union, types.UnionType)
    return is_union and _is_struct(typing.get_args(desired)[0])


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "nothing",
    dict: "a mapping with text keys",
}


def _expected(desired: Any) -> str:
    origin, arguments = typing.get_origin(desired), typing.get_args(desired)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_expected(a) for a in arguments if a is not msgspec.UnsetType)
    return _WORDS.get(origin or desired, str(desired))
