"""A port that rows are posted to."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.logic import Context, LiveSource
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.connectors.http.answered_requests import AnsweredRequests
from headgate.topology_runtime.connectors.http.bodies import RequestRefused, kind_of, plain, rows_of
from headgate.topology_runtime.connectors.http.checks import GITHUB, STRIPE, has_token, is_signed
from headgate.topology_runtime.connectors.http.http_server import HttpAnswer, HttpRequest, HttpServer
from headgate.topology_runtime.connectors.http.ports import checked_port, listen, port_of
from headgate.topology_runtime.connectors.http.posted_rows import Posted, PostedRows
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import hide, shown

BODY_MOST = 4 << 20
BYTES_MOST = 16 << 20  # of bodies that come, and of those whose rows wait
ROWS_MOST = 10_000  # that wait, so of one request too
KEY_MOST = 256  # characters
ANSWER_S = 10.0  # so long a client waits for the disk
RETRY_S = 1
AGAIN = {"Retry-After": str(RETRY_S)}
SIGNATURES = (GITHUB, STRIPE)


class HttpSource(LiveSource[Any]):
    """POST a JSON value, a JSON array of rows, or lines of JSON (application/x-ndjson), also with gzip: 202 once the
    rows are on the disk of this VM. Partition k listens on `port` + k, and answers GET /health.

    type: "module:Name" that each row must be. token: a bearer token. signature: `github` or `stripe`, with its
    `secret`. tls: certificate and key of the server; with ca, clients need a certificate that it signed.

    A request with an `Idempotency-Key` (or GitHub's delivery) that was taken is answered alike and not taken again.

    >>> source = HttpSource(8080, token="${FILE:/run/secrets/token}")
    """

    reads_references = ("token", "secret")

    def __init__(self, port: int, *, host: str = "127.0.0.1", type: str | None = None,
                 token: str | SecretText | None = None, secret: str | SecretText | None = None,
                 signature: str | None = None, tls: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        faults = checked_port(port)
        if signature is not None and signature not in SIGNATURES:
            faults.append(f"signature is {shown(signature)}: one of {', '.join(SIGNATURES)}")
        if (signature is None) != (secret is None):
            faults.append("signature= and secret= go together")
        self._tls = Tls.of(tls)
        if self._tls is not None and self._tls.certificate is None:
            faults.append("a server needs tls.certificate and tls.key")
        known = (
            token is not None or secret is not None or (self._tls is not None and self._tls.ca is not None)
        )
        if not known and not _is_loopback(host):
            faults.append(f"anybody who reaches {shown(host)} could post: give token=, signature= or tls.ca")
        if faults:
            raise InvalidInput("invalid HttpSource", faults=faults)
        needed("h11", "http")
        self.port, self.host, self._signature = port, host, signature
        self._token, self._secret = token, secret
        for one in (token, secret):
            if isinstance(one, str):
                hide(one)
        self._format = open_format("json", type=type)
        self.body_most, self.answer_s = BODY_MOST, ANSWER_S
        self.waiting = PostedRows(ROWS_MOST, BYTES_MOST)
        self._server: HttpServer | None = None
        self._answered: AnsweredRequests | None = None
        self._reading = 0

    def open(self, context: Context) -> None:
        self.port = port_of(self.port, context)
        for secret in (self._token, self._secret):
            if secret is not None and not text_of(secret):
                raise InvalidInput("token= or secret= is empty")
        path = Path(context.directory, f"answered-{context.task}-{context.partition}")
        self._answered = AnsweredRequests(path, self.waiting)

    # ── in the source's thread ──────────────────────────────────────────────────────────────────

    def poll(self, limit: int) -> Sequence[Any]:
        if self._server is not None and (trouble := self._server.trouble) is not None:
            self._server.trouble = None
            raise trouble
        if self._server is None or not self._server.alive:
            self._server = self._listen()
        return self.waiting.take(limit)

    def durable(self, rows: int) -> None:
        settled = self.waiting.settled(rows)
        if not settled or self._server is None:
            return
        assert self._answered is not None
        self._answered.add(settled)
        self.waiting.settle(settled)
        self._server.call(_tell, settled)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._answered is not None:
            self._answered.close()

    def _listen(self) -> HttpServer:
        tls = self._tls_context() if self._tls is not None else None
        return HttpServer(listen(self.host, self.port), self, tls)

    def _tls_context(self) -> ssl.SSLContext:
        """Each handshake is made with the files of then."""
        assert self._tls is not None
        tls, context = self._tls, self._tls.server_context()

        def newest(
            connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _old: ssl.SSLContext
        ) -> None:
            try:
                connection.context = tls.server_context()
            except InvalidInput as error:  # the old ones hold on
                if self._server is not None:
                    self._server.trouble = error

        context.sni_callback = newest
        return context

    # ── in the server's thread ──────────────────────────────────────────────────────────────────

    def admit(self, request: HttpRequest) -> HttpAnswer | None:
        headers = request.headers
        if request.path == "/health":
            if request.method not in ("GET", "HEAD"):
                raise RequestRefused(405, "GET /health", {"Allow": "GET, HEAD"})
            return HttpAnswer(200, {"status": "ok"})
        if request.method != "POST":
            raise RequestRefused(405, "POST rows, or GET /health", {"Allow": "POST"})
        if self._token is not None and not has_token(headers, self._now(self._token)):
            raise RequestRefused(401, "the token is wrong, or missing", {"WWW-Authenticate": "Bearer"})
        kind_of(headers)
        size = int(headers.get("content-length", 0))
        if size > self.body_most:
            raise RequestRefused(413, f"the body has more than {self.body_most:,} bytes")
        key = self._key(headers)
        if self.waiting.known(key) is None and (
            self.waiting.full or self._reading + self.waiting.bytes + size > self.waiting.bytes_most
        ):
            raise self._busy()
        return None

    def reading(self, more: int) -> None:
        if more > 0 and self._reading + self.waiting.bytes + more > self.waiting.bytes_most:
            raise self._busy()
        self._reading += more

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        headers, body = request.headers, request.body
        if self._signature is not None:
            assert self._secret is not None
            if not is_signed(self._signature, headers, body, self._now(self._secret), time.time()):
                raise RequestRefused(401, "the signature is wrong, or missing")
        key, kind = self._key(headers), kind_of(headers)
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        posted = self.waiting.known(key)
        if posted is None:
            rows = rows_of(plain(body, headers, self.body_most), kind, self._format, self.waiting.rows_most)
            posted = Posted(key, digest, len(rows), len(body))
            if not rows:
                return HttpAnswer(202, {"rows": 0})
            if self.waiting.offer(posted, rows) is None:
                raise self._busy()
        elif posted.digest != digest:
            raise RequestRefused(422, "this Idempotency-Key came before, with another body")
        if not posted.done:
            await self._settled(posted)
        return HttpAnswer(202, {"rows": posted.rows})

    async def _settled(self, posted: Posted) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        posted.waiters.append(waiter)
        try:
            async with asyncio.timeout(self.answer_s):
                await waiter
        except TimeoutError:
            posted.waiters.remove(waiter)
            if not posted.waiters and self.waiting.withdraw(posted):
                raise RequestRefused(503, "rows are not taken now; none of these was", AGAIN) from None
            raise RequestRefused(503, "the disk has not taken these rows yet; it may", AGAIN) from None

    def _key(self, headers: Mapping[str, str]) -> str:
        key = headers.get("idempotency-key", "")
        if not key and self._signature == GITHUB:
            key = headers.get("x-github-delivery", "")
        if len(key) > KEY_MOST:
            raise RequestRefused(400, f"Idempotency-Key has more than {KEY_MOST} characters")
        return key

    def _now(self, secret: str | SecretText) -> str:
        try:
            return text_of(secret)
        except InvalidInput as error:
            assert self._server is not None
            self._server.trouble = error
            raise RequestRefused(503, "not ready: who may post cannot be checked now", AGAIN) from None

    @staticmethod
    def _busy() -> RequestRefused:
        return RequestRefused(429, "rows come faster than they are taken; none of these was", AGAIN)


def _tell(settled: Sequence[Posted]) -> None:
    for posted in settled:
        for waiter in posted.waiters:
            if not waiter.done():
                waiter.set_result(None)
        posted.waiters.clear()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
