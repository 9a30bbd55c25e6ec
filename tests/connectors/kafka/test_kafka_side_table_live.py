"""A side table of a compacted topic: its newest messages by key, without those that were deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from emulated_services.mock_kafka import MockKafka
from headgate import Context, SideTable
from headgate.connectors import KafkaSource

pytestmark = pytest.mark.live
DEADLINE_S = 60.0


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    cluster = MockKafka()
    cluster.do("create", "rates", 2)
    yield cluster
    cluster.close()


def send(kafka: MockKafka, **rates: float | None) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for name, rate in rates.items():
        value = None if rate is None else json.dumps({"rate": rate}).encode()
        producer.produce("rates", value, name.encode(), partition=ord(name[0]) % 2)
    assert producer.flush(30) == 0


def test_it_follows_a_topic_and_a_message_without_value_takes_its_key_away(kafka: MockKafka) -> None:
    send(kafka, usd=1.1, gbp=0.8, chf=0.9)
    send(kafka, usd=1.2, chf=None)
    params = {"servers": kafka.servers, "topic": "rates", "with_metadata": True}
    rates = SideTable(KafkaSource, params, key="key", value="value", threads=2, wait_s=DEADLINE_S)
    rates.open(Context("euros", 1, 0, 1, "."))
    assert dict(rates) == {"usd": {"rate": 1.2}, "gbp": {"rate": 0.8}}
    send(kafka, gbp=None, jpy=160.0)
    end = time.monotonic() + DEADLINE_S
    while dict(rates) != {"usd": {"rate": 1.2}, "jpy": {"rate": 160.0}} and time.monotonic() < end:
        time.sleep(0.02)
    assert dict(rates) == {"usd": {"rate": 1.2}, "jpy": {"rate": 160.0}}
    rates.close()


def test_it_outlives_a_broker_that_goes_and_comes_back(kafka: MockKafka) -> None:
    send(kafka, usd=1.1)
    params = {"servers": kafka.servers, "topic": "rates", "with_metadata": True}
    rates = SideTable(KafkaSource, params, key="key", value="value", threads=2, wait_s=DEADLINE_S)
    rates.open(Context("euros", 1, 0, 1, "."))
    kafka.do("down")
    assert rates["usd"] == {"rate": 1.1}
    kafka.do("up")
    send(kafka, usd=1.5)
    end = time.monotonic() + DEADLINE_S
    while rates["usd"] != {"rate": 1.5} and time.monotonic() < end:
        time.sleep(0.02)
    assert rates["usd"] == {"rate": 1.5}
    rates.close()
