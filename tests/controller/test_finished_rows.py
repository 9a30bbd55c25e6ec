"""Rows that reached the sinks are counted exactly, in little memory, whatever variants they have."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections import Counter

import pytest

from controller.monitor import finished
from controller.monitor.finished import FinishedRows
from topology_runtime.messages import FinishedRuns

Run = tuple[int, int, int, int, int]  # source, partition, position, count, variant


def told(runs: list[Run], offset: int = 0, thread: int = 1) -> tuple[FinishedRuns, ...]:
    words = array("q", [word for run in runs for word in run])
    return (FinishedRuns("sink", thread, 7, offset, words.tobytes()),)


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_distinct_rows_of_any_variants(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "RECENT_MOST", 100)
    choose = random.Random(seed)
    variants = [choose.randrange(1 << 31) for _ in range(300)]  # more than have chunks of their own
    runs = [
        (0, choose.randrange(2), choose.randrange(6000), choose.randint(1, 3), choose.choice(variants))
        for _ in range(3000)
    ]
    counted = FinishedRows()
    for at in range(0, len(runs), 50):
        counted.add(told(runs[at : at + 50], at * finished.RUN_BYTES))
    rows = Counter((p, first + i, v) for _, p, first, count, v in runs for i in range(count))
    assert (counted.rows, counted.distinct) == (rows.total(), len(rows))
    assert counted.duplicates == rows.total() - len(rows)


def test_what_comes_of_buckets_takes_few_bytes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row has a variant of its own; a run of days must not fill the controller's memory."""
    monkeypatch.setattr(finished, "RECENT_MOST", 1000)
    choose, counted, rows = random.Random(1), FinishedRows(), 20_000
    tracemalloc.start()
    for at in range(0, rows, 1000):
        runs = [(0, 0, at + i, 1, choose.randrange(1 << 31)) for i in range(1000)]
        counted.add(told(runs, at * finished.RUN_BYTES))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counted.distinct == rows
    assert used < finished.RECENT_MOST * 120 + rows * 16


def test_bytes_told_again_are_not_counted_again() -> None:
    counted = FinishedRows()
    runs = [(0, 0, i, 1, 1000 + i) for i in range(200)]
    for _ in range(3):
        counted.add(told(runs))
    assert (counted.rows, counted.duplicates) == (200, 0)
    counted.add(told(runs[150:], thread=2))  # the same rows at another thread of the sink
    assert (counted.rows, counted.duplicates) == (250, 50)
