"""Timers that each row of their key puts off: they take no more room than one, and none is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_timers import SOURCE, TENS, US, Bench

from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Standing
from headgate.topology_runtime.worker.keyed_state.timed_rows import TimedRows
from headgate.topology_runtime.worker.keyed_state.timed_states import TimerIndex
from headgate.topology_runtime.worker.operators.timed_task import TimedTask

END = 1 << 60


class Quiet(Timed):
    """Says when a key was quiet for ten seconds. A row without a time to wait from ends it."""

    at = 1

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int | None, Iterable[Any]]:
        if state:
            time.cancel(state)
        until = time.at_us + 10 * US
        time.set(until)
        return (until if len(row) == 2 else None), ()

    def on_timer(self, key: Any, at: int, state: int, time: Time) -> tuple[None, Iterable[Any]]:
        return None, [(key, at // US)]


def rows_in(bench: Bench) -> TimedRows:
    behaviour = bench.core.behaviour
    assert isinstance(behaviour, TimedTask)
    return behaviour.rows


def entries(index: TimerIndex) -> list[Any]:
    found = []
    while (due := index.due(END)) is not None:
        found.append(due)
    return found


@pytest.mark.parametrize("keys", [("a", "b"), (("a", 1), ("b", 2))])
def test_a_timer_that_each_row_puts_off_takes_no_room_for_those_before(
    tmp_path: Path, keys: tuple[Any, ...]
) -> None:
    bench, many = Bench(tmp_path, logic=Quiet), 4000
    bench.hear(Watermark(SOURCE, TENS, 0))
    for first in range(0, many, 1000):
        bench.give(first * 10, *((key, n) for n in range(first, first + 1000) for key in keys))
        bench.look(0.0)
    assert len(found := entries(rows_in(bench).logic.events)) < many
    last = ((many - 1 + 10) * US, "")
    assert {(last, key) for key in keys} <= set(found)


def test_keys_that_end_by_rows_leave_no_timers_though_none_is_due(tmp_path: Path) -> None:
    bench, many = Bench(tmp_path, logic=Quiet), 6000
    bench.hear(Watermark(SOURCE, TENS, 0))
    for first in range(0, many, 1000):
        numbers = range(first, first + 1000)
        bench.give(
            first * 10, *(row for n in numbers for row in (("a", n), ("a", n + 1), ("a", n + 2, "ends")))
        )
        bench.look(0.0)
    assert len(entries(rows_in(bench).logic.events)) < many


def test_a_timer_that_was_put_off_fires_once_at_its_last_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Quiet)
    bench.give(0, *(("a", n) for n in range(30)), *(("b", n) for n in range(0, 30, 3)))
    fired = []
    for at in range(0, 60, 4):
        bench.hear(Watermark(SOURCE, TENS, at * US))
        bench.look(0.3)
        fired += [row for _, _, row in bench.sent()]
        bench.acked()
        if at == 12:
            bench.give(100, ("b", 30))
    assert fired == [("a", 39), ("b", 40)]


def test_a_timer_that_is_set_to_an_earlier_time_than_the_one_before_is_due_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Quiet)
    bench.give(0, ("a", 20), ("a", 25), ("a", 3))
    bench.hear(Watermark(SOURCE, TENS, 13 * US))
    bench.look(0.3)
    assert [row for _, _, row in bench.sent()] == [("a", 13)]


def test_equal_keys_of_two_types_keep_a_timer_each_when_the_index_is_cleared_up() -> None:
    index, keys = TimerIndex(), (1, True, 1.0, "1", (1,), (1.0,), (True,))
    for key in keys:
        index.add((7, ""), key)
    index.clear_up(lambda timer, key: True)
    assert sorted(repr(key) for _, key in entries(index)) == sorted(map(repr, keys))


def test_a_timer_that_was_put_off_is_there_when_a_call_that_put_it_off_further_fails() -> None:
    index, before = TimerIndex(), ((1, ""),)
    index.add((1, ""), "a")
    index.cancelled((1, ""), "a")
    index.set((2, ""), "a", before, before := ((2, ""),))
    for n in range(3, 60):  # each of these calls fails
        index.cancelled((2, ""), "a")
        index.set((n, ""), "a", before, ((n, ""),))
    found = [timer for timer, _ in entries(index)]
    assert (2, "") in found and len(found) < 20


def test_what_waits_behind_a_timer_of_a_range_that_went_away_is_found_when_it_is_back(tmp_path: Path) -> None:
    """Its timer was due while it was on its way, then put off before the thread looked round, and the range left."""
    bench, key_range = Bench(tmp_path, logic=Quiet), range_of("a")
    bench.give(0, ("a", 5))
    rows = rows_in(bench)
    rows.ranges.owned.discard(key_range)
    bench.hear(Watermark(SOURCE, TENS, 16 * US))
    rows.ranges.owned.add(key_range)
    bench.give(1, ("a", 20))
    moved = rows.copy(key_range)
    layers = (Layer(2, [9] * KEY_RANGES, sure=True),)
    rows.ranges.stand(Standing(4, [TENS] * KEY_RANGES, layers, frozenset({TENS, 9}), {}))
    rows.offered(9, [replace(moved, version=2)])
    rows.ranges.hear(9, range(KEY_RANGES))
    bench.look(0.0)
    assert key_range in rows.ranges.owned
    bench.give(2, ("a", 30))
    bench.hear(Watermark(SOURCE, TENS, 39 * US))
    bench.look(0.3)
    assert bench.sent() == []
    bench.hear(Watermark(SOURCE, TENS, 40 * US))
    bench.look(0.3)
    assert [row for _, _, row in bench.sent()] == [("a", 40)]
