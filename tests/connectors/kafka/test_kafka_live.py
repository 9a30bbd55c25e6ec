"""The source and the sink of Kafka against librdkafka's mock cluster: the scenarios of every connector."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from emulated_services.mock_kafka import MockKafka
from headgate.testing import SinkUnderTest, SourceUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.under_test import MISSING, WRONG_SECRET, UnderTest

pytestmark = pytest.mark.live
QUIET = {"log_level": 0}
DELIVERY_S = 30.0


class Topic(UnderTest):
    """One topic of a cluster of its own."""

    partitions = 1

    def start(self) -> None:
        self.kafka = MockKafka()
        self.kafka.do("create", self.name, self.partitions)

    def stop(self) -> None:
        self.kafka.close()

    def params(self) -> dict[str, Any]:
        return {"servers": self.kafka.servers, "topic": self.name}

    def kill(self) -> None:
        self.kafka.do("down")

    def start_again(self) -> None:
        self.kafka.do("up")

    def missing(self) -> dict[str, Any]:
        return self.params() | {"topic": MISSING}

    def wrong_secret(self) -> dict[str, Any]:
        """The mock cluster takes no login at all; what a broker says of a wrong one comes the same way."""
        options = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "ada"}
        return self.params() | {"options": options | {"sasl.password": WRONG_SECRET}}

    def delete(self) -> None:
        self.kafka.do("delete", self.name)

    def high(self, partition: int) -> int:
        consumer = Consumer({"bootstrap.servers": self.kafka.servers, "group.id": "other", **QUIET})
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=DELIVERY_S)[1]
        finally:
            consumer.close()


class KafkaSource(Topic, SourceUnderTest):
    connector = "headgate.topology_runtime.connectors.messaging.kafka_source:KafkaSource"
    threads = partitions = 2

    def params(self) -> dict[str, Any]:
        return super().params() | {"options": {"group.id": "shown"}}

    def produce(self, rows: Sequence[dict[str, Any]], partition: int = 0) -> None:
        self.send([json.dumps(row).encode() for row in rows], partition)

    def send(self, values: Sequence[bytes], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.servers, "compression.type": "lz4", **QUIET})
        for value in values:
            producer.produce(self.name, value, partition=partition)
            producer.poll(0)
        assert producer.flush(DELIVERY_S) == 0

    def produce_bad(self) -> None:
        self.send([b'{"n": \xff'])

    def forget(self) -> None:
        self.kafka.do("forget", self.name, 0, self.high(0))

    def done(self, partition: int = 0) -> int:
        consumer = Consumer({"bootstrap.servers": self.kafka.servers, "group.id": "shown", **QUIET})
        try:
            return consumer.committed([TopicPartition(self.name, partition)], timeout=DELIVERY_S)[0].offset
        finally:
            consumer.close()


class KafkaSink(Topic, SinkUnderTest):
    connector = "headgate.topology_runtime.connectors.messaging.kafka_sink:KafkaSink"

    def stored(self) -> list[int]:
        return [json.loads(message.value())["n"] for message in stored(self)]

    def params(self) -> dict[str, Any]:
        return super().params() | {"options": {"message.max.bytes": 600_000}}

    def bad_row(self) -> Any:
        """Within what a row may have, and not a message."""
        return {"n": 1, "text": "x" * 650_000}


def stored(topic: Topic, partition: int = 0) -> list[Any]:
    """All messages of a partition."""
    wanted = topic.high(partition)
    consumer = Consumer({"bootstrap.servers": topic.kafka.servers, "group.id": "other", **QUIET})
    consumer.assign([TopicPartition(topic.name, partition, 0)])
    found: list[Any] = []
    try:
        while len(found) < wanted:
            found += consumer.consume(wanted - len(found), 0.1)
        return found
    finally:
        consumer.close()


TestKafkaSource = scenarios(KafkaSource)
TestKafkaSink = scenarios(KafkaSink)
