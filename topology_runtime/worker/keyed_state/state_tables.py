"""Keyed state for eyes and other programs: keys and states as JSON, and as rows of a table. Pure.

JSON is as msgspec has it: bytes are base64, times ISO text, a NaN is null. Besides, a dict of which some key is no text
is a list of pairs. A key that JSON has no type for says its type, {"date": "2026-11-29"}, so that it can be told back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    contents_of,
    of_range,
    timers_read,
)
from headgate.topology_runtime.worker.rows.row_values import LEAVES

FIELDS_MOST = 200  # columns that the fields of states have
SAFE_INT = 1 << 53  # a float holds every whole number up to it
MOST_SIGNED = (1 << 63) - 1

Timers = tuple[tuple[int, str, bool], ...]  # µs since 1970, name, by the clock?


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────


def json_text(value: Any) -> str:
    """
    >>> json_text({"sum": 1.5, "seen": {(1, "a"): b"x"}})
    '{"sum":1.5,"seen":[[[1,"a"],"eA=="]]}'
    """
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        pairs = [(key, _plain(inner)) for key, inner in value.items()]
        if all(type(key) is str for key, _ in pairs):
            return dict(pairs)
        return [[_plain(key), inner] for key, inner in pairs]
    if kind is list or kind is tuple:
        return [_plain(inner) for inner in value]
    if kind is set or kind is frozenset:
        return sorted(map(_plain, value), key=msgspec.json.encode)
    return value


_TOLD: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Hashable]]] = {
    "bytes": (bytes, lambda value: b64encode(value).decode(), lambda text: b64decode(text, validate=True)),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
}
_NAMES = {kind: name for name, (kind, _, _) in _TOLD.items()}


def key_text(key: Hashable) -> str:
    """A key as JSON, from which it can be had again.

    >>> key_text(("a", 1, date(2026, 11, 29)))
    '["a",1,{"date":"2026-11-29"}]'
    """
    return msgspec.json.encode(_told(key)).decode()


def _told(key: Any) -> Any:
    if isinstance(key, tuple):
        return list(map(_told, key))
    if (name := _NAMES.get(type(key))) is not None:
        return {name: _TOLD[name][1](key)}
    return _plain(key)


def key_of(text: str) -> Hashable:
    """The key that JSON says; a text that is no JSON is the key itself. Raises InvalidInput.

    >>> key_of("berlin"), key_of("17"), key_of('"17"'), key_of('["a", 1]')
    ('berlin', 17, '17', ('a', 1))
    """
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return _meant(value, text)


def _meant(value: Any, text: str) -> Hashable:
    if isinstance(value, list):
        return tuple(_meant(inner, text) for inner in value)
    if not isinstance(value, dict):
        key: Hashable = value
        return key
    name, inner = next(iter(value.items())) if len(value) == 1 else ("", "")
    if name not in _TOLD or not isinstance(inner, str):
        kinds = ", ".join(_TOLD)
        raise InvalidInput(
            f"{text[:200]} is no key", cause=f"an object says the type of a key: one of {kinds}",
            hint='for example {"date": "2026-11-29"}',
        )  # fmt: skip
    try:
        return _TOLD[name][2](inner)
    except (ValueError, ArithmeticError) as error:
        raise InvalidInput(f"{text[:200]} is no key", cause=f"{inner[:200]!r} is no {name}") from error


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StateRow:
    """A key of a snapshot. thread: that had it."""

    thread: int
    key_range: int
    key: Hashable
    state: Any
    timers: Timers


def split(saved: Any, timed: bool) -> tuple[Any, Timers] | None:
    """What was saved of a key as its state and its timers, the earliest first; None: it is forgotten."""
    if not timed:
        return saved, ()
    if saved is None:
        return None
    state, events, clocks = saved
    timers = [(*timer, False) for timer in timers_read(events)]
    timers += [(*timer, True) for timer in timers_read(clocks)]
    return state, tuple(sorted(timers))


def rows_by_range(
    snapshot: KeyedSnapshot, thread: int, kept: Container[int], timed: bool
) -> Iterator[list[StateRow]]:
    """The rows of one range after the other, of those that it `kept`. Raises msgspec.DecodeError."""
    for copy in snapshot.copies:
        if copy.key_range in kept:
            found = []
            for key, saved in of_range(contents_of(copy).states):
                if (parts := split(saved, timed)) is not None:
                    found.append(StateRow(thread, copy.key_range, key, *parts))
            yield found


# ── columns ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class StateColumn:
    """kind: what its values are: bool, int, large (up to 64 bits without a sign), float, text, bytes, instant
    (with a zone), moment (without one), date, or json. of: what is in it of a row, for that kind."""

    name: str
    kind: str
    of: Callable[[StateRow], Any]


@dataclass
class TableShape:
    """Which columns rows need: looks at every row once. timed: with timers."""

    timed: bool
    rows: int = 0
    _keys: set[str] = field(default_factory=set)
    _states: set[str] = field(default_factory=set)
    _fields: dict[str, set[str]] | None = field(default_factory=dict)

    def look(self, row: StateRow) -> None:
        self.rows += 1
        self._keys.add(_kind(row.key))
        self._states.add(_kind(row.state))
        if self._fields is None:
            return
        if type(row.state) is not dict:
            self._fields = None
            return
        for name, value in row.state.items():
            if type(name) is not str or type(value) not in LEAVES:
                self._fields = None
                return
            self._fields.setdefault(name, set()).add(_kind(value))
        if len(self._fields) > FIELDS_MOST:
            self._fields = None

    def columns(self) -> list[StateColumn]:
        """key, state and what states have of their own; the rest is the same in all tables."""
        key_kind = "json" if {"small", "float"} <= self._keys else _column_kind(self._keys)  # 1 is not 1.0
        found = [
            StateColumn(
                "key", key_kind, lambda row: key_text(row.key) if key_kind == "json" else _value(row.key)
            ),
            StateColumn("state", "json", lambda row: json_text(row.state)),
        ]
        if self._fields:
            found += [_field_column(name, _column_kind(kinds)) for name, kinds in self._fields.items()]
        elif self.rows and "nested" not in self._states:
            kind = _column_kind(self._states)
            found.append(StateColumn("value", kind, lambda row: _as(kind, row.state)))
        return found


def _field_column(name: str, kind: str) -> StateColumn:
    return StateColumn(f"state_{name}", kind, lambda row: _as(kind, row.state.get(name)))


def _as(kind: str, value: Any) -> Any:
    return json_text(value) if kind == "json" and value is not None else _value(value)


def _value(value: Any) -> Any:
    return str(value) if type(value) in (Decimal, UUID) else value


def _kind(value: Any) -> str:
    kind = type(value)
    if kind is int:
        if -SAFE_INT <= value <= SAFE_INT:
            return "small"
        return "int" if value <= MOST_SIGNED else "large"
    if kind is datetime:
        return "moment" if value.tzinfo is None else "instant"
    return _KINDS.get(kind, "nested")


_KINDS = {
    bool: "bool", float: "float", str: "text", bytes: "bytes", date: "date", type(None): "null",
    Decimal: "decimal", UUID: "uuid", time: "time",
}  # fmt: skip


def _column_kind(kinds: Iterable[str]) -> str:
    """What a column of such values is."""
    found = set(kinds) - {"null"}
    if found <= {"small", "int", "large"} and found:
        return "large" if "large" in found else "int"
    if found == {"small", "float"}:
        return "float"
    if len(found) == 1:
        (one,) = found
        return {"decimal": "text", "uuid": "text", "time": "json", "nested": "json"}.get(one, one)
    return "json" if found else "text"
