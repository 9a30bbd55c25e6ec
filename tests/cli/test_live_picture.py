"""What `up` and `watch` draw: text from a view, nothing else."""

from __future__ import annotations

import io
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headgate.dashboards.runs.live_view import (
    BARS,
    SAME_NS,
    Lines,
    NewLines,
    clock,
    event_times,
    moment,
    picture,
    sparkline,
    tick_line,
)

EMPTY = {"topology": "demo", "seconds": 0.0, "stage": "starting"}


def slot(number, threads, cpu=None, state="running"):
    return {"slot": number, "threads": threads, "cpu": cpu, "state": state}


BUSY = {
    "topology": "demo", "seconds": 42.0, "stage": "committed", "plan": {"epoch": 3}, "slots": {"used": 6, "total": 8},
    "verdict": {"verdict": "stable", "slope": 0.0002},
    "rates": {"offered_now_tps": 96.4, "acked_now_tps": 95.0, "planned_tps": 120.0, "predicted_tps": 131.0},
    "latency_ms": {"error": 0.016, "window": {"p50": 3.14, "p99": 9.0}},
    "tuples": {"acked": 8812, "in_flight": 12, "dead_lettered": 1, "replayed": 0, "lost": 0},
    "vms": [{"vm": "vm1", "state": "joined", "slots": [slot(0, {"parse": 2, "join": 1}, 0.71), slot(1, {})]},
            {"vm": "vm2", "state": "silent", "slots": [slot(0, {"score": 1}), slot(1, {}, state="quarantined")]}],
    "held": "the journal cannot be written",
}  # fmt: skip


def drawn(status, rates=(), seconds=None) -> str:
    out = StringIO()
    Console(file=out, width=100, color_system=None).print(picture(status, rates, seconds))
    return out.getvalue()


def test_everything_people_want_to_know_is_in_the_picture():
    text = drawn(BUSY, [1, 5, 9], 120)
    for words in ("demo  00:42 of 02:00", "96 rows/s offered", "95 measured", "120 planned", "131 predicted",
                  "stable, slope +0.2 ms/s", "p50 3.1 ms, p99 9.0 ms (±1.6%)", "#3: 6 of 8 slots on 2 VMs",
                  "8,812 acked", "1 dead letters, 0 lost", "0 parse×2 join×1 71%", "1 –", "vm2 (silent)",
                  "1 quarantined", "the journal cannot be written"):  # fmt: skip
        assert words in text, words


def timed(task, watermark, lag_s, held_by=None, late=0):
    return {"task": task, "watermark": watermark, "lag_s": lag_s, "held_by": held_by, "late_rows": late}


SLOW = timed("pairs", 1_789_990_000.0, 12_345.6, "clicks partition 3", 1)
QUICK = timed("minutes", 1_790_000_000.25, 12.34, "requests partition 0", 1_200)
UNKNOWN = timed("joined", None, None) | {"state": "none yet"}


def test_event_time_is_told_of_each_task_that_has_it_those_furthest_behind_first():
    lines = event_times({**BUSY, "event_time": [UNKNOWN, QUICK, SLOW]})
    assert lines == [
        "event time of pairs: watermark 2026-09-21 11:26:40 UTC, 12,346 s behind now; clicks partition 3 holds it "
        "back; 1 row late",
        "event time of minutes: watermark 2026-09-21 14:13:20 UTC, 12.3 s behind now; requests partition 0 holds it "
        "back; 1,200 rows late",
        "event time of joined: no watermark yet; 0 rows late",
    ]
    assert "5.0 s ahead of now; 0 rows late" in event_times({"event_time": [timed("odd", 1.79e9, -5.0)]})[0]
    few = event_times({"event_time": [UNKNOWN, QUICK, SLOW]}, 1)
    assert few == [lines[0], "event time of 2 more tasks: headgate status"]


def test_why_there_is_no_watermark_rows_without_a_time_and_what_is_open_are_told():
    ended, never = (UNKNOWN | {"state": state} for state in ("ended", "no timestamps"))
    assert event_times({"event_time": [ended, never]}) == [
        "event time of joined: its input has ended; 0 rows late",
        "event time of joined: no watermark: no source before it has timestamps; 0 rows late",
    ]
    more = QUICK | {"rows_without_time": {"requests": 1, "orders": 0, "clicks": 1_200}, "open_keys": 3_400}
    more |= {"waiting": {"clicks partition 1": "requests partition 0"}}
    assert event_times({"event_time": [more]})[0].endswith(
        "; 1,200 rows late; 1 row of requests without a time; 1,200 rows of clicks without a time; "
        "clicks partition 1 waits for requests partition 0; 3,400 keys with open windows or timers"
    )


def test_a_run_that_drains_says_what_is_left():
    draining = {**BUSY, "stage": "draining", "end_step": None}
    assert "| draining, " in tick_line(draining)
    open_now = [QUICK | {"open_keys": 3_400}, UNKNOWN | {"open_keys": 2}, UNKNOWN | {"open_keys": None}]
    line = tick_line({**draining, "event_time": open_now, "end_step": {"step": "finish", "task": "minutes"}})
    assert "| draining (minutes finishes; 3,402 keys with open windows or timers), " in line
    steps = {
        "hold": "rows on their way come to rest",
        "fire": "windows of minutes are given",
        "over": "what windows of minutes gave is finished",
        "again": "what is not done is sent again",
    }
    for step, words in steps.items():
        told = tick_line({**draining, "end_step": {"step": step, "task": "minutes"}})
        assert f"| draining ({words}), " in told
    assert "(" not in tick_line({**BUSY, "end_step": {"step": "hold", "task": None}}).partition("| p50")[0]


def test_the_picture_has_event_time_only_where_there_is_any():
    text = " ".join(drawn({**BUSY, "event_time": [QUICK]}).split())
    assert "event time of minutes: watermark 2026-09-21 14:13:20 UTC" in text and "1,200 rows late" in text
    for status in (BUSY, EMPTY, {**BUSY, "event_time": []}):
        assert event_times(status) == [] and "event time" not in drawn(status)


def test_a_time_that_is_no_date_is_told_as_a_number():
    """Milliseconds that a source took for seconds."""
    assert moment(1.79e12) == "1,790,000,000,000 s since 1970"
    assert [moment(s) for s in (-0.5, 0, 59.999)] == [
        "1969-12-31 23:59:59 UTC", "1970-01-01 00:00:00 UTC", "1970-01-01 00:00:59 UTC"
    ]  # fmt: skip


def test_what_is_not_known_is_na():
    for text in (drawn(EMPTY), tick_line(EMPTY)):
        assert "N/A" in text and "nan" not in text.lower() and "None" not in text


def test_a_rate_a_little_below_nothing_is_nothing():
    assert "measured 0," in tick_line({**BUSY, "rates": {**BUSY["rates"], "acked_now_tps": -0.3}})


def test_a_tick_is_one_line():
    line = tick_line(BUSY)
    assert "\n" not in line
    for words in ("00:42 plan #3", "stable", "offered 96 rows/s", "6 of 8 slots", "lost 0"):
        assert words in line


def test_a_line_that_says_the_same_again_is_shown_now_and_then():
    """A run that drains while nothing gets done says so once, not once a second."""
    lines = NewLines()
    said = [lines.take(tick_line({**BUSY, "stage": "draining", "seconds": 42.0 + s}), s * SAME_NS // 10)
            for s in range(25)]  # fmt: skip
    assert [second for second, shown in enumerate(said) if shown] == [0, 10, 20]
    fewer = {**BUSY, "stage": "draining", "verdict": {**BUSY["verdict"], "backlog_rows": 7}}
    assert lines.take(tick_line(fewer), 24 * SAME_NS // 10), "with progress it is"
    assert "draining, stable" in tick_line(fewer) and "7 rows not done" in tick_line(fewer)


def test_what_up_shows_is_written_once_while_nothing_changes(monkeypatch):
    monkeypatch.setattr("headgate.dashboards.runs.live_view.TICK_NS", 0)
    lines = Lines(stream := io.StringIO())
    for seconds in range(5):
        lines.show({**BUSY, "seconds": float(seconds)})
    lines.show({**BUSY, "stage": "draining"})
    assert len(stream.getvalue().splitlines()) == 2


@given(st.lists(st.floats(0, 1e9), max_size=200), st.integers(1, 80))
def test_sparkline_shows_the_newest_rates_against_their_highest(rates, width):
    line = sparkline(rates, width)
    assert len(line) == min(len(rates), width)
    assert set(line) <= set(BARS)
    shown = rates[-width:]
    if shown and max(shown) > 0:
        assert line[shown.index(max(shown))] == BARS[-1]


def test_clock():
    assert [clock(s) for s in (-1, 0, 61.9, 6000)] == ["00:00", "00:00", "01:01", "100:00"]
