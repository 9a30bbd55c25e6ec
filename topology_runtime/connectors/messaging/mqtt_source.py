"""Topics of MQTT as a source: messages are confirmed once they are on the disk."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from headgate.topology_runtime.api.logic import Context, LiveSource
from headgate.topology_runtime.connectors.messaging import mqtt_client as mqtt
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

NEVER_RETAINED = 2  # shared subscriptions would get each retained message at each subscribe
RECEIVE_MOST = 256  # messages that are not confirmed yet
CALL_BYTES = 4 << 20  # of one call, about
SESSION_S = 7 * 86400  # how long the broker keeps what comes while we are away
PROPERTIES = (
    "PayloadFormatIndicator",
    "MessageExpiryInterval",
    "ContentType",
    "ResponseTopic",
    "CorrelationData",
    "UserProperty",
)


class MqttSource(LiveSource[Any]):
    """Messages of a topic filter, at least once (qos 1) or as they come (qos 0), by MQTT 5.

    url: mqtt://host:1883 or mqtts://…. client_id: of this source of this run only; each thread adds its number. The
    broker keeps for this name what comes while we are away, for a week. group: of a shared subscription;
    several threads share one anyway, called `client_id` unless given. Mosquitto 2.0 forgets shared ones when it
    restarts, until we are back. format: json, … or its options. with_metadata: each row is a dict of value, topic, qos,
    retain and properties. connection: user, password, tls (see `Tls`).

    Retained messages are not read. Raises InvalidInput, or ServiceAway while no broker answers.

    >>> MqttSource("mqtt://localhost", "plant/+/state", client_id="plant").topic
    'plant/+/state'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        client_id: str,
        group: str | None = None,
        qos: int = 1,
        format: str | Mapping[str, Any] = "json",
        with_metadata: bool = False,
        **connection: Any,
    ) -> None:
        faults = mqtt.faults_of(url, connection) + _faults(topic, client_id, group, qos)
        if faults:
            raise InvalidInput("invalid MqttSource", faults=faults)
        self.topic, self._id, self._group, self._qos = topic, client_id, group, qos
        self._with_metadata = with_metadata
        self._format = format_of(format)
        self._link = mqtt.MqttLink(url, **connection)
        self._link.on_message = lambda message: self._came.append((self._link.number, message))
        self._came: deque[tuple[int, Any]] = deque()  # behind the number of their connection
        self._given: deque[tuple[int, int]] = (
            deque()
        )  # connection and mid of what is not confirmed; mid 0: none
        self._confirmed = 0
        self._subscribed = False  # once, since it was built

    def open(self, context: Context) -> None:
        self._name = f"{self._id}-{context.partition}"
        self._shared = context.partitions > 1 or self._group is not None
        self._lost = context.metrics.counter("sessions_lost")
        mqtt.paho()

    def close(self) -> None:
        self._link.close()

    def poll(self, limit: int) -> Sequence[Any]:
        if not self._link.up:
            self._link.raise_end()
            self._connect()
        size = 0
        while len(self._came) < limit and size < CALL_BYTES:
            before = len(self._came)
            if not self._link.turn() or len(self._came) == before:
                break
            size += sum(len(message.payload) for _, message in islice(self._came, before, None))
        return self._rows(limit)

    def durable(self, rows: int) -> None:
        while self._confirmed < rows and self._given:
            number, mid = self._given.popleft()
            self._confirmed += 1
            if mid and number == self._link.number and self._link.up:
                self._link.client.ack(mid, 1)

    # ── the connection ──────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        """What was not given comes again with the session."""
        self._came = deque(one for one in self._came if one[1].qos == 0)
        again = self._link.number > 0 and self._subscribed
        properties = {"SessionExpiryInterval": SESSION_S, "ReceiveMaximum": RECEIVE_MOST}
        self._link.connect(self._name, False, properties, lambda answer: self._subscribe(answer, again))

    def _subscribe(self, answer: Any, again: bool) -> None:
        """Each time: a broker that was killed may have lost the session."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        session_present, more = answer
        if again and not session_present:
            self._lost.add()
            text = "the broker no longer has the session: what came meanwhile is lost"
            print(f"{self._name} at {self._link.where}: {text}", file=sys.stderr, flush=True)
        if self._shared and not getattr(more, "SharedSubscriptionAvailable", 1):
            what = f"the broker at {self._link.where} has no shared subscriptions"
            raise InvalidInput(what, hint="threads share a topic by them: use another broker")
        answers: list[Any] = []
        client = self._link.client
        client.on_subscribe = lambda _client, _data, _mid, reasons, _more: answers.extend(reasons)
        options = SubscribeOptions(qos=self._qos, retainHandling=NEVER_RETAINED)
        shared = f"$share/{self._group or self._id}/{self.topic}"
        wanted, other = (shared, self.topic) if self._shared else (self.topic, shared)
        client.subscribe(wanted, options=options)
        self._link.wait(lambda: answers, "does not answer to SUBSCRIBE")
        reason = answers[0]
        if reason.value >= mqtt.REFUSED:
            raise self._link.refused(f"the broker refuses to give {self.topic}", reason)
        if reason.value < self._qos:
            what = f"the broker at {self._link.where} gives {self.topic} with QoS {reason.value} only"
            raise InvalidInput(what, hint=f"qos={reason.value}: messages may get lost then")
        client.unsubscribe(other)  # of a start with fewer or more threads
        self._subscribed = True

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, limit: int) -> list[Any]:
        rows: list[Any] = []
        while self._came and len(rows) < limit:
            number, message = self._came[0]
            try:
                rows.append(self._row(message))
            except ServiceAway:
                if rows:
                    break  # the next call says so
                raise
            self._came.popleft()
            self._given.append((number, message.mid if message.qos else 0))
        return rows

    def _row(self, message: Any) -> Any:
        """A row, or why it is none."""
        try:
            value = self._format.decode(message.payload)
            if not self._with_metadata:
                return value
            return {
                "value": value,
                "topic": message.topic,
                "qos": message.qos,
                "retain": bool(message.retain),
                "properties": _properties(message.properties),
            }
        except BadRow as bad:
            return bad
        except UnicodeDecodeError as error:
            return BadRow("$: its topic is no UTF-8", cause=str(error))


def _properties(found: Any) -> dict[str, Any]:
    there = {name: getattr(found, name) for name in PROPERTIES if hasattr(found, name)}
    if "UserProperty" in there:
        there["UserProperty"] = [list(pair) for pair in there["UserProperty"]]
    return there


def _faults(topic: Any, client_id: Any, group: Any, qos: Any) -> list[str]:
    faults = []
    if not isinstance(topic, str) or not topic or not _is_filter(topic):
        faults.append("topic: a filter such as 'plant/+/state' or 'plant/#'")
    elif topic.startswith("$share/"):
        faults.append("topic: without $share; threads share it anyway, as `group`")
    if not isinstance(client_id, str) or not client_id or len(client_id.encode()) > mqtt.ID_MOST_BYTES:
        faults.append("client_id: a name of its own for this source of this run")
    named = group if group is not None else client_id
    if not isinstance(named, str) or not named or set(named) & set("/+#"):
        faults.append("group: a name without / + #; it is `client_id` unless given")
    if type(qos) is not int or qos not in (0, 1):
        faults.append("qos: 0 or 1; with 2 the broker would have to keep rows that are on the disk already")
    return faults


def _is_filter(topic: str) -> bool:
    levels = topic.split("/")
    whole = all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
    return whole and "#" not in levels[:-1]
