"""The agent's connection to its controller.

What is sent to a controller that is away queues without bound, and arrives as old news. So a connection
over which nothing has come for 3 s is replaced by a fresh one, and what was queued in the old one is gone:
reports are repeated anyway, gaps in samples show by their numbers, finished rows are sent again.

A new key in the agent's file gets a connection of its own beside the one that stands. Reports go over both, and the
first answer over the new one is the end of the old one: the controller never misses a heartbeat.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from headgate.agent.core.clock_offset import ClockOffset
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.platform import clock
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import LINGER_MS, ClientChannel
from headgate.topology_runtime.wire.messages import FromAgent, FromController, Report, Welcome
from headgate.topology_runtime.wire.wire_version import UNTOLD

NS = 1_000_000_000
SILENT_NS = 3 * NS
LOST_NS = 2 * NS  # after a silence this long, messages may have been lost on the way
IN_DOUBT_NS = 2 * NS  # those sent up to so long before the silence, too
FELT_NS = NS // 1000  # a change of the clock's offset that workers hear of
READ_MOST = 64  # messages taken in one turn

log = logging.getLogger("headgate.agent")


class Uplink:
    """One controller, by one connection at a time. contacts: where it is, or may be once it has moved: one after the
    other is tried. bad: messages that could not be read."""

    def __init__(self, contacts: Sequence[Contact], now_ns: int) -> None:
        self._contacts = deque(contacts)
        self._next: tuple[deque[Contact], ClientChannel[FromAgent, FromController]] | None = (
            None  # by a new key
        )
        self._came: list[bytes] = []  # before the connection was changed
        self.clock = ClockOffset()
        self.told_ns = 0  # what this process adds to its machine's clock
        self.bad = 0
        self.wire = UNTOLD  # what the controller speaks
        self._heard_ns = self._opened_ns = now_ns
        self._ever_heard = False
        self.channel = self._open()

    def _open(self) -> ClientChannel[FromAgent, FromController]:
        return ClientChannel(channels.from_controller, self._contacts[0])

    def send(self, message: FromAgent) -> None:
        """What is too long for the controller would cost the connection: it is left out, and said."""
        data = channels.encode(message)
        if len(data) > channels.FROM_AGENT_MAX_BYTES:
            log.error("a %s of %d bytes is too long and is not sent", type(message).__name__, len(data))
            return
        if isinstance(message, Report):
            self.clock.sent((message.boot, message.sequence), monotonic_ns())
        self.channel.send(data)
        if self._next is not None and isinstance(message, Report):
            self._next[1].send(data)

    def change_key(self, contacts: Sequence[Contact]) -> None:
        """To the same controller by another key, as soon as that answers by it. contacts: as they were given, but for
        the keys."""
        by_endpoint = {contact.endpoint: contact for contact in contacts}
        wanted = deque(by_endpoint[contact.endpoint] for contact in self._contacts)
        if wanted == self._contacts:
            return
        if self._next is not None:
            if wanted == self._next[0] and not self._next[1].refused:
                return
            self._next[1].close(linger_ms=0)
        self._next = wanted, ClientChannel(channels.from_controller, wanted[0])

    def _change(self) -> bool:
        """True when the controller has answered over the new connection: the old one is over."""
        if self._next is None or (first := self._next[1].receive_bytes()) is None:
            return False
        while (data := self.channel.receive_bytes()) is not None:
            self._came.append(data)
        self._came.append(first)
        self.channel.close()
        (self._contacts, self.channel), self._next = self._next, None
        log.info("the controller answers by the new key")
        return True

    def receive(self) -> list[tuple[FromController, bytes]]:
        """What has come, decoded and as bytes."""
        came: list[tuple[FromController, bytes]] = []
        for _ in range(READ_MOST):
            data = self._came.pop(0) if self._came else self.channel.receive_bytes()
            if data is None:
                break
            try:
                message = self.channel.decode(data)
            except BadMessage as error:
                if not self.bad:
                    log.error("a message of the controller could not be read: %s", error.cause)
                self.bad += 1
                continue
            if isinstance(message, Welcome):
                self.wire = message.protocol
                self.clock.answered(message.report, message.wall_ns, monotonic_ns())
            came.append((message, data))
        return came

    def correct_clock(self) -> bool:
        """Go by the controller's clock; True when that is a change which others must hear of."""
        offset_ns, _ = self.offset_ns()
        if abs(offset_ns - self.told_ns) < FELT_NS and (offset_ns == 0) == (self.told_ns == 0):
            return False
        log.info("this machine's clock is %.3f s from the controller's", -offset_ns / NS)
        self.told_ns = offset_ns
        clock.HERE.go_by(clock.HERE.own_ns + offset_ns)
        return True

    def offset_ns(self) -> tuple[int, int]:
        """What is to be added to what this machine's clock said when this process began, and by how much that may be
        wrong."""
        now_ns = monotonic_ns()
        return self.clock.offset_ns(now_ns, clock.HERE.own_ns + now_ns)

    def heard(self, now_ns: int) -> int | None:
        """The controller was heard: since when messages may have been lost, None when they were not."""
        silence_ns, since_ns = now_ns - self._heard_ns, self._heard_ns - IN_DOUBT_NS
        self._heard_ns, self._ever_heard = now_ns, True
        return since_ns if silence_ns >= LOST_NS else None

    def hears(self, now_ns: int) -> bool:
        """Was the controller heard just now, so that what is sent arrives?"""
        return self._ever_heard and now_ns - self._heard_ns < LOST_NS

    def refresh(self, now_ns: int) -> bool:
        """Replace the connection if nothing has come for too long, or a new key is let in; True when it was."""
        if self._change():
            return True
        if now_ns - max(self._heard_ns, self._opened_ns) < SILENT_NS:
            return False
        if self._opened_ns <= self._heard_ns:  # the first time in this silence
            why = "does not let this key in" if self.channel.refused else "does not answer"
            log.warning("the controller at %s %s", self._contacts[0].endpoint, why)
        self.channel.close(linger_ms=0)
        if self._next is not None:  # the old key may count no more
            self._next[1].close(linger_ms=0)
            (self._contacts, _), self._next = self._next, None
        self._contacts.rotate(-1)
        self.channel = self._open()
        self._opened_ns = now_ns
        return True

    def close(self) -> None:
        """Lets the last words leave, if there is somebody to hear them."""
        silent = monotonic_ns() - self._heard_ns >= SILENT_NS or not self._ever_heard
        self.channel.close(linger_ms=0 if silent else LINGER_MS)
        if self._next is not None:
            self._next[1].close(linger_ms=0)
