"""A topic of Kafka as a sink: a row is done when the brokers have confirmed it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.messaging import kafka_client as kafka
from headgate.topology_runtime.connectors.messaging.message_params import format_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

OWN = {
    "bootstrap.servers": "`servers`",
    "enable.idempotence": "this sink",
    "acks": "this sink",
    "delivery.timeout.ms": "this sink",
    "message.timeout.ms": "this sink",
    "delivery.report.only.error": "this sink",
    "transactional.id": "nobody: rows are written without transactions",
}
SETTINGS = {"linger.ms": 50, "partitioner": "murmur2_random", "queue.buffering.max.messages": 100_000}
HEADER = "headgate-id"
WRITE_S, SERVE_S, CLOSE_S = (
    8.0,
    0.1,
    3.0,
)  # of a call of 10 s; between two looks at it; until what waits is given up
OF_THE_ROW = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD", "INVALID_TIMESTAMP"}


class KafkaSink(Sink[Any]):
    """Rows into one topic, at least once: after a kill rows may come again, with the same name in header
    `headgate-id`.

    servers: "host:9092,…". key: the field whose value is the message's key; equal keys go to one partition, chosen as
    Java's client does (`murmur2_random`). format: json, … or its options. tls: see `Tls`. options: of librdkafka.

    Raises InvalidInput; ServiceAway while no broker confirms; BadRow for a row that is too large.

    >>> KafkaSink("localhost:9092", "clicks", key="user").key
    'user'
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: str | None = None,
        format: str | Mapping[str, Any] = "json",
        tls: Mapping[str, Any] | bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        faults = kafka.faults_of(servers, topic, options or {}, OWN)
        if key is not None and not isinstance(key, str):
            faults.append("key: the name of a field")
        if faults:
            raise InvalidInput("invalid KafkaSink", faults=faults)
        self.key = key
        self._servers, self._topic, self._options = servers, topic, dict(options or {})
        self._format, self._tls = format_of(format), Tls.of(tls)
        self._producer: Any = None
        self._sent: set[RowId] = set()  # given to the producer, by calls that did not return
        self._failed: dict[RowId, Any] = {}  # of these, what the brokers said

    def open(self, context: Context) -> None:
        self._kafka = kafka.confluent()
        self._where = f"topic {self._topic} at {self._servers}"
        self._said = kafka.ClientErrors()
        self._connect()
        serve = partial(self._producer.poll, 0)
        if self._topic not in kafka.topics(
            self._producer, self._said, serve, self._where
        ):  # one may be made by asking
            raise kafka.no_topic(self._where)

    def _connect(self) -> None:
        own = {
            "enable.idempotence": True,
            "message.timeout.ms": 0,  # it never gives up: whether a row got there would not be known
            "delivery.report.only.error": True,
            "error_cb": self._said,
        }
        config = kafka.settings(self._servers, self._tls, SETTINGS | self._options | own)
        self._producer = kafka.made(self._kafka.Producer, config)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if len(producer) and (self._said.down or producer.flush(CLOSE_S)):
            producer.purge(blocking=False)  # not confirmed: they come again
            producer.flush(CLOSE_S)

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        new = [(name, row) for name, row in zip(ids, rows, strict=True) if name not in self._sent]
        keys = [self._key(row) for _, row in new]
        values = iter(self._format.encode_all([row for _, row in new if row is not None]))
        end = time.monotonic() + WRITE_S
        try:
            for (name, row), key in zip(new, keys, strict=True):
                self._produce(name, key, None if row is None else next(values), end)
            while self._producer.flush(SERVE_S):
                self._wait(end)
        except self._kafka.KafkaException as raised:
            self._replace()
            raise self._refused(kafka.error_of(raised)) from raised
        self._said.served()
        self._raise(ids)
        self._sent.difference_update(ids)

    def _key(self, row: Any) -> bytes | None:
        if self.key is None:
            return None
        try:
            found = row[self.key]
        except (TypeError, LookupError) as error:
            raise BadRow(f"$: no field {self.key!r} for the key") from error
        if found is None or isinstance(found, bytes):
            return found
        return str(found).encode()

    def _produce(self, name: RowId, key: bytes | None, value: bytes | None, end: float) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    headers=[(HEADER, str(name))],
                    on_delivery=partial(self._told, name),
                )
            except BufferError:  # its queue is full
                self._producer.poll(SERVE_S)
                self._wait(end)
                continue
            except self._kafka.KafkaException as raised:
                self._failed[name] = kafka.error_of(raised)
            self._sent.add(name)
            return

    def _told(self, name: RowId, error: Any, message: Any) -> None:
        """Called by the client, in the thread of the sink, for what it could not deliver."""
        self._failed[name] = error

    def _wait(self, end: float) -> None:
        if self._said.down or time.monotonic() >= end:
            raise self._away(None)

    def _away(self, error: Any) -> ServiceAway:
        found = self._said.trouble(self._where, error)
        if isinstance(found, ServiceAway):
            return found
        return ServiceAway(found.what, cause=found.cause, hint=found.hint)

    def _raise(self, ids: Sequence[RowId]) -> None:
        """What failed of these rows is to be sent anew; if it is a row's own fault, it is told as such."""
        failed = {name: error for name in ids if (error := self._failed.pop(name, None)) is not None}
        if not failed:
            return
        self._sent.difference_update(failed)
        others = [error for error in failed.values() if error.name() not in OF_THE_ROW]
        if not others:
            error = next(iter(failed.values()))
            raise BadRow(f"$: refused by {self._where}", cause=one_line(error.str()))
        if any(error.fatal() or error.name() == "_FATAL" for error in others):
            self._replace()
        raise self._refused(others[0])

    def _refused(self, error: Any) -> ServiceAway:
        return ServiceAway(f"{self._where} does not take rows", cause=one_line(error.str()))

    def _replace(self) -> None:
        """The producer has failed for good: another takes all that is not confirmed anew."""
        self.close()
        self._sent.clear()
        self._failed.clear()
        self._connect()
