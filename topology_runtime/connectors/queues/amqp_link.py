"""A connection to a broker of AMQP 0-9-1 with one channel, which only moves when it is called.

pika's event loop is turned by hand here: its blocking connection waits for some answers without an end, and publishes
one confirmed message at a time.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress, waited_for
from headgate.topology_runtime.errors import HeadgateError, ServiceAway

PORTS = {"amqp": 5672, "amqps": 5671}
CONNECT_S, ANSWER_S, CLOSE_S = (
    4.0,
    6.0,
    1.5,
)  # to be there; to have answered all that is asked first; a call has 10 s
HEARTBEAT_S = 60
TCP = {"TCP_USER_TIMEOUT": 9000}
HINTS = {
    403: "look at user, password and the user's rights there",
    404: "make it there; it is tried again",
    405: "another connection has it for itself",
    530: "look at the virtual host in the url, and at the user's rights",
}


class AmqpLink:
    """Made anew after it broke. All calls in one thread."""

    def __init__(self, address: ServerAddress, heartbeat_s: int) -> None:
        self.address, self._heartbeat_s = address, heartbeat_s
        self.channel: Any = None
        self.number = 0  # of this connection
        self.ended: BaseException | None = None  # why it is no longer up
        self.blocked: str | None = None  # why the broker takes nothing now
        self._answered_until = 0.0
        self._loop: Any = None
        self._connection: Any = None

    @property
    def up(self) -> bool:
        return self.channel is not None and self.ended is None

    def connect(self) -> None:
        """A new connection with an open channel. Raises ServiceAway."""
        self.drop()
        with waited_for():
            self._connect()

    def _connect(self) -> None:
        pika = client_module()
        parameters = self._parameters(pika)
        self._loop = pika.adapters.select_connection.IOLoop()
        self._loop.activate_poller()
        self.number += 1
        self._answered_until = time.monotonic() + ANSWER_S
        opened: list[Any] = []
        connection = self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=opened.append,
            on_open_error_callback=self._on_end,
            on_close_callback=self._on_end,
            custom_ioloop=self._loop,
        )
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self.wait(lambda: opened, "opens no connection")
        channels: list[Any] = []
        channel = connection.channel(on_open_callback=channels.append)
        channel.add_on_close_callback(self._on_end)
        self.wait(lambda: channels, "opens no channel")
        self.channel = channel

    def _parameters(self, pika: Any) -> Any:
        address = self.address
        tls = address.tls
        return pika.ConnectionParameters(
            address.host,
            address.port,
            address.path or "/",
            pika.PlainCredentials(address.user or "guest", address.password() or "guest"),
            heartbeat=self._heartbeat_s,
            socket_timeout=CONNECT_S,
            stack_timeout=CONNECT_S,
            connection_attempts=1,
            ssl_options=pika.SSLOptions(tls.context(), address.host) if tls is not None else None,
            tcp_options=TCP,
            client_properties={"connection_name": "headgate"},
        )

    def turn(self, seconds: float = 0.0) -> None:
        """Read and write what can be; wait so long for it."""
        if self._loop is None:
            return
        alarm = self._loop.call_later(seconds, lambda: None)
        self._loop.poll()
        self._loop.remove_timeout(alarm)
        self._loop.process_timeouts()

    def wait(self, what: Callable[[], object], lacking: str) -> None:
        """Of a new connection: turn until `what` holds. Raises why it does not."""
        while not what():
            if self.ended is not None:
                raise self.lost()
            if time.monotonic() >= self._answered_until:
                self.drop()
                raise ServiceAway(f"{self.address} {lacking}", cause=f"no answer in {ANSWER_S:g} s")
            self.turn(0.1)

    def lost(self) -> HeadgateError:
        """Why it is no longer up; drops it."""
        error = innermost(self.ended) if self.ended is not None else None
        self.drop()
        if isinstance(error, ssl.SSLError) and self.address.tls is not None:
            return self.address.tls.explained(error, str(self.address))
        cause = self.address.said(error) if error is not None else None
        hint = HINTS.get(getattr(error, "reply_code", 0))
        return ServiceAway(f"no connection to {self.address}", cause=cause, hint=hint)

    def drop(self) -> None:
        """Without a word to the broker that could take long."""
        loop, self._loop = self._loop, None
        connection, self._connection, self.channel = self._connection, None, None
        self.ended = self.blocked = None
        if connection is not None:
            _end(connection, loop)

    def end(self, why: BaseException) -> None:
        """Take it for lost."""
        self.ended = self.ended or why

    def _on_end(self, _of: Any, error: BaseException) -> None:
        self.ended = self.ended or error

    def _on_blocked(self, _connection: Any, frame: Any) -> None:
        self.blocked = str(frame.method.reason)

    def _on_unblocked(self, _connection: Any, _frame: Any) -> None:
        self.blocked = None


def _end(connection: Any, loop: Any) -> None:
    from pika.exceptions import AMQPError

    if connection.is_open:  # closing one that opens is an AssertionError of pika; its own time-out ends that
        with suppress(AMQPError):
            connection.close()
    end = time.monotonic() + CLOSE_S
    while connection.is_closing and time.monotonic() < end:
        alarm = loop.call_later(0.05, lambda: None)
        loop.poll()
        loop.remove_timeout(alarm)
        loop.process_timeouts()
    loop.deactivate_poller()
    loop.close()


def innermost(error: BaseException) -> BaseException:
    """What pika's errors are about."""
    while True:
        inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args[:1]]
        found = [one for one in inner if isinstance(one, BaseException)]
        if not found:
            return error
        error = found[-1]


def client_module() -> Any:
    """The module of the client, which keeps its own words to itself. Raises InvalidInput where it is missing."""
    pika = needed("pika", "amqp")
    needed("pika.adapters.select_connection", "amqp")
    logger = logging.getLogger("pika")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # else each lost connection is many lines on standard error
    return pika
