"""What each key may have on its way to one server socket: what nobody has read yet, and links.

ZeroMQ's own thread takes in all that comes, and a bounded receive queue of ZeroMQ can end the process (libzmq 4.3.5:
`Assertion failed: !_io_error`, its issues 3937 and 4767). So what is too much is cut off where it comes in: the link is
shut down in the kernel, and its key may not come in for a while. How much waits unread is what the kernel received over
a link less what was read of it; it is looked at by the thread that lets peers in.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.topology_runtime.keys.key_pairs import KeyGuard

LOOK_S, LOOK_SOON_S, SILENT_LOOK_S = 0.05, 0.01, 1.0
UNREAD_MOST = 8 << 20  # bytes of one key, in memory
WIRE_BYTES, MEMORY_BYTES = 43, 192  # of each message besides its own: as it comes, as it waits
LINKS_MOST = 64  # of one key
ANEW_AT_ONCE = 8  # links
SILENT_MOST, SILENT_S = (
    64,
    5.0,
)  # links over which nothing was ever said: more than so many, for so long, are cut
BARRED_S, BARRED_MOST_S = 1.0, 60.0  # twice as long each time …
FORGIVEN_S = 120.0  # … until so long after the last
BARRED_KEPT = 1024  # keys
TCP_INFO_BYTES, RECEIVED_AT = 136, 128  # tcpi_bytes_received of linux/tcp.h


@dataclass(slots=True)
class Link:
    """base: bytes received when the count of what was read began; then nothing waited."""

    key: str
    inode: int
    base: int = 0
    read: int = 0
    messages: int = 0


@dataclass(slots=True)
class Barred:
    """settled: all that had come of it until it was cut off has been read since."""

    why: str = ""
    cuts: int = -1
    until_s: float = 0.0
    settled: bool = True


@dataclass(slots=True)
class KeyLinks:
    """Of one server socket. Its thread calls `saw` and `emptied`, the gatekeeper the rest."""

    guard: KeyGuard
    unread_most: int = UNREAD_MOST
    links_most: int = LINKS_MOST
    port: int = 0
    links: dict[int, Link] = field(default_factory=dict)
    barred: dict[str, Barred] = field(default_factory=dict)
    cut: int = 0
    held: dict[str, int] = field(default_factory=dict)  # bytes of a key that were read and nobody has taken
    _empty: bool = False
    _silent: dict[int, tuple[int, float]] = field(default_factory=dict)
    _looked_s: float = 0.0
    _came: dict[str, int] = field(default_factory=dict)  # handshakes, since
    _came_s: float = 0.0
    _next: int = 0

    def saw(self, fd: int, key: str, size: int) -> None:
        """A message of so many bytes was read that came over this file descriptor."""
        link = self.links.get(fd)
        if link is None or link.key != key:
            if (inode := _inode(fd)) is None:
                return
            link = self.links[fd] = Link(key, inode)
            if sum(other.key == key for other in list(self.links.values())) > self.links_most:
                self.bar(key, f"has more than {self.links_most} links")
        link.read += size + WIRE_BYTES
        link.messages += 1

    def emptied(self) -> None:
        """There is nothing more to read now."""
        self._empty = True

    def may_come(self, key: str) -> bool:
        """False: not now; it may try again."""
        now_s, of = time.monotonic(), self.barred.get(key)
        if of is not None and (not of.settled or now_s < of.until_s):
            return False
        if now_s - self._came_s > SILENT_S:
            self._came_s = now_s
            self._came.clear()
        self._came[key] = self._came.get(key, 0) + 1
        return self._came[key] <= self.links_most

    def look(self) -> bool:
        """Cut off who has too much on its way. True: look again soon."""
        empty, self._empty = self._empty, False
        now_s = time.monotonic()
        if self.port and now_s - self._looked_s >= SILENT_LOOK_S:
            self._looked_s = now_s
            self.look_at_silent(now_s)
        if empty:
            self._begin_anew()
            for of in list(self.barred.values()):
                of.settled = True
            return False
        for key, waits in self.unread().items():
            if waits > max(min(UNREAD_MOST, self.unread_most), self.unread_most - self.held.get(key, 0)):
                self.bar(key, "sends faster than it is read")
        return any(link.messages for link in list(self.links.values()))

    def _begin_anew(self) -> None:
        """Nothing waited a moment ago: of links that spoke since, and of some others (heartbeats are never read)."""
        links = list(self.links.items())
        self._next = (self._next + ANEW_AT_ONCE) % max(1, len(links))
        some = links[self._next : self._next + ANEW_AT_ONCE]
        for fd, link in (*some, *(one for one in links if one[1].messages)):
            if (received := _received(fd, link.inode)) is None:
                self.links.pop(fd, None)
            else:
                link.base, link.read, link.messages = received, 0, 0

    def unread(self) -> dict[str, int]:
        """Bytes that what waits of each key takes in memory, about."""
        found: dict[str, int] = {}
        for fd, link in list(self.links.items()):
            received = _received(fd, link.inode)
            if received is None:
                self.links.pop(fd, None)
            elif waits := max(0, received - link.base - link.read):
                each = link.read / link.messages if link.messages else WIRE_BYTES
                found[link.key] = found.get(link.key, 0) + int(waits * (1 + MEMORY_BYTES / each))
        return found

    def bar(self, key: str, why: str) -> None:
        """Cut its links, and let it come again in a while."""
        now_s, of = time.monotonic(), self.barred.setdefault(key, Barred())
        of.cuts = 0 if now_s - of.until_s > FORGIVEN_S else of.cuts + 1
        of.until_s, of.why, of.settled = now_s + min(BARRED_MOST_S, BARRED_S * 2**of.cuts), why, False
        self.cut += 1
        if len(self.barred) > BARRED_KEPT:
            self.barred.pop(next(iter(self.barred)))
        for fd, link in list(self.links.items()):
            if link.key == key:
                self.links.pop(fd, None)
                _shut_down(fd, link.inode)

    def troubles(self) -> tuple[str, ...]:
        """Who was cut off lately, and why."""
        now_s = time.monotonic()
        lately = [
            (key, of.why) for key, of in list(self.barred.items()) if now_s - of.until_s < BARRED_MOST_S
        ]
        return tuple(f"{self.guard.admits(key) or 'a key'} {why}: its links were cut" for key, why in lately)

    def look_at_silent(self, now_s: float) -> None:
        """Links over which nothing was ever said, when they are many."""
        for fd, link in list(self.links.items()):
            if _inode(fd) != link.inode:
                self.links.pop(fd, None)
        found = [int(name) for name in os.listdir("/proc/self/fd")]
        before, self._silent = self._silent, {}
        if len(found) <= SILENT_MOST + len(self.links):
            return
        for fd in found:
            if fd not in self.links and (inode := _inode(fd)) is not None and _port(fd) == self.port:
                seen = before.get(fd, (0, 0.0))
                self._silent[fd] = seen if seen[0] == inode else (inode, now_s)
        if len(self._silent) > SILENT_MOST:
            for fd, (inode, since_s) in self._silent.items():
                if now_s - since_s > SILENT_S:
                    _shut_down(fd, inode)


def _inode(fd: int) -> int | None:
    with contextlib.suppress(OSError):
        return os.fstat(fd).st_ino
    return None


@contextlib.contextmanager
def _socket(fd: int) -> Iterator[socket.socket]:
    """The same socket; ZeroMQ keeps its own descriptor. Raises OSError when it is none, or gone."""
    own = os.dup(fd)
    try:
        of = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    with of:
        yield of


def _received(fd: int, inode: int) -> int | None:
    """Bytes that came over a link so far; None when it is gone."""
    if _inode(fd) != inode:
        return None
    with contextlib.suppress(OSError), _socket(fd) as link:
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return int(struct.unpack_from("=Q", info.ljust(TCP_INFO_BYTES, b"\0"), RECEIVED_AT)[0])
    return None


def _port(fd: int) -> int:
    """The port at this end of a link; 0 when it is none."""
    with contextlib.suppress(OSError), _socket(fd) as link:
        if link.family in (socket.AF_INET, socket.AF_INET6):
            link.getpeername()
            return int(link.getsockname()[1])
    return 0


def _shut_down(fd: int, inode: int) -> None:
    with contextlib.suppress(OSError), _socket(fd) as link:
        if _inode(link.fileno()) == inode:
            link.shutdown(socket.SHUT_RDWR)
