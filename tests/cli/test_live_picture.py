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
    "latency_ms": {"window": {"p50": 3.14, "p99": 9.0}},
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
                  "stable, slope +0.2 ms/s", "p50 3.1 ms, p99 9.0 ms", "#3: 6 of 8 slots on 2 VMs",
                  "8,812 acked", "1 dead letters, 0 lost", "0 parse×2 join×1 71%", "1 –", "vm2 (silent)",
                  "1 quarantined", "the journal cannot be written"):  # fmt: skip
        assert words in text, words


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
