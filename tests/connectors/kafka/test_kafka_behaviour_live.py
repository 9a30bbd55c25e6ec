"""What clients of Kafka do that nobody would guess (seen on librdkafka), and what the connectors make of it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_kafka_live import KafkaSink, KafkaSource, stored
from transaction_marker import write_marker

from headgate import RowId, ServiceAway
from headgate.topology_runtime.connectors.messaging import kafka_sink, kafka_source
from headgate.topology_runtime.errors import BadRow, HeadgateError
from headgate.topology_runtime.testing.conformance.opened import OpenedSink, OpenedSource, threads_now
from headgate.topology_runtime.testing.conformance.patience import OwnThread
from headgate.topology_runtime.testing.conformance.under_test import numbered

pytestmark = pytest.mark.live
METADATA, PRODUCE, FETCH = 3, 0, 1  # requests by number
MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, GROUP_REFUSES = 10, 19, 25
OFFSET_COMMIT = 8
OUT_OF_ORDER = 45


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KafkaSource]:
    made = KafkaSource(tmp_path, "clicks")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[KafkaSink]:
    made = KafkaSink(tmp_path, "clicks")
    made.start()
    yield made
    made.stop()


def opened(source: KafkaSource, partition: int = 0, **params: Any) -> OpenedSource:
    found = OpenedSource(source, source.params() | params, partition)
    found.open()
    return found


def stop(pid: int) -> None:
    """All of its threads have stopped: on a busy machine they run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    until(lambda: {(one / "stat").read_text().rpartition(") ")[2][0] for one in threads.iterdir()} == {"T"})


def test_a_commit_below_an_earlier_one_counts(source: KafkaSource) -> None:
    """After a seek back plain commits of the client do nothing, and a kill would skip rows."""
    source.produce(numbered(0, 50))
    with opened(source) as one:
        one.take(50)
        one.logic.done(50)
        one.logic.seek(10)
        one.logic.done(10)
        one.poll()
        until(lambda: source.done() == 10)


def test_a_commit_of_the_end_is_there_when_close_returns(source: KafkaSource) -> None:
    source.produce(numbered(0, 10))
    one = opened(source)
    one.take(10)
    one.logic.done(10)
    one.close()
    assert source.done() == 10


def test_close_returns_while_a_broker_hangs_with_a_commit(source: KafkaSource) -> None:
    """The client's own `close` waits for it, for as long as the broker hangs."""
    source.produce(numbered(0, 10))
    one = OpenedSource(source)
    with OwnThread() as thread:
        thread.call(one.open, "`open`")
        thread.call(lambda: one.take(10), "`poll`")
        stop(source.kafka.pid)
        thread.call(lambda: one.logic.done(10), "`done`")
        thread.call(one.close, "`close`")
    until(lambda: threads_now() <= one.threads_before)


def test_commits_that_a_group_refuses_are_counted_and_end_nothing(
    source: KafkaSource, capfd: pytest.CaptureFixture[str]
) -> None:
    source.produce(numbered(0, 10))
    source.kafka.do("fail", OFFSET_COMMIT, GROUP_REFUSES, 3)
    with opened(source) as one:
        one.take(5)
        refused = one.context.metrics.counter("commits_refused")
        for offset in (1, 2):
            one.logic.done(offset)
        until(lambda: (one.poll(1), refused.value == 2)[1])
    assert capfd.readouterr().err.count("cannot be committed for group shown") == 1


def test_the_position_after_a_seek_is_known_before_a_row_comes(source: KafkaSource) -> None:
    """The client says −1001."""
    source.produce(numbered(0, 10))
    with opened(source) as one:
        one.logic.seek(4)
        until(lambda: one.logic.lag() == 6)


def test_begins_where_it_is_told(source: KafkaSource) -> None:
    source.produce(numbered(0, 10))
    with opened(source) as one:
        one.take(4)
        one.logic.done(4)
        until(lambda: (one.poll(0), source.done() == 4)[1])
    with opened(source, start="committed") as one:
        assert one.take(6)[0][0] == 4
    with opened(source, start="latest") as one:
        assert one.poll() == []
        source.produce(numbered(10, 1))
        assert source.number(one.take(1)[0][1]) == 10


def test_what_came_while_the_broker_was_away_is_read_by_who_began_at_the_end(source: KafkaSource) -> None:
    """Behind an error it seeks again: to where the end was when it began."""
    source.produce(numbered(0, 10))
    with opened(source, start="latest") as one:
        assert one.poll() == []
        source.produce(numbered(10, 5))
        one.logic.seek(None)
        assert [source.number(row) for _, row in one.take(5)] == [10, 11, 12, 13, 14]


def test_ends_of_transactions_are_no_rows_that_wait(source: KafkaSource) -> None:
    """They have offsets of their own, and clients do not give them: lag stayed at one for ever, or at all of what was
    taken back."""
    source.produce(numbered(0, 10))
    write_marker(source.kafka.servers, source.name)
    with opened(source) as one:
        one.take(10)
        until(lambda: (one.poll(), one.logic.lag() == 0)[1])
        for _ in range(5):
            write_marker(source.kafka.servers, source.name)
        source.produce(numbered(10, 2))
        write_marker(source.kafka.servers, source.name)
        assert [offset for offset, _ in one.take(2)] == [16, 17]
        until(lambda: (one.poll(), one.logic.lag() == 0)[1])


def test_metadata_keeps_all_that_a_message_has(source: KafkaSource) -> None:
    """Doubled headers in order; an absent value, key or header list; a key that is no text."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": source.kafka.servers, "log_level": 0})
    headers = [("a", b"1"), ("b", b"\xff"), ("a", None)]
    producer.produce(source.name, b"7", b"k", 0, timestamp=1_700_000_000_123, headers=headers)
    producer.produce(source.name, None, b"\xff", 0, timestamp=1, headers=[])
    producer.produce(source.name, b"", None, 0, timestamp=1)
    assert producer.flush(30) == 0
    with opened(source, with_metadata=True) as one:
        rows = [row for _, row in one.take(3)]
    assert rows[0] == {
        "value": 7, "key": "k", "headers": [["a", "1"], ["b", b"\xff"], ["a", None]],
        "timestamp": 1_700_000_000.123, "partition": 0, "offset": 0,
    }  # fmt: skip
    assert (rows[1]["value"], rows[1]["key"], rows[1]["headers"]) == (None, b"\xff", [])
    assert isinstance(rows[2], BadRow)  # empty is no JSON, and not the same as absent


def test_more_partitions_than_threads_are_refused_with_the_number(source: KafkaSource) -> None:
    source.kafka.do("create", "wide", 12)
    with pytest.raises(HeadgateError) as found:
        opened(source, topic="wide")
    assert "12 partitions and the source 2 threads" in found.value.what and found.value.hint == "threads=12"


def test_a_partition_that_nobody_reads_is_told(
    source: KafkaSource, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.0)
    with opened(source) as one:
        unread = one.context.metrics.gauge("partitions_unread")
        one.poll()
        assert unread.value == 0
        made_again(source, 3)
        until(lambda: (one.poll(), unread.value == 1)[1])
        source.produce(numbered(0, 1))
        assert source.number(one.take(1)[0][1]) == 0
    assert capfd.readouterr().err.count("try: threads=3") == 1


def made_again(source: KafkaSource, partitions: int) -> None:
    """The (empty) topic with another number of partitions: the mock cluster adds none to one that is there."""
    source.kafka.do("down")
    source.kafka.do("delete", source.name)
    source.kafka.do("create", source.name, partitions)
    source.kafka.do("up")


def test_a_new_partition_is_read_from_its_beginning(
    source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.0)
    made_again(source, 1)
    with OpenedSource(source, source.params() | {"start": "latest"}, 1) as one:
        one.open_when_there()
        assert one.poll() == []
        made_again(source, 2)
        source.produce(numbered(0, 5), 1)
        assert [source.number(row) for _, row in one.take(5)] == [0, 1, 2, 3, 4]


def test_no_row_is_lost_while_a_broker_is_slow_to_tell_of_its_topics(
    source: KafkaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client calls back when messages are asked for, and gives one of them then."""
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.0)
    source.produce(numbered(0, 200))
    with opened(source) as one:
        numbers = [source.number(row) for _, row in one.take(10)]
        for looks in itertools.count():
            if looks < 3:
                source.kafka.do("slow", METADATA, 600)
            numbers += [source.number(row) for _, row in one.poll(30)]
            if numbers[-1] == 199:
                break
    assert numbers == list(range(200))


def test_a_broker_that_hangs_is_away_and_nothing_is_sent_twice(
    sink: KafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay: nobody says that it is down."""
    rows = numbered(0, 40)
    with OpenedSink(sink) as one:
        one.open()
        one.write(rows[:10], 0)
        monkeypatch.setattr(kafka_sink, "WRITE_S", 0.5)
        stop(sink.kafka.pid)
        for _ in range(2):
            with pytest.raises(ServiceAway):
                one.write(rows[10:], 10)
        os.kill(sink.kafka.pid, signal.SIGCONT)
        one.write_when_there(rows[10:], 10)
    assert sink.stored() == list(range(40))


def test_rows_whose_answer_was_lost_are_there(sink: KafkaSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has them, and goes away before it confirms. A real one knows them by the producer's numbers when they
    come again; the mock cluster keeps them twice."""
    with OpenedSink(sink) as one:
        one.open()
        one.write(numbered(0, 1), 0)
        monkeypatch.setattr(kafka_sink, "WRITE_S", 0.5)
        sink.kafka.do("slow", PRODUCE, 60_000)
        with pytest.raises(ServiceAway):
            one.write(numbered(1, 50), 1)
        sink.kafka.do("down")
        sink.kafka.do("up")
        one.write_when_there(numbered(1, 50), 1)
        one.write_when_there(numbered(51, 50), 51)
    found = sink.stored()
    assert sorted(set(found)) == list(range(101)) and all(found.count(n) <= 2 for n in range(101))


@pytest.mark.parametrize("by_the_broker", [False, True])
def test_a_message_that_is_too_large_is_told_of_that_row_alone(sink: KafkaSink, by_the_broker: bool) -> None:
    """`produce` raises, the broker says it in the report; the others of the call are there once."""
    rows = numbered(0, 3)
    with OpenedSink(sink) as one:
        one.open()
        if by_the_broker:
            one.write(rows[:1], 0)
            sink.kafka.do("fail", PRODUCE, MESSAGE_TOO_LARGE, 1)
            with pytest.raises(BadRow):
                one.write(rows[1:2], 1)
        else:
            with pytest.raises(BadRow):
                one.write([rows[0], sink.bad_row()], 0)
            with pytest.raises(BadRow):
                one.write([sink.bad_row()], 1)
            one.write(rows[:1], 0)
        one.write(rows[2:], 2)
    assert sink.stored() == [0, 2]


def test_a_producer_that_has_failed_for_good_is_replaced(sink: KafkaSink) -> None:
    """Brokers that lost what they had confirmed no longer fit the producer's numbers: the client then takes nothing
    any more, and does not say of each row that this is why."""
    with OpenedSink(sink) as one:
        one.open()
        one.write(numbered(0, 1), 0)
        sink.kafka.do("fail", PRODUCE, OUT_OF_ORDER, 1)
        with pytest.raises(ServiceAway):
            one.write(numbered(1, 20), 1)
        one.write_when_there(numbered(1, 20), 1)
        one.write(numbered(21, 5), 21)
    assert sink.stored() == list(range(26))


def test_a_full_queue_is_waited_for(sink: KafkaSink) -> None:
    params = sink.params() | {"options": {"queue.buffering.max.messages": 10}}
    with OpenedSink(sink, params) as one:
        one.open()
        one.write_when_there(numbered(0, 100), 0)
    assert sink.stored() == list(range(100))


def test_brokers_that_do_not_take_rows_make_no_dead_letters(sink: KafkaSink) -> None:
    with OpenedSink(sink) as one:
        one.open()
        sink.kafka.do("fail", PRODUCE, NOT_ENOUGH_REPLICAS, 3)
        one.write_when_there(numbered(0, 20), 0)
    assert sink.stored() == list(range(20))


def test_equal_keys_go_to_one_partition_and_rows_carry_their_names(sink: KafkaSink) -> None:
    """An empty key, too: the client's own default spreads it at random."""
    sink.kafka.do("create", "keyed", 4)
    rows = [{"user": user, "n": n} for n in range(30) for user in ("", "ada", "bob")]
    sink.name = "keyed"
    at_random_at_once = {"sticky.partitioning.linger.ms": 0}  # where there is no key: not the same for 100 ms
    with OpenedSink(sink, sink.params() | {"key": "user", "options": at_random_at_once}) as one:
        one.open()
        one.write(rows, 0)
        with pytest.raises(BadRow):
            one.write([{"n": 1}], 90)
    found = {partition: stored(sink, partition) for partition in range(4)}
    places = {message.key(): partition for partition, some in found.items() for message in some}
    for user, place in places.items():
        numbers = [json.loads(one.value())["n"] for one in found[place] if one.key() == user]
        assert numbers == list(range(30)), user
    names = {dict(one.headers())["headgate-id"].decode() for some in found.values() for one in some}
    assert names == {str(RowId("run", "numbers", 0, n, 0)) for n in range(90)}


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_another_client_reads_what_was_written_and_writes_what_is_read(sink: KafkaSink) -> None:
    with OpenedSink(sink, sink.params() | {"key": "text"}) as one:
        one.open()
        one.write(numbered(0, 20), 0)
    kcat = ["kcat", "-b", sink.kafka.servers, "-t", sink.name, "-p", "0", "-q"]
    said = subprocess.run(
        [*kcat, "-C", "-e", "-f", "%k %s\n"], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line.partition(" {") for line in said.stdout.splitlines()]
    assert [(key, json.loads("{" + value)["n"]) for key, _, value in lines] == [
        (f"row {n}", n) for n in range(20)
    ]
    written = "".join(json.dumps(row) + "\n" for row in numbered(20, 20))
    subprocess.run([*kcat, "-P"], input=written, text=True, timeout=60, check=True)
    reader = KafkaSource(sink.folder, sink.name)
    reader.kafka = sink.kafka
    with opened(reader) as source:
        assert [row["n"] for _, row in source.take(40)] == list(range(40))
