"""A table of DuckDB as a sink: in a file on the VM of the sink's thread, which one process writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, FileTableSink
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.errors import ServiceAway

AT_ONCE = 200  # rows in a statement


class DuckdbSink(FileTableSink):
    """Rows into a table of the database at `path`; the table is made if there is none (`create=False`: not). See
    TableSink. DuckDB lets one process write, so the sink has one thread: edges to it are `to_one()`.

    >>> sink = DuckdbSink("/data/readings.duckdb", table="readings")
    """

    one_thread = True
    TYPES = {bool: "boolean", int: "bigint", float: "double", str: "varchar", bytes: "blob",
             datetime: "timestamptz", dict: "json", list: "json", tuple: "json"}  # fmt: skip

    def connect(self) -> Any:
        duckdb = needed("duckdb", "sql")
        try:
            return duckdb.connect(self.path)
        except duckdb.Error as error:
            raise ServiceAway(f"cannot open {self.path}", cause=str(error)) from error

    def begin(self) -> None:
        self._connection.begin()

    def not_of_rows(self, error: BaseException) -> str | None:
        import duckdb

        of_rows = isinstance(error, duckdb.DataError | duckdb.IntegrityError | duckdb.NotSupportedError)
        return str(error) if isinstance(error, duckdb.Error) and not of_rows else None

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        assert self.columns is not None
        marks = f"({', '.join(['?'] * len(self.columns))})"
        assert marks in statement
        for alike in self._by_turn(rows):
            for first in range(0, len(alike), AT_ONCE):  # one statement for many: each costs a millisecond
                some = alike[first : first + AT_ONCE]
                self._connection.execute(
                    statement.replace(marks, ", ".join([marks] * len(some)), 1),
                    [value for row in some for value in row],
                )

    def _by_turn(self, rows: Iterable[Sequence[Any]]) -> Iterable[list[Sequence[Any]]]:
        """The first row of each key, the second of each, …: of two in one statement DuckDB takes the first alone."""
        assert self.columns is not None
        if not self.key:
            return [list(rows)]
        places = [self.columns.index(name) for name in self.key]
        turns: list[list[Sequence[Any]]] = []
        came: Counter[tuple[Any, ...]] = Counter()
        for row in rows:
            key = tuple(row[place] for place in places)
            if came[key] == len(turns):
                turns.append([])
            turns[came[key]].append(row)
            came[key] += 1
        return turns

    def names_table(self) -> str:
        return f"create table if not exists {NAMES} (name varchar primary key, written timestamptz default now())"

    def claim(self, names: Sequence[str]) -> set[str]:
        found = self._connection.execute(
            f"insert into {NAMES} (name) select unnest(?) on conflict do nothing returning name",
            [list(names)],
        )
        return {name for (name,) in found.fetchall()}

    def clean(self) -> None:
        self.run(f"delete from {NAMES} where written < now() - interval {KEPT_DAYS} days")
