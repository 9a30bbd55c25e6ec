"""Queues of RabbitMQ, on a real broker: nothing is missing over kills of it, and what it refuses is named."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from opened_connectors import Opened, ids

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.queues import amqp_link
from headgate.topology_runtime.connectors.queues.amqp_sink import AmqpSink
from headgate.topology_runtime.connectors.queues.amqp_source import AmqpSource
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from real_services import RabbitMQ

pytestmark = pytest.mark.live
PATIENCE_S = 60
FULL = {"x-max-length": 3, "x-overflow": "reject-publish"}


class Queue(Opened):
    """One of its own at a broker, and the bare client."""

    def __init__(self, broker: RabbitMQ) -> None:
        super().__init__(f"rows_{secrets.token_hex(4)}")
        self.broker = broker
        self.bare: Any = None
        self.declare()
        self.close_bare()  # a test may kill the broker

    def channel(self) -> Any:
        """Of a new connection."""
        self.close_bare()
        self.bare = pika.BlockingConnection(pika.ConnectionParameters(self.broker.host, self.broker.port))
        return self.bare.channel()

    def declare(self, **arguments: Any) -> None:
        self.channel().queue_declare(self.name, durable=True, arguments=arguments)

    def there(self) -> bool:
        try:
            return self.count() >= 0
        except pika.exceptions.ChannelClosedByBroker:
            return False

    def count(self) -> int:
        found: int = self.channel().queue_declare(self.name, passive=True).method.message_count
        return found

    def publish(self, *bodies: bytes, **properties: Any) -> None:
        channel = self.channel()
        channel.confirm_delivery()
        for body in bodies:
            kept = pika.BasicProperties(delivery_mode=2, **properties)
            channel.basic_publish("", self.name, body, kept, mandatory=True)

    def source(self, **given: Any) -> AmqpSource:
        return self.opened(AmqpSource(self.broker.url, self.name, **given))

    def sink(self, **given: Any) -> AmqpSink:
        return self.opened(AmqpSink(self.broker.url, **({"routing_key": self.name} | given)))

    def close(self) -> None:
        super().close()
        self.close_bare()

    def close_bare(self) -> None:
        if self.bare is not None and self.bare.is_open:
            self.bare.close()


@pytest.fixture
def queue(rabbitmq: RabbitMQ) -> Iterator[Queue]:
    found = Queue(rabbitmq)
    yield found
    found.close()


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def eventually(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def taken(source: AmqpSource, count: int, again: bool = True) -> list[Any]:
    """So many rows; each call's are on the disk before the next."""
    found: list[Any] = []

    def take() -> bool:
        try:
            found.extend(source.poll(100))
        except (ServiceAway, InvalidInput):
            if not again:
                raise
        source.durable(len(found))
        return len(found) >= count

    eventually(take)
    return found


def test_nothing_is_missing_though_the_broker_is_killed_and_rows_come_again(queue: Queue) -> None:
    sink, source = queue.sink(), queue.source()
    found: list[int] = []
    middle, back = threading.Event(), threading.Event()

    def kill() -> None:
        middle.wait(PATIENCE_S)
        queue.broker.kill()
        queue.broker.start_again()
        back.set()

    killer = threading.Thread(target=kill)
    killer.start()
    first, away = 0, 0
    while first < 4000 or not back.is_set():
        if first >= 500:
            middle.set()
        try:
            sink.write(list(range(first, first + 50)), ids(first, 50))
            first += 50
        except ServiceAway:
            away += 1
        except BadRow:  # it waited for the queue for a minute
            break
        try:
            found += source.poll(40)
            source.durable(len(found))
        except (ServiceAway, InvalidInput):
            away += 1
    killer.join()
    assert away > 0
    if not queue.there():
        pytest.skip("the broker came back without the queue, and with it all that was in it")

    def all_came() -> bool:
        found.extend(source.poll(100))
        source.durable(len(found))
        return set(found) >= set(range(first))

    eventually(all_came)
    assert set(found) == set(range(first))


def test_a_queue_that_comes_late_or_is_deleted_is_waited_for(queue: Queue) -> None:
    queue.channel().queue_delete(queue.name)
    source = queue.source()
    with pytest.raises(ServiceAway) as lacking:
        source.poll(10)
    assert f"no queue '{queue.name}'" in (lacking.value.cause or "")
    queue.declare()
    queue.publish(b"1")
    assert taken(source, 1) == [1]
    queue.channel().queue_delete(queue.name)
    with pytest.raises(ServiceAway, match="no connection"):
        eventually(lambda: source.poll(10))
    queue.declare()
    queue.publish(b"2")
    assert taken(source, 1) == [2]


def test_what_was_not_on_the_disk_comes_again_and_says_so(queue: Queue) -> None:
    queue.publish(*numbers(0, 10))
    first = queue.source(with_metadata=True)
    given = eventually(lambda: first.poll(10))
    while len(given) < 10:
        given += first.poll(10)
    first.durable(4)
    first.close()
    rows = taken(queue.source(with_metadata=True), 6)
    assert [(row["value"], row["redelivered"]) for row in rows] == [(n, True) for n in range(4, 10)]
    assert not any(row["redelivered"] for row in given)


def test_no_more_than_the_prefetch_comes_before_it_is_on_the_disk(queue: Queue) -> None:
    queue.publish(*numbers(0, 10))
    source = queue.source(prefetch=3)
    given: list[Any] = []
    eventually(lambda: given.extend(source.poll(10)) or len(given) >= 3)
    for _ in range(20):
        given += source.poll(10)
    assert given == [0, 1, 2] and queue.count() == 7
    source.durable(3)
    assert taken(source, 3)[:3] == [3, 4, 5]


def test_nothing_comes_twice_when_rows_waited_for_longer_than_the_heartbeat(queue: Queue) -> None:
    queue.publish(*numbers(0, 10))
    source = queue.source(prefetch=5, heartbeat_s=1)
    given: list[Any] = []
    eventually(lambda: given.extend(source.poll(5)) or len(given) == 5)
    source.durable(5)
    eventually(lambda: queue.count() == 5 and consumers(queue) == 0)  # nobody asks meanwhile
    assert given + taken(source, 5) == list(range(10))


def consumers(queue: Queue) -> int:
    found: int = queue.channel().queue_declare(queue.name, passive=True).method.consumer_count
    return found


def test_what_other_clients_write_is_read(queue: Queue) -> None:
    headers = {
        "n": 1,
        "price": Decimal("1.5"),
        "at": datetime(2026, 1, 2),
        "deep": {"list": [True, None, "ä"]},
    }
    queue.publish(b'{"a": [1]}', headers=headers, message_id="m1", content_type="application/json")
    queue.publish(b"{", b"\xff")
    row, cut, odd = taken(queue.source(with_metadata=True), 3)
    assert row["value"] == {"a": [1]} and row["message_id"] == "m1" and row["routing_key"] == queue.name
    assert row["headers"]["deep"] == {"list": [True, None, "ä"]} and row["headers"]["price"] == "1.5"
    assert row["headers"]["at"] == datetime(2026, 1, 2, tzinfo=UTC)
    assert isinstance(cut, BadRow) and isinstance(odd, BadRow)
    eventually(lambda: queue.count() == 0)


def test_what_is_written_is_read_by_other_clients(queue: Queue) -> None:
    exchange = f"{queue.name}_exchange"
    channel = queue.channel()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_bind(queue.name, exchange, "plant.*")
    queue.sink(exchange=exchange, routing_key="plant.{n}").write([{"n": 7}], ids(0, 1))
    method, properties, body = channel.basic_get(queue.name)
    assert (method.routing_key, body) == ("plant.7", b'{"n":7}')
    assert (properties.message_id, properties.delivery_mode) == ("run/source/0/0/0", 2)
    channel.exchange_delete(exchange)


def test_a_row_that_no_queue_takes_is_an_error_of_its_own(queue: Queue) -> None:
    sink = queue.sink(routing_key=queue.name + "{end}")
    given = [{"end": ""}, {"end": "x"}]
    for _ in range(2):
        with pytest.raises(BadRow):
            sink.write(given, ids(0, 2))  # an empty field makes no key
    sink = queue.sink(routing_key="{key}")
    given = [{"key": queue.name}, {"key": "nowhere"}]
    for _ in range(3):
        with pytest.raises(BadRow, match="'nowhere'"):
            sink.write(given, ids(0, 2))
    sink.write(given[:1], ids(0, 1))
    assert queue.count() == 1


def test_an_exchange_that_comes_late_is_waited_for(queue: Queue) -> None:
    exchange = f"{queue.name}_late"
    sink = queue.sink(exchange=exchange)
    with pytest.raises(ServiceAway) as lacking:
        sink.write([1], ids(0, 1))
    assert f"no exchange '{exchange}'" in (lacking.value.cause or "")
    channel = queue.channel()
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue.name, exchange)
    sink.write([1], ids(0, 1))
    channel.exchange_delete(exchange)
    assert queue.count() == 1


def test_a_full_queue_is_waited_for(queue: Queue) -> None:
    queue.channel().queue_delete(queue.name)
    queue.declare(**FULL)
    sink, source = queue.sink(), queue.source()
    for _ in range(2):
        with pytest.raises(ServiceAway, match="refuses"):
            sink.write(list(range(10)), ids(0, 10))
    found: list[int] = []

    def take() -> int:
        found.extend(source.poll(10))
        source.durable(len(found))
        return len(found)

    eventually(lambda: take() and written(sink, 0, 10))
    eventually(lambda: take() >= 10)
    assert sorted(found) == list(range(10))


def written(sink: AmqpSink, first: int, count: int) -> bool:
    try:
        sink.write(list(range(first, first + count)), ids(first, count))
    except ServiceAway:
        return False
    return True


def test_a_broker_that_is_short_of_memory_is_waited_for(queue: Queue) -> None:
    sink = queue.sink()
    limit(queue.broker, "0")
    try:
        with pytest.raises(ServiceAway, match="takes no messages now") as away:
            for first in range(0, 1000, 10):  # the broker says so behind the first
                sink.write(list(range(first, first + 10)), ids(first, 10))
        assert "memory" in (away.value.cause or "")
    finally:
        limit(queue.broker, "0.6")
    eventually(lambda: written(sink, first, 10))
    assert sorted(taken(queue.source(), first + 10)) == list(range(first + 10))


def limit(broker: RabbitMQ, share: str) -> None:
    """Of memory, as an operator sets it."""
    control = broker.program("rabbitmqctl", "/usr/lib/rabbitmq/bin")
    environment = {**os.environ, **broker.environment()}
    subprocess.run(
        [control, "-q", "set_vm_memory_high_watermark", share],
        check=True, env=environment, user=broker.user(), cwd=broker.folder, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip


def test_a_wrong_password_is_named_and_not_shown(queue: Queue) -> None:
    source = AmqpSource(queue.broker.url, queue.name, user="guest", password="wr0ng-secret")
    source.open(Context(queue.name, 1, 0, 1, ""))
    with pytest.raises(ServiceAway) as away:
        source.poll(1)
    said = " ".join(away.value.lines())
    assert "ACCESS_REFUSED" in said and "wr0ng-secret" not in said


def test_a_broker_that_is_not_there_is_waited_for() -> None:
    sink = AmqpSink("amqp://127.0.0.1:1", routing_key="rows")
    with pytest.raises(ServiceAway, match="no connection") as away:
        sink.open(Context("rows", 1, 0, 1, ""))
    assert "refused" in (away.value.cause or "")


def test_what_answers_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_link, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = AmqpSink(f"amqp://127.0.0.1:{silent.getsockname()[1]}", routing_key="rows")
        for _ in range(2):
            with pytest.raises(ServiceAway, match="no connection to"):
                sink.open(Context("rows", 1, 0, 1, ""))
        sink.close()


@pytest.mark.parametrize(("path", "tls"), [("/nowhere", None), (None, {"ca": "/nowhere"})])
def test_a_file_that_cannot_be_read_is_waited_for(path: str | None, tls: dict[str, str] | None) -> None:
    lost = SecretText("${FILE:" + path + "}") if path else None
    sink = AmqpSink("amqp://127.0.0.1:1", routing_key="rows", password=lost, tls=tls)
    with pytest.raises(ServiceAway, match="/nowhere"):
        sink.open(Context("rows", 1, 0, 1, ""))


@pytest.mark.parametrize("given", [
    {"url": "redis://h"}, {"url": "amqp://u:s3cret@h"}, {"queue": ""}, {"prefetch": 0}, {"heartbeat_s": 0},
    {"format": "xml"}, {"tls": {"caa": "x"}},
])  # fmt: skip
def test_params_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        AmqpSource(**{"url": "amqp://h", "queue": "q", **given})
    assert "s3cret" not in " ".join(refused.value.lines())


@pytest.mark.parametrize("given", [{}, {"routing_key": ""}, {"routing_key": "k" * 256}, {"exchange": 7}])
def test_params_of_a_sink_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises((InvalidInput, TypeError)):
        AmqpSink("amqp://h", **given)
