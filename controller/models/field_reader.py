"""Reading what files hold, field by field: every fault is noted with its place, and reading goes on.

Unknown keys are let pass, but for those within two typing errors of a known one: typing errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from headgate.topology_runtime.wording import did_you_mean, name_faults, shown

NEAR_LETTERS = 2  # an unknown key this near to a known one is a typing error
MAX_KEY = 64  # characters of a key that may be a typing error
MAX_TEXT = 128  # characters of a text
LARGEST = 1e300  # a number beyond is no measurement, and an integer beyond no float
LARGEST_INTEGER = 2**63 - 1

Struct = TypeVar("Struct", bound=msgspec.Struct)


def near_key(key: str, known: Iterable[str]) -> str | None:
    """The known key of which `key` is a typing error; None when it is known itself or like none."""
    if key in known or len(key) > MAX_KEY:
        return None
    return next((name for name in known if within_edits(key, name, NEAR_LETTERS)), None)


def within_edits(word: str, other: str, most: int) -> bool:
    """Do at most `most` characters inserted, left out or replaced turn `word` into `other`?"""
    if abs(len(word) - len(other)) > most:
        return False
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        before, row[0] = row[0], i
        for j, desired in enumerate(other, 1):
            cost = min(row[j] + 1, row[j - 1] + 1, before + (letter != desired))
            before, row[j] = row[j], cost
    return row[-1] <= most


class Fields:
    """One object of a file. What is read wrong comes back as a harmless value, its fault in `faults`.

    `place`: how faults call this object, such as `vms[2]`; empty for the whole file. `strict`: no unknown key is let
    pass."""

    def __init__(
        self, data: object, place: str, faults: list[str], known: Sequence[str], strict: bool = False
    ) -> None:
        self.place = place
        self.data: dict[Any, Any] = data if isinstance(data, dict) else {}
        self.faults = faults if isinstance(data, dict) else []  # what is in no object is no fault more
        if not isinstance(data, dict):
            found = "there is none" if data is None else f"got {shown(data)}"
            faults.append(f"{place or 'the file'}: expected an object, {found}")
        self._strict = strict
        self._refuse_unknown(known)

    def fault(self, key: str, text: str) -> None:
        self.faults.append(f"{self.at(key)}: {text}")

    def at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def has(self, key: str) -> bool:
        return key in self.data

    def number(
        self,
        key: str,
        otherwise: float | None = None,
        low: float = 0.0,
        above: bool = False,
        high: float = LARGEST,
        what: str = "",
    ) -> float:
        """A finite number from `low` (or above it) to `high`; `otherwise` when absent (None: must be there). what: such
        a number in words."""
        value: Any = self.data.get(key, otherwise)
        fits = _is_number(value) and low <= value <= high and not (above and value == low)
        if not fits:
            bound = f"above {low:g}" if above else f"of at least {low:g}"
            self._unfit(key, what or f"a finite number {bound}")
            return low
        return float(value)

    def struct(self, kind: type[Struct], **own: Any) -> Struct:
        """One of `kind`, each field by its type: names, integers and numbers of at least 0, flags, and what may be
        null. own: fields that the caller has read; what the file may leave out has a default."""
        read = {one.name: self._field(one) for one in msgspec.structs.fields(kind) if one.name not in own}
        return kind(**read, **own)

    def _field(self, one: Any) -> Any:
        otherwise = None if one.default is msgspec.NODEFAULT else one.default
        if one.type == float | None:
            return self.number(one.name) if self.data.get(one.name) is not None else None
        if one.type == str | None:
            return self.text(one.name) if self.data.get(one.name) is not None else None
        if one.type is bool:
            return self.flag(one.name)
        if one.type is int:
            return self.integer(one.name, 0, LARGEST_INTEGER, otherwise)
        return self.number(one.name, otherwise) if one.type is float else self.name(one.name, otherwise)

    def structs(self, key: str, kind: type[Struct], optional: bool = False) -> tuple[Struct, ...]:
        """The objects of a list, each one of `kind`."""
        known = kind.__struct_fields__
        return tuple(one.struct(kind) for one in self.objects(key, known, optional))

    def integer(self, key: str, low: int, high: int, otherwise: int | None = None) -> int:
        value: Any = self.data.get(key, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self._unfit(key, f"an integer from {low} to {high}")
            return low
        return value

    def flag(self, key: str) -> bool:
        """True or false; false when absent."""
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            self._unfit(key, "true or false")
        return value is True

    def name(self, key: str, otherwise: str | None = None) -> str:
        """A name of the form that tasks and VMs have."""
        value = self.data.get(key, otherwise)
        if not isinstance(value, str):
            self._unfit(key, "a name")
            return ""
        self.faults += name_faults(self.at(key), value)
        return value

    def text(self, key: str) -> str:
        """Any short text; empty when absent."""
        value = self.data.get(key, "")
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            self._unfit(key, f"text of at most {MAX_TEXT} characters")
            return ""
        return value

    def objects(self, key: str, known: Sequence[str], optional: bool = False) -> list[Fields]:
        """The objects of a list."""
        value = self.data.get(key, [] if optional else None)
        if not isinstance(value, list):
            self._unfit(key, "a list")
            return []
        return [self._inner(one, f"{self.at(key)}[{n}]", known) for n, one in enumerate(value)]

    def object(self, key: str, known: Sequence[str]) -> Fields:
        return self._inner(self.data.get(key), self.at(key), known)

    def _inner(self, data: object, place: str, known: Sequence[str]) -> Fields:
        return Fields(data, place, self.faults, known, self._strict)

    def counts(self, key: str, most: int) -> dict[str, int]:
        """An object of names with positive integers, such as task → threads."""
        value = self.data.get(key)
        if not isinstance(value, dict):
            self._unfit(key, "an object of task: threads")
            return {}
        counts = {}
        for name, count in value.items():
            if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
                self.fault(key, f"{shown(name)}: expected 1 to {most} threads, got {shown(count)}")
            counts[str(name)] = count if isinstance(count, int) else 0
        return counts

    def _unfit(self, key: str, expected: str) -> None:
        found = f"got {shown(self.data[key])}" if key in self.data else "there is none"
        if isinstance(self.data.get(key), dict | list):
            found = f"got a {'list' if isinstance(self.data[key], list) else 'mapping'}"
        self.fault(key, f"expected {expected}, {found}")

    def _refuse_unknown(self, known: Sequence[str]) -> None:
        for key in self.data:
            near = near_key(key, known) if isinstance(key, str) else None
            if self._strict and key not in known:
                self.fault(shown(key)[1:-1], f"no such key{did_you_mean(str(key), known)}")
            elif near is not None and near not in self.data:
                self.fault(shown(key)[1:-1], f"unknown key; did you mean {near!r}?")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
