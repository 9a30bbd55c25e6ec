"""A worker's records are used again and again, and no count is lost, mixed up or told twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from headgate.agent.meter_reader import MeterReader
from headgate.topology_runtime.latency_buckets import BUCKETS
from headgate.topology_runtime.worker import meter as mt

NAMES = ("source", "work")
STEPS = 20_000


@pytest.fixture
def both() -> Iterator[tuple[mt.Meter, MeterReader]]:
    fd = mt.create()
    worker, reader = mt.Meter(fd), MeterReader(fd)
    os.close(fd)
    yield worker, reader
    reader.close()
    worker.close()


class Model:
    """What was counted, by thread and by link, and what the reader told of it."""

    def __init__(self, worker: mt.Meter, reader: MeterReader, seed: int) -> None:
        self.worker, self.reader, self.random = worker, reader, random.Random(seed)
        self.threads: dict[int, int] = {}  # number → record
        self.links: dict[tuple[int, int], int] = {}
        self.begun = self.most = 0
        self.counted: Counter[object] = Counter()
        self.told: Counter[object] = Counter()

    def begin(self) -> None:
        at = self.worker.thread_record()
        assert not any(self.worker.words[at : at + mt.THREAD_WORDS]), "a record begins at zero"
        self.worker.words[at + mt.THREAD] = self.begun + 1
        self.worker.words[at + mt.STATE] = mt.RUNNING
        self.threads[self.begun] = at
        self.begun += 1
        self.most = max(self.most, len(self.threads))

    def count(self) -> None:
        number, at = self.random.choice(list(self.threads.items()))
        more, bucket = self.random.randrange(1, 9), self.random.randrange(BUCKETS)
        self.worker.words[at + mt.TUPLES_IN] += more
        self.worker.words[at + mt.FIELDS + bucket] += more
        self.counted[number] += more
        self.counted[number, bucket] += more
        sender = self.random.choice(list(self.threads))
        if (sender, number) not in self.links:
            link = self.worker.link_record(sender, number)
            assert link is not None
            self.links[sender, number] = link
        self.worker.words[self.links[sender, number] + mt.L_TUPLES] += more
        self.counted["link", sender, number] += more

    def end(self) -> None:
        number = self.random.choice(list(self.threads))
        for pair in [pair for pair in self.links if number in pair]:
            self.worker.link_ended(self.links.pop(pair))
        self.worker.thread_ended(self.threads.pop(number))

    def read(self) -> None:
        for now, before, latency, _ in self.reader.threads():
            number, more = now[mt.THREAD] - 1, now[mt.TUPLES_IN] - before[mt.TUPLES_IN]
            assert more >= 0, "no count goes backwards"
            self.told[number] += more
            for bucket, rows in latency:
                self.told[number, bucket] += rows
        for link, before in self.reader.links(self.random.randrange(1, 60)):
            more = link[mt.L_TUPLES] - before[mt.L_TUPLES]
            assert more > 0
            self.told["link", link[mt.L_FROM], link[mt.L_TO]] += more


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_threads_and_links_in_one_worker_are_counted_exactly(
    both: tuple[mt.Meter, MeterReader], seed: int
) -> None:
    model = Model(*both, seed)
    for _ in range(STEPS):
        act = model.random.random()
        if (act < 0.16 and len(model.threads) < 40) or not model.threads:
            model.begin()
        elif act < 0.3:
            model.end()
        elif act < 0.4:
            model.read()
        else:
            model.count()
    for _ in range(1000):
        model.read()
    assert model.begun > 2 * mt.THREADS, "more than there are records"
    assert +model.told == +model.counted
    assert model.worker.words[mt.H_THREADS] < 8 * model.most


def test_a_record_is_not_used_again_before_it_was_read_to_its_end(both: tuple[mt.Meter, MeterReader]) -> None:
    worker, reader = both
    first = worker.thread_record()
    worker.words[first + mt.THREAD] = 1
    worker.thread_ended(first)
    second = worker.thread_record()
    assert second != first
    reader.threads()
    assert worker.thread_record() == first


def test_where_a_source_ended_is_told_after_its_record_was_freed(both: tuple[mt.Meter, MeterReader]) -> None:
    worker, reader = both
    at = worker.thread_record()
    words = worker.words
    words[at + mt.THREAD], words[at + mt.SOURCE_PARTITION] = 4, 1
    words[at + mt.SOURCE_EMITTED] = words[at + mt.SOURCE_ACKED] = 99
    worker.thread_ended(at)
    reader.threads()
    assert [(source.thread, source.acked) for source in reader.sources(NAMES)] == [(3, 99)]
    assert reader.sources(NAMES) == (), "once"
