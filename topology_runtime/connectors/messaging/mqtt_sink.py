"""A topic of MQTT as a sink: a row is done when the broker has confirmed it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.messaging import mqtt_client as mqtt
from headgate.topology_runtime.connectors.messaging.message_params import ID, PlaceOf, format_of
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput, ServiceAway

WRITE_S, STALLED_S = 8.0, 4.0  # of a call of 10 s; without a sign of the broker
UNCONFIRMED_MOST = 1000  # and no more than the broker takes
REMEMBERED = 10_000  # rows of calls that failed, which are not sent again
TOO_MANY = 15  # paho's code: not taken, try again
PACKET_MORE = 512  # bytes around topic, name and payload
OF_THE_ROW = {0x90, 0x95, 0x99}  # topic, size, format
NOT_ALLOWED = 0x87
Message = tuple[RowId, str, bytes]


class MqttSink(Sink[Any]):
    """Rows as messages of QoS 1, at least once: after a kill rows may come again, with the same name in user property
    `headgate-id`.

    url: mqtt://host:1883 or mqtts://…. topic: may have fields of the row in it (`plant/{machine}/state`). retain: the
    broker keeps the last of each topic. client_id: of this sink only; each thread adds its number. format: json, … or
    its options. connection: user, password, tls (see `Tls`).

    Raises InvalidInput; ServiceAway while the broker does not confirm; BadRow for a row that it cannot take.

    >>> MqttSink("mqtt://localhost", "plant/{machine}/state").retain
    False
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        retain: bool = False,
        client_id: str | None = None,
        format: str | Mapping[str, Any] = "json",
        **connection: Any,
    ) -> None:
        faults = mqtt.faults_of(url, connection)
        if not isinstance(topic, str) or not topic or set(topic) & set("+#\0"):
            faults.append("topic: without + and #; fields of the row as {name}")
        if client_id is not None and (not isinstance(client_id, str) or not client_id):
            faults.append("client_id: a name of its own for this sink")
        if type(retain) is not bool:
            faults.append("retain: true or false")
        if faults:
            raise InvalidInput("invalid MqttSink", faults=faults)
        self.retain, self._id = retain, client_id
        self._topic = PlaceOf(topic, lambda part: not set(part) & set("/+#\0"))
        self._format = format_of(format)
        self._link = mqtt.MqttLink(url, **connection)
        self._link.on_publish = self._answered
        self._sent: dict[int, RowId] = {}  # by mid, on this connection; not confirmed
        self._done: dict[RowId, None] = {}  # of calls that failed
        self._failed: dict[RowId, Any] = {}  # with the broker's reason
        self._window, self._most_bytes = UNCONFIRMED_MOST, 0

    def open(self, context: Context) -> None:
        self._name = f"{self._id}-{context.partition}" if self._id else ""
        mqtt.paho()
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self._properties = partial(Properties, PacketTypes.PUBLISH)
        self._connect()

    def close(self) -> None:
        self._link.close()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        messages = [self._message(row, name) for row, name in zip(rows, ids, strict=True)]
        try:
            self._write(messages)
        except InvalidInput as error:  # of the service, not of a row
            raise ServiceAway(error.what, cause=error.cause, hint=error.hint) from error
        self._raise([name for name, _, _ in messages])
        for name in ids:
            self._done.pop(name, None)

    def _message(self, row: Any, name: RowId) -> Message:
        topic, data = self._topic(row), self._format.encode(row)
        size = len(topic.encode()) + len(data) + len(str(name)) + PACKET_MORE
        if self._most_bytes and size > self._most_bytes:
            raise BadRow(f"$: {size:,} bytes are more than {self._link.where} takes, {self._most_bytes:,}")
        if len(topic.encode()) > mqtt.ID_MOST_BYTES:
            raise BadRow(f"$: its topic has {len(topic):,} characters")
        return name, topic, data

    def _write(self, messages: Sequence[Message]) -> None:
        if not self._link.up:
            self._connect()
        under_way = set(self._sent.values())
        waiting = deque(one for one in messages if one[0] not in self._done and one[0] not in under_way)
        missing = {one[0] for one in messages}
        heard, end = time.monotonic(), time.monotonic() + WRITE_S
        while True:
            while waiting and len(self._sent) < self._window and self._publish(*waiting[0]):
                waiting.popleft()
            missing -= self._done.keys() | self._failed.keys()
            if not missing:
                return
            before = len(self._sent)
            if not self._link.turn(0.1):
                self._sent.clear()
                raise self._link.lost()
            now = time.monotonic()
            heard = now if len(self._sent) < before else heard
            if now > end or now - heard > STALLED_S:
                raise self._late(now - heard > STALLED_S, len(missing))

    def _late(self, stalled: bool, missing: int) -> HeadgateError:
        if stalled:
            self._link.drop()
            self._sent.clear()
        return ServiceAway(f"the MQTT broker at {self._link.where} does not confirm {missing:,} rows")

    def _publish(self, name: RowId, topic: str, data: bytes) -> bool:
        """False: try again. While the connection breaks, paho says an error and keeps the message."""
        properties = self._properties()
        properties.UserProperty = [(ID, str(name))]
        info = self._link.client.publish(topic, data, 1, self.retain, properties)
        if info.rc == TOO_MANY:
            return False
        self._sent[info.mid] = name
        return True

    def _answered(self, mid: int, reason: Any) -> None:
        """Called by the client, from `turn`."""
        name = self._sent.pop(mid, None)
        if name is None:
            return
        if reason.value >= mqtt.REFUSED:
            self._failed[name] = reason
            return
        self._done[name] = None
        if len(self._done) > REMEMBERED + UNCONFIRMED_MOST:
            del self._done[next(iter(self._done))]

    def _raise(self, names: Sequence[RowId]) -> None:
        failed = [reason for name in names if (reason := self._failed.pop(name, None)) is not None]
        if not failed:
            return
        of_the_row = OF_THE_ROW | ({NOT_ALLOWED} if self._topic.fields else set())
        others = [reason for reason in failed if reason.value not in of_the_row]
        if others:
            error = self._link.refused("the broker does not take rows", others[0])
            raise ServiceAway(error.what, cause=error.cause, hint=error.hint)
        raise BadRow(f"$: refused by {self._link.where}", cause=str(failed[0]))

    def _connect(self) -> None:
        self._sent.clear()
        self._link.connect(self._name, True, {}, self._note)

    def _note(self, answer: Any) -> None:
        """What the broker takes."""
        _, more = answer
        self._window = min(UNCONFIRMED_MOST, getattr(more, "ReceiveMaximum", UNCONFIRMED_MOST))
        self._most_bytes = getattr(more, "MaximumPacketSize", 0)
        if getattr(more, "MaximumQoS", 1) < 1:
            raise InvalidInput(
                f"the broker at {self._link.where} confirms nothing", cause="its QoS is 0 at most"
            )
        if self.retain and not getattr(more, "RetainAvailable", 1):
            raise InvalidInput(f"the broker at {self._link.where} retains nothing", hint="retain=false")
