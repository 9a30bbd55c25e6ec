"""Redis and AMQP on real servers: the scenarios of every connector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from redis import Redis as Client
from service_under_test import LOGIN, OnService

from headgate.testing import SinkUnderTest, SourceUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.under_test import MISSING
from real_services import RabbitMQ, Redis

pytestmark = pytest.mark.live
PLACE = "headgate.topology_runtime.connectors.queues"
Rows = Sequence[dict[str, Any]]


class Stream(OnService):
    kind = Redis

    @contextmanager
    def bare(self) -> Iterator[Any]:
        with Client(self.service.host, self.service.port, username=LOGIN.user, password=LOGIN.password) as to:
            yield to

    def params(self) -> dict[str, Any]:
        return super().params() | {"stream": self.name}


class RedisSource(Stream, SourceUnderTest):
    connector = f"{PLACE}.redis_source:RedisSource"
    flood = 2_000, 10_000

    def params(self) -> dict[str, Any]:
        return super().params() | {"field": "row", "group": "shown"}

    def produce(self, rows: Rows, partition: int = 0) -> None:
        self.send([json.dumps(row).encode() for row in rows])

    def send(self, values: Sequence[bytes]) -> None:
        with self.bare() as to:
            for first in range(0, len(values), 100):
                lines = to.pipeline(transaction=False)
                for value in values[first : first + 100]:
                    lines.xadd(self.name, {"row": value})
                lines.execute()

    def produce_bad(self) -> None:
        self.send([b'{"n": \xff'])

    def forget(self) -> None:
        with self.bare() as to:
            to.xtrim(self.name, maxlen=0, approximate=False)
        self.produce([{"n": -1, "text": ""}])

    def done(self, partition: int = 0) -> int:
        with self.bare() as to:
            groups = to.xinfo_groups(self.name)
        return int(groups[0]["entries-read"] or 0) if groups else 0

    def delete(self) -> None:
        with self.bare() as to:
            to.delete(self.name)


class RedisSink(Stream, SinkUnderTest):
    connector = f"{PLACE}.redis_sink:RedisSink"
    exactly_once = True

    def stored(self) -> list[int]:
        with self.bare() as to:
            return [int(fields[b"n"]) for _, fields in to.xrange(self.name)]

    def bad_row(self) -> Any:
        return {"n": None}


class Queue(OnService):
    kind = RabbitMQ

    def start(self) -> None:
        super().start()
        with self.bare() as channel:
            channel.queue_declare(self.name, durable=True)

    @contextmanager
    def bare(self) -> Iterator[Any]:
        """A channel of a connection of its own; what it took and did not acknowledge is in the queue again."""
        login = pika.PlainCredentials(LOGIN.user, LOGIN.password)
        place = pika.ConnectionParameters(self.service.host, self.service.port, credentials=login)
        connection = pika.BlockingConnection(place)
        try:
            yield connection.channel()
        finally:
            connection.close()

    def delete(self) -> None:
        with self.bare() as channel:
            channel.queue_delete(self.name)


class AmqpSource(Queue, SourceUnderTest):
    connector = f"{PLACE}.amqp_source:AmqpSource"
    exactly_once = False
    flood = 2_000, 10_000

    def params(self) -> dict[str, Any]:
        return super().params() | {"queue": self.name}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"queue": MISSING}

    def produce(self, rows: Rows, partition: int = 0) -> None:
        self.send([json.dumps(row).encode() for row in rows])

    def send(self, bodies: Sequence[bytes]) -> None:
        with self.bare() as channel:
            channel.confirm_delivery()
            for body in bodies:
                kept = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", self.name, body, kept, mandatory=True)

    def produce_bad(self) -> None:
        self.send([b'{"n": \xff'])


class AmqpSink(Queue, SinkUnderTest):
    connector = f"{PLACE}.amqp_sink:AmqpSink"

    def params(self) -> dict[str, Any]:
        return super().params() | {"routing_key": "{to}"}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"routing_key": MISSING}

    def row(self, row: dict[str, Any]) -> Any:
        return row | {"to": self.name}

    def stored(self) -> list[int]:
        with self.bare() as channel:
            found = iter(lambda: channel.basic_get(self.name)[2], None)
            return [json.loads(body)["n"] for body in found]

    def bad_row(self) -> Any:
        return {"n": 1, "to": MISSING}


TestRedisSource = scenarios(RedisSource)
TestRedisSink = pytest.mark.full(scenarios(RedisSink))
TestAmqpSource = pytest.mark.full(scenarios(AmqpSource))
TestAmqpSink = pytest.mark.full(scenarios(AmqpSink))
