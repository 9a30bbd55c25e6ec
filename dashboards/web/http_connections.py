"""HTTP connections that nobody may hold for ever: whoever owes a request, or does not take an answer, has a
while for it, and of those that owe one the oldest makes room for the newest. Streams bound themselves (hub).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S, ANSWER_S = 5.0, 60.0  # for a whole request, and for an answer to be taken
WAITING_MOST = 64  # connections that owe a request


class Owing(Protocol):
    """A connection that owes something."""

    def hurry(self) -> None: ...


@dataclass
class Limits:
    """Of one server. waiting: who has owed a request for the longest first."""

    request_s: float = REQUEST_S
    answer_s: float = ANSWER_S
    waiting_most: int = WAITING_MOST
    waiting: dict[Owing, None] = field(default_factory=dict)

    def owe(self, one: Owing) -> None:
        """It owes a request from now on."""
        self.waiting[one] = None
        if len(self.waiting) > self.waiting_most:
            next(iter(self.waiting)).hurry()


class Bounded(H11Protocol):
    """One connection. limits: of all of its server's."""

    limits: ClassVar[Limits]
    _deadline: asyncio.TimerHandle | None = None
    _owes: bool | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._owes = None  # the next request has its own time
        self._look()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._forget()
        self._owes = False
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def cut(self) -> None:
        """At once: the loop may take in many more before it tells that this one is gone."""
        self._forget()
        self.connections.discard(self)
        self.transport.abort()

    def hurry(self) -> None:
        """Somebody newer takes its place in the loop's next turn, which reads first what it has sent."""
        self._forget()
        self.connections.discard(self)
        self._deadline = self.loop.call_later(0, self.cut)

    def _look(self) -> None:
        """Bytes do not prolong anything: only what is whole does."""
        if self.transport.get_protocol() is not self or self.transport.is_closing():
            self._forget()
            return
        owes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if owes == self._owes:
            return
        self._forget()
        self._owes = owes
        self.connections.add(self)
        self._deadline = self.loop.call_later(
            self.limits.request_s if owes else self.limits.answer_s, self.cut
        )
        if owes:
            self.limits.owe(self)

    def _forget(self) -> None:
        self.limits.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol_of(limits: Limits) -> type[asyncio.Protocol]:
    return type("Bounded", (Bounded,), {"limits": limits})


# ── The door of a page that speaks https only: who begins with TLS goes through, who speaks plain http is
# told
#
# Until the handshake is made a connection owes it, within the same limits as a request (connections.py):
# neither silence nor half a handshake holds anything up.

HELLO = b"\x16"  # how every TLS connection begins
HEAD_MOST_BYTES = 64 * 1024  # of a plain request, read away so that its sender gets the answer


class Door(asyncio.Protocol):
    """One connection before its handshake. inside: what speaks HTTP behind it. refusal: to who speaks plain http."""

    limits: ClassVar[Limits]
    context: ClassVar[ssl.SSLContext]
    inside: ClassVar[type[Any]]
    refusal: ClassVar[bytes]

    def __init__(self, **server: Any) -> None:
        self._server = server
        self._open: set[Any] = server["server_state"].connections
        self._loop = asyncio.get_running_loop()
        self._early = bytearray()  # what came with the end of the handshake
        self._lost = False
        self._entering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Nothing is read here: a TLS transport takes the connection over with all that was sent."""
        self._transport = transport
        transport.pause_reading()
        self._peeked = socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno()))
        self._peeked.setblocking(False)
        self._loop.add_reader(self._peeked, self._look)
        self._open.add(self)
        self._deadline = self._loop.call_later(self.limits.request_s, self.cut)
        self.limits.owe(self)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._forget()

    def shutdown(self) -> None:
        self.cut()

    def cut(self) -> None:
        self._forget()
        self._transport.abort()

    def hurry(self) -> None:
        """Somebody newer takes its place in the loop's next turn, which reads first what it has sent."""
        self.limits.waiting.pop(self, None)
        self._deadline.cancel()
        self._deadline = self._loop.call_later(0, self.cut)

    def _look(self) -> None:
        """Once something was sent."""
        self._loop.remove_reader(self._peeked)
        try:
            first = self._peeked.recv(1, socket.MSG_PEEK)
            if first not in (HELLO, b""):
                self._peeked.recv(HEAD_MOST_BYTES)
        except OSError:
            first = b""
        if first == HELLO:
            self._entering = self._loop.create_task(self._enter())
            return
        if first:
            self._transport.write(self.refusal)
        self._forget()
        self._transport.close()

    async def _enter(self) -> None:
        limit_s = self.limits.request_s
        try:
            inside = await self._loop.start_tls(
                self._transport, self, self.context,
                server_side=True, ssl_handshake_timeout=limit_s, ssl_shutdown_timeout=limit_s,
            )  # fmt: skip
        except OSError:  # no handshake that is one
            self.cut()
            return
        self._forget()
        if inside is None or self._lost:
            return
        protocol = self.inside(**self._server)
        inside.set_protocol(protocol)
        protocol.connection_made(inside)
        if self._early:
            protocol.data_received(bytes(self._early))

    def _forget(self) -> None:
        self._deadline.cancel()
        self.limits.waiting.pop(self, None)
        self._open.discard(self)
        with contextlib.suppress(ValueError, OSError):
            self._loop.remove_reader(self._peeked)
        self._peeked.close()


def door_of(limits: Limits, context: ssl.SSLContext, address: str) -> type[asyncio.Protocol]:
    """The protocol of one server's connections. address: what to tell those who speak plain http."""
    text = f"this port speaks https only: {address}\n".encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
    own = {
        "limits": limits,
        "context": context,
        "inside": protocol_of(limits),
        "refusal": f"{head}Connection: close\r\n\r\n".encode() + text,
    }
    return type("Door", (Door,), own)
