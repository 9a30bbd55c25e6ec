"""What `up` and `watch` draw: text from a view, nothing else."""

from __future__ import annotations

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dashboards.terminal.live_view import (
    BARS,
    SlotView,
    TerminalView,
    VmView,
    clock,
    picture,
    sparkline,
    tick_line,
)

EMPTY = TerminalView("demo", 0.0, "starting", 0, "unknown", 0, 0)
BUSY = TerminalView(
    "demo", 42.0, "committed", 3, "stable", 6, 8,
    offered_tps=96.4, measured_tps=95.0, planned_tps=120.0, predicted_tps=131.0, slope=0.0002,
    p50_ms=3.14, p99_ms=9.0, acked=8812, in_flight=12, dead_lettered=1,
    vms=(VmView("vm1", "joined", (SlotView(0, {"parse": 2, "join": 1}, cpu=0.71), SlotView(1, {}))),
         VmView("vm2", "silent", (SlotView(0, {"score": 1}), SlotView(1, {}, state="quarantined")))),
    notes=("the journal cannot be written",),
)  # fmt: skip


def drawn(view: TerminalView, rates=(), seconds=None) -> str:
    out = StringIO()
    Console(file=out, width=100, color_system=None).print(picture(view, rates, seconds))
    return out.getvalue()


def test_everything_people_want_to_know_is_in_the_picture():
    text = drawn(BUSY, [1, 5, 9], 120)
    for words in ("demo  00:42 of 02:00", "96 t/s offered", "95 measured", "120 planned", "131 predicted",
                  "stable, slope +0.2 ms/s", "p50 3.1 ms, p99 9.0 ms", "#3: 6 of 8 slots on 2 VMs",
                  "8,812 acked", "1 dead letters, 0 lost", "0 parse×2 join×1 71%", "1 –", "vm2 (silent)",
                  "1 quarantined", "the journal cannot be written"):  # fmt: skip
        assert words in text, words


def test_what_is_not_known_is_na():
    for text in (drawn(EMPTY), tick_line(EMPTY)):
        assert "N/A" in text and "nan" not in text.lower() and "None" not in text


def test_a_tick_is_one_line():
    line = tick_line(BUSY)
    assert "\n" not in line
    for words in ("00:42 plan #3", "stable", "offered 96 t/s", "6 of 8 slots", "lost 0"):
        assert words in line


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
