"""A table of SQLite as a sink: in a file on the VM of the sink's thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, TableSink
from headgate.topology_runtime.errors import ServiceAway

BUSY_S = 5.0  # another process writes
NOT_OF_ROWS = (sqlite3.OperationalError, sqlite3.NotSupportedError)
NOW = "cast(strftime('%s', 'now') as integer)"
AT_ONCE = 500  # names in a statement: builds of SQLite take 999 parameters at least


class SqliteSink(TableSink):
    """Rows into a table of the database at `path`; the table is made if there is none (`create=False`: not). See
    TableSink. Each commit is on the disk (`synchronous=FULL`).

    >>> sink = SqliteSink("/data/readings.sqlite", table="readings", key=["sensor"])
    """

    TYPES = {bool: "integer", int: "integer", float: "real", str: "text", bytes: "blob"}

    def __init__(self, path: str, *, table: str, columns: Sequence[str] | None = None, key: Sequence[str] = (),
                 create: bool = True) -> None:  # fmt: skip
        super().__init__(table, columns, key, create)
        self.path = os.path.abspath(path)
        self._connection: sqlite3.Connection | None = None

    def connect(self) -> None:
        self.close()
        try:
            self._connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            for line in ("journal_mode = wal", "synchronous = full"):
                self._connection.execute(f"pragma {line}")
        except sqlite3.Error as error:
            self.close()
            raise ServiceAway(f"cannot open {self.path}", cause=str(error)) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._connection is None:
            self.connect()
        assert self._connection is not None
        try:
            self._connection.execute("begin immediate")
            yield
            self._connection.execute("commit")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._connection.execute("rollback")
            if isinstance(error, NOT_OF_ROWS):
                raise ServiceAway(
                    f"{self.path} does not take rows of {self.table}", cause=str(error)
                ) from error
            raise

    def run(self, statement: str) -> None:
        assert self._connection is not None
        self._connection.execute(statement)

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        assert self._connection is not None
        self._connection.executemany(statement, rows)

    def names_table(self) -> str:
        at = f"written integer default ({NOW})"
        return f"create table if not exists {NAMES} (name text primary key, {at}) without rowid"

    def claim(self, names: Sequence[str]) -> set[str]:
        assert self._connection is not None
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
