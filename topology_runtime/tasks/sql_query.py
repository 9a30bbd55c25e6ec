"""Asks a database of SQLite for each row."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.tasks.event_number import number_of

ROWS_MOST = 100  # of one answer


class SqlQuery:
    """Gives {id, rows}: what `query` finds in the file `database`, each row as a dict of its columns.

    Parameters are `:id` (the row's number) and, of a row that is a dict, `:field`. The file is opened for
    reading only, once per thread."""

    def __init__(self, database: str, query: str, rows_most: int = ROWS_MOST) -> None:
        self._path = Path(database).absolute()
        self._query = query
        self._most = rows_most
        self._database: sqlite3.Connection | None = None

    def open(self, context: Context) -> None:
        self._ready()

    def __call__(self, row: Any) -> dict[str, Any]:
        number = number_of(row)
        values = {**row, "id": number} if type(row) is dict else {"id": number}
        cursor = self._ready().execute(self._query, values)
        names = [column[0] for column in cursor.description or ()]
        found = cursor.fetchmany(self._most)
        cursor.close()
        return {"id": number, "rows": [dict(zip(names, values, strict=True)) for values in found]}

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _ready(self) -> sqlite3.Connection:
        if self._database is None:
            try:
                self._database = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
                self._database.execute("SELECT 1 FROM sqlite_schema").close()
            except sqlite3.Error as error:
                self.close()
                raise InvalidInput(f"cannot read the database {self._path} ({error})") from error
        return self._database
