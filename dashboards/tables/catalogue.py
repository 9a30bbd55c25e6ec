"""The tables that can be asked: raw ones, and the views of `views/*.sql`, each with its columns, units and meaning.

A view's file begins with comments: sentences about it, an empty one, and a line `name | type | unit | meaning` for each
column. `headgate sql TRACE --tables` is `listing()`, docs/reference/tables.md has the names; tests hold the lines to
what the engines say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dashboards.tables.raw_tables import RAW

VIEWS = Path(__file__).parent / "views"
TYPES = ("timestamp", "string", "bigint", "double", "boolean")
WORD = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class TableColumn:
    """unit: "" for what has none: a name, a number, yes or no."""

    name: str
    type: str
    unit: str
    about: str


@dataclass(frozen=True)
class TraceTable:
    """sql: of a view; None: a raw table."""

    name: str
    about: str
    columns: tuple[TableColumn, ...]
    sql: str | None = None


@cache
def tables() -> dict[str, TraceTable]:
    """All of them by name: raw ones first, each view after those that it reads."""
    raw = {name: _parsed(name, text, None) for name, text in RAW.items()}
    views = {file.stem: _of_file(file) for file in sorted(VIEWS.glob("*.sql"))}
    found = dict(raw)
    while left := [view for view in views.values() if view.name not in found]:
        ready = [view for view in left if not _reads(view, views) - found.keys()]
        if not ready:
            raise ValueError(f"these views read each other: {', '.join(view.name for view in left)}")
        found |= {view.name: view for view in ready}
    return found


def needed(query: str) -> set[str]:
    """The tables that a query may read, by the words in it, and those that these read."""
    every = tables()
    words = set(WORD.findall(query.lower()))
    if words & {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}:
        return set(every)
    found, waiting = set(), words & every.keys()
    while waiting:
        found |= waiting
        waiting = {name for one in waiting for name in _reads(every[one], every)} - found
    return found


def _reads(view: TraceTable, known: Mapping[str, object]) -> set[str]:
    code = re.sub(r"--.*", "", view.sql or "")
    return (set(WORD.findall(code)) & known.keys()) - {view.name}


def _of_file(file: Path) -> TraceTable:
    text = file.read_text("utf-8")
    lines = text.splitlines()
    code_at = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    comment = "\n".join(line.removeprefix("--").strip() for line in lines[:code_at])
    return _parsed(file.stem, comment, "\n".join(lines[code_at:]).strip())


def _parsed(name: str, text: str, sql: str | None) -> TraceTable:
    about, _, rows = text.strip().partition("\n\n")
    columns = []
    for line in rows.splitlines():
        parts = [part.strip() for part in line.split("|", 3)]
        if len(parts) != 4 or parts[1] not in TYPES:
            raise ValueError(f"{name}: {line!r} is not `name | type | unit | meaning`")
        columns.append(TableColumn(*parts))
    return TraceTable(name, " ".join(about.split()), tuple(columns), sql)


def listing() -> list[dict[str, str]]:
    """A row per column."""
    return [
        {"table": table.name, "column": of.name, "type": of.type, "unit": of.unit, "meaning": of.about}
        for table in tables().values()
        for of in table.columns
    ]
