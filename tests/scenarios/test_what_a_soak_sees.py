"""The checker of counted runs and the slopes of a soak: would they see it?"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.logic import Context
from watched_runs.counted_tasks import KEYS, Spans, Tally, keyed
from watched_runs.counted_tasks import Segments as Writer
from watched_runs.sink_check import Checker, Segments
from watched_runs.vitals import last_life, slope, slopes


def run_of(rows: int, numbers: list[int], applied: list[int]) -> Checker:
    """A checker that saw `numbers` at the one sink, and what a tally of `applied` gives at the other."""
    checker, tally = Checker(), Tally()
    states = {key: tally.new(key) for key in range(KEYS)}
    for number in applied:
        row = keyed(number)
        states[row[0]], out = tally.process(row[0], row, states[row[0]])
        checker.take("counts", " ".join(map(str, *out)))
    for number in numbers:
        checker.take("numbers", str(number))
    return checker


def test_a_run_with_everything_in_disorder_is_whole() -> None:
    numbers = list(range(1000))
    random.Random(1).shuffle(numbers)
    found = run_of(1000, numbers, numbers).verdict(1000)
    assert found["whole"] and found["applied_again"] == 0
    assert [sink["duplicates"] for sink in found["sinks"].values()] == [0, 0]


@pytest.mark.parametrize("dropped", [0, 123_456])
def test_one_row_of_a_million_dropped_on_purpose_is_found(dropped: int) -> None:
    checker = Checker()
    for number in range(1_000_000):
        if number != dropped:
            checker.sinks["numbers"].add(number)
    found = checker.sinks["numbers"].verdict(1_000_000)
    assert (found["lost"], found["first_lost"]) == (1, [dropped])


def test_a_row_that_was_lost_is_not_made_up_for_by_one_that_came_twice() -> None:
    found = run_of(100, [*range(50), *range(51, 100), 7], list(range(100))).verdict(100)
    assert not found["whole"]
    assert (found["sinks"]["numbers"]["lost"], found["sinks"]["numbers"]["duplicates"]) == (1, 1)


def test_a_number_that_nobody_has_read_is_no_row_of_this_run() -> None:
    assert not run_of(10, list(range(11)), list(range(10))).verdict(10)["whole"]


def test_a_state_that_forgot_is_found_although_every_row_came_out() -> None:
    checker, tally = run_of(400, list(range(400)), list(range(200))), Tally()
    states = {key: tally.new(key) for key in range(KEYS)}  # the owner begins anew
    for number in range(200, 400):
        row = keyed(number)
        states[row[0]], out = tally.process(row[0], row, states[row[0]])
        checker.take("counts", " ".join(map(str, *out)))
    found = checker.verdict(400)
    assert found["sinks"]["counts"]["lost"] == 0 and not found["whole"]
    assert found["keys_short"] == dict.fromkeys(range(KEYS), 5)


def test_a_row_applied_twice_says_so_and_hides_no_other() -> None:
    tally = Tally()
    state = tally.new(3)
    for number in (3, 3 + KEYS, 3):
        state, out = tally.process(3, (3, number), state)
    assert list(out) == [(3, 3, 2, 1)]
    assert tally.snapshot(tally.restore(tally.snapshot(state))) == tally.snapshot(state)


@given(st.lists(st.integers(0, 60)))
def test_spans_are_a_set(numbers: list[int]) -> None:
    spans, known = Spans(), set()
    for number in numbers:
        assert spans.add(number) == (number not in known)
        known.add(number)
    assert spans.count == len(known)
    assert {n for a, b in zip(spans.starts, spans.ends, strict=True) for n in range(a, b)} == known
    assert Spans(spans.flat()).flat() == spans.flat()


def test_files_of_the_sinks_are_read_once_and_taken_away_when_they_are_over(tmp_path: Path) -> None:
    checker = Checker()
    segments = Segments(tmp_path, checker)
    writer = Writer(str(tmp_path), "numbers")
    writer.open(Context("numbers", 4, 0, 1, str(tmp_path)))
    for number in range(60_000):  # more than a segment
        writer(number)
        if number % 20_000 == 0:
            segments.drain()
    segments.drain()
    assert checker.sinks["numbers"].rows == checker.sinks["numbers"].seen.count == 60_000
    assert len(list(tmp_path.iterdir())) == 1  # the one that is written still


def test_half_a_line_of_a_writer_that_is_no_more_is_no_row(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"numbers-{ended.pid}-0-000000000").write_text("0\n1\n2")
    (tmp_path / f"numbers-{os.getpid()}-0-000000000").write_text("2\n3\n4")
    checker = Checker()
    Segments(tmp_path, checker).drain()
    assert checker.sinks["numbers"].seen.flat() == [0, 4]
    assert [path.name for path in tmp_path.iterdir()] == [f"numbers-{os.getpid()}-0-000000000"]


def test_a_leak_of_two_percent_an_hour_is_seen_through_noise_and_outliers() -> None:
    noise = random.Random(2)
    seconds = [10.0 * n for n in range(720)]
    steady = [100.0 + noise.gauss(0, 3) + (400 if n % 50 == 0 else 0) for n in range(720)]
    leaking = [value + 2.0 * s / 3600 for value, s in zip(steady, seconds, strict=True)]
    flat, grown = slope(seconds, steady), slope(seconds, leaking)
    assert flat is not None and flat.flat and not flat.grows
    assert grown is not None and not grown.flat and grown.low_pct > 0
    assert 1.0 < grown.per_h_pct < 3.0


def test_a_figure_of_one_process_counts_from_its_last_start() -> None:
    samples = [
        {"seconds": 10.0 * n, "oldest agent rss_mb": 50.0 if n < 60 else 80.0, "oldest agent pid": n // 60}
        for n in range(160)
    ]
    assert {one["oldest agent pid"] for one in last_life(samples, "oldest agent pid")} == {2}
    assert slopes(samples, 0.0)["oldest agent rss_mb"].flat
