"""Rows that a window takes at once, and sliding windows merged of slices: what they give is what comes of taking each
row into each of its windows, one by one, over random streams with late rows and bad ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windows_world import SavedWindow, counted, ran, row_of, rows_of

from headgate import windows as w
from headgate.topology_runtime.testing.run_results import Result

COUNTED = ("late_rows", "too_late_rows", "missed_windows")
BIG = (1 << 63) - 4
FIGURES: dict[str, Any] = {
    "n": w.count("v"),
    "total": w.sum_of("v"),
    "mean": w.mean_of("v"),
    "low": w.min_of("v"),
}
SOME: dict[str, Any] = {"n": w.count(), "high": w.max_of("v"), "kinds": w.distinct("v")}
ROW = st.tuples(
    st.integers(-25, 40), st.sampled_from("ab"), st.sampled_from([1, 2, 2.5, None, BIG, Decimal("0.5"), "x"])
)
WINDOWS = st.sampled_from(
    [w.sliding(10, 2), w.sliding(10, 5, 3), w.sliding(9, 3, -4), w.sliding(7, 2), w.tumbling(10), w.tumbling(4, 1)]
)  # fmt: skip


class AtOnce(SavedWindow):
    """Not saved and restored between the rows."""

    process = w.EventWindow.process
    adds = w.EventWindow.adds
    on_timer = w.EventWindow.on_timer


def stream_of(rows: list[Any]) -> list[dict[str, Any]]:
    return [row_of(t, key, v=value, i=number) for number, (t, key, value) in enumerate(rows)]


def seen(result: Result) -> tuple[Any, ...]:
    """Results without rows that were collected, dead letters and counters."""
    found = []
    for row in result.rows["keep"]:
        if row["timing"] == "too late":
            found.append((row["at"], row["row"]["i"]))
            continue
        value = {name: one for name, one in row["value"].items() if name != "rows"}
        found.append((row["key"], row["start"], row["end"], value, row["pane"], row["timing"]))
    lost = sorted(letter.row["i"] for letter in result.dead_letters)
    return sorted(found, key=repr), lost, [counted(name) for name in COUNTED]


@pytest.mark.parametrize("figures", [FIGURES, SOME], ids=["sums", "extremes"])
@given(st.lists(ROW, min_size=1, max_size=25), st.sampled_from([0, 5]), WINDOWS, st.sampled_from([0, 3]))
def test_windows_at_once_are_those_of_each_row_by_itself(figures, rows, behind, kind, within):
    settings = {"lateness": float(behind), "windows": kind, "late": {"within_s": within, "emit": True}}
    events = stream_of(rows)
    at_once = seen(ran(events, AtOnce, aggregate=w.several(**figures), **settings))
    one_by_one = w.several(**figures, rows=w.collect())  # not of slices, for it says in which order rows came
    assert at_once == seen(ran(events, SavedWindow, aggregate=one_by_one, **settings))
    assert at_once == seen(ran(events, SavedWindow, aggregate=w.several(**figures), **settings))


@pytest.mark.parametrize("task", [AtOnce, SavedWindow])
def test_a_late_row_is_in_the_windows_that_are_open_and_not_in_those_that_are_over(task):
    found = rows_of([row_of(1), row_of(11), row_of(3), row_of(3)], task, windows=w.sliding(10, 5))
    assert [(row["start"], row["value"]) for row in found] == [(-5, 1), (0, 1), (5, 1), (10, 1)]
    assert counted("too_late_rows") == 2
    found = rows_of([row_of(1), row_of(6), row_of(4), row_of(7)], task, windows=w.sliding(10, 5))
    assert [(row["start"], row["value"]) for row in found] == [(-5, 1), (0, 4), (5, 2)]
    assert counted("missed_windows") == 1


def test_a_row_whose_sum_is_too_great_for_one_of_its_windows_changes_none():
    rows = [row_of(1, v=BIG), row_of(6, v=7), row_of(11, v=1)]
    result = ran(rows, AtOnce, lateness=20.0, windows=w.sliding(10, 5), aggregate=w.sum_of("v"))
    assert [letter.row["t"] for letter in result.dead_letters] == [6]
    values = [(row["start"], row["value"]) for row in result.rows["keep"]]
    assert values == [(-5, BIG), (0, BIG), (5, 1), (10, 1)]


def test_a_row_for_a_slice_that_is_there_may_be_too_much_for_its_windows():
    rows = [row_of(1, v=7), row_of(6, v=1), row_of(7, v=BIG), row_of(8, v=2)]
    result = ran(rows, AtOnce, lateness=20.0, windows=w.sliding(10, 5), aggregate=w.sum_of("v"))
    assert [letter.row["t"] for letter in result.dead_letters] == [7]
    assert [(row["start"], row["value"]) for row in result.rows["keep"]] == [(-5, 7), (0, 10), (5, 3)]


def test_a_window_that_was_given_is_given_again_for_a_late_row():
    found = rows_of([row_of(t) for t in (1, 2, 12, 3)], AtOnce, windows=w.tumbling(10), late=5)
    assert [(row["start"], row["value"], row["timing"]) for row in found] == [
        (0, 2, "on time"),
        (0, 3, "late"),
        (10, 1, "on time"),
    ]


def test_a_window_without_rows_between_others_gives_nothing():
    found = rows_of([row_of(1), row_of(101)], AtOnce, windows=w.sliding(4, 2))
    assert [row["start"] for row in found] == [-2, 0, 98, 100]


def test_a_class_with_a_process_of_its_own_sees_every_row():
    seen_rows: list[Any] = []

    class Noting(AtOnce):
        def process(self, key: Any, row: Any, state: Any, time: Any) -> Any:
            seen_rows.append(row["t"])
            return super().process(key, row, state, time)

    rows_of([row_of(t) for t in (1, 2, 3)], Noting, windows=w.sliding(4, 2))
    assert seen_rows == [1, 2, 3]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_beyond_what_is_taken_are_dead_letters(unit):
    far = 1 << 62
    result = ran([row_of(0), row_of(far), row_of(-far)], AtOnce, unit=unit, windows=w.sliding(4, 2))
    assert [letter.row["t"] for letter in result.dead_letters] == [far, -far]
