"""HTTP connections that nobody may hold for ever: whoever owes a request, or does not take an answer, has a
while for it, and of those that owe one the oldest makes room for the newest. Streams bound themselves (hub).
"""

from __future__ import annotations

import asyncio
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
    """The protocol of one server's connections."""
    return type("Bounded", (Bounded,), {"limits": limits})
