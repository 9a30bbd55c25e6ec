"""From one feed to every client: a thread reads the feed, the event loop hands on what it brings.

A client that does not take what it is sent loses its queue and gets the whole again when it does; nobody
waits for anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headgate.dashboards.web.feed_items import Change, Document, Feed, Item, Stale, Whole
from headgate.dashboards.web.trace_feed import TraceFeed

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

QUEUE_MOST = 16  # items that a client may be behind: eight seconds
TURN_S = 0.2  # after which the feed's thread looks whether something else is desired of it
CLIENTS_MOST = 64
END_S = 2.0


class Client:
    """One viewer's queue; used in the event loop only."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.queue: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._whole_due = True
        self._ready.set()

    def offer(self, data: bytes) -> None:
        """One more message; too many at once are dropped for a fresh snapshot."""
        if len(self.queue) >= QUEUE_MOST:
            self.want_whole()
        if not self._whole_due:
            self.queue.append(data)
        self._ready.set()

    def want_whole(self) -> None:
        self.queue.clear()
        self._whole_due = True
        self._ready.set()

    async def take(self) -> bytes:
        while True:
            await self._ready.wait()
            if self._whole_due and (whole := self._hub.whole()) is not None:
                self._whole_due = False
                if self._hub.stale is not None and self._hub.document is not None:
                    self.queue.append(self._hub.stale.data)
                return whole
            if self.queue and not self._whole_due:
                return self.queue.popleft()
            self._ready.clear()


class Hub:
    """The feed's thread and its clients."""

    def __init__(self, feed: Feed, clients_most: int = CLIENTS_MOST) -> None:
        self.feed = feed
        self.document: Document | None = None
        self.stale: Stale | None = None
        self._clients_most = clients_most
        self._clients: set[Client] = set()
        self._whole: tuple[Document | None, bytes] = (None, b"")
        self._wishes: SimpleQueue[Callable[[Any], None]] = SimpleQueue()
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._read, name="feed", daemon=True)

    def start(self) -> None:
        """In the event loop whose clients these are."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._thread.join, END_S)

    def join(self) -> Client | None:
        """A new client; None when there are as many as there may be."""
        if len(self._clients) >= self._clients_most:
            return None
        client = Client(self)
        self._clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        self._clients.discard(client)

    def whole(self) -> bytes | None:
        """The newest snapshot, encoded once for all."""
        if self.document is None:
            return self.stale.data if self.stale is not None else None
        if self._whole[0] is not self.document:
            self._whole = self.document, Whole(self.document).data
        return self._whole[1]

    def wish(self, of_feed: Callable[[Any], None]) -> None:
        """Have this done to the feed, in its thread."""
        self._wishes.put(of_feed)

    def _read(self) -> None:
        try:
            while not self._ended.is_set():
                self._grant()
                self._tell(self.feed.next(TURN_S))
        except Exception as error:  # whoever looks must see that this is not the present any more
            self._tell(Stale(0.0, f"the feed ended: {error}"))
        finally:
            self.feed.close()

    def _tell(self, item: Item | None) -> None:
        if item is not None and self._loop is not None and not self._ended.is_set():
            self._loop.call_soon_threadsafe(self.spread, item)

    def _grant(self) -> None:
        while True:
            try:
                self._wishes.get_nowait()(self.feed)
            except Empty:
                return

    def spread(self, item: Item) -> None:
        match item:
            case Stale():
                self.stale = item
            case Whole() | Change():
                self.document, self.stale = item.document, None
        for client in self._clients:
            if isinstance(item, Whole):
                client.want_whole()
            else:
                client.offer(item.data)


# ── `WS /api/stream`: a snapshot, then its changes. What a client may say is little: see `ClientWish` ───

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
