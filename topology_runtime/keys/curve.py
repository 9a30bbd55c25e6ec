"""Keys on ZeroMQ's sockets: CURVE, and the one thread of a process that says who may come in (ZAP, ZeroMQ RFC 27).

Every socket that listens is a CURVE server of a ZAP domain of its own; ZeroMQ asks the gatekeeper at each handshake.
It fails closed: where the domain is enforced and nobody answers, nobody comes in. A handshake happens once, so whoever
receives from many looks at each message's key again: a key that was revoked is heard no more from that moment on.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import NamedTuple

import zmq
from zmq.utils import z85

from headgate.topology_runtime.keys.key_pairs import Contact, KeyPair
from headgate.topology_runtime.keys.link_limits import LOOK_S, LOOK_SOON_S, KeyLinks
from headgate.topology_runtime.platform.kept_threads import KeptThread

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ADMITTED, LATER, REFUSED = b"200", b"300", b"400"  # after LATER a client tries again by itself
ENVELOPE = (
    4  # parts: where it comes from, nothing, version, number; then domain, address, identity, mechanism, key
)
WAIT_S = 0.7  # of the second that a handshake may take; whoever is known until then comes in at the first try
LOOK_MS, WAITING_MOST = 5, 1024


def new_pair() -> KeyPair:
    """A fresh pair, from the system's randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode("ascii"), secret.decode("ascii"))


class _Question(NamedTuple):
    """May the owner of this key come in? envelope: where the answer goes, version and number of the question."""

    envelope: list[bytes]
    links: KeyLinks | None
    key: str
    until_s: float


class _Gatekeeper(KeptThread):
    """Answers ZeroMQ's questions of one context, until that is terminated."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        super().__init__("gatekeeper")
        self.context = context
        self.served: dict[bytes, KeyLinks] = {}
        self._look_s = 0.0
        self._waiting: list[_Question] = []
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        self.start()

    def turn(self) -> bool:
        try:
            if self._socket.poll(LOOK_MS if self._waiting else self._look_in_ms()):
                self._take(self._socket.recv_multipart())
            self._waiting = [question for question in self._waiting if not self._answered(question)]
        except zmq.ContextTerminated:
            return False
        return True

    def over(self) -> None:
        self._socket.close(linger=0)

    def _look_in_ms(self) -> int:
        if (now_s := time.monotonic()) >= self._look_s:
            soon = [links.look() for links in list(self.served.values())]
            self._look_s = now_s + (LOOK_SOON_S if any(soon) else LOOK_S)
        return max(1, int(1000 * (self._look_s - now_s)))

    def _take(self, parts: list[bytes]) -> None:
        *envelope, domain, _, _, mechanism = parts[: ENVELOPE + 4]
        keys = parts[ENVELOPE + 4 :]
        key = z85.encode(keys[0]).decode("ascii") if mechanism == b"CURVE" and len(keys) == 1 else ""
        question = _Question(envelope, self.served.get(domain), key, time.monotonic() + WAIT_S)
        if not self._answered(question):
            self._waiting.append(question)

    def _answered(self, question: _Question) -> bool:
        """False: who is not known yet may be in a moment."""
        envelope, links, key, until_s = question
        code = REFUSED
        if links is not None and links.guard.admits(key) is not None:
            code = ADMITTED if links.may_come(key) else LATER
        elif links is not None and links.guard.later:
            if time.monotonic() < until_s and len(self._waiting) < WAITING_MOST:
                return False
            code = LATER
        user = key.encode("ascii") if code == ADMITTED else b""
        self._socket.send_multipart([*envelope, code, b"", user, b""])
        return True


_numbers = itertools.count()
_lock = threading.Lock()
_gatekeeper: _Gatekeeper | None = None


def troubles() -> tuple[str, ...]:
    """What failed lately in letting peers in, and who was cut off."""
    if _gatekeeper is None:
        return ()
    failed = (text,) if (text := _gatekeeper.trouble()) else ()
    return failed + tuple(one for links in list(_gatekeeper.served.values()) for one in links.troubles())


def _keeper(context: zmq.Context[zmq.Socket[bytes]]) -> _Gatekeeper:
    global _gatekeeper
    with _lock:
        if _gatekeeper is None or _gatekeeper.context is not context:
            _gatekeeper = _Gatekeeper(context)
        return _gatekeeper


def guard_server(socket: zmq.Socket[bytes], links: KeyLinks) -> bytes:
    """Before it binds: nobody comes in whom the guard does not admit. The name of it, for `unguard`."""
    keeper, domain, guard = _keeper(socket.context), b"%d" % next(_numbers), links.guard
    keeper.served[domain] = links
    socket.setsockopt(zmq.ZAP_DOMAIN, domain)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, guard.own.public.encode("ascii"))
    socket.setsockopt(zmq.CURVE_SECRETKEY, guard.own.secret.encode("ascii"))
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    return domain


def unguard(domain: bytes) -> None:
    """The socket is closed."""
    if _gatekeeper is not None:
        _gatekeeper.served.pop(domain, None)


def prove(socket: zmq.Socket[bytes], contact: Contact, server: str = "") -> None:
    """Before it connects: it speaks to nobody but who holds the server's key (or this one), and as who it is."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, (server or contact.server).encode("ascii"))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, contact.own.public.encode("ascii"))
    socket.setsockopt(zmq.CURVE_SECRETKEY, contact.own.secret.encode("ascii"))
