"""A small HTTP/1.1 server in a thread of its own: h11 reads and writes the protocol, and all that a client may do is
bounded: bytes, time and connections."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.http.bodies import RequestRefused

CONNECTIONS_MOST = 256
REQUEST_S = 20.0  # for a whole request to come
IDLE_S = 60.0  # a connection without a request
WRITE_S = 5.0  # for an answer to be taken
LINGER_S = 2.0  # what a refused client still sends is read so long: else it may not see the answer
CLOSE_S = 3.0
READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class HttpRequest:
    """headers: by names in small letters."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    says: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(refused: RequestRefused) -> HttpAnswer:
    return HttpAnswer(refused.status, {"error": refused.why}, refused.headers)


class Site(Protocol):
    """What the server serves; all is called in its thread. RequestRefused may be raised by each."""

    body_most: int

    def admit(self, request: HttpRequest) -> HttpAnswer | None:
        """Before the body is read: an answer that does not need it."""

    def reading(self, more: int) -> None:
        """So many bytes of bodies more (or fewer) are held; RequestRefused when that is too much."""

    def answer(self, request: HttpRequest) -> Awaitable[HttpAnswer]:
        """To a whole request."""


class HttpServer:
    """Listens until `close`. trouble: what should never be raised there, and was."""

    def __init__(self, listening: socket.socket, site: Site, tls: ssl.SSLContext | None) -> None:
        self._listening, self.site, self._tls = listening, site, tls
        self.idle: dict[_Connection, None] = {}  # who has waited longest first
        self.open: set[asyncio.Task[Any]] = set()
        self.trouble: BaseException | None = None
        self.loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, run: Any, *given: Any) -> None:
        """In its thread, soon."""
        with suppress(RuntimeError):  # it has ended, and nobody waits for an answer
            self.loop.call_soon_threadsafe(run, *given)

    def close(self) -> None:
        self.call(self._over.set)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except Exception as error:  # raised by the source's next poll
            self.trouble = error
        finally:
            self._listening.close()
            self.loop.close()

    async def _serve(self) -> None:
        more: dict[str, Any] = {"ssl": self._tls, "ssl_handshake_timeout": REQUEST_S} if self._tls else {}
        server = await asyncio.start_server(self._connected, sock=self._listening, **more)
        await self._over.wait()
        server.close()
        tasks = list(self.open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self.open) >= CONNECTIONS_MOST and not self._make_room():
            writer.transport.abort()
            return
        self.open.add(task)
        connection = _Connection(self, reader, writer)
        try:
            await connection.serve()
        except asyncio.CancelledError:  # by `_serve`, which ends; asyncio would print that it was
            return
        except Exception as error:  # a fault of ours ends one connection, and is told
            self.trouble = error
        finally:
            self.idle.pop(connection, None)
            self.open.discard(task)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """Close the connection that has had no request for the longest."""
        if not self.idle:
            return False
        oldest = next(iter(self.idle))
        del self.idle[oldest]
        oldest.cut()
        return True


class _Connection:
    def __init__(self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._server, self._reader, self._writer = server, reader, writer
        self._h11 = needed("h11", "http")
        self._wire = self._h11.Connection(self._h11.SERVER)

    @property
    def _whole(self) -> bool:
        """Did its whole request come?"""
        return self._wire.their_state in (self._h11.DONE, self._h11.MUST_CLOSE, self._h11.CLOSED)

    def cut(self) -> None:
        self._writer.transport.abort()

    async def serve(self) -> None:
        with suppress(OSError, TimeoutError):  # it is gone, or slow
            while await self._one():
                self._wire.start_next_cycle()
            if not self._whole:
                await self._linger()
            await self._flush(close=True)

    async def _one(self) -> bool:
        """A request and its answer; may another follow?"""
        if not self._wire.trailing_data[0]:
            self._server.idle[self] = None
            async with asyncio.timeout(IDLE_S):
                data = await self._reader.read(READ_BYTES)
            self._server.idle.pop(self, None)
            if not data:
                return False
            self._wire.receive_data(data)
        head = False
        try:
            async with asyncio.timeout(REQUEST_S):
                request = await self._head()
                head = request.method == "HEAD"
                answer = self._server.site.admit(request)
                if answer is None:
                    request = replace(request, body=await self._body())
            if answer is None:
                answer = await self._server.site.answer(request)
        except TimeoutError:
            answer = HttpAnswer(408, {"error": f"the request did not come whole in {REQUEST_S:g} s"})
        except RequestRefused as refused:
            answer = refusal(refused)
        except self._h11.RemoteProtocolError as error:
            answer = HttpAnswer(error.error_status_hint, {"error": f"no HTTP: {error}"})
        return await self._send(answer, head)

    async def _event(self) -> Any:
        while (event := self._wire.next_event()) is self._h11.NEED_DATA:
            if self._wire.they_are_waiting_for_100_continue:
                go_on = self._h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._wire.send(go_on))
            self._wire.receive_data(await self._reader.read(READ_BYTES))
        return event

    async def _head(self) -> HttpRequest:
        event = await self._event()
        if not isinstance(event, self._h11.Request):
            raise ConnectionResetError
        headers: dict[str, str] = {}
        for name, value in event.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            if key in headers and key in ("authorization", "content-type", "idempotency-key"):
                raise RequestRefused(400, f"two headers {key}")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        try:
            path = urlsplit(event.target.decode("latin-1")).path
        except ValueError as error:
            raise RequestRefused(400, "the target of the request is no address") from error
        return HttpRequest(event.method.decode("latin-1"), path, headers)

    async def _body(self) -> bytes:
        site, body, held = self._server.site, bytearray(), 0
        try:
            while isinstance(event := await self._event(), self._h11.Data):
                if len(body) + len(event.data) > site.body_most:
                    raise RequestRefused(413, f"the body has more than {site.body_most:,} bytes")
                site.reading(len(event.data))
                held += len(event.data)
                body += event.data
        finally:
            site.reading(-held)
        return bytes(body)

    async def _send(self, answer: HttpAnswer, head: bool) -> bool:
        data = json.dumps(answer.says, ensure_ascii=False).encode() + b"\n"
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **answer.headers}
        if not self._whole:
            headers["Connection"] = "close"
        response = self._h11.Response(
            status_code=answer.status,
            headers=list(headers.items()),
            reason=HTTPStatus(answer.status).phrase.encode(),
        )
        parts = [response, *([] if head else [self._h11.Data(data)]), self._h11.EndOfMessage()]
        self._writer.write(b"".join(self._wire.send(part) or b"" for part in parts))
        await self._flush()
        return self._wire.our_state is self._h11.DONE and self._wire.their_state is self._h11.DONE

    async def _flush(self, close: bool = False) -> None:
        async with asyncio.timeout(WRITE_S):
            await self._writer.drain()
            if close:
                self._writer.close()
                await self._writer.wait_closed()

    async def _linger(self) -> None:
        self._server.idle[self] = None
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await self._reader.read(READ_BYTES):
                    pass
