"""Looks up one row of a large table for each row: a task that waits (paper 0, section 5.2)."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.services.names import ROWS, TABLE
from headgate.topology_runtime.services.table_service import TableClient, open_table
from headgate.topology_runtime.tasks.event_number import number_of, scattered


class TableQuery:
    """Gives {id, key, columns, value}: the key looked up, as if at random, how many columns its row has,
    and the first of them.

    `service`: `azurite://host:port` (Azure's SDK) or `embedded://host:port`; `azurite` and `embedded` alone
    are where `scripts/services start` puts them. `rows`: how many the table has. One client per thread, its
    connection kept; a service that is absent fails the thread at its start with one line."""

    def __init__(
        self, service: str = "azurite", rows: int = ROWS, table: str = TABLE, timeout_s: float = 30.0
    ) -> None:
        if rows < 1:
            raise ValueError("rows: at least 1")
        self._where = service, table, timeout_s
        self._rows = rows
        self._client: TableClient | None = None

    def open(self, context: Context) -> None:
        self._ready().get(self._rows - 1)

    def __call__(self, row: Any) -> dict[str, Any]:
        number = number_of(row)
        key = scattered(number, self._rows)
        found = self._ready().get(key)
        return {"id": number, "key": key, "columns": len(found), "value": next(iter(found.values()), None)}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ready(self) -> TableClient:
        if self._client is None:
            self._client = open_table(*self._where)
        return self._client
