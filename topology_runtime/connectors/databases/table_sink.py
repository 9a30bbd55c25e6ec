"""A table as a sink, each row once. Pure but for the connection, which a subclass has.

The names of rows go into a table beside (`headgate_rows`), in the transaction that writes them: a row whose name is
there already was written before. Names that are `KEPT_DAYS` old are removed; nothing is replayed for so long.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

NAMES = "headgate_rows"
KEPT_DAYS = 7
CLEAN_S = 3600.0
OLD = "row_before"  # that a row may replace
IDENTIFIER_MOST = 63  # bytes that PostgreSQL keeps of a name


def quoted(name: str) -> str:
    """An identifier, `schema.table` part by part.

    >>> quoted('public.my "orders"')
    '"public"."my ""orders\"\"\"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def checked(what: str, name: object) -> str:
    """A name that a database can have. Raises InvalidInput."""
    if not isinstance(name, str) or not name or "\x00" in name or len(name.encode()) > IDENTIFIER_MOST:
        raise InvalidInput(f"invalid {what} {name!r}", cause=f"a name of 1 to {IDENTIFIER_MOST} bytes is due")
    return name


class TableSink(Sink[Any]):
    """Rows (dicts, or tuples with `columns`) into the columns of one table. key: columns by which a row replaces the
    one that is there; left out, every row is added. newest: a column that says which of two rows with one key is newer:
    one with less in it replaces nothing. Rows of a key can overtake each other between threads, at a re-plan and when
    they are sent again; without `newest` the one that comes last stands. create: make the table if there is none, with
    types as the first row has them. Values that hold others are stored as JSON.

    Each row is written once, also when it comes again: `table_sink.py` says how."""

    TYPES: Mapping[type, str] = {}
    mark = "?"  # of a parameter

    def __init__(
        self,
        where: str,
        table: str,
        columns: Sequence[str] | None,
        key: Sequence[str],
        newest: str | None,
        create: bool,
    ) -> None:
        """where: the database, as errors name it."""
        self.where = where
        self._connection: Any = None
        self.table = checked("table", table)
        self.columns = [checked("column", one) for one in columns] if columns is not None else None
        self.key = [checked("column", one) for one in ([key] if isinstance(key, str) else key)]
        self.newest = None if newest is None else checked("column", newest)
        self.create = create
        if self.newest is not None and (not self.key or self.newest in self.key):
            raise InvalidInput(
                f"newest column {self.newest!r} of {table}", cause="a key and a column beside it are due"
            )
        if self.columns is not None and (
            lacking := sorted({*self.key, *filter(None, [newest])} - set(self.columns))
        ):
            raise InvalidInput(f"column {lacking[0]!r} is none of the columns of {table}")
        self._made, self._task = False, ""
        self._clean_s = 0.0

    def open(self, context: Context) -> None:
        self._task = context.task
        self._connection = self.connect()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        values = self.values_of(rows)
        # A call may have a row and its copy. Sinks of a run that share a database have names of their own.
        rows_of = {f"{self._task}/{name}": row for name, row in zip(ids, values, strict=True)}
        with self._transaction():
            if not self._made:
                self._make(rows[0])
            new = self.claim(list(rows_of))
            fresh = [row for name, row in rows_of.items() if name in new]
            if fresh:
                self.insert(self.statement(), fresh)
            if time.monotonic() >= self._clean_s:
                self._clean_s = time.monotonic() + CLEAN_S
                self.clean()
        self._made = True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; what is not the rows' fault comes out as ServiceAway."""
        if self._connection is None:
            self._connection = self.connect()
        try:
            self.begin()
            yield
            self._connection.commit()
        except BaseException as error:
            with suppress(Exception):  # the connection may be gone, and with it what was not committed
                self._connection.rollback()
            if (cause := self.not_of_rows(error)) is not None:
                if self.connection_lost(error):
                    self.close()
                raise ServiceAway(f"{self.where} does not take rows of {self.table}", cause=cause) from error
            raise

    def values_of(self, rows: Sequence[Any]) -> list[list[Any]]:
        """The values of each row in the order of the columns. Raises BadRow."""
        if self.columns is None:
            first = next((row for row in rows if isinstance(row, dict)), None)
            if first is None:
                raise BadRow(f"rows of {self.table} are no dicts", hint="name what they hold: columns=[…]")
            self.columns = [checked("column", name) for name in first]
        return [self._values(row, self.columns) for row in rows]

    def _values(self, row: Any, columns: Sequence[str]) -> list[Any]:
        if isinstance(row, dict):
            if not row.keys() <= set(columns):
                odd = min(row.keys() - set(columns))
                raise BadRow(
                    f"{self.table} has no column for {odd!r} of a row", hint="name all in columns=[…]"
                )
            return [self.stored(row.get(name)) for name in columns]
        if not isinstance(row, tuple | list) or len(row) != len(columns):
            raise BadRow(f"{self.table} has {len(columns)} columns, which a row does not have")
        return [self.stored(value) for value in row]

    def statement(self) -> str:
        assert self.columns is not None
        names = ", ".join(map(quoted, self.columns))
        marks = ", ".join([self.mark] * len(self.columns))
        text = f"insert into {quoted(self.table)} as {OLD} ({names}) values ({marks})"
        if not self.key:
            return text
        rest = [name for name in self.columns if name not in self.key]
        sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
        change = f"update set {sets}" if rest else "nothing"
        if self.newest is not None:
            old, new = f"{OLD}.{quoted(self.newest)}", f"excluded.{quoted(self.newest)}"
            change += f" where {old} is null or {new} >= {old}"
        return f"{text} on conflict ({', '.join(map(quoted, self.key))}) do {change}"

    def _make(self, first: Any) -> None:
        self.run(self.names_table())
        if not self.create:
            return
        assert self.columns is not None
        if isinstance(first, dict):
            first = [first.get(name) for name in self.columns]
        parts = [
            f"{quoted(name)} {self._type_of(value)}" for name, value in zip(self.columns, first, strict=True)
        ]
        if self.key:
            parts.append(f"primary key ({', '.join(map(quoted, self.key))})")
        self.run(f"create table if not exists {quoted(self.table)} ({', '.join(parts)})")

    def _type_of(self, value: Any) -> str:
        return self.TYPES.get(type(value), self.TYPES[str])

    # ── what a database does in its own way ─────────────────────────────────────────────────────

    @abstractmethod
    def connect(self) -> Any:
        """A connection. Raises ServiceAway."""

    @abstractmethod
    def not_of_rows(self, error: BaseException) -> str | None:
        """What is wrong with the database; None: the rows are to blame, or we."""

    def connection_lost(self, error: BaseException) -> bool:
        """Is another connection needed?"""
        return False

    def begin(self) -> None:
        """Begin a transaction, if the connection does not by itself."""
        return None

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    @abstractmethod
    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None: ...

    @abstractmethod
    def names_table(self) -> str:
        """The statement that makes the table of names."""

    @abstractmethod
    def claim(self, names: Sequence[str]) -> set[str]:
        """Note these names; which of them were not there."""

    @abstractmethod
    def clean(self) -> None:
        """Remove old names."""

    def stored(self, value: Any) -> Any:
        """As the database takes it."""
        return json_text(value) if isinstance(value, dict | list | tuple) else value


class FileTableSink(TableSink):
    """In a file on the VM of the sink's thread."""

    def __init__(self, path: str, *, table: str, columns: Sequence[str] | None = None, key: Sequence[str] = (),
                 newest: str | None = None, create: bool = True) -> None:  # fmt: skip
        self.path = os.path.abspath(path)
        super().__init__(self.path, table, columns, key, newest, create)


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
