"""CSV: the cells of one record and their types, for files (record_formats.py) and for messages."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.topology_runtime.connectors.formats.format import (
    Format,
    Row,
    below,
    mismatch,
    must_be_plain,
    utf8,
)
from headgate.topology_runtime.errors import BadRow, InvalidInput
from headgate.topology_runtime.wording import counted

DELIMITERS = ",;\t|"
WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
TRUTH = {"true": True, "false": False}
NUMBERS = ("nan", "inf", "-inf", "+inf")


def _int(text: str) -> int | float:
    if WHOLE.fullmatch(text):
        return int(text)
    return _float(text)


def _float(text: str) -> float:
    if not DECIMAL.fullmatch(text) and text.lower() not in NUMBERS:
        raise ValueError(text)
    return float(text)


def _comma(text: str) -> float:
    if not (COMMA.fullmatch(text) or WHOLE.fullmatch(text)):
        raise ValueError(text)
    return float(text.replace(",", "."))


def _bool(text: str) -> bool:
    return TRUTH[text.lower()]


Reads = Callable[[str], Any]
TYPES: dict[str, Reads] = {"int": _int, "float": _float, "decimal-comma": _comma, "bool": _bool, "str": str}


def column_faults(columns: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """What is wrong with the names of columns and the types that are told for some."""
    faults = [f"column {place + 1} has no name" for place, name in enumerate(columns) if not name]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    faults += [f"column {name!r} is there twice" for name in twice]
    faults += [f"types: there is no column {name!r}" for name in types if name not in columns]
    faults += [f"types: {name!r} is {kind!r}" for name, kind in types.items() if kind not in TYPES]
    return faults


def record_of(columns: Sequence[str], reads: Sequence[Reads], cells: Sequence[str]) -> dict[str, Any]:
    """The cells by column, None where they are empty. `UnreadCell` of one that is not of its type."""
    record = {}
    for column, read, cell in zip(columns, reads, cells, strict=True):
        text = cell.strip()
        try:
            record[column] = (cell if read is str else read(text)) if text else None
        except (ValueError, KeyError) as error:
            raise UnreadCell(column, text, read) from error
    return record


class UnreadCell(Exception):
    """The text in this column is not of the column's type."""

    def __init__(self, column: str, text: str, read: Reads) -> None:
        super().__init__(column, text)
        self.column, self.text = column, text
        self.kind = next(name for name, reads in TYPES.items() if reads is read)


class CsvFormat(Format):
    """One record a message, without a header. columns: their names, in order. types: column → int, float,
    decimal-comma, bool or str (the default). An empty cell is None."""

    def __init__(
        self, columns: Sequence[str], types: Mapping[str, str] | None = None, delimiter: str = ","
    ) -> None:
        self._columns, self._types = list(columns), dict(types or {})
        faults = column_faults(self._columns, self._types) + ([] if columns else ["there are no columns"])
        if len(delimiter) != 1 or delimiter in '"\r\n':
            faults.append(f"delimiter is {delimiter!r}: it is one character")
        if faults:
            raise InvalidInput("invalid format 'csv'", faults=faults, hint=f"types: {', '.join(TYPES)}")
        self._delimiter = delimiter
        self._kinds = [self._types.get(name, "str") for name in self._columns]
        self._reads = [TYPES[kind] for kind in self._kinds]

    def _decode(self, data: bytes) -> Row:
        lines = io.StringIO(utf8(data), newline="")
        try:
            records = [cells for cells in csv.reader(lines, delimiter=self._delimiter, strict=True) if cells]
        except csv.Error as error:
            raise BadRow(f"$: no CSV: {error}", cause=repr(data[:80])) from error
        if len(records) != 1 or len(records[0]) != len(self._columns):
            found = counted(len(records[0]), "cell") if len(records) == 1 else counted(len(records), "record")
            expected = counted(len(self._columns), "cell")
            raise BadRow(f"$: expected {expected}, got {found}", cause=repr(data[:80]))
        try:
            return record_of(self._columns, self._reads, records[0])
        except UnreadCell as error:
            path = below("$", error.column)
            raise BadRow(f"{path}: expected {error.kind}, got {error.text[:80]!r}") from error

    def _encode(self, row: Row) -> bytes:
        if type(row) is not dict:
            raise mismatch("$", "a dict", row)
        must_be_plain(row)
        if others := [name for name in (*row, *self._columns) if (name in row) != (name in self._columns)]:
            what = "no such column" if others[0] in row else "this column is not there"
            raise BadRow(f"{below('$', others[0])}: {what}", hint="None stands for an empty cell")
        cells = [
            _cell(row[name], kind, below("$", name))
            for name, kind in zip(self._columns, self._kinds, strict=True)
        ]
        out = io.StringIO()
        csv.writer(out, delimiter=self._delimiter, lineterminator="").writerow(cells)
        return out.getvalue().encode()


def _cell(value: Any, kind: str, path: str) -> str:
    """A value as text that reads back as it."""
    if value is None:
        return ""
    if kind == "str" and type(value) is str:
        if not value.strip():
            raise BadRow(f"{path}: a text without a visible character reads back as None from CSV")
        if len(value) > csv.field_size_limit():
            raise BadRow(f"{path}: {len(value):,} characters are more than a cell has")
        return value
    numbers = {"int": (int, float), "float": (float,), "decimal-comma": (float,), "bool": (bool,)}
    if type(value) not in numbers.get(kind, ()):
        raise mismatch(path, kind, value)
    text = str(value).lower() if kind == "bool" else str(value)
    if kind == "decimal-comma":
        text = text.replace(".", ",")
        if not COMMA.fullmatch(text):
            raise mismatch(path, "a number that can be written with a comma", value)
    return text
