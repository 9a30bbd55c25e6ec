"""POST to one address: what it, the token and the headers may be, and what its answers mean for rows."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any

from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.tasks.service_clients import KeepAlive
from headgate.topology_runtime.wording import hide, one_line, shown

TIMEOUT_S = 3.0  # to connect, and between bytes of an answer
ANSWER_MOST = 64 * 1024  # bytes of an answer that are read
OURS = ("connection", "content-encoding", "content-length", "content-type", "host", "idempotency-key",
        "transfer-encoding")  # fmt: skip
LONGEST_PAUSE_S = 2.0
NOT_OF_ROWS = (
    401,
    403,
    404,
    405,
    407,
    408,
    410,
    421,
    425,
    426,
    429,
)  # of the address, who we are, or the moment
SAID_MOST = 200  # characters of what a service says


class PostAddress:
    """2xx is done. 400, 413, 422 and other 4xx are a BadRow; other answers, redirects too, are `Away`. Each thread has
    a connection, which is kept.

    faults: what else is wrong with `what`, whose params these are. Raises InvalidInput with all of them."""

    def __init__(self, what: str, url: Any, token: str | SecretText | None, headers: Mapping[str, str] | None,
                 tls: Mapping[str, Any] | None, faults: list[str]) -> None:  # fmt: skip
        if not isinstance(url, str) or not isinstance(headers or {}, Mapping):
            raise InvalidInput(f"invalid {what}", cause="url= is text, headers= names with their texts")
        parts = parts_of_address(url)
        if parts is None:
            raise InvalidInput("url= is no address", hint="http://HOST:PORT/PATH or https://… is due")
        host, port = parts.hostname, parts.port
        if parts.scheme not in ("http", "https") or not host or parts.fragment or not _sendable(url):
            faults.append("url= is no address: http://HOST:PORT/PATH or https://… is due")
        if parts.username is not None or parts.password is not None:
            faults.append("a login stands in url=: leave it out, and give token= or headers=")
        for name, value in (headers or {}).items():
            if not _sendable(name) or name.lower() in OURS or not _sendable(value, " \t"):
                faults.append(f"header {shown(name)} cannot be sent")
        if tls is not None and parts.scheme == "http":
            faults.append("tls= is for https://")
        if faults:
            raise InvalidInput(f"invalid {what}", faults=faults)
        self._host, self._secure = host or "", parts.scheme == "https"
        self._port = port or (443 if self._secure else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.where = f"{parts.scheme}://{self._host}:{self._port}{parts.path}"
        self._headers, self._token, self._tls = dict(headers or {}), token, Tls.of(tls)
        if isinstance(token, str):
            hide(token)
        self._mine = threading.local()
        self._clients: list[_Client] = []

    def headers(self, kind: str) -> dict[str, str]:
        """With the token of now."""
        headers = {**self._headers, "Content-Type": kind}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {text_of(self._token)}"
        return headers

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        client = self._client()
        try:
            reply = client.http.exchange("POST", self._path, body, headers, ANSWER_MOST)
        except ssl.SSLError as error:
            told = (self._tls or Tls()).explained(error, self.where)
            raise ServiceAway(told.what, cause=told.cause, hint=told.hint) from error
        except OSError as error:
            raise ServiceAway(
                f"no answer of {self.where}", cause=f"{type(error).__name__}: {error}"
            ) from error
        if 200 <= reply.status < 300:
            return
        said = f"it answers {_status(reply.status)} {_text(reply.body)}".strip()
        if 400 <= reply.status < 500 and reply.status not in NOT_OF_ROWS:
            raise BadRow(f"{self.where} does not take this", cause=said)
        pause = next((value for name, value in reply.headers.items() if name.lower() == "retry-after"), "")
        hint = "name the address that it sends to" if 300 <= reply.status < 400 else None
        raise Away(f"{self.where} does not take rows", said, hint, _pause_s(pause))

    def _client(self) -> _Client:
        """Of this thread; a new one when a file of `tls` is another."""
        client: _Client | None = getattr(self._mine, "client", None)
        context = (self._tls or Tls()).context() if self._secure else None
        if client is None or client.context is not context:
            if client is not None:
                client.http.close()
                self._clients.remove(client)
            client = self._mine.client = _Client(self._host, self._port, context)
            self._clients.append(client)
        return client

    def close(self) -> None:
        for one in self._clients:
            one.http.close()


class Away(ServiceAway):
    """pause_s: how long it wants to be left alone."""

    def __init__(self, what: str, cause: str, hint: str | None, pause_s: float) -> None:
        super().__init__(what, cause=cause, hint=hint)
        self.pause_s = pause_s


@contextmanager
def waited() -> Iterator[None]:
    """What is away is left alone for as long as it wants, before that is raised."""
    try:
        yield
    except Away as away:
        time.sleep(away.pause_s)
        raise


class _Client:
    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.http = KeepAlive(host, port, TIMEOUT_S, context or False)


def _sendable(text: Any, more: str = "") -> bool:
    return isinstance(text, str) and bool(text) and all(0x20 < ord(c) < 0x7F or c in more for c in text)


def _status(number: int) -> str:
    """
    >>> _status(401), _status(599)
    ('401 (Unauthorized)', '599')
    """
    return f"{number} ({responses[number]})" if number in responses else str(number)


def _text(body: bytes) -> str:
    return one_line(body.decode(errors="replace"))[:SAID_MOST]


def _pause_s(retry_after: str) -> float:
    """How long the service asks for, at most `LONGEST_PAUSE_S`."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(LONGEST_PAUSE_S, float(text[:9]))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)
    return min(LONGEST_PAUSE_S, max(0.0, seconds.total_seconds()))
