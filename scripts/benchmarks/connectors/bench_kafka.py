"""Kafka's source and sink against bare clients that do the same work: JSON of 110 bytes, one partition, librdkafka's
mock cluster in a process of its own. Rows a second, and µs of CPU for a row (of the process; of a run: of its worker).

`source`, `sink`: the connector alone, called as a worker calls it. `source_run`, `sink_run`: in a worker, from the
topic to a task that does nothing, and from a source that makes numbers to the topic. Each beside its bare client, with
the same options, in turns.
"""
# bench: kafka – rows a second of Kafka's source and sink, and of bare clients doing the same work

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from emulated_services.mock_kafka import MockKafka
from headgate import Context, RowId, Source, no_side_effects, topology
from headgate.connectors import KafkaSink, KafkaSource
from headgate.topology_runtime.connectors.messaging.kafka_source import BOUNDS
from headgate.topology_runtime.worker.rig import Rig

TEXT, FRAME, POLL, MODELLED_TPS = "x" * 80, 256, 1024, 250_000.0
Measured = tuple[float, float]  # rows a second, µs of CPU for a row


def row(n: int) -> dict[str, Any]:
    return {"n": n, "user": f"user-{n % 1000}", "text": TEXT}


class Numbers(Source[Any]):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        return [row(n) for n in range(position, position + limit)]


@no_side_effects
def drop(row: Any) -> None:
    return None


def measured(rows: int, work: Callable[[], None]) -> Measured:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return rows / (time.perf_counter() - wall), 1e6 * (time.process_time() - cpu) / rows


def bare_producer(servers: str, rows: int) -> Measured:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 50, "compression.type": "lz4"}
    )
    failed: list[Any] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    def work() -> None:
        for n in range(rows):
            one = row(n)
            headers = [("headgate-id", f"run/numbers/0/{n}/0")]
            while True:
                try:
                    producer.produce(
                        "out", msgspec.json.encode(one), one["user"], headers=headers, on_delivery=told
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed

    return measured(rows, work)


def sink(servers: str, rows: int) -> Measured:
    one = KafkaSink(servers, "out", key="user", options={"compression.type": "lz4"})
    one.open(Context("sink", 0, 0, 1, ""))

    def work() -> None:
        for first in range(0, rows, FRAME):
            some = range(first, min(rows, first + FRAME))
            one.write([row(n) for n in some], [RowId("run", "numbers", 0, n, 0) for n in some])

    try:
        return measured(rows, work)
    finally:
        one.close()


def bare_consumer(servers: str, rows: int) -> Measured:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", **BOUNDS})

    def work() -> None:
        consumer.assign([TopicPartition("in", 0, 0)])
        found: list[Any] = []
        count = 0
        while count < rows:
            found = [
                (m.offset(), msgspec.json.decode(m.value()))
                for m in consumer.consume(POLL, 0)
                if not m.error()
            ]
            count += len(found)

    try:
        return measured(rows, work)
    finally:
        consumer.close()


def source(servers: str, rows: int) -> Measured:
    one = KafkaSource(servers, "in")
    one.open(Context("source", 0, 0, 1, ""))

    def work() -> None:
        one.seek(None)
        count = 0
        while count < rows:
            count += len(one.poll(POLL))

    try:
        return measured(rows, work)
    finally:
        one.close()


@contextmanager
def rig(flow: Any) -> Iterator[Rig]:
    built = flow.build()
    with tempfile.TemporaryDirectory() as folder:
        places = {task.name: [0] for task in built.tasks}
        here = (str(Path(__file__).parents[2]),)
        running = Rig(
            built, places, folder, modelled_tps=dict.fromkeys(places, MODELLED_TPS), user_paths=here
        )
        try:
            running.start()
            yield running
        finally:
            running.stop()


def of_run(running: Rig, rows: int) -> Measured:
    """From the first tenth of the rows on: a run has to begin."""
    first = rows // 10
    running.offer([(0.0, 10.0 * rows)])
    running.wait(lambda: running.count("last") >= first, 60.0, "rows")
    begun, before, cpu = time.perf_counter(), running.count("last"), running.cpu_ns()[""]
    running.wait(lambda: running.count("last") >= rows, 120.0, "all rows")
    done = running.count("last") - before
    return done / (time.perf_counter() - begun), (running.cpu_ns()[""] - cpu) / 1000 / done


def source_run(servers: str, rows: int) -> Measured:
    flow = topology("reads")
    flow.source("first", KafkaSource, servers=servers, topic="in") >> flow.task("last", drop)
    with rig(flow) as running:
        return of_run(running, rows)


def sink_run(servers: str, rows: int) -> Measured:
    flow = topology("writes")
    last = flow.task(
        "last", KafkaSink, servers=servers, topic="out", key="user", options={"compression.type": "lz4"}
    )
    flow.source("first", Numbers) >> last
    with rig(flow) as running:
        return of_run(running, rows)


WORKS = {
    "bare consumer": bare_consumer, "source": source, "source_run": source_run,
    "bare producer": bare_producer, "sink": sink, "sink_run": sink_run,
}  # fmt: skip


def kafka(rows: int = 100_000, repeats: int = 5) -> dict[str, Any]:
    from confluent_kafka import Producer

    found: dict[str, list[Measured]] = {name: [] for name in WORKS}
    for _ in range(repeats):
        server = MockKafka()
        try:
            server.do("create", "in", 1)
            server.do("create", "out", 1)
            producer = Producer(
                {"bootstrap.servers": server.servers, "compression.type": "lz4", "linger.ms": 50}
            )
            for n in range(rows):
                producer.produce("in", json.dumps(row(n)).encode())
                producer.poll(0)
            assert producer.flush(60) == 0
            for name, work in WORKS.items():
                found[name].append(work(server.servers, rows))
        finally:
            server.close()
    medians = {
        name: [statistics.median(one) for one in zip(*some, strict=True)] for name, some in found.items()
    }
    table = []
    for name, (tps, cpu_us) in medians.items():
        bare = "bare consumer" if name in islice(WORKS, 3) else "bare producer"
        ratios = [one[0] / two[0] for one, two in zip(found[name], found[bare], strict=True)]
        table.append({"what": name, "tps": tps, "of_bare": statistics.median(ratios), "cpu_us": cpu_us})
    return {"rows": rows, "n": repeats, "figures": table}


BENCHMARKS = {"kafka": kafka}
