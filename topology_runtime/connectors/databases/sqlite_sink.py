"""A table of SQLite as a sink: in a file on the VM of the sink's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, FileTableSink
from headgate.topology_runtime.errors import ServiceAway

BUSY_S = 5.0  # another process writes
NOT_OF_ROWS = (sqlite3.OperationalError, sqlite3.NotSupportedError)
NOW = "cast(strftime('%s', 'now') as integer)"
AT_ONCE = 500  # names in a statement: builds of SQLite take 999 parameters at least


class SqliteSink(FileTableSink):
    """Rows into a table of the database at `path`; the table is made if there is none (`create=False`: not). See
    TableSink. Each commit is on the disk (`synchronous=FULL`).

    >>> sink = SqliteSink("/data/readings.sqlite", table="readings", key=["sensor"])
    """

    TYPES = {bool: "integer", int: "integer", float: "real", str: "text", bytes: "blob"}

    def connect(self) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            for line in ("journal_mode = wal", "synchronous = full"):
                connection.execute(f"pragma {line}")
            return connection
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise ServiceAway(f"cannot open {self.path}", cause=str(error)) from error

    def begin(self) -> None:
        self.run("begin immediate")

    def not_of_rows(self, error: BaseException) -> str | None:
        return str(error) if isinstance(error, NOT_OF_ROWS) else None

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)

    def names_table(self) -> str:
        at = f"written integer default ({NOW})"
        return f"create table if not exists {NAMES} (name text primary key, {at}) without rowid"

    def claim(self, names: Sequence[str]) -> set[str]:
        new: set[str] = set()
        for first in range(0, len(names), AT_ONCE):
            some = names[first : first + AT_ONCE]
            marks = ", ".join(["(?)"] * len(some))
            found = self._connection.execute(
                f"insert into {NAMES} (name) values {marks} on conflict do nothing returning name", some
            )
            new.update(name for (name,) in found)
        return new

    def clean(self) -> None:
        self.run(f"delete from {NAMES} where written < {NOW} - {KEPT_DAYS * 86400}")

    def stored(self, value: Any) -> Any:
        return value.isoformat(" ") if isinstance(value, datetime) else super().stored(value)
