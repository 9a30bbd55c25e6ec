"""`WS /api/stream`: a snapshot, then its changes. What a client may say is little: see `ClientWish`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

import msgspec

from headgate.dashboards.feeding.trace_feed import TraceFeed

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from headgate.dashboards.web.hub import Client, Hub

UNSUPPORTED, VIOLATION, TRY_LATER, FAILED = 1003, 1008, 1013, 1011  # why a WebSocket is closed (RFC 6455)
SEND_S = 20.0  # a client that takes nothing for so long is gone
SPEED_MOST = 1000.0


class ClientWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a client may send: it missed something and wants the whole; over a trace also where to go on
    (seconds after its beginning), how fast, and whether to pause."""

    want: Literal["snapshot"] | None = None
    seek_s: float | None = None
    speed: float | None = None
    paused: bool | None = None


_wishes = msgspec.json.Decoder(ClientWish)


async def stream(socket: WebSocket) -> None:
    """One client, until it goes."""
    hub: Hub = socket.app.state.hub
    client = hub.join()
    if client is None:
        await socket.accept()
        await socket.close(TRY_LATER, "too many clients")
        return
    sending = None
    try:
        await socket.accept()
        sending = asyncio.create_task(_send(socket, client))
        code = await _listen(socket, hub, client)
        if code is not None:
            await socket.close(code)
    finally:
        hub.leave(client)
        if sending is not None:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await sending


async def _send(socket: WebSocket, client: Client) -> None:
    try:
        while True:
            text = (await client.take()).decode()
            await asyncio.wait_for(socket.send_text(text), SEND_S)
    except TimeoutError:
        await socket.close(FAILED, "too slow")


async def _listen(socket: WebSocket, hub: Hub, client: Client) -> int | None:
    """Until the client goes (None) or says something senseless: the code to close it with."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        if message.get("text") is None:
            return UNSUPPORTED
        try:
            wish = _wishes.decode(message["text"])
        except (msgspec.DecodeError, UnicodeError):
            return VIOLATION
        if not _granted(wish, hub, client):
            return VIOLATION


def _granted(wish: ClientWish, hub: Hub, client: Client) -> bool:
    """False when that cannot be wished here."""
    if wish.want == "snapshot":
        client.want_whole()
    if wish.seek_s is None and wish.speed is None and wish.paused is None:
        return True
    if not isinstance(hub.feed, TraceFeed):
        return False
    if wish.speed is not None and not 0 < wish.speed <= SPEED_MOST:
        return False
    hub.wish(lambda feed: feed.control(wish.seek_s, wish.speed, wish.paused))
    return True
