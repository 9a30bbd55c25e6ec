"""Samples (agent/reports/sampler.py): a real meter, filled as a worker fills it, and real threads of this process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_world import TOPOLOGY, desired, thread

from headgate.agent.core.worker_failures import Call
from headgate.agent.reports.meter_reader import MeterReader
from headgate.agent.reports.sampler import Sampler, columns, first_source, unthrottled_share
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, bucket_of, percentile_ns
from headgate.topology_runtime.platform import processes, slot_binding
from headgate.topology_runtime.platform.slot_size import SlotSize
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter

NS = 1_000_000_000
SOURCE, WORK, STORE = range(3)
INCARNATION = 77


class Stand:
    """A sampler with one watched worker: this process, and the meter that it writes."""

    def __init__(self, directory: Path, topology: Topology = TOPOLOGY) -> None:
        fd = meter.create()
        self.meter, self.reader = meter.Meter(fd), MeterReader(fd)
        os.close(fd)
        self.binding = slot_binding.Unbound(SlotSize("test", "vm1", 2, 0.2, 1 << 28))
        self.now_ns = 10 * NS
        self.sampler = Sampler("vm1", 123, self.binding, str(directory), self.now_ns)
        state = desired(thread(1, 0))
        self.sampler.obey(
            m.DesiredState(**{f: getattr(state, f) for f in state.__struct_fields__} | {"topology": topology})
        )
        self.sampler.watch(1, INCARNATION, os.getpid(), self.reader)

    def record(self, number: int, task: int, tid: int = 0) -> int:
        at = self.meter.thread_record()
        words = self.meter.words
        words[at + meter.THREAD], words[at + meter.TASK], words[at + meter.TID] = number + 1, task, tid
        words[at + meter.STATE] = 1
        return at

    def add(self, at: int, **counts: int) -> None:
        for name, value in counts.items():
            self.meter.words[at + getattr(meter, name)] += value

    def block(self, after_s: float = 1.0) -> m.SampleBlock:
        self.now_ns += int(after_s * NS)
        block = self.sampler.block(self.now_ns, 1_700_000_000 * NS, epoch=4)
        assert block is not None
        return channels.from_agent.decode(channels.encode(block))  # type: ignore[return-value]

    def close(self) -> None:
        self.sampler.close()
        self.meter.close()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path)
    yield stand
    stand.close()


def rows(block: m.SampleBlock) -> list[dict[str, Any]]:
    return table(block.threads)


def table(columns_: dict[str, bytes]) -> list[dict[str, Any]]:
    values = {name: array("q", data).tolist() for name, data in columns_.items()}
    count = len(next(iter(values.values())))
    return [{name: column[i] for name, column in values.items()} for i in range(count)]


# ── threads ─────────────────────────────────────────────────────────────────────────────────────


def test_counts_are_those_since_the_last_block(stand: Stand) -> None:
    at = stand.record(7, WORK)
    stand.add(at, TUPLES_IN=100, TUPLES_OUT=50, BYTES_IN=9, BYTES_OUT=8, BUSY_NS=70, WAIT_NS=30, QUEUE=5)
    first = stand.block()
    assert first.tasks == ("work",) and (first.sequence, first.window_ns, first.epoch) == (1, NS, 4)
    row = rows(first)[0]
    want = {"thread": 7, "slot": 1, "epoch": 4, "tuples_in": 100, "tuples_out": 50, "queue": 5}
    want |= {"bytes_in": 9, "bytes_out": 8, "busy_ns": 70, "wait_ns": 30}
    assert {name: row[name] for name in want} == want
    stand.add(at, TUPLES_IN=3, QUEUE=-4)
    second = stand.block(1.5)
    assert (rows(second)[0]["tuples_in"], rows(second)[0]["tuples_out"], rows(second)[0]["queue"]) == (
        3,
        0,
        1,
    )
    assert second.window_ns == int(1.5 * NS) and second.sequence == 2


def test_what_timers_took_is_told_by_task(stand: Stand) -> None:
    first, second = stand.record(7, WORK), stand.record(8, WORK)
    stand.record(9, STORE)
    stand.add(first, TIMERS_NS=5)
    stand.add(second, TIMERS_NS=6)
    assert stand.block().timers_ns == {"work": 11}
    stand.add(second, TIMERS_NS=2)
    assert stand.block().timers_ns == {"work": 2}
    assert stand.block().timers_ns == {}


def test_how_much_rows_differ_is_told_by_task(stand: Stand) -> None:
    first, second = stand.record(7, WORK), stand.record(8, WORK)
    stand.record(9, STORE)
    stand.add(first, CALLS=2, RAN_SQUARES=30, WAITED_SQUARES=400)
    stand.add(second, CALLS=1, RAN_SQUARES=5)
    assert stand.block().calls == {"work": (3, 35, 400)}
    stand.add(second, CALLS=1, RAN_SQUARES=7, WAITED_SQUARES=1)
    assert stand.block().calls == {"work": (1, 7, 1)}
    assert stand.block().calls == {}


def test_what_a_profile_used_in_a_slot_is_not_the_next_workers(stand: Stand) -> None:
    stand.sampler.over(1, INCARNATION)
    stand.block()
    stand.binding.spent_ns[1] += 5 * NS  # while no worker was in the slot
    fd = meter.create()
    stand.sampler.watch(1, INCARNATION + 1, os.getpid(), MeterReader(fd))
    os.close(fd)
    assert table(stand.block().slots)[0]["cpu_ns"] == 0


def test_every_column_of_the_message_is_there_for_every_row(stand: Stand) -> None:
    for number in range(3):
        stand.record(number, WORK)
    block = stand.block()
    assert tuple(block.threads) == m.SAMPLE_COLUMNS and tuple(block.slots) == m.SLOT_COLUMNS
    assert tuple(block.links) == m.LINK_COLUMNS
    assert {len(data) for data in block.threads.values()} == {3 * 8}


def test_latency_is_told_as_mean_and_percentiles_of_this_second(stand: Stand) -> None:
    at = stand.record(7, WORK)
    words = stand.meter.words
    words[at + meter.FIELDS + bucket_of(1_000_000)] += 98
    words[at + meter.FIELDS + bucket_of(50_000_000)] += 2
    stand.add(at, LATENCY_SUM_NS=98 * 1_000_000 + 2 * 50_000_000)
    row = rows(stand.block())[0]
    assert row["latency_mean_ns"] == 1_980_000
    assert row["latency_p50_ns"] == pytest.approx(1_000_000, rel=0.13)
    assert row["latency_p99_ns"] == pytest.approx(50_000_000, rel=0.13)
    words[at + meter.FIELDS + bucket_of(4_000_000)] += 1
    stand.add(at, LATENCY_SUM_NS=4_000_000)
    assert rows(stand.block())[0]["latency_p99_ns"] == pytest.approx(4_000_000, rel=0.13)
    assert rows(stand.block())[0]["latency_p50_ns"] == 0


def test_percentiles_agree_with_the_meters_own(stand: Stand) -> None:
    at = stand.record(7, WORK)
    counts = [0] * BUCKETS
    for k in range(BUCKETS):
        counts[k] = stand.meter.words[at + meter.FIELDS + k] = (k * 7919) % 13
    row = rows(stand.block())[0]
    assert row["latency_p50_ns"] == percentile_ns(counts, 0.5)
    assert row["latency_p99_ns"] == percentile_ns(counts, 0.99)


def test_a_thread_that_has_ended_is_told_one_last_time(stand: Stand) -> None:
    at = stand.record(7, WORK)
    stand.add(at, TUPLES_IN=5)
    stand.block()
    stand.add(at, TUPLES_IN=2)
    stand.meter.words[at + meter.STATE] = 2
    assert rows(stand.block())[0]["tuples_in"] == 2
    assert rows(stand.block()) == []


def test_what_a_worker_counted_before_it_was_killed_is_in_the_next_block(stand: Stand) -> None:
    at = stand.record(7, WORK)
    stand.block()
    stand.add(at, TUPLES_IN=9)
    stand.sampler.over(1, INCARNATION)
    block = stand.block()
    assert rows(block)[0]["tuples_in"] == 9
    assert table(block.slots)[0]["memory_bytes"] == 0
    assert rows(stand.block()) == []


def test_each_thread_has_its_own_cpu_time(stand: Stand) -> None:
    there, go, spun, stop = (threading.Event() for _ in range(4))
    tids = []

    def spin() -> None:
        tids.append(threading.get_native_id())
        there.set()
        go.wait()
        while time.thread_time_ns() < 50_000_000:
            pass
        spun.set()
        stop.wait()

    spinner = threading.Thread(target=spin)
    spinner.start()
    there.wait()
    stand.record(7, WORK, tid=tids[0])
    stand.record(8, WORK, tid=threading.get_native_id())
    stand.record(9, WORK, tid=2**22 + 1)
    stand.block()
    go.set()
    spun.wait()
    busy, idle, absent = rows(stand.block(0.2))
    stop.set()
    spinner.join()
    assert busy["cpu_ns"] > 1_000_000 and busy["cpu_ns"] > 2 * idle["cpu_ns"]
    assert absent["cpu_ns"] == 0, "a thread that is gone has no file"


def test_the_time_a_thread_had_is_counted_in_nanoseconds(stand: Stand) -> None:
    stand.record(7, WORK, tid=threading.get_native_id())
    stand.block()
    begin_ns = time.thread_time_ns()
    while time.thread_time_ns() - begin_ns < 3_000_000:
        pass
    spent_ns = time.thread_time_ns() - begin_ns
    assert rows(stand.block())[0]["cpu_ns"] == pytest.approx(spent_ns, abs=3_000_000)
    assert rows(stand.block())[0]["cpu_ns"] >= 0


def test_being_throttled_is_no_waiting_for_others() -> None:
    assert unthrottled_share([600, 200], 400) == 0.5
    assert unthrottled_share([600, 200], 10_000) == 0.0
    assert unthrottled_share([600, 200], 0) == 1.0
    assert unthrottled_share([], 5) == unthrottled_share([0, 0], 5) == 0.0


# ── slots and links ─────────────────────────────────────────────────────────────────────────────


def test_a_slots_memory_is_its_workers_split_evenly_over_its_threads(stand: Stand) -> None:
    for number in range(4):
        stand.record(number, WORK)
    stand.binding.bind(1, os.getpid())
    block = stand.block()
    slot = table(block.slots)[0]
    assert slot["slot"] == 1 and slot["memory_bytes"] == pytest.approx(
        processes.rss_bytes(os.getpid()), rel=0.05
    )
    assert {row["memory_bytes"] for row in rows(block)} == {slot["memory_bytes"] // 4}


def test_a_slots_memory_is_that_of_its_child_processes_too(stand: Stand) -> None:
    code = "held = bytearray(80 << 20); print('held', flush=True); input()"
    stand.binding.bind(1, os.getpid())
    alone = table(stand.block().slots)[0]["memory_bytes"]
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        together = table(stand.block().slots)[0]["memory_bytes"]
        child.communicate(b"\n")
    assert together - alone > 80 << 20


def test_what_less_than_a_tenth_of_a_second_used_is_told_with_the_next_block(stand: Stand) -> None:
    """So that no share of a CPU comes from a window in which one tick is all of it."""
    stand.record(0, WORK, tid=os.getpid())
    stand.block()
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < 30_000_000:
        pass
    short = stand.block(0.02)
    assert table(short.slots) == [] and [row["cpu_ns"] for row in rows(short)] in ([], [0])
    assert rows(stand.block())[0]["cpu_ns"] >= 29_000_000


def test_a_process_that_has_ended_tells_no_memory(stand: Stand) -> None:
    stand.binding.bind(1, os.getpid())
    stand.sampler.over(1, INCARNATION)
    assert table(stand.block().slots)[0]["memory_bytes"] == 0, "not known"


def test_links_over_which_something_went_are_told_with_mean_latencies(stand: Stand) -> None:
    link = stand.meter.link_record(3, 7)
    quiet = stand.meter.link_record(4, 7)
    assert link is not None and quiet is not None
    words = stand.meter.words
    for field, value in (
        (meter.L_TUPLES, 40),
        (meter.L_BYTES, 900),
        (meter.L_FRAMES, 4),
        (meter.L_BUFFER_NS, 80),
    ):
        words[link + field] = value
    words[link + meter.L_CHANNEL_NS] = 20
    stand.block()
    words[link + meter.L_TUPLES] += 6
    words[link + meter.L_FRAMES] += 2
    words[link + meter.L_BUFFER_NS] += 10
    words[link + meter.L_CHANNEL_NS] += 3
    got = table(stand.block().links)
    assert got == [
        {
            "from_thread": 3, "to_thread": 7, "tuples": 6, "bytes": 0, "frames": 2,
            "buffer_latency_ns": 5, "channel_latency_ns": 1,
        }
    ]  # fmt: skip


def test_links_that_do_not_fit_into_a_block_come_with_the_next(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.agent.reports.sampler.LINKS_MOST", 2)
    for number in range(5):
        link = stand.meter.link_record(number, 9)
        assert link is not None
        stand.meter.words[link + meter.L_TUPLES] = 1
        stand.meter.words[link + meter.L_FRAMES] = 1
    seen = [[row["from_thread"] for row in table(stand.block().links)] for _ in range(4)]
    assert seen == [[0, 1], [2, 3], [4], []]


# ── sinks ───────────────────────────────────────────────────────────────────────────────────────


def test_rows_in_a_task_are_counted_by_latency_over_all_its_threads(stand: Stand) -> None:
    for number, bucket in ((7, 12), (8, 12), (9, 40)):
        at = stand.record(number, WORK)
        stand.meter.words[at + meter.FIELDS + bucket] += 3
    assert table(stand.block().task_latency) == [
        {"task": WORK, "bucket": 12, "rows": 6},
        {"task": WORK, "bucket": 40, "rows": 3},
    ]
    assert table(stand.block().task_latency) == []


def test_end_to_end_latency_of_a_sink_is_booked_on_its_source(stand: Stand) -> None:
    first, second = stand.record(7, STORE), stand.record(8, STORE)
    stand.meter.words[first + meter.E2E + 12] += 5
    stand.meter.words[second + meter.E2E + 12] += 1
    stand.meter.words[second + meter.E2E + 40] += 2
    latency = stand.block().latency
    assert [(sink, source, buckets[12], buckets[40], sum(buckets)) for sink, source, buckets in latency] == [
        ("store", "source", 6, 2, 8)
    ]
    assert stand.block().latency == ()


def test_a_sinks_source_is_the_first_in_file_order_that_reaches_it() -> None:
    tasks = tuple(Task(name) for name in ("b", "a", "c", "mid", "sink", "other"))
    topology = Topology(
        "two", tasks, (Edge("a", "mid"), Edge("c", "mid"), Edge("mid", "sink"), Edge("b", "other"))
    )
    assert [first_source(topology, name) for name in ("sink", "other", "a")] == ["a", "b", "a"]


def test_finished_rows_go_along(stand: Stand, tmp_path: Path) -> None:
    record = array("q", (0, 0, 0, 3, 0)).tobytes()
    (tmp_path / "finished").mkdir()
    (tmp_path / "finished" / "2-7-77.log").write_bytes(record)
    assert stand.sampler.behind()
    assert stand.block().finished == (m.FinishedRuns("store", 7, 77, 0, record),)
    assert not stand.sampler.behind()


def test_nothing_is_measured_before_tasks_have_names(tmp_path: Path) -> None:
    sampler = Sampler("vm1", 1, slot_binding.Unbound(SlotSize("r", "vm1", 1, 0.2, 1 << 28)), str(tmp_path), 0)
    assert sampler.block(NS, NS, 0) is None and not sampler.behind()


def test_the_cost_of_a_block_is_in_it(stand: Stand) -> None:
    for number in range(50):
        stand.record(number, WORK, tid=threading.get_native_id())
    assert 0 < stand.block().cost_ns < 50_000_000


def test_no_rows_are_columns_without_bytes() -> None:
    assert columns(("a", "b"), []) == {"a": b"", "b": b""}


# ── what reports and the watch need of a meter ──────────────────────────────────────────────────


def test_source_positions_are_read_from_the_meter(stand: Stand) -> None:
    at = stand.record(4, SOURCE)
    assert stand.reader.sources(("source", "work", "store")) == ()
    stand.add(at, SOURCE_PARTITION=3, SOURCE_EMITTED=100, SOURCE_ACKED=80, SOURCE_ACKED_ABOVE=5)
    stand.add(at, SOURCE_IN_FLIGHT=15, SOURCE_REPLAYED=6, SOURCE_STATE=3)
    assert stand.reader.sources(("source", "work", "store")) == (
        m.SourceStatus("source", 2, 4, 100, 80, 5, 15, 6, stopped=True, exhausted=True),
    )


def test_a_reading_for_the_watch_has_waiting_rows_and_calls_of_live_threads(stand: Stand) -> None:
    stand.add(stand.record(1, WORK), QUEUE=3, CALL_STARTED_NS=55)
    stand.add(stand.record(2, STORE), QUEUE=4)
    ended = stand.record(3, WORK)
    stand.add(ended, QUEUE=9, CALL_STARTED_NS=1, STATE=1)
    stand.meter.words[meter.H_PROGRESS] = 42
    reading = stand.reader.reading(7, "S", 8)
    assert (reading.progress, reading.queued, reading.calls) == (42, 7, (Call(1, WORK, "row", 55, 0),))
    assert (reading.now_ns, reading.state, reading.ran_ns) == (7, "S", 8)


# ── A worker's records are used again and again, and no count is lost, mixed up or told twice ───────────

NAMES = ("source", "work")
STEPS = 20_000


@pytest.fixture
def both() -> Iterator[tuple[meter.Meter, MeterReader]]:
    fd = meter.create()
    worker, reader = meter.Meter(fd), MeterReader(fd)
    os.close(fd)
    yield worker, reader
    reader.close()
    worker.close()


class Model:
    """What was counted, by thread and by link, and what the reader told of it."""

    def __init__(self, worker: meter.Meter, reader: MeterReader, seed: int) -> None:
        self.worker, self.reader, self.random = worker, reader, random.Random(seed)
        self.threads: dict[int, int] = {}  # number → record
        self.links: dict[tuple[int, int], int] = {}
        self.begun = self.most = 0
        self.counted: Counter[object] = Counter()
        self.told: Counter[object] = Counter()

    def begin(self) -> None:
        at = self.worker.thread_record()
        assert not any(self.worker.words[at : at + meter.THREAD_WORDS]), "a record begins at zero"
        self.worker.words[at + meter.THREAD] = self.begun + 1
        self.worker.words[at + meter.STATE] = meter.RUNNING
        self.threads[self.begun] = at
        self.begun += 1
        self.most = max(self.most, len(self.threads))

    def count(self) -> None:
        number, at = self.random.choice(list(self.threads.items()))
        more, bucket = self.random.randrange(1, 9), self.random.randrange(BUCKETS)
        self.worker.words[at + meter.TUPLES_IN] += more
        self.worker.words[at + meter.FIELDS + bucket] += more
        self.counted[number] += more
        self.counted[number, bucket] += more
        sender = self.random.choice(list(self.threads))
        if (sender, number) not in self.links:
            link = self.worker.link_record(sender, number)
            assert link is not None
            self.links[sender, number] = link
        self.worker.words[self.links[sender, number] + meter.L_TUPLES] += more
        self.counted["link", sender, number] += more

    def end(self) -> None:
        number = self.random.choice(list(self.threads))
        for pair in [pair for pair in self.links if number in pair]:
            self.worker.link_ended(self.links.pop(pair))
        self.worker.thread_ended(self.threads.pop(number))

    def read(self) -> None:
        for now, before, latency, _ in self.reader.threads():
            number, more = now[meter.THREAD] - 1, now[meter.TUPLES_IN] - before[meter.TUPLES_IN]
            assert more >= 0, "no count goes backwards"
            self.told[number] += more
            for bucket, rows in latency:
                self.told[number, bucket] += rows
        for link, before in self.reader.links(self.random.randrange(1, 60)):
            more = link[meter.L_TUPLES] - before[meter.L_TUPLES]
            assert more > 0
            self.told["link", link[meter.L_FROM], link[meter.L_TO]] += more


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_threads_and_links_in_one_worker_are_counted_exactly(
    both: tuple[meter.Meter, MeterReader], seed: int
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
    assert model.begun > 2 * meter.THREADS, "more than there are records"
    assert +model.told == +model.counted
    assert model.worker.words[meter.H_THREADS] < 8 * model.most


def test_a_record_is_not_used_again_before_it_was_read_to_its_end(
    both: tuple[meter.Meter, MeterReader],
) -> None:
    worker, reader = both
    first = worker.thread_record()
    worker.words[first + meter.THREAD] = 1
    worker.thread_ended(first)
    second = worker.thread_record()
    assert second != first
    reader.threads()
    assert worker.thread_record() == first


def test_where_a_source_ended_is_told_after_its_record_was_freed(
    both: tuple[meter.Meter, MeterReader],
) -> None:
    worker, reader = both
    at = worker.thread_record()
    words = worker.words
    words[at + meter.THREAD], words[at + meter.SOURCE_PARTITION] = 4, 1
    words[at + meter.SOURCE_EMITTED] = words[at + meter.SOURCE_ACKED] = 99
    worker.thread_ended(at)
    reader.threads()
    assert [(source.thread, source.acked) for source in reader.sources(NAMES)] == [(3, 99)]
    assert reader.sources(NAMES) == (), "once"
