"""Typed channels over ZeroMQ: with `curve.py` the only module that imports zmq; it alone turns bytes into types.

A channel sends one union of messages and receives another; what does not decode is a `BadMessage`.
One thread owns one channel. Nothing here blocks without a time-out.

    ServerChannel (ROUTER)  controller's control and command port, agent's port for its workers
    ClientChannel (DEALER)  agent → controller, worker → agent, client → controller
    PullChannel / PushChannel   tuples between workers; the ledger's window bounds what honest ones have in flight
    PublisherChannel (ROUTER) / SubscriberChannel (DEALER)   the controller's picture; who is slow misses some

Every one is encrypted and knows whom it speaks to (docs/how-to/manage-keys.md): a server has a `KeyGuard`, a client a
`Contact`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
import zmq

from headgate.topology_runtime.errors import BadMessage, InvalidInput, Refused, Unreachable
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who, keyed
from headgate.topology_runtime.keys.link_limits import UNREAD_MOST, KeyLinks
from headgate.topology_runtime.platform.addresses import Listening, endpoint_fault, parted, tcp
from headgate.topology_runtime.platform.kept_threads import KeptThread
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import from_here

CONTROL_MAX_BYTES = 64 * 1024 * 1024
FROM_WORKER_MAX_BYTES = 4 * 1024 * 1024
LISTENING_MAX_BYTES = 4096  # the handshake counts, too
LISTENING_UNREAD_MOST = 1 << 20
LISTENS_AGAIN_S, LISTENS_S = 0.25, 3.0  # who listens says so again and again
PASSED_OVER_MOST = 1000  # messages that are not looked at, in one go
FROM_AGENT_MAX_BYTES = REQUEST_MAX_BYTES = 1024 * 1024
CONTAINERS_MOST = 150_000  # bytes that may begin a list or a map of a command: each becomes 230 bytes
TUPLES_MAX_BYTES = 16 * 1024 * 1024
TUPLES_UNREAD_MOST = 64 * 1024 * 1024  # of one peer, until it is known how many sources there are
BEHIND_MOST = 64  # messages that a slow peer may be behind; what comes after them it does not get
BEHIND_BYTES = 32 * 1024 * 1024
UNSENT_MOST = 1000  # messages to a peer that does not take them
HERE = Listening()  # loopback
LINGER_MS = 1000
FREED_TRIES, FREED_S = 200, 0.001
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 500, 1500  # by ZeroMQ's own threads, whatever Python does
# What is on its way between two workers is lost when their link breaks, and all that is open is sent again. So a
# process that stands still breaks none while its kernel takes what comes, and a cut none that is over soon.
ROWS_HEARTBEAT_TIMEOUT_MS, ROWS_UNACKED_MS = 12_000, 4000
CONNECT_TIMEOUT_MS, HANDSHAKE_MS = 500, 1000  # then it is tried afresh: else a cut would outlast itself
LINK_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
REFUSAL_EVENTS = zmq.EVENT_HANDSHAKE_FAILED_AUTH

Hears = Callable[[Who, bytes, int], bool]
Out = TypeVar("Out")
In = TypeVar("In")

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode

from_controller: msgspec.msgpack.Decoder[m.FromController] = msgspec.msgpack.Decoder(m.FromController)
from_agent: msgspec.msgpack.Decoder[m.FromAgent] = msgspec.msgpack.Decoder(m.FromAgent)
from_agent_to_worker: msgspec.msgpack.Decoder[m.FromAgentToWorker] = msgspec.msgpack.Decoder(
    m.FromAgentToWorker
)
from_worker: msgspec.msgpack.Decoder[m.FromWorker] = msgspec.msgpack.Decoder(m.FromWorker)
requests: msgspec.msgpack.Decoder[m.Request] = msgspec.msgpack.Decoder(m.Request)
replies: msgspec.msgpack.Decoder[m.Reply] = msgspec.msgpack.Decoder(m.Reply)


def decode(decoder: msgspec.msgpack.Decoder[In], data: bytes) -> In:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage("a message could not be read", cause=str(error)) from error


_CONTAINERS = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])


def weigh(data: bytes) -> None:
    """Raises BadMessage when plain values could take more memory than a command may."""
    if len(data) - len(data.translate(None, _CONTAINERS)) > CONTAINERS_MOST:
        raise BadMessage("a command of too many parts", cause=f"more than {CONTAINERS_MOST:,}")


OPTIONS = {
    zmq.LINGER: LINGER_MS,
    zmq.SNDHWM: 0,
    zmq.RCVHWM: 0,  # libzmq 4.3.5 aborts the process when a peer goes while its full queue is not read
    zmq.HEARTBEAT_IVL: HEARTBEAT_MS,
    zmq.HEARTBEAT_TIMEOUT: HEARTBEAT_TIMEOUT_MS,
    zmq.CONNECT_TIMEOUT: CONNECT_TIMEOUT_MS,
    zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
    zmq.RECONNECT_IVL: 20,
    zmq.RECONNECT_IVL_MAX: 80,  # a start waits for half of it on average
}


OF_ROWS = {zmq.HEARTBEAT_TIMEOUT: ROWS_HEARTBEAT_TIMEOUT_MS, zmq.TCP_MAXRT: ROWS_UNACKED_MS}


def _socket(kind: int, max_bytes: int) -> zmq.Socket[bytes]:
    socket = context().socket(kind)
    for option, value in (OPTIONS | (OF_ROWS if kind in (zmq.PUSH, zmq.PULL) else {})).items():
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    return socket


def _bind(socket: zmq.Socket[bytes], at: Listening, port: int) -> str:
    """Where others find it. Raises Unreachable."""
    try:
        socket.setsockopt(zmq.IPV6, int(":" in at.listen))
        socket.bind(tcp(at.listen, port or "*"))
    except zmq.ZMQError as error:
        raise Unreachable(
            f"cannot listen on {at.listen}:{port}",
            cause=str(error),
            hint="`ip addr` shows this machine's addresses"
            if error.errno == zmq.EADDRNOTAVAIL
            else "choose another port, or stop what uses it",
        ) from error
    return tcp(at.advertise, _bound(socket).rpartition(":")[2])


def _bound(socket: zmq.Socket[bytes]) -> str:
    """By ZeroMQ's own words."""
    found = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(found, bytes)
    return found.rstrip(b"\0").decode("ascii")


def _connect(socket: zmq.Socket[bytes], contact: Contact) -> None:
    """Raises Unreachable; the socket is the caller's then, too."""
    if fault := endpoint_fault(contact.endpoint):
        raise Unreachable(f"cannot connect to {contact.endpoint}", cause=fault)
    try:
        curve.prove(socket, contact)
        socket.setsockopt(zmq.IPV6, int("[" in contact.endpoint))
        if (
            contact.before
        ):  # a connection by each key; only one of them stands, and nothing waits for the other
            socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.connect(contact.endpoint)
        if contact.before:
            curve.prove(socket, contact, contact.before)
            socket.connect(_spelled_otherwise(contact.endpoint))
    except zmq.ZMQError as error:
        raise Unreachable(f"cannot connect to {contact.endpoint}", cause=str(error)) from error


def _spelled_otherwise(endpoint: str) -> str:
    """A second connection of one socket to one spelling of an endpoint is none, and nobody is told."""
    anywhere = "[::]" if "[" in endpoint else "0.0.0.0"
    return f"tcp://{anywhere}:0;{endpoint.removeprefix('tcp://')}"


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's ZeroMQ context."""
    return zmq.Context.instance()


class _Channel:
    _socket: zmq.Socket[bytes]

    @property
    def socket(self) -> zmq.Socket[bytes]:
        return self._socket

    @property
    def ready(self) -> zmq.Socket[bytes] | int:
        """What a `Waiter` waits for."""
        return self._socket

    def close(self, linger_ms: int = LINGER_MS) -> None:
        self._socket.close(linger=linger_ms)

    def receive_bytes(self) -> bytes | None:
        """None: nothing is there now."""
        try:
            return self._socket.recv(zmq.DONTWAIT)
        except zmq.Again:
            return None


class _Served(_Channel):
    """A channel that others connect to, those with a key. Raises Unreachable, and then it is closed."""

    def __init__(
        self,
        kind: int,
        max_bytes: int,
        guard: KeyGuard,
        at: Listening,
        port: int = 0,
        unread: int = UNREAD_MOST,
    ) -> None:
        self._socket, self.links = _socket(kind, max_bytes), KeyLinks(guard, unread)
        self._domain = curve.guard_server(self._socket, self.links)
        if kind == zmq.ROUTER:
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self._socket.setsockopt(zmq.SNDHWM, UNSENT_MOST)
        try:
            self.endpoint = _bind(self._socket, at, port)
        except Unreachable:
            self.close(0)
            raise
        self.links.port = parted(self.endpoint)[1]

    def close(self, linger_ms: int = LINGER_MS) -> None:
        curve.unguard(self._domain)
        super().close(linger_ms)

    def _saw(self, part: zmq.Frame, size: int) -> str:
        """Under which key this came; its bytes are counted."""
        key = str(part.get("User-Id"))
        self.links.saw(int(part.get(zmq.SRCFD)), key, size)
        return key

    def _received(self) -> tuple[bytes, str, list[zmq.Frame], int] | None:
        """(link, key, parts, bytes) of a ROUTER."""
        try:
            peer, *parts = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            self.links.emptied()
            return None
        size = sum(len(part) for part in parts)
        return peer.bytes, self._saw(peer, size), parts, size

    def _put(self, peer: bytes, data: bytes) -> int:
        """0, or why not: EHOSTUNREACH, EAGAIN."""
        try:
            self._socket.send_multipart([peer, data], zmq.DONTWAIT, copy=True)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return int(error.errno)
            raise
        return 0


class ServerChannel(_Served, Generic[Out, In]):
    """Many peers, each link named by bytes of ours and each message by whose key it came under; sending to an absent
    peer is refused. unknown: messages under keys that were good at the handshake and are not any more."""

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[In],
        guard: KeyGuard,
        at: Listening = HERE,
        port: int = 0,
        max_bytes: int = CONTROL_MAX_BYTES,
        untyped: bool = False,
        hears: Hears | None = None,
    ) -> None:
        """Whoever sends more than `max_bytes` at once is cut off. untyped: messages hold plain values. hears: which
        messages are looked at at all, by whose key, link and size."""
        super().__init__(zmq.ROUTER, max_bytes, guard, at, port)
        self._decoder, self._untyped, self._guard, self._hears = decoder, untyped, guard, hears
        self.unknown = 0
        if untyped:
            self._socket.setsockopt(zmq.SNDHWM, BEHIND_MOST)

    def send(self, peer: bytes, message: Out | bytes) -> bool:
        """False when that peer is not connected, or does not take what is sent to it."""
        return not self._put(peer, message if isinstance(message, bytes) else encode(message))

    def receive(self) -> tuple[bytes, Who, In] | None:
        """(peer, whose key, message), or None when there is nothing now. Raises BadMessage (with its `peer`)."""
        for _ in range(PASSED_OVER_MOST):
            if (received := self._received()) is None:
                return None
            peer, key, parts, size = received
            who = self._guard.admits(key)
            if who is None:
                self.unknown += 1
            elif self._hears is None or self._hears(who, peer, size):
                try:
                    return peer, who, self._read(peer, [part.bytes for part in parts])
                except BadMessage as error:
                    error.who = str(who)
                    raise
        return None

    def _read(self, peer: bytes, parts: list[bytes]) -> In:
        if len(parts) != 1:
            raise BadMessage(f"a message of {len(parts) + 1} parts", peer=peer)
        try:
            if self._untyped:
                weigh(parts[0])
            return decode(self._decoder, parts[0])
        except BadMessage as error:
            error.peer = peer
            raise


class ClientChannel(_Channel, Generic[Out, In]):
    """One peer; reconnects by itself, queues while it is away."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In], contact: Contact) -> None:
        self._decoder = decoder
        self._socket = _socket(zmq.DEALER, CONTROL_MAX_BYTES)
        self.refusals = LinkWatch(self._socket, REFUSAL_EVENTS)
        try:
            _connect(self._socket, contact)
        except Unreachable:
            self.close(linger_ms=0)
            raise

    def close(self, linger_ms: int = LINGER_MS) -> None:
        self.refusals.end()
        self.refusals.close(linger_ms=0)
        super().close(linger_ms)

    @property
    def refused(self) -> bool:
        """Did the server not let this key in? It does not try again then."""
        return True in self.refusals.changes()

    def send(self, message: Out | bytes) -> bool:
        """False: it is not on its way, since the server has refused this key, or too much waits already."""
        try:
            self._socket.send(message if isinstance(message, bytes) else encode(message), zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def receive(self) -> In | None:
        data = self.receive_bytes()
        return None if data is None else decode(self._decoder, data)

    def decode(self, data: bytes) -> In:
        return decode(self._decoder, data)


class PullChannel(_Served):
    """Tuples into one worker, from all its peers. endpoint: with the worker's key. whose: the public key under which
    the last message came."""

    def __init__(self, guard: KeyGuard, at: Listening = HERE) -> None:
        super().__init__(zmq.PULL, TUPLES_MAX_BYTES, guard, at, at.port, TUPLES_UNREAD_MOST)
        self.whose, self.endpoint = "", keyed(self.endpoint, guard.own.public)
        self._timeout_ms = -1

    def wait_for_bytes(self, timeout_s: float) -> bytes | None:
        timeout_ms = int(timeout_s * 1000)
        if timeout_ms != self._timeout_ms:
            self._socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
            self._timeout_ms = timeout_ms
        try:
            part = self._socket.recv(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            self.links.emptied()
            try:
                part = self._socket.recv(copy=False)
            except zmq.Again:
                return None
        self.whose = self._saw(part, len(part))
        return part.bytes


class LinkWatch(_Channel):
    """Tells when a connection stands and when it breaks (or what else is asked for). Made by the thread of the watched
    socket, before that connects; read by one other, and closed by it when the watch has ended: ZeroMQ's own threads
    wait for whoever is told of a link, and with them every socket of this process would, for ever."""

    def __init__(self, watched: zmq.Socket[bytes], events: int = LINK_EVENTS) -> None:
        address = f"inproc://link-{next(_link_numbers)}"
        self._watched = watched
        watched.monitor(address, events)
        self._socket = context().socket(zmq.PAIR)
        self._socket.setsockopt(zmq.RCVHWM, 0)  # nobody waits for who reads late
        self._socket.connect(address)

    def end(self) -> None:
        """Watch no more. In the thread of the watched socket, before that is closed."""
        if not self._watched.closed:
            self._watched.disable_monitor()

    def changes(self) -> list[bool | None]:
        """Since the last call: True: it stands (or what was asked for); False: it broke; None: the watch is over."""
        found: list[bool | None] = []
        while True:
            try:
                told, _endpoint = self._socket.recv_multipart(zmq.DONTWAIT)  # zmq_socket_monitor(3)
            except zmq.Again:
                return found
            event, _value = struct.unpack("=HI", told)  # pyzmq's own reader imports asyncio
            found.append(None if event == zmq.EVENT_MONITOR_STOPPED else event != zmq.EVENT_DISCONNECTED)


_link_numbers = itertools.count()


class PushChannel(_Channel):
    """Tuples to one peer worker. Never blocks; closing it drops what a dead peer did not take. watch: of its link; it
    ends when this is closed, and is closed by whoever reads it."""

    def __init__(self, contact: Contact) -> None:
        self._socket = _socket(zmq.PUSH, TUPLES_MAX_BYTES)
        self.watch = LinkWatch(self._socket)
        try:
            _connect(self._socket, contact)
        except Unreachable:
            self.close(linger_ms=0)
            self.watch.close(linger_ms=0)
            raise

    def close(self, linger_ms: int = LINGER_MS) -> None:
        self.watch.end()
        super().close(linger_ms)

    def send_bytes(self, data: bytes) -> bool:
        """False: it is not on its way, since the peer has refused this key: ZeroMQ does not try again then."""
        try:
            self._socket.send(data, zmq.DONTWAIT, copy=len(data) < 4096)
        except zmq.Again:
            return False
        return True


class PublisherChannel(_Served):
    """The same bytes to everyone who listens and may; never waits for any of them. dropped: messages that somebody
    was too slow for."""

    def __init__(self, guard: KeyGuard, at: Listening = HERE, port: int = 0) -> None:
        super().__init__(zmq.ROUTER, LISTENING_MAX_BYTES, guard, at, port, LISTENING_UNREAD_MOST)
        self._socket.setsockopt(zmq.SNDHWM, BEHIND_MOST)
        self._guard, self._at = guard, at
        self._listening: dict[bytes, float] = {}
        self.dropped = 0

    def ask_again(self) -> None:
        """Break all links: who listens comes back by itself, if he may still. Raises Unreachable."""
        self._socket.unbind(_bound(self._socket))
        self._listening.clear()
        port = parted(self.endpoint)[1]
        for left in reversed(range(FREED_TRIES)):  # ZeroMQ's own thread gives the port back in a moment
            try:
                _bind(self._socket, self._at, port)
                return
            except Unreachable:
                if not left:
                    raise
                time.sleep(FREED_S)

    @property
    def heard(self) -> bool:
        """Does anybody listen now?"""
        now_s = time.monotonic()
        for _ in range(PASSED_OVER_MOST):
            if (received := self._received()) is None:
                break
            if self._guard.admits(received[1]) is not None:
                self._listening[received[0]] = now_s
        self._listening = {peer: at for peer, at in self._listening.items() if now_s - at < LISTENS_S}
        return bool(self._listening)

    def send_bytes(self, data: bytes) -> None:
        if self.heard:
            for peer in tuple(self._listening):
                why = self._put(peer, data)
                self.dropped += why == zmq.EAGAIN
                if why == zmq.EHOSTUNREACH:
                    del self._listening[peer]


class _Listener(KeptThread):
    """Reads what is published as it comes, and keeps the oldest that nobody has taken."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        super().__init__("listener")
        self._socket = socket
        self.kept: deque[bytes] = deque()
        self.ready, self.stop = Waker(), Waker()
        self.dropped = 0
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self.stop.fd, zmq.POLLIN)
        self._said_s = 0.0

    def turn(self) -> bool:
        if (now_s := time.monotonic()) - self._said_s >= LISTENS_AGAIN_S:
            self._said_s = now_s
            with contextlib.suppress(zmq.Again):
                self._socket.send(b"", zmq.DONTWAIT)
        if self.stop.fd in dict(self._poller.poll(int(LISTENS_AGAIN_S * 1000))):
            return False
        with contextlib.suppress(zmq.Again):
            while True:
                data = self._socket.recv(zmq.DONTWAIT)
                if self.kept and (len(self.kept) >= BEHIND_MOST or self.waiting + len(data) > BEHIND_BYTES):
                    self.dropped += 1
                else:
                    self.kept.append(data)
                    self.ready.set()
        return True

    @property
    def waiting(self) -> int:
        return sum(len(data) for data in tuple(self.kept))

    def over(self) -> None:
        self._socket.close(linger=0)


class SubscriberChannel(_Channel):
    """What a publisher sends, while this is connected; reconnects by itself. Who does not read misses what comes after
    the oldest messages. dropped: how many."""

    def __init__(self, contact: Contact) -> None:
        self._socket = _socket(zmq.DEALER, CONTROL_MAX_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, 1)
        try:
            _connect(self._socket, contact)
        except Unreachable:
            self._socket.close(linger=0)
            raise
        self._listener = _Listener(self._socket)
        self._listener.start()

    @property
    def ready(self) -> int:
        return self._listener.ready.fd

    @property
    def dropped(self) -> int:
        return self._listener.dropped

    def receive_bytes(self) -> bytes | None:
        self._listener.ready.clear()
        if not self._listener.kept:
            return None
        data = self._listener.kept.popleft()
        if self._listener.kept:
            self._listener.ready.set()
        return data

    def close(self, linger_ms: int = LINGER_MS) -> None:
        if not self._listener.is_alive():
            return
        self._listener.stop.set()
        self._listener.join()
        self._listener.ready.close()
        self._listener.stop.close()


class Waker:
    """Wakes a `Waiter` from another thread."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self.fd)


class Waiter:
    """Waits for channels and file descriptors together."""

    def __init__(self, channels: Iterable[_Channel] = (), fds: Iterable[int] = ()) -> None:
        self._poller = zmq.Poller()
        for channel in channels:
            self.add(channel)
        for fd in fds:
            self.add(fd)

    def add(self, one: _Channel | int) -> None:
        self._poller.register(one if isinstance(one, int) else one.ready, zmq.POLLIN)

    def remove(self, one: _Channel | int) -> None:
        self._poller.unregister(one if isinstance(one, int) else one.ready)

    def wait(self, timeout_s: float) -> list[Any]:
        """Ready file descriptors (int) and sockets, at most `timeout_s` later."""
        return [what for what, _ in self._poller.poll(math.ceil(max(0.0, timeout_s) * 1000))]


def ask(contact: Contact, request: m.Request, timeout_s: float = 5.0) -> m.Reply:
    """One command to a controller and its reply; `Unreachable` after `timeout_s`, `Refused` without a key it knows."""
    data = encode(from_here(request))
    if len(data) > REQUEST_MAX_BYTES:
        raise InvalidInput(
            f"{request.command} is {len(data):,} bytes long", cause=f"at most {REQUEST_MAX_BYTES:,} are taken"
        )
    channel: ClientChannel[m.Request, m.Reply] = ClientChannel(replies, contact)
    try:
        if contact.before:
            channel.socket.poll(int(timeout_s * 1000), zmq.POLLOUT)
        channel.send(data)
        Waiter([channel, channel.refusals]).wait(timeout_s)
        reply = channel.receive()
        if reply is None and channel.refused:
            raise Refused(
                f"the controller at {contact.endpoint} does not let this key in",
                cause="it does not know the key, or another controller listens there now",
                hint="`headgate keys list` on its host shows who may come in",
            )
    finally:
        channel.close(linger_ms=0)
    if reply is None:
        raise Unreachable(
            f"no answer from the controller at {contact.endpoint} in {timeout_s:g} s",
            hint="is it running? `headgate up` or `headgate controller run` starts one",
        )
    return reply
