"""What people have reported of other systems about windows, sessions, timers, late rows and joins, tried here; by name
and number of the report. Where a test is another file's, that is said.

    apache/beam#18677    sessions that overlap one given before       test_a_row_that_touches_a_session_that_is_gone
    apache/beam#33542    sessions merged across keys                  test_sessions_of_other_keys_stay_apart
    apache/beam#10216    rows within the allowed lateness, and after  test_windows_against_a_model.py
    apache/beam#17902    windows let go by one timer's time           test_the_watermark_may_jump_past_many_windows
    apache/beam#3425     timers by the clock once a window is gone    test_a_timer_by_the_clock_finds_its_window_gone
    apache/beam#32727    … that fire with an empty state              the same
    apache/beam#4875     a delay that is over at that very time       test_a_delay_that_is_over_to_the_microsecond
    apache/beam#13032    timers of the global window that pile up     test_the_global_window_sets_no_timer_that_stays
    apache/beam#24510    where a session ends                         test_a_session_ends_a_gap_after_its_last_row
    apache/beam#2600     sizes that are no whole seconds              test_sizes_that_are_no_whole_seconds
    apache/beam#35090    timers that fire before their time           test_nothing_is_given_on_time_before_the_watermark
    apache/beam#20692    one timer set again and again                test_a_long_session_is_given_once
    apache/beam#4239     rows that fall behind a trigger which is over   test_no_row_is_lost_behind_an_early_trigger
    apache/beam#18002    lateness that tasks below do not allow       each task has its own `late`; what a window
                         gives late is late below as well: test_late_results_are_late_for_windows_below
    apache/flink#18982   times before 1970                            test_times_before_1970_and_in_2100
    apache/spark#36737   … of sliding windows                         the same
    apache/flink#6348    rows at the very end of a window             test_a_row_at_the_end_is_in_the_next_window
    apache/flink#19765   what timers give comes after the watermark   test_windows_of_windows_are_whole
    apache/flink#25663   a late row, and a window that is still open  test_a_late_row_of_an_open_window_is_on_time
    apache/flink#2751    a late row that begins a session anew        test_a_late_row_joins_the_session_that_was_given
    apache/flink#15241   a delay that is lost when sessions merge     test_a_delay_outlives_sessions_that_merge
    apache/flink#15495   late rows, some of whose windows are gone    test_a_late_row_is_in_the_windows_that_are_left
    apache/flink#18993   a late row of a window that has none         test_a_window_that_begins_late_is_given_at_once
    apache/flink#15247   what a temporal join keeps for ever          test_joins_forget_keys
    apache/flink#23699   a row at the very watermark
test_a_row_at_the_watermark_is_not_too_late_for_a_join"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from windows_world import (
    Events,
    SavedAsOf,
    SavedInterval,
    SavedWindow,
    brief,
    counted,
    joined,
    keep,
    ran,
    row_of,
    rows_of,
)

from headgate import Time, testing, topology
from headgate import windows as w

LATE = {"within_s": 5, "emit": True}


def test_a_row_that_touches_a_session_that_is_gone():
    rows = rows_of(
        [row_of(0), row_of(6, "b"), row_of(3), row_of(30, "b")], windows=w.session(5), late={"emit": True}
    )
    of_a = [row for row in rows if row["key"] == "a"]
    assert [row["timing"] for row in of_a] == ["on time", "too late"]
    assert of_a[1]["row"] == row_of(3)


def test_a_row_that_would_reach_back_into_a_session_that_is_forgotten():
    given = [row_of(0), row_of(8), row_of(10, "b"), row_of(4), row_of(30, "b")]
    rows = [row for row in rows_of(given, windows=w.session(5), late={"emit": True}) if row["key"] == "a"]
    assert [(row.get("start"), row["timing"]) for row in rows] == [
        (0.0, "on time"), (None, "too late"), (8.0, "on time"),
    ]  # fmt: skip


def test_sessions_of_other_keys_stay_apart():
    rows = rows_of(
        [row_of(t, key) for t, key in ((0, "a"), (3, "b"), (6, "a"), (9, "b"))], windows=w.session(5)
    )
    assert sorted((row["key"], row["start"], row["value"]) for row in rows) == [
        ("a", 0.0, 1), ("a", 6.0, 1), ("b", 3.0, 1), ("b", 9.0, 1),
    ]  # fmt: skip


def test_the_watermark_may_jump_past_many_windows():
    result = ran([row_of(t) for t in (1, 11, 21, 9999)], windows=w.tumbling(10), late=15, lateness=50)
    assert [row["start"] for row in result.rows["keep"]] == [0.0, 10.0, 20.0, 9990.0]
    assert result.states == {"timed": {}}


def test_a_timer_by_the_clock_finds_its_window_gone():
    given = [row_of(1), row_of(11), testing.wait(60), row_of(12), testing.wait(60), row_of(13)]
    rows = rows_of(given, windows=w.tumbling(10), early={"seconds": 30}, emit="updates")
    assert brief(rows) == [
        (0.0, 10.0, 1, "on time"),
        (10.0, 20.0, 1, "early"),
        (10.0, 20.0, 2, "early"),
        (10.0, 20.0, 3, "on time"),
    ]


def test_a_delay_that_is_over_to_the_microsecond():
    given = [row_of(1), testing.wait(30), row_of(2), testing.wait(30), row_of(3)]
    rows = rows_of(given, windows=w.tumbling(10), early={"seconds": 30}, emit="updates")
    assert [(row["value"], row["timing"]) for row in rows] == [(1, "early"), (2, "early"), (3, "on time")]


def test_the_global_window_sets_no_timer_that_stays():
    task, time = w.EventWindow("t", windows=w.global_window(), early={"rows": 3}, emit="updates"), Time(1, 0)
    panes: Any = task.new("a")
    for t in range(5):
        panes, _ = task.process("a", row_of(t), panes, time)
    assert not time.changes
    rows = rows_of(
        [row_of(t) for t in range(5)], windows=w.global_window(), early={"rows": 3}, emit="updates"
    )
    assert brief(rows) == [(None, None, 3, "early"), (None, None, 5, "on time")]


def test_a_session_ends_a_gap_after_its_last_row():
    rows = rows_of([row_of(t) for t in (1, 4, 8.5, 13.5)], windows=w.session(5))
    assert brief(rows) == [(1.0, 13.5, 3, "on time"), (13.5, 18.5, 1, "on time")]


def test_sizes_that_are_no_whole_seconds():
    rows = rows_of([row_of(n / 10) for n in range(100)], windows=w.sliding(0.3, 0.1))
    assert [row["value"] for row in rows] == [1, 2, *[3] * 98, 2, 1]
    assert [row["start"] for row in rows] == [n / 10 for n in range(-2, 100)]
    micro = rows_of([row_of(0.000001), row_of(0.000003)], windows=w.tumbling(0.000002))
    assert brief(micro) == [(0.0, 0.000002, 1, "on time"), (0.000002, 0.000004, 1, "on time")]


def test_nothing_is_given_on_time_before_the_watermark():
    seen: list[tuple[float | None, str]] = []

    class Watched(SavedWindow):
        def on_timer(self, key: Any, at: int, state: Any, time: Time) -> Any:
            left, rows = super().on_timer(key, at, state, time)
            seen.extend((time.watermark, row["end"]) for row in rows)
            return left, rows

    rows_of([row_of(t) for t in (1, 9.999999, 10, 12, 19, 25, 31)], Watched, windows=w.tumbling(10))
    assert [end for _, end in seen] == [10.0, 20.0, 30.0, 40.0]
    assert all(mark is not None and mark >= end for mark, end in seen)


def test_a_long_session_is_given_once():
    result = ran([row_of(t) for t in range(2_000)], windows=w.session(5))
    assert brief(result.rows["keep"]) == [(0.0, 2004.0, 2000, "on time")]
    assert result.states == {"timed": {}}


@pytest.mark.parametrize("early", [{"rows": 3}, {"seconds": 1}])
def test_no_row_is_lost_behind_an_early_trigger(early):
    given = [one for t in range(10) for one in (row_of(t), testing.wait(0.4))]
    rows = rows_of(given, windows=w.tumbling(10), early=early, emit="updates", aggregate=w.collect("t"))
    assert rows[-1]["value"] == list(range(10)) and rows[-1]["timing"] == "on time"
    assert len(rows) == 4
    for before, after in zip(rows, rows[1:], strict=False):
        assert after["value"][: len(before["value"])] == before["value"]


@pytest.mark.parametrize("start", [-86_400.0 * 365 * 5, -20.0, 4_102_444_800.0])
def test_times_before_1970_and_in_2100(start):
    rows = rows_of([row_of(start + t) for t in (0.5, 9.5, 10.5, 21)], windows=w.tumbling(10))
    assert [(row["start"] - start, row["value"]) for row in rows] == [(0, 2), (10, 1), (20, 1)]
    rows = rows_of([row_of(start + t) for t in (0.5, 9.5)], windows=w.sliding(10, 5))
    assert [(row["start"] - start, row["value"]) for row in rows] == [(-5, 1), (0, 2), (5, 1)]
    rows = rows_of([row_of(start + t) for t in (0, 3)], windows=w.session(5))
    assert [(row["start"] - start, row["end"] - start) for row in rows] == [(0, 8)]


def test_a_row_at_the_end_is_in_the_next_window():
    rows = rows_of([row_of(10), row_of(19.999999), row_of(20)], windows=w.tumbling(10))
    assert brief(rows) == [(10.0, 20.0, 2, "on time"), (20.0, 30.0, 1, "on time")]


def as_row(result: dict[str, Any]) -> dict[str, Any]:
    """The time of a result is the last one that its window holds."""
    return {
        "k": "all",
        "t": result["end"] - 0.000001,
        "n": result["value"],
        "late": result["timing"] == "late",
    }


def levels(given: Iterable[Any], **params: Any) -> list[Any]:
    flow = topology("levels")
    events = flow.source("events", Events).timestamps("t")
    tens = flow.task("tens", w.EventWindow, at="t", windows=w.tumbling(10), **params).by("k")
    hundreds = flow.task(
        "hundreds", SavedWindow, at="t", windows=w.tumbling(100), aggregate=w.sum_of("n"), late={"emit": True}
    )
    events >> tens >> flow.task("rows", as_row) >> hundreds.by("k") >> flow.task("keep", keep)
    return testing.run(flow, {"events": list(given)}).rows["keep"]


def test_windows_of_windows_are_whole():
    found = levels(row_of(t, f"k{t % 7}") for t in range(1_000))
    assert [(row["start"], row["value"]) for row in found] == [(n * 100.0, 100) for n in range(10)]
    assert counted("too_late_rows") == 0


def test_late_results_are_late_for_windows_below():
    found = levels([row_of(5), row_of(250), row_of(7)], late=1000)
    late = [row for row in found if row["timing"] == "too late"]
    assert [row["row"]["late"] for row in late] == [True]


def test_a_late_row_of_an_open_window_is_on_time():
    rows = rows_of([row_of(1), row_of(8), row_of(3)], windows=w.tumbling(10))
    assert brief(rows) == [(0.0, 10.0, 3, "on time")]
    assert counted("late_rows") == counted("too_late_rows") == 0


def test_a_late_row_joins_the_session_that_was_given():
    given = [row_of(0), row_of(2), row_of(9, "b"), row_of(4), row_of(40, "b")]
    rows = rows_of(given, windows=w.session(5), late=10, aggregate=w.collect("t"))
    assert brief([row for row in rows if row["key"] == "a"]) == [
        (0.0, 7.0, [0, 2], "on time"),
        (0.0, 9.0, [0, 2, 4], "late"),
    ]


def test_sessions_that_a_late_row_joins_are_both_taken_back():
    given = [row_of(0), row_of(8), row_of(20, "b"), row_of(4)]
    rows = rows_of(given, windows=w.session(5), late=30, emit="retractions")
    assert [
        (row["start"], row["end"], row["value"], row["retract"]) for row in rows if row["key"] == "a"
    ] == [
        (0.0, 5.0, 1, False),
        (8.0, 13.0, 1, False),
        (0.0, 5.0, 1, True),
        (8.0, 13.0, 1, True),
        (0.0, 13.0, 3, False),
    ]


def test_a_delay_outlives_sessions_that_merge():
    given = [row_of(0), testing.wait(5), row_of(8), testing.wait(1), row_of(4), testing.wait(5), row_of(9)]
    rows = rows_of(given, windows=w.session(5), early={"seconds": 10}, emit="updates", lateness=20)
    assert brief(rows) == [(0.0, 13.0, 3, "early"), (0.0, 14.0, 4, "on time")]


def test_a_late_row_is_in_the_windows_that_are_left():
    rows = rows_of([row_of(2), row_of(11), row_of(8)], windows=w.sliding(10, 5))
    assert brief(rows) == [
        (-5.0, 5.0, 1, "on time"),
        (0.0, 10.0, 1, "on time"),
        (5.0, 15.0, 2, "on time"),
        (10.0, 20.0, 1, "on time"),
    ]
    assert counted("missed_windows") == 1 and counted("too_late_rows") == 0


def test_a_window_that_begins_late_is_given_at_once():
    rows = rows_of([row_of(32), row_of(8), row_of(9), row_of(45)], windows=w.tumbling(10), late=30)
    assert [(row["start"], row["value"], row["pane"], row["timing"]) for row in rows][:2] == [
        (0.0, 1, 0, "late"),
        (0.0, 2, 1, "late"),
    ]


def test_joins_forget_keys():
    left, right = [row_of(t, f"k{t}") for t in range(100)], [row_of(t, f"k{t}") for t in range(100)]
    flow = topology("joins")
    sides = [flow.source(name, Events).timestamps("t") for name in ("left", "right")]
    for name, task, params in (
        ("as_of", SavedAsOf, {"longest_s": 3}),
        ("near", SavedInterval, {"within_s": 3}),
        ("same", w.WindowJoin, {"windows": w.session(2)}),
    ):
        join = flow.task(name, task, left="left", right="right", at="t", **params)
        for side in sides:
            side >> join.by("k")
    result = testing.run(flow, {"left": left, "right": right})
    assert result.states == {"as_of": {}, "near": {}, "same": {}}
    assert [len(result.rows[name]) for name in ("as_of", "near", "same")] == [100, 100, 100]


def test_a_row_at_the_watermark_is_not_too_late():
    left, right = [row_of(10, n=1)], [row_of(10, n=2), row_of(10, n=3), row_of(9.999999, n=4)]
    found = joined(left, right, SavedInterval, within_s=0, late={"emit": True})
    assert [row["right"]["n"] for row in found if "right" in row] == [2, 3]
    assert [row["row"]["n"] for row in found if row.get("timing") == "too late"] == [4]
