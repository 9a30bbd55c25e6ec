"""Traces asked from Python, as from a notebook: one connection, any number of queries, rows that show themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.answers import lines_of, plain, unique
from headgate.dashboards.tables.catalogue import tables
from headgate.dashboards.tables.duckdb_views import connected
from headgate.dashboards.tables.queries import answer
from headgate.topology_runtime.faults.words import significant

SHOWN = 200  # rows of an answer that a notebook shows


@dataclass(frozen=True)
class AnswerRows:
    """All rows of an answer, in memory. `rows["name"]` is a column."""

    columns: list[str]
    rows: list[dict[str, Any]]

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in self.rows]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows[:SHOWN]
        )
        more = f"<p>{SHOWN:,} of {len(self):,} rows</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class Traces:
    """What `headgate sql TRACE` asks. `left_out`: files that no table has a row of. Raises InvalidInput."""

    def __init__(self, trace: str) -> None:
        runs, self.left_out = trace_files.found(trace)
        self._connection = connected(runs, self.left_out, set(tables()))

    def ask(self, query: str) -> AnswerRows:
        """The answer to one query. Raises InvalidInput."""
        names, batches = answer(self._connection, query)
        columns = unique(names)
        rows = [dict(zip(columns, map(plain, line), strict=True)) for line in lines_of(batches)]
        return AnswerRows(columns, rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return significant(value) if isinstance(value, float) else str(value)
