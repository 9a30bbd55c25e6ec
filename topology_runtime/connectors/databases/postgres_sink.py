"""A table of PostgreSQL as a sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headgate.topology_runtime.connectors.databases.postgres_service import (
    PostgresAddress,
    connected,
    is_of_rows,
)
from headgate.topology_runtime.connectors.databases.table_sink import KEPT_DAYS, NAMES, TableSink


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
                 newest: str | None = None, create: bool = False, password: Any = None,
                 tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        self.address = PostgresAddress(url, password, tls)
        super().__init__(str(self.address), table, columns, key, newest, create)

    def connect(self) -> Any:
        return connected(self.address)

    def not_of_rows(self, error: BaseException) -> str | None:
        import psycopg

        return (
            self.address.said(error) if isinstance(error, psycopg.Error) and not is_of_rows(error) else None
        )

    def connection_lost(self, error: BaseException) -> bool:
        """Always: one may outlive what its server was, and write no more; behind the address there is another then."""
        return True

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
