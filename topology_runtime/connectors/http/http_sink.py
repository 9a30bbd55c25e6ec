"""Rows that are posted to an address."""

from __future__ import annotations

import hashlib
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from headgate.topology_runtime.api.logic import RowId, Sink
from headgate.topology_runtime.connectors.formats.json_format import JsonFormat
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.tasks.service_clients import KeepAlive
from headgate.topology_runtime.wording import hide, one_line, shown

ARRAY, LINES, ROW = "array", "lines", "row"
KINDS = {ARRAY: "application/json", LINES: "application/x-ndjson", ROW: "application/json"}
TIMEOUT_S = 3.0  # to connect, and between bytes of an answer
CALL_S = 5.0  # after which no more rows of a call are sent: it may take ten seconds
ANSWER_MOST = 64 * 1024  # bytes of an answer that are read
OURS = ("connection", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding")
LONGEST_PAUSE_S = 2.0
CONCURRENT_MOST = 100
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


class HttpSink(Sink[Any]):
    """POST rows as JSON. send: `array` (the rows of a call together), `lines` (likewise, as application/x-ndjson) or
    `row` (one a request, `concurrency` at once). Each has an Idempotency-Key, the same when the same rows come again:
    of a row its RowId, of many the hash of them. headers: more of them; token: a bearer token.

    2xx is done. 400, 413, 422 and other 4xx are the rows' fault; other answers, redirects too, are waited for.

    >>> sink = HttpSink("https://127.0.0.1:8443/orders", send="row", token="${FILE:/run/secrets/token}")
    """

    reads_references = ("token",)

    def __init__(self, url: str, *, send: str = ARRAY, token: str | SecretText | None = None,
                 headers: Mapping[str, str] | None = None, concurrency: int = 8,
                 tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        faults = []
        if not isinstance(url, str) or not isinstance(headers or {}, Mapping):
            raise InvalidInput("invalid HttpSink", cause="url= is text, headers= names with their texts")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidInput("url= is no address", cause=str(error)) from error
        if parts.scheme not in ("http", "https") or not host or parts.fragment or not _sendable(url):
            faults.append("url= is no address: http://HOST:PORT/PATH or https://… is due")
        if parts.username is not None or parts.password is not None:
            faults.append("a login stands in url=: leave it out, and give token= or headers=")
        if send not in KINDS:
            faults.append(f"send is {shown(send)}: one of {', '.join(KINDS)}")
        if (
            isinstance(concurrency, bool)
            or not isinstance(concurrency, int)
            or not 0 < concurrency <= CONCURRENT_MOST
        ):
            faults.append(f"concurrency is {shown(concurrency)}, and should be 1 to {CONCURRENT_MOST}")
        for name, value in (headers or {}).items():
            if not _sendable(name) or name.lower() in OURS or not _sendable(value, " \t"):
                faults.append(f"header {shown(name)} cannot be sent")
        if tls is not None and parts.scheme == "http":
            faults.append("tls= is for https://")
        if faults:
            raise InvalidInput("invalid HttpSink", faults=faults)
        self.send, self.concurrency = send, concurrency if send == ROW else 1
        self._host, self._secure = host or "", parts.scheme == "https"
        self._port = port or (443 if self._secure else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.where = f"{parts.scheme}://{self._host}:{self._port}{parts.path}"
        self._headers, self._token, self._tls = dict(headers or {}), token, Tls.of(tls)
        if isinstance(token, str):
            hide(token)
        self._format = JsonFormat()
        self._pool: ThreadPoolExecutor | None = None
        self._mine = threading.local()
        self._clients: list[_Client] = []
        self._done: set[str] = set()  # of a call that failed: rows that need not be sent again

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        try:
            self._write(rows, ids)
        except _Away as away:
            time.sleep(away.pause_s)
            raise

    def _write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        texts = [self._format.encode(row) for row in rows]
        headers = self._now()
        if self.send != ROW:
            names = "\n".join(map(str, ids)).encode()
            body = (
                b"[" + b",".join(texts) + b"]" if self.send == ARRAY else b"".join(t + b"\n" for t in texts)
            )
            self._post(body, hashlib.sha256(names).hexdigest(), headers)
            return
        self._post_each(texts, [str(one) for one in ids], headers)

    def _post_each(self, texts: Sequence[bytes], names: Sequence[str], headers: Mapping[str, str]) -> None:
        """What was done before one fails, or before the call takes too long, is not sent again when the rest comes."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.concurrency, "post")
        left = [(t, name) for t, name in zip(texts, names, strict=True) if name not in self._done]
        calls = {self._pool.submit(self._post, t, name, headers): name for t, name in left}
        wait(calls, CALL_S, FIRST_EXCEPTION)
        begun = [call for call in calls if not call.cancel()]
        errors = [(call, call.exception()) for call in begun]
        self._done.update(calls[call] for call, error in errors if error is None)
        failed = [error for _, error in errors if error is not None]
        if of_rows := [one for one in failed if not isinstance(one, ServiceAway)]:
            raise of_rows[0]
        if failed:
            raise failed[0]
        if len(begun) < len(calls):
            raise ServiceAway(
                f"{self.where} is slow",
                cause=f"it took {len(begun):,} of {len(calls):,} rows in {CALL_S:g} s",
            )
        self._done.difference_update(names)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for one in self._clients:
            one.http.close()

    def _now(self) -> dict[str, str]:
        """With the token of now."""
        headers = {**self._headers, "Content-Type": KINDS[self.send]}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {text_of(self._token)}"
        return headers

    def _post(self, body: bytes, key: str, headers: Mapping[str, str]) -> None:
        client = self._client()
        try:
            reply = client.http.exchange(
                "POST", self._path, body, {**headers, "Idempotency-Key": key}, ANSWER_MOST
            )
        except ssl.SSLError as error:
            told = (self._tls or Tls()).explained(error, self.where)
            raise ServiceAway(told.what, cause=told.cause, hint=told.hint) from error
        except OSError as error:
            raise ServiceAway(
                f"no answer of {self.where}", cause=f"{type(error).__name__}: {error}"
            ) from error
        if 200 <= reply.status < 300:
            return
        said = f"it answers {reply.status} {_text(reply.body)}".strip()
        if 400 <= reply.status < 500 and reply.status not in NOT_OF_ROWS:
            raise BadRow(f"{self.where} does not take this", cause=said)
        pause = next((value for name, value in reply.headers.items() if name.lower() == "retry-after"), "")
        hint = "name the address that it sends to" if 300 <= reply.status < 400 else None
        raise _Away(f"{self.where} does not take rows", said, hint, _pause_s(pause))

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


class _Away(ServiceAway):
    def __init__(self, what: str, cause: str, hint: str | None, pause_s: float) -> None:
        super().__init__(what, cause=cause, hint=hint)
        self.pause_s = pause_s


class _Client:
    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.http = KeepAlive(host, port, TIMEOUT_S, context or False)


def _sendable(text: Any, more: str = "") -> bool:
    return isinstance(text, str) and bool(text) and all(0x20 < ord(c) < 0x7F or c in more for c in text)


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
