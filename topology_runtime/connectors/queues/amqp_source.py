"""A queue of RabbitMQ (AMQP 0-9-1) as a source: messages are acknowledged once they are on the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from headgate.topology_runtime.api.logic import Context, LiveSource
from headgate.topology_runtime.connectors.formats.format import must_be_plain
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.connectors.queues.amqp_link import HEARTBEAT_S, PORTS, AmqpLink, client_module
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

PREFETCH = 500
TURNS_MOST = 100  # of one call


class AmqpSource(LiveSource[Any]):
    """Messages of a queue, at least once. Threads, and other consumers, share them.

    url: amqp://host:5672/vhost or amqps://…. The queue is there already. prefetch: so many messages are with a thread
    and not acknowledged. format: json, … or its options. with_metadata: each row is a dict of value, redelivered (it
    may have come before), exchange, routing_key, message_id, content_type, timestamp and headers. heartbeat_s: when
    rows wait for longer than about twice that, the broker gives what was not acknowledged to others, and the next call
    connects again.

    server: user, password, tls (see `Tls`). Raises InvalidInput, or ServiceAway while there is no broker or queue.

    >>> AmqpSource("amqp://localhost", "clicks").queue
    'clicks'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        prefetch: int = PREFETCH,
        format: str | Mapping[str, Any] = "json",
        with_metadata: bool = False,
        heartbeat_s: int = HEARTBEAT_S,
        **server: Any,
    ) -> None:
        faults = []
        if not isinstance(queue, str) or not 1 <= len(queue.encode()) <= 255:
            faults.append("queue: a name of 1 to 255 bytes")
        if type(prefetch) is not int or not 1 <= prefetch <= 65535:
            faults.append("prefetch: 1 to 65535")
        if type(heartbeat_s) is not int or not 1 <= heartbeat_s <= 3600:
            faults.append("heartbeat_s: 1 to 3600")
        if faults:
            raise InvalidInput("invalid AmqpSource", faults=faults)
        self.queue, self._prefetch, self._with_metadata = queue, prefetch, with_metadata
        self._format = format_of(format)
        self._link = AmqpLink(ServerAddress.of(url, PORTS, server), heartbeat_s)
        self._came: deque[tuple[Any, Any, bytes]] = deque()
        self._given: deque[tuple[int, int]] = (
            deque()
        )  # connection and tag of rows that are not on the disk yet
        self._durable = 0

    def open(self, context: Context) -> None:
        client_module()
        self._connections = context.metrics.counter("connections")

    def close(self) -> None:
        self._link.drop()
        self._format.close()

    def poll(self, limit: int) -> Sequence[Any]:
        self._link.turn()
        if not self._link.up:
            self._consume()
        for _ in range(TURNS_MOST):
            before = len(self._came)
            if before >= limit or not self._link.up:
                break
            self._link.turn()
            if len(self._came) == before:
                break
        return self._rows(limit)

    def durable(self, rows: int) -> None:
        last = 0
        while self._durable < rows and self._given:
            number, tag = self._given.popleft()
            self._durable += 1
            last = tag if number == self._link.number else last
        if last and self._link.up:
            self._link.channel.basic_ack(last, multiple=True)
            self._link.turn()  # sent even if no more rows are asked for

    def _consume(self) -> None:
        """What was not acknowledged comes again."""
        self._came.clear()
        self._link.connect()
        self._connections.add()
        channel = self._link.channel
        steps: list[Any] = []
        channel.add_on_cancel_callback(self._cancelled)
        channel.queue_declare(self.queue, passive=True, callback=steps.append)
        self._link.wait(lambda: len(steps) > 0, f"does not say whether it has queue {self.queue}")
        channel.basic_qos(prefetch_count=self._prefetch, callback=steps.append)
        self._link.wait(lambda: len(steps) > 1, "does not answer to a prefetch")
        channel.basic_consume(self.queue, self._on_message, callback=steps.append)
        self._link.wait(lambda: len(steps) > 2, f"does not let us consume queue {self.queue}")

    def _on_message(self, _channel: Any, delivery: Any, properties: Any, body: bytes) -> None:
        self._came.append((delivery, properties, body))

    def _cancelled(self, _frame: Any) -> None:
        self._link.end(ConnectionError(f"the broker has cancelled the consumer of {self.queue}"))

    def _rows(self, limit: int) -> list[Any]:
        rows: list[Any] = []
        while self._came and len(rows) < limit:
            delivery, properties, body = self._came[0]
            try:
                rows.append(self._row(delivery, properties, body))
            except ServiceAway:
                if rows:
                    break  # the next call says so
                raise
            self._came.popleft()
            self._given.append((self._link.number, delivery.delivery_tag))
        return rows

    def _row(self, delivery: Any, properties: Any, body: bytes) -> Any:
        """A row, or why it is none."""
        try:
            value = self._format.decode(body)
            if not self._with_metadata:
                return value
            row = {
                "value": value,
                "redelivered": bool(delivery.redelivered),
                "exchange": delivery.exchange,
                "routing_key": delivery.routing_key,
                "message_id": properties.message_id,
                "content_type": properties.content_type,
                "timestamp": properties.timestamp,
                "headers": plain(properties.headers or {}),
            }
            must_be_plain(row)
            return row
        except BadRow as bad:
            return bad


def plain(value: Any) -> Any:
    """A header as rows may have it: decimal numbers as text, moments in UTC.

    >>> plain({"price": Decimal("1.50")})
    {'price': '1.50'}
    """
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value
