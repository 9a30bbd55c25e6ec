"""Calls an HTTP service for each row."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.services.keep_alive import KeepAlive
from headgate.topology_runtime.tasks.event_number import number_of

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
