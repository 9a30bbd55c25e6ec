"""Exchanges of RabbitMQ (AMQP 0-9-1) as sinks: a row is done when the broker has confirmed it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.messaging.message_params import PlaceOf, format_of
from headgate.topology_runtime.connectors.queues.amqp_link import (
    HEARTBEAT_S,
    PORTS,
    AmqpLink,
    client_module,
    innermost,
)
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

WRITE_S, BLOCKED_S = 8.0, 3.0  # of a call of 10 s; while the broker takes nothing
QUEUES_BACK_S = 60.0  # after it was away: its queues may come later than it does
SENT_MOST, SENT_BYTES = 1000, 4 << 20  # that are not confirmed
REMEMBERED = 10_000  # rows of calls that failed, which are not sent again
KEY_MOST_BYTES = 255
TOO_LARGE = 406


class Message(NamedTuple):
    name: str
    key: str
    body: bytes


class AmqpSink(Sink[Any]):
    """Rows as persistent messages, at least once: after a lost connection rows may come again, with the same
    `message_id`, by which readers may tell.

    url: amqp://host:5672/vhost or amqps://…. exchange: of the broker, there already; left out, routing_key is the name
    of a queue. routing_key: may have fields of the row in it (`plant.{machine}`). format: json, … or its options.

    A message that no queue takes is an error of its row (a dead letter). server: user, password, tls (see `Tls`).
    Raises InvalidInput; BadRow; ServiceAway while there is no broker or exchange, a queue refuses (it is full), or
    memory or disk are short there.

    >>> AmqpSink("amqp://localhost", routing_key="clicks").exchange
    ''
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        *,
        routing_key: str,
        exchange: str = "",
        format: str | Mapping[str, Any] = "json",
        heartbeat_s: int = HEARTBEAT_S,
        **server: Any,
    ) -> None:
        faults = []
        for name, value in (("exchange", exchange), ("routing_key", routing_key)):
            if not isinstance(value, str) or len(value.encode()) > KEY_MOST_BYTES:
                faults.append(f"{name}: text of at most {KEY_MOST_BYTES} bytes")
        if not exchange and not routing_key:
            faults.append("routing_key: the name of a queue, or give an exchange")
        if type(heartbeat_s) is not int or not 1 <= heartbeat_s <= 3600:
            faults.append("heartbeat_s: 1 to 3600")
        if faults:
            raise InvalidInput("invalid AmqpSink", faults=faults)
        self.exchange, self._key = exchange, PlaceOf(routing_key, lambda part: True)
        self._format = format_of(format)
        self._link = AmqpLink(ServerAddress.of(url, PORTS, server), heartbeat_s)
        self._sent: dict[int, tuple[str, int]] = {}  # name and size by tag, on this connection; not confirmed
        self._sent_bytes = self._tag = 0
        self._connects, self._since_s = 0, 0.0
        self._done: dict[str, None] = {}  # of calls that failed
        self._refused: set[str] = set()  # by a queue
        self._returned: dict[str, str] = {}  # no queue takes them; and why

    def open(self, context: Context) -> None:
        self._pika = client_module()
        self._connect()

    def close(self) -> None:
        self._link.drop()
        self._format.close()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        messages = [self._message(row, str(name)) for row, name in zip(rows, ids, strict=True)]
        end = time.monotonic() + WRITE_S
        self._link.turn()  # was it closed meanwhile?
        if not self._link.up:
            self._connect()
        self._send(messages, end)
        names = [one.name for one in messages]
        refused = [name for name in names if name in self._refused]
        self._refused.difference_update(refused)
        if refused:
            hint = "it is full (x-max-length, reject-publish); messages are sent again"
            raise ServiceAway(f"a queue at {self._link.address} refuses {len(refused):,} rows", hint=hint)
        returned = [name for name in names if name in self._returned]
        if returned:
            for name in returned:
                self._done.pop(name, None)  # it is sent again
            reasons = [self._returned.pop(name) for name in returned]
            if self._connects > 1 and time.monotonic() - self._since_s < QUEUES_BACK_S:
                what = f"{self._link.address} is back, and no queue takes {reasons[0]}"
                raise ServiceAway(what, hint="a broker that starts may not have its queues yet")
            hint = "bind a queue to the exchange by that key"
            raise BadRow(f"no queue at {self._link.address} takes {reasons[0]}", hint=hint)
        for name in names:
            self._done.pop(name, None)

    def _message(self, row: Any, name: str) -> Message:
        key, body = self._key(row), self._format.encode(row)
        if len(key.encode()) > KEY_MOST_BYTES:
            raise BadRow(f"$: its routing key has more than {KEY_MOST_BYTES} bytes", cause=key[:100])
        return Message(name, key, body)

    def _send(self, messages: Sequence[Message], end: float) -> None:
        """Return when each is confirmed, refused or returned. What is under way from a call before is waited for."""
        under_way = {name for name, _ in self._sent.values()}
        waiting = deque(one for one in messages if one.name not in self._done and one.name not in under_way)
        missing = {one.name for one in messages} - self._done.keys()
        blocked_since: float | None = None
        while missing:
            while waiting and self._link.blocked is None and self._room():
                self._publish(waiting.popleft())
            self._link.turn(0.05)
            missing -= self._done.keys() | self._refused
            if not self._link.up:
                raise self._lost()
            now = time.monotonic()
            blocked_since = None if self._link.blocked is None else blocked_since or now
            if blocked_since is not None and now - blocked_since > BLOCKED_S:
                what = f"{self._link.address} takes no messages now"
                raise ServiceAway(what, cause=self._link.blocked, hint="look at its memory and disk")
            if now > end:
                raise ServiceAway(f"{self._link.address} does not confirm {len(missing):,} rows")

    def _room(self) -> bool:
        return len(self._sent) < SENT_MOST and self._sent_bytes < SENT_BYTES

    def _publish(self, message: Message) -> None:
        properties = self._pika.BasicProperties(message_id=message.name, delivery_mode=2)
        self._tag += 1
        self._sent[self._tag] = message.name, len(message.body)
        self._sent_bytes += len(message.body)
        self._link.channel.basic_publish(self.exchange, message.key, message.body, properties, mandatory=True)

    def _connect(self) -> None:
        self._sent.clear()
        self._connects, self._since_s = self._connects + 1, time.monotonic()
        self._sent_bytes = self._tag = 0
        self._link.connect()
        agreed: list[Any] = []
        channel = self._link.channel
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=agreed.append)
        self._link.wait(lambda: agreed, "confirms nothing")

    def _lost(self) -> Exception:
        error = innermost(self._link.ended) if self._link.ended is not None else None
        if getattr(error, "reply_code", 0) == TOO_LARGE:
            self._link.drop()
            return BadRow(f"{self._link.address} does not take a message", cause=str(error))
        return self._link.lost()

    # ── called by the client, from `turn` ───────────────────────────────────────────────────────

    def _on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """Comes before the message is confirmed."""
        at = f"exchange {method.exchange!r}" if method.exchange else "the default exchange"
        self._returned[str(properties.message_id)] = f"key {method.routing_key!r} of {at}"

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        tags = (
            [tag for tag in self._sent if tag <= method.delivery_tag]
            if method.multiple
            else [method.delivery_tag]
        )
        good = isinstance(method, self._pika.spec.Basic.Ack)
        for tag in tags:
            name, size = self._sent.pop(tag, ("", 0))
            self._sent_bytes -= size
            if name and good:
                self._done[name] = None
            elif name:
                self._refused.add(name)
        while len(self._done) > REMEMBERED + SENT_MOST:
            del self._done[next(iter(self._done))]
