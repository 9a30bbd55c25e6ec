"""The watermark of a source thread: counted from rows that are done, never from rows that are only read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.timed import IDLE_US, all_microseconds, row_time, times_at
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Timestamps, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import (
    Ack,
    DesiredState,
    Frame,
    Route,
    SourceStart,
    ThreadSpec,
    Token,
    WorkerAt,
)
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.columns import columns_in
from headgate.topology_runtime.worker.sources.source_task import SourceTask
from headgate.topology_runtime.worker.sources.source_watermark import SourceWatermark, watermark_of

S, US = 1_000_000_000, 1_000_000
SOURCE, TIMED = 1, 2


def counted(at: Any = 0, unit: Any = "s", lateness: float = 0.0, idle: float = 30.0) -> SourceWatermark:
    task = Task("source", kind="source", timestamps=Timestamps(at, unit, lateness, idle))
    found = watermark_of(task, key_function)
    assert found is not None
    return found


def test_it_is_the_newest_time_of_the_roots_below_the_first_open_one_less_the_lateness() -> None:
    times = counted(lateness=2.0)
    for sequence, rows in enumerate(([(5,), (9,)], [(7,)], [(20,), (3,)])):
        times.begin(sequence, rows, S)
    told = []
    for floor in range(4):
        times.done_below(floor)
        told.append(times.told_us(S))
    assert told == [None, 7 * US, 7 * US, 18 * US]


def test_rows_without_a_time_are_counted_and_move_nothing() -> None:
    times = counted("t", "ms")
    times.begin(0, [{"t": 4000}, {"t": "x"}, {}, None, {"t": float("inf")}, {"t": True}], S)
    times.begin(1, [{"other": 1}], S)
    times.done_below(2)
    assert times.told_us(S) == 4 * US and times.unknown == 6


plain = st.one_of(st.integers(), st.integers(-(1 << 62), 1 << 62), st.floats(), st.floats(-1e15, 1e15))
odd = st.sampled_from([None, True, "x", "1970-01-01T00:00:08Z", np.int64(7), [3]])
columns = st.one_of(
    st.lists(st.integers(0, 1 << 62)), st.lists(st.floats(-1e13, 1e13)), st.lists(st.one_of(plain, odd))
)


@given(columns, st.sampled_from(["s", "ms", "us", "ns"]))
def test_times_that_are_taken_together_are_what_each_row_has(values: list[Any], unit: str) -> None:
    rows = [{"t": value} for value in values]
    if (found := times_at("t", unit)(rows)) is not None:
        assert all_microseconds(found, unit) == [row_time("t", unit)(row) for row in rows]
    counted_us, told_us, unknown = counted("t", unit), None, 0
    for row in rows:
        try:
            at_us = row_time("t", unit)(row)
        except (TypeError, ValueError):
            unknown += 1
        else:
            told_us = at_us if told_us is None else max(told_us, at_us)
    counted_us.begin(0, rows, S)
    counted_us.done_below(1)
    assert counted_us.told_us(S) == told_us and counted_us.unknown == unknown


@pytest.mark.parametrize(
    ("values", "unit"), [([3, 9], "s"), ([3, 9], "us"), ([7_000, 1], "ns"), ([1.5, 2.0], "s")]
)
def test_times_of_one_kind_are_taken_together(values: list[Any], unit: str) -> None:
    rows = [(value,) for value in values]
    assert times_at(0, unit)(rows) == values
    assert times_at(0, unit)([*rows, ()]) is None
    assert times_at(lambda row: row[0], unit)(rows) is None, "it is the user's, and asked row by row"


TEXTS = ["1970-01-01T00:00:08Z", "1970-01-01T00:00:09Z", "1970-01-01T02:00:01+02:00"]


@pytest.mark.parametrize("values", [[3, 9, 4], [3.5, 9.0, 4.0], [float("nan"), 9.0, 1.0], TEXTS])
def test_columns_have_times_too(values: list[Any]) -> None:
    times = counted("t")
    rows = columns_in({"t": np.array(values), "x": np.arange(3)})
    times.begin(0, rows, S)
    times.done_below(1)
    assert times.told_us(S) == 9 * US


def test_a_thread_that_is_quiet_with_nothing_open_is_not_waited_for() -> None:
    times = counted(idle=5.0)
    assert times.told_us(S) is None
    assert times.told_us(6 * S) == IDLE_US, "it began five seconds ago, and there was no row"
    times.begin(0, [(5,)], 7 * S)
    assert times.told_us(60 * S) is None, "a row is open"
    times.done_below(1)
    assert times.told_us(8 * S) == 5 * US
    assert times.told_us(60 * S) == IDLE_US
    assert times.told_us(8 * S, over=True) == IDLE_US


TOPOLOGY = Topology(
    "times",
    (
        Task("source", kind="source", run="x:y", static=Static(), timestamps=Timestamps(0)),
        Task("timed", kind="keyed", state="keyed", run="x:y", timed=True),
        Task("beside", run="x:y"),
    ),
    (Edge("source", "timed", grouping="fields", key=0), Edge("source", "beside")),
)
ROUTES = (Route(0, ((TIMED, 1.0),), ((TIMED, KEY_RANGES),)), Route(1, ((3, 1.0),)))


class Reading(SilentPost):
    """A source thread that reads a row at a time."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.words: list[Any] = []
        self.now_ns = S
        self.core = ThreadCore(ThreadSpec(SOURCE, "source", SLOT), TOPOLOGY, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        self.source.times = watermark_of(TOPOLOGY.tasks[0], key_function)
        specs = tuple(
            ThreadSpec(number, task.name, SLOT) for number, task in enumerate(TOPOLOGY.tasks, SOURCE)
        )
        state = DesiredState(
            *(Token(1, 1, 1), "committed", "run", TOPOLOGY, (), specs, 1, ROUTES),
            schedule=Schedule(0, ((0.0, 1e6),)),
            starts=(SourceStart("source", 0, 0),),
            workers=(WorkerAt(SLOT, 1, "tcp://x:1"),),
            settings=DataPlaneSettings(frame_rows=1),
        )
        self.core.obey(orders_of(state, SLOT, 1), self.now_ns)
        self.source.begin(self.source.start_position() or 0)

    def deliver(self, frames: Any) -> None:
        self.frames += frames

    def send_word(self, word: Any) -> None:
        self.words.append(word)

    def read(self, position: int, limit: int) -> Sequence[Any]:
        return [(100 + position,)] if position < 3 else []

    def turn(self, seconds: float = 0.2) -> list[int]:
        """What it says in the next turns."""
        self.words.clear()
        for _ in range(2):
            self.now_ns += int(seconds * S / 2)
            self.source.turn(self.now_ns, self.now_ns, self.read)
            self.core.flush(self.now_ns, everything=True)
        told = [word for word in self.words if isinstance(word, Watermark)]
        assert {(word.sender, word.target) for word in told} <= {(SOURCE, TIMED)}
        return [word.at_us for word in told]

    def done(self, position: int) -> None:
        acks = [
            Ack(root.key, root.id)
            for frame in self.frames
            for root in frame.roots
            if root.position == position
        ]
        self.source.on_word(acks, self.now_ns)


def test_only_threads_with_event_time_hear_it_when_it_changes_and_each_second() -> None:
    reading = Reading()
    assert reading.turn() == [] and reading.turn() == []
    reading.done(1)
    assert reading.turn() == [], "the row before it is open"
    reading.done(0)
    assert reading.turn() == [101 * US]
    assert reading.turn() == []
    assert reading.turn(2.0) == [101 * US, 101 * US], "words may be lost"
    reading.source.on_faults(1, reading.now_ns)
    reading.done(2)
    assert reading.turn() == [102 * US]


def test_a_source_none_of_whose_rows_has_a_time_says_so_soon_with_the_field_and_what_a_row_has() -> None:
    times = counted("made")
    for sequence in range(10):
        times.begin(sequence, [{"at": 5, "service": "cart"}] * 9, S)
    assert times.wrong == "" and times.unknown == 90, "rows may still come"
    times.begin(10, [{"at": 5, "service": "cart"}] * 10, S)
    assert "no row so far has a time" in times.wrong
    assert "'made'" in times.wrong and "'at', 'service'" in times.wrong
    times.begin(11, [{"made": 1_790_000_000}], S)
    assert times.wrong == "", "it has one"


def test_a_slow_source_without_a_time_says_so_after_seconds() -> None:
    times = counted(3)
    times.begin(0, [("a", 1)], S)
    times.told_us(S)
    assert times.wrong == ""
    times.told_us(11 * S)
    assert "no row so far has a time" in times.wrong and "2 values" in times.wrong


def test_a_value_that_is_no_time_is_told_with_its_kind() -> None:
    times = counted("made")
    times.begin(0, [{"made": "12:30"}] * 100, S)
    assert "'12:30'" in times.wrong and "a text is to be one like" in times.wrong
    others = counted("made")
    others.begin(0, [{"made": [12, 30]}] * 100, S)
    assert "[12, 30]" in others.wrong and "not list" in others.wrong


@pytest.mark.parametrize(
    ("unit", "value", "likely"),
    [
        ("ms", 1_790_000_000, "s"),
        ("s", 1_790_000_000_000, "ms"),
        ("s", 1_790_000_000.5e6, "us"),
        ("us", 1_790_000_000_000, "ms"),
        ("ns", 1_790_000_000_000_000, "us"),
        ("ms", 1_790_000_000 * 10**9, "ns"),
        ("s", 1_790_000_000, ""),
        ("ms", 1_790_000_000_000, ""),
        ("s", 7, ""),
        ("s", -5, ""),
        ("ms", 4000, ""),
    ],
)
def test_times_that_look_like_another_unit_are_told_with_it(unit: Any, value: Any, likely: str) -> None:
    times = counted("made", unit)
    times.begin(0, [{"made": value}] * 100, S)
    assert bool(times.wrong) == bool(likely), times.wrong
    if likely:
        assert f'unit="{likely}"' in times.wrong and f'"{unit}"' in times.wrong


def test_columns_of_another_unit_are_told_too() -> None:
    times = counted("t", "ms")
    times.begin(0, columns_in({"t": np.array([1_790_000_000] * 3), "x": np.arange(3)}), S)
    assert 'unit="s"' in times.wrong
