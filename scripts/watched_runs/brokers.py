"""Brokers between a counted run and its checker: each with the params of its source and its sink, and bare clients that
put numbered rows in and read all that is there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from emulated_services.mock_kafka import MockKafka
from real_services import Mosquitto, Nats, RabbitMQ, Redis, Service

NAME = "rows"
AWAY_S, PATIENCE_S = 2.0, 60.0
TOGETHER = 500
Rows = Iterable[dict[str, int]]


def batched(rows: Rows, most: int = TOGETHER) -> Iterator[list[dict[str, int]]]:
    rest = iter(rows)
    while some := list(islice(rest, most)):
        yield some


class Broker(ABC):
    """`with`: it runs."""

    source = sink = ""  # classes of headgate.connectors
    source_params: dict[str, Any]
    sink_params: dict[str, Any]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None: ...
    @abstractmethod
    def stop(self) -> None:
        """Also one that did not start whole."""

    @abstractmethod
    def kill(self) -> None:
        """It is away for a while, and keeps what it has confirmed."""

    @abstractmethod
    def put(self, rows: Rows) -> None: ...
    @abstractmethod
    def found(self) -> Iterator[dict[str, Any]]:
        """All rows that are there."""


class OnService(Broker):
    kind: type[Service]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.service = self.kind(folder / "service")

    def start(self) -> None:
        self.folder.chmod(0o711)
        self.service.start()

    def stop(self) -> None:
        self.service.close()

    def kill(self) -> None:
        self.service.kill()
        time.sleep(AWAY_S)
        self.service.start_again()


class OfRedis(OnService):
    kind, source, sink = Redis, "RedisSource", "RedisSink"

    def start(self) -> None:
        super().start()
        self.sink_params = {"url": self.service.url, "stream": NAME, "field": "row"}
        self.source_params = self.sink_params

    @contextmanager
    def bare(self) -> Iterator[Any]:
        from redis import Redis as Client

        with Client(self.service.host, self.service.port) as client:
            yield client

    def put(self, rows: Rows) -> None:
        with self.bare() as client:
            for some in batched(rows):
                lines = client.pipeline(transaction=False)
                for row in some:
                    lines.xadd(NAME, {"row": json.dumps(row)})
                lines.execute()

    def found(self) -> Iterator[dict[str, Any]]:
        with self.bare() as client:
            last = "-"
            while given := client.xrange(NAME, last, count=10_000):
                yield from (json.loads(fields[b"row"]) for _, fields in given)
                last = f"({given[-1][0].decode()}"


class OfNats(OnService):
    kind, source, sink = Nats, "NatsSource", "NatsSink"

    def start(self) -> None:
        super().start()
        self.sink_params = {"url": self.service.url, "subject": NAME}
        self.source_params = {"url": self.service.url, "stream": NAME}
        self.do(lambda streams: streams.add_stream(name=NAME, subjects=[NAME]))

    def do(self, what: Callable[[Any], Awaitable[Any]]) -> Any:
        from nats.aio.client import Client

        async def done() -> Any:
            client = Client()
            await client.connect(self.service.url, allow_reconnect=False)
            try:
                return await what(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(done())

    def put(self, rows: Rows) -> None:
        async def all_of(streams: Any) -> None:
            for some in batched(rows):
                await asyncio.gather(
                    *(streams.publish(NAME, json.dumps(row).encode(), timeout=PATIENCE_S) for row in some)
                )

        self.do(all_of)

    def found(self) -> Iterator[dict[str, Any]]:
        async def all_of(streams: Any) -> list[Any]:
            left = (await streams.stream_info(NAME)).state.messages
            reader, found = await streams.pull_subscribe(NAME, stream=NAME), list[Any]()
            while len(found) < left:
                given = await reader.fetch(TOGETHER, timeout=PATIENCE_S)
                await asyncio.gather(*(one.ack() for one in given))
                found += (json.loads(one.data) for one in given)
            return found

        yield from self.do(all_of)


class OfKafka(Broker):
    """The client's own mock cluster, whose brokers go away and keep what they have."""

    source, sink = "KafkaSource", "KafkaSink"
    kafka: MockKafka

    def start(self) -> None:
        self.kafka = MockKafka()
        self.kafka.do("create", NAME, 1)
        self.sink_params = self.source_params = {"servers": self.kafka.servers, "topic": NAME}

    def stop(self) -> None:
        if hasattr(self, "kafka"):
            self.kafka.close()

    def kill(self) -> None:
        self.kafka.do("down")
        time.sleep(AWAY_S)
        self.kafka.do("up")

    def put(self, rows: Rows) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.kafka.servers, "log_level": 0})
        for row in rows:
            producer.produce(NAME, json.dumps(row))
            producer.poll(0)
            if len(producer) > 10_000:
                producer.flush(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0

    def found(self) -> Iterator[dict[str, Any]]:
        from confluent_kafka import Consumer, TopicPartition

        to = {"bootstrap.servers": self.kafka.servers, "group.id": "checker", "log_level": 0}
        reader = Consumer(to | {"fetch.queue.backoff.ms": 10})
        _, high = reader.get_watermark_offsets(TopicPartition(NAME, 0), timeout=PATIENCE_S)
        reader.assign([TopicPartition(NAME, 0, 0)])
        at = 0
        while at < high:
            for message in reader.consume(TOGETHER, 1.0):
                yield json.loads(message.value())
                at = message.offset() + 1
        reader.close()


class StoppedMosquitto(Mosquitto):
    saves_each_change = False


class OfMosquitto(OnService):
    """Asked to stop, and not killed: it writes what it has confirmed once in a while only."""

    kind, source, sink = StoppedMosquitto, "MqttSource", "MqttSink"
    reader: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        super().start()
        self.sink_params = {"url": self.service.url, "topic": NAME}
        self.source_params = self.sink_params | {"client_id": "counted"}
        session = ["-q", "1", "-c", "-x", "3600", "-t", NAME]
        subprocess.run([*self.client("sub"), "-i", "counted-0", *session, "-E"], check=True)
        self.seen = (self.folder / "seen").open("wb")
        self.reader = subprocess.Popen([*self.client("sub"), "-i", "checker", *session], stdout=self.seen)

    def client(self, name: str) -> list[str]:
        return [f"mosquitto_{name}", "-h", self.service.host, "-p", str(self.service.port), "-V", "5"]

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.kill()
            self.reader.wait()
        super().stop()

    def kill(self) -> None:
        self.service.stop()
        time.sleep(AWAY_S)
        self.service.start_again()

    def put(self, rows: Rows) -> None:
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        subprocess.run([*self.client("pub"), "-q", "1", "-t", NAME, "-l"], input=lines, check=True)

    def found(self) -> Iterator[dict[str, Any]]:
        """What has come at the subscriber, once a mark has, which comes last; it may take long, but not stand still."""
        self.put([{"id": -1, "twice": -2}])
        told, since = b"", time.monotonic()
        while b'"id": -1' not in told:
            now = (self.folder / "seen").read_bytes()
            since = time.monotonic() if len(now) > len(told) else since
            if time.monotonic() - since > PATIENCE_S:
                raise TimeoutError(
                    f"mosquitto_sub has had nothing for {PATIENCE_S:g} s, nor the mark that is last"
                )
            told = now
            time.sleep(0.1)
        rows = map(json.loads, told.splitlines())
        yield from (row for row in rows if row["id"] >= 0)


class OfRabbitmq(OnService):
    kind, source, sink = RabbitMQ, "AmqpSource", "AmqpSink"

    def start(self) -> None:
        super().start()
        self.sink_params = {"url": self.service.url, "routing_key": NAME}
        self.source_params = {"url": self.service.url, "queue": NAME}
        with self.bare() as channel:
            channel.queue_declare(NAME, durable=True)

    @contextmanager
    def bare(self) -> Iterator[Any]:
        import pika

        connection = pika.BlockingConnection(pika.ConnectionParameters(self.service.host, self.service.port))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def put(self, rows: Rows) -> None:
        """Confirmed all together, as a transaction."""
        import pika

        kept = pika.BasicProperties(delivery_mode=2)
        with self.bare() as channel:
            channel.tx_select()
            for some in batched(rows):
                for row in some:
                    channel.basic_publish("", NAME, json.dumps(row).encode(), kept)
                channel.tx_commit()

    def found(self) -> Iterator[dict[str, Any]]:
        """Taken out of the queue."""
        with self.bare() as channel:
            left = channel.queue_declare(NAME, passive=True).method.message_count
            for _, _, body in channel.consume(NAME, auto_ack=True) if left else ():
                yield json.loads(body)
                if (left := left - 1) == 0:
                    break


BROKERS: dict[str, type[Broker]] = {
    "redis": OfRedis,
    "nats": OfNats,
    "kafka": OfKafka,
    "mqtt": OfMosquitto,
    "amqp": OfRabbitmq,
}
