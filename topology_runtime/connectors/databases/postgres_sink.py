"""A table of PostgreSQL as a sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.postgres_service import (
    PostgresAddress,
    connected,
    is_of_rows,
)
from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, TableSink, json_text
from headgate.topology_runtime.errors import ServiceAway


class PostgresSink(TableSink):
    """Rows into a table. url: `postgresql://user@host:5432/database`; password, tls: as secrets and TLS options say.
    The table must be there, unless `create=True`. See TableSink: the user needs the right to make a table for the
    names, or `headgate_rows (name text primary key, written timestamptz default now())` made before.

    >>> sink = PostgresSink("postgresql://app@127.0.0.1/shop", table="orders", key=["id"])
    """

    TYPES = {bool: "boolean", int: "bigint", float: "double precision", str: "text", bytes: "bytea",
             datetime: "timestamptz", dict: "jsonb", list: "jsonb", tuple: "jsonb"}  # fmt: skip
    mark = "%s"

    def __init__(self, url: str, *, table: str, columns: Sequence[str] | None = None, key: Sequence[str] = (),
                 create: bool = False, password: Any = None, tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        super().__init__(table, columns, key, create)
        self.address = PostgresAddress(url, password, tls)
        self._connection: Any = None

    def connect(self) -> None:
        self.close()
        self._connection = connected(self.address)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self.connect()
        try:
            yield
            self._connection.commit()
        except BaseException as error:
            with suppress(psycopg.Error):
                self._connection.rollback()
            if isinstance(error, psycopg.Error) and not is_of_rows(error):
                if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                    self.close()
                what = f"{self.address} does not take rows of {self.table}"
                raise ServiceAway(what, cause=self.address.said(error)) from error
            raise

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def names_table(self) -> str:
        there = f"to_regclass('{NAMES}') is null"
        make = (
            f"create table if not exists {NAMES} (name text primary key, written timestamptz default now())"
        )
        return f"do $$ begin if {there} then {make}; end if; end $$"

    def claim(self, names: Sequence[str]) -> set[str]:
        found = self._connection.execute(
            f"insert into {NAMES} (name) select name from unnest(%s::text[]) as name order by name "
            "on conflict do nothing returning name",
            [list(names)],
        )
        return {name for (name,) in found}

    def clean(self) -> None:
        self.run(f"delete from {NAMES} where written < now() - interval '{KEPT_DAYS} days'")

    def stored(self, value: Any) -> Any:
        return json_text(value) if isinstance(value, dict | list | tuple) else value
