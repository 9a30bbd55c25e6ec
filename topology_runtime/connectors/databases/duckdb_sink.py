"""A table of DuckDB as a sink: in a file on the VM of the sink's thread, which one process writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, TableSink
from headgate.topology_runtime.errors import InvalidInput, ServiceAway

AT_ONCE = 200  # rows in a statement


class DuckdbSink(TableSink):
    """Rows into a table of the database at `path`; the table is made if there is none (`create=False`: not). See
    TableSink. DuckDB lets one process write: give the sink one thread.

    >>> sink = DuckdbSink("/data/readings.duckdb", table="readings")
    """

    TYPES = {bool: "boolean", int: "bigint", float: "double", str: "varchar", bytes: "blob",
             datetime: "timestamptz", dict: "json", list: "json", tuple: "json"}  # fmt: skip

    def __init__(self, path: str, *, table: str, columns: Sequence[str] | None = None, key: Sequence[str] = (),
                 create: bool = True) -> None:  # fmt: skip
        super().__init__(table, columns, key, create)
        self.path = os.path.abspath(path)
        self._connection: Any = None

    def connect(self) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise InvalidInput("a DuckDB sink needs duckdb", hint="pip install 'headgate[sql]'") from error
        self.close()
        try:
            self._connection = duckdb.connect(self.path)
        except duckdb.Error as error:
            raise ServiceAway(f"cannot open {self.path}", cause=str(error)) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        import duckdb

        if self._connection is None:
            self.connect()
        try:
            self._connection.begin()
            yield
            self._connection.commit()
        except BaseException as error:
            with suppress(duckdb.Error):
                self._connection.rollback()
            of_rows = isinstance(error, duckdb.DataError | duckdb.IntegrityError | duckdb.NotSupportedError)
            if isinstance(error, duckdb.Error) and not of_rows:
                raise ServiceAway(
                    f"{self.path} does not take rows of {self.table}", cause=str(error)
                ) from error
            raise

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        rows = list(rows)
        marks = f"({', '.join(['?'] * len(rows[0]))})"
        assert marks in statement
        for first in range(0, len(rows), AT_ONCE):  # one statement for many: each costs a millisecond
            some = rows[first : first + AT_ONCE]
            self._connection.execute(
                statement.replace(marks, ", ".join([marks] * len(some)), 1),
                [value for row in some for value in row],
            )

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
