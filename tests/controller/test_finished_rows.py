"""Rows that reached the sinks are counted exactly, whatever variants they have, in memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections import Counter

import pytest

from headgate.controller.knowledge.tallies import FinishedTally
from headgate.controller.monitor.sink_logs import CHUNK, RUN_BYTES, FinishedRows
from headgate.topology_runtime.messages import FinishedRuns

Run = tuple[int, int, int, int, int]  # source, partition, position, count, variant


def told(runs: list[Run], offset: int = 0, thread: int = 1) -> tuple[FinishedRuns, ...]:
    words = array("q", [word for run in runs for word in run])
    return (FinishedRuns("sink", thread, 7, offset, words.tobytes()),)


def identities(runs: list[Run]) -> Counter[tuple[int, int, int]]:
    return Counter((p, first + i, v) for _, p, first, count, v in runs for i in range(count))


def random_runs(choose: random.Random, number: int, low: int = 0, high: int = 6000) -> list[Run]:
    variants = [0, 1, *(choose.randrange(1 << 40) for _ in range(300))]
    return [
        (0, choose.randrange(2), choose.randrange(low, high), choose.randint(1, 3), choose.choice(variants))
        for _ in range(number)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_distinct_rows_of_any_variants(seed: int) -> None:
    runs = random_runs(random.Random(seed), 3000)
    counted = FinishedRows()
    for at in range(0, len(runs), 50):
        counted.add(told(runs[at : at + 50], at * RUN_BYTES))
    rows = identities(runs)
    assert (counted.rows, counted.distinct) == (rows.total(), len(rows))
    assert counted.by_task == {"sink": (rows.total(), len(rows))}


def test_bytes_told_again_are_not_counted_again() -> None:
    counted = FinishedRows()
    runs = [(0, 0, i, 1, 1000 + i) for i in range(200)]
    for _ in range(3):
        counted.add(told(runs))
    assert (counted.rows, counted.duplicates) == (200, 0)
    counted.add(told(runs[150:], thread=2))  # the same rows at another thread of the sink
    assert (counted.rows, counted.duplicates) == (250, 50)


@pytest.mark.parametrize("seed", range(6))
def test_settling_changes_no_count_and_what_comes_late_is_a_copy(seed: int) -> None:
    """Rows come in windows of positions; below a window all has come once. Now and then the
    controller begins again, from the tally, and reads the logs from their beginning."""
    choose = random.Random(seed)
    counted, log, every = FinishedRows(), [], Counter[tuple[int, int, int]]()
    tally = FinishedTally()
    for window in range(8):
        low, high = window * 1500, (window + 1) * 1500
        fresh = random_runs(choose, 300, low, high - 3)
        fresh += choose.choices(log, k=20) if log else []  # copies, also of what is settled
        counted.add(told(fresh, len(log) * RUN_BYTES))
        log += fresh
        every.update(identities(fresh))
        if choose.random() < 0.4:
            counted = FinishedRows(tally)
            for at in range(0, len(log), 100):
                counted.add(told(log[at : at + 100], at * RUN_BYTES))
        assert (counted.rows, counted.distinct) == (every.total(), len(every)), f"seed {seed}, {window}"
        if counted.settle({(0, 0): high - 1500 * choose.randrange(2), (0, 1): high}):
            tally = counted.tally
        assert (counted.rows, counted.distinct) == (every.total(), len(every)), f"seed {seed}, {window}"
    assert tally.tasks and tally.tasks[0][1] > 0


def test_logs_whose_beginning_is_thrown_away_go_on_from_the_tally() -> None:
    first, second = [(0, 0, i, 1, 0) for i in range(CHUNK)], [(0, 0, CHUNK + i, 1, 0) for i in range(50)]
    before = FinishedRows()
    before.add(told(first))
    assert before.settle({(0, 0): CHUNK})
    after = FinishedRows(before.tally)
    after.add(told(second, CHUNK * RUN_BYTES))
    assert (after.rows, after.distinct, after.missed_bytes) == (CHUNK + 50, CHUNK + 50, 0)


def test_nothing_is_settled_while_bytes_are_missing() -> None:
    counted = FinishedRows()
    counted.add(told([(0, 0, i, 1, 0) for i in range(5)], 10 * RUN_BYTES))
    assert counted.missed_bytes == 10 * RUN_BYTES
    assert not counted.settle({(0, 0): 10 * CHUNK})


def test_a_long_run_takes_no_more_memory_than_a_short_one() -> None:
    """Each row has a variant of its own, as what comes of buckets has."""
    choose, counted, used = random.Random(1), FinishedRows(), []
    tracemalloc.start()
    for second in range(60):
        runs = [(0, 0, second * 500 + i, 1, choose.randrange(1 << 31)) for i in range(500)]
        counted.add(told(runs, second * 500 * RUN_BYTES))
        counted.settle({(0, 0): second * 500 - 1000})
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert (counted.rows, counted.duplicates) == (30_000, 0)
    assert used[-1] < 1.5 * max(used[5:15])
