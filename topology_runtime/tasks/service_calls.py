"""Tasks that ask a service for each row, over one connection per thread: HTTP, blobs, a table, SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.errors import InvalidInput, Unreachable
from headgate.topology_runtime.tasks.ready_made import (
    BLOBS,
    CONTAINER,
    ROWS,
    TABLE,
    Row,
    blob_name,
    number_of,
    scattered,
)
from headgate.topology_runtime.tasks.service_clients import KeepAlive, ServiceClient, open_blobs, open_table

FAILED = 500  # from this status on the service has failed, not the request


class HttpCall:
    """GETs `url` and gives {id, status, body}; the body as text, at most `body_bytes` bytes of it.

    `{id}` in the URL becomes the row's number, `{field}` that field of a row that is a dict. One connection
    per thread, kept open. A status of 500 or more raises, so that the runtime tries the row again."""

    def __init__(self, url: str, timeout_s: float = 5.0, body_bytes: int = 64 * 1024) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: {url!r} is not http://host/… or https://host/…")
        tls = parts.scheme == "https"
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._http = KeepAlive(parts.hostname, parts.port or (443 if tls else 80), timeout_s, tls)
        self._body_bytes = body_bytes

    def open(self, context: Context) -> None:
        """A service that does not answer fails the thread at its start, with one line."""
        try:
            self._http.connect()
        except OSError as error:
            raise self._absent(error) from error

    def __call__(self, row: Any) -> dict[str, Any]:
        number = number_of(row)
        fields = {**row, "id": number} if type(row) is dict else {"id": number}
        path = self._path.format_map({name: quote(str(value), safe="") for name, value in fields.items()})
        try:
            status, body = self._http.get(path)
        except OSError as error:
            raise self._absent(error) from error
        if status >= FAILED:
            raise Unreachable(f"{self._place} answers {status}")
        return {"id": number, "status": status, "body": body[: self._body_bytes].decode("utf-8", "replace")}

    def close(self) -> None:
        self._http.close()

    def _absent(self, error: OSError) -> Unreachable:
        return Unreachable(f"{self._place} does not answer ({error.strerror or error})")


class _Connected:
    """A task with one client per thread, made on first use."""

    _client: Any = None

    def _connected(self) -> Any:
        raise NotImplementedError

    def _ready(self) -> Any:
        if self._client is None:
            self._client = self._connected()
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class BlobDownload(_Connected):
    """Gives {id, bytes}: the size of the blob of 2 MB that was brought into memory (paper 0, section 5.2).

    `service`: `azurite://host:port` (Azure's SDK) or `embedded://host:port`; `azurite` and `embedded` alone
    are where `scripts/services start` puts them. `blobs`: how many the container has. A service that is absent fails
    the thread at its start with one line."""

    def __init__(
        self,
        service: str = "azurite",
        blobs: int = BLOBS,
        container: str = CONTAINER,
        timeout_s: float = 30.0,
    ) -> None:
        if blobs < 1:
            raise ValueError("blobs: at least 1")
        self._where = service, container, timeout_s
        self._blobs = blobs

    def open(self, context: Context) -> None:
        self._ready().get(blob_name(context.thread % self._blobs))

    def __call__(self, row: Any) -> dict[str, int]:
        number = number_of(row)
        data = self._ready().get(blob_name(scattered(number, self._blobs)))
        return {"id": number, "bytes": len(data)}

    def _connected(self) -> ServiceClient[str, bytes]:
        return open_blobs(*self._where)


class TableQuery(_Connected):
    """Gives {id, key, columns, value}: the key looked up, as if at random, how many columns its row has,
    and the first of them (paper 0, section 5.2).

    `service`: as BlobDownload's. `rows`: how many the table has."""

    def __init__(
        self, service: str = "azurite", rows: int = ROWS, table: str = TABLE, timeout_s: float = 30.0
    ) -> None:
        if rows < 1:
            raise ValueError("rows: at least 1")
        self._where = service, table, timeout_s
        self._rows = rows

    def open(self, context: Context) -> None:
        self._ready().get(self._rows - 1)

    def __call__(self, row: Any) -> dict[str, Any]:
        number = number_of(row)
        key = scattered(number, self._rows)
        found = self._ready().get(key)
        return {"id": number, "key": key, "columns": len(found), "value": next(iter(found.values()), None)}

    def _connected(self) -> ServiceClient[int, Row]:
        return open_table(*self._where)


ROWS_MOST = 100  # of one answer


class SqlQuery(_Connected):
    """Gives {id, rows}: what `query` finds in the file `database`, each row as a dict of its columns.

    Parameters are `:id` (the row's number) and, of a row that is a dict, `:field`. The file is opened for
    reading only, once per thread."""

    def __init__(self, database: str, query: str, rows_most: int = ROWS_MOST) -> None:
        self._path = Path(database).absolute()
        self._query = query
        self._most = rows_most

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

    def _connected(self) -> sqlite3.Connection:
        database = None
        try:
            database = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
            database.execute("SELECT 1 FROM sqlite_schema").close()
        except sqlite3.Error as error:
            if database is not None:
                database.close()
            raise InvalidInput(f"cannot read the database {self._path} ({error})") from error
        return database
