"""A user's function that raises costs its row, not its frame and not the thread."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Window
from headgate.topology_runtime.wire.dead_letter_messages import Struck
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Pauses, Poison, poison_of, wait_s
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.user_code import Results, UserCode
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.meter import MeterWatch
from headgate.topology_runtime.worker.operators.thread_core import MapTask
from headgate.topology_runtime.worker.operators.window_task import WindowRows
from headgate.topology_runtime.worker.rows import row_values


class Patience(list[float]):
    """Notes the pauses instead of taking them."""

    def __call__(self, pause_s: float) -> None:
        self.append(pause_s)


def failing(times: dict[Any, int], error: Callable[[], BaseException]) -> Callable[[Any], Any]:
    """Doubles a row; a row of `times` fails so many times first."""
    left = dict(times)

    def call(row: Any) -> Any:
        if left.get(row, 0) > 0:
            left[row] -= 1
            raise error()
        return row * 2

    return call


class Rude(BaseException):
    """Not even an Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


ERRORS: list[Callable[[], BaseException]] = [
    lambda: ValueError("no"),
    lambda: StopIteration("no"),
    lambda: SystemExit(3),
    lambda: GeneratorExit(),
    lambda: asyncio.CancelledError(),
    lambda: Rude("no"),
    lambda: Mute(),
    lambda: RecursionError("deep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error()).__name__)
def test_three_tries_then_the_row_fails_and_the_rest_is_done(error: Callable[[], BaseException]) -> None:
    pauses = Patience()
    out, failures = attempts.each(failing({0: 2, 3: 3, 4: 99, 7: 1}, error), range(8), pauses)
    assert out == [0, 2, 4, 10, 12, 14]
    assert [failed.place for failed in failures] == [3, 4]
    assert pauses == [0.01, 0.1, 0.01, 0.1, 0.01, 0.1, 0.01]
    name = type(error()).__name__
    assert all("Traceback" in f.traceback for f in failures)
    assert all((name if name != "StopIteration" else "StopIteration") in f.error for f in failures)


@searching(200)
@given(st.dictionaries(st.integers(0, 11), st.integers(1, 4)), st.integers(0, 12), st.sampled_from(ERRORS))
def test_every_row_is_done_or_failed_once(
    times: dict[int, int], rows: int, error: Callable[[], BaseException]
) -> None:
    out, failures = attempts.each(failing(times, error), list(range(rows)), Patience())
    bad = sorted(row for row in times if times[row] >= 3 and row < rows)
    assert [failed.place for failed in failures] == bad
    assert out == [2 * row for row in range(rows) if row not in bad]


def seconds_of(
    frames: list[list[int]], bad: Callable[[int], bool], call: str = "each"
) -> tuple[float, float]:
    """(the whole, of it slept) of rows that take a millisecond each, by a clock of its own."""
    now_s, slept = [0.0], Patience()

    def work(row: int) -> int:
        now_s[0] += 0.001
        if bad(row):
            raise ValueError(row)
        return row

    def sleep(pause_s: float) -> None:
        now_s[0] += pause_s
        slept(pause_s)

    watch = CallWatch()
    pauses = Pauses(watch, sleep, lambda: now_s[0])
    for frame in frames:
        if call == "each":
            attempts.each(work, frame, pauses, watch)
        else:
            for row in frame:
                attempts.once(lambda row=row: work(row), pauses, watch)
    return now_s[0], sum(slept)


@pytest.mark.parametrize("call", ["each", "once"])
@pytest.mark.parametrize("size", [1, 50])
def test_bad_rows_here_and_there_hold_up_the_others_for_a_tenth_of_the_time(call: str, size: int) -> None:
    frames = [list(range(start, start + size)) for start in range(0, 5000, size)]
    whole_s, slept_s = seconds_of(frames, lambda row: row % 10 == 3, call)
    assert 0 < slept_s <= 0.11 * whole_s + 1.2
    assert whole_s < 10.0, "each of 500 rows with its pauses would be 61 s"


@pytest.mark.parametrize("call", ["each", "once"])
@pytest.mark.parametrize("size", [1, 50])
def test_when_no_row_goes_well_every_one_waits(call: str, size: int) -> None:
    """As when a service is away."""
    frames = [list(range(size)) for _ in range(100 // size)]
    _, slept_s = seconds_of(frames, lambda _: True, call)
    assert slept_s == pytest.approx(100 * 0.11)


def test_rows_done_before_a_failure_are_not_done_again() -> None:
    calls: list[int] = []

    def call(row: int) -> int:
        calls.append(row)
        if row == 2 and calls.count(2) == 1:
            raise ValueError
        return row

    attempts.each(call, range(4), Patience())
    assert calls == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error()).__name__)
@pytest.mark.parametrize("fails", [0, 1, 2, 3])
def test_a_call_is_tried_three_times(error: Callable[[], BaseException], fails: int) -> None:
    call, pauses = failing({1: fails}, error), Patience()
    result, failed = attempts.once(lambda: call(1), pauses)
    assert len(pauses) == min(fails, 2)
    assert (result, failed is None) == ((2, True) if fails < 3 else (None, False))


@pytest.mark.parametrize("call", ["each", "once"])
def test_the_keyboard_still_works(call: str) -> None:
    def interrupt(_: Any = None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        if call == "each":
            attempts.each(interrupt, [1], Patience())
        else:
            attempts.once(interrupt, Patience())


# ── what is told ────────────────────────────────────────────────────────────────────────────────────


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("value", [Broken(), "\ud800", {"a": "\ud800"}, b"\xff" * 9000, ValueError("\ud800")])
def test_any_value_can_be_shown_and_sent(value: Any) -> None:
    text = attempts.shown(value, 100)
    assert 0 < len(text) <= 100
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text


def test_a_traceback_begins_where_user_code_was_called() -> None:
    _, (failed,) = attempts.each(lambda row: 1 // row, [0], Patience())
    assert "Traceback" in failed.traceback and "test_attempts.py" in failed.traceback
    assert "calls/attempts.py" not in failed.traceback


def test_a_row_that_is_refused_has_no_traceback_of_the_workers() -> None:
    _, ((place, error),) = row_values.good_rows([np.float64(1.5)])
    failed = attempts.failure(place, error)
    assert failed.traceback.splitlines()[0].endswith(failed.error)
    assert "try: for such an x give x.item()" in failed.traceback and "File" not in failed.traceback


def test_an_error_of_many_lines_is_told_in_one() -> None:
    assert (
        attempts.failure(0, ValueError("status 500\nsee there")).error == "ValueError: status 500\\nsee there"
    )


def test_a_failure_can_be_sent_whatever_it_says() -> None:
    for error in (ValueError("half \ud800 a pair"), Mute(), ValueError("x" * 100_000)):
        failed = attempts.failure(0, error)
        assert msgspec.msgpack.encode((failed.error, failed.traceback))
        assert len(failed.error) <= attempts.LINE_MOST and len(failed.traceback) <= attempts.TRACEBACK_MOST
        assert failed.error.startswith(type(error).__name__)


# ── How far user code has come, and rows that must not meet it again (meter.py, user_code.py) ────

VERDICT = ("hung", "stack")
HOME = Slot("vm", 0)


def frame(*positions: int) -> Frame:
    """A frame of rows that are their positions, one root each."""
    roots = [RootPart(RootKey(1, 1, p, 0), HOME, 0, 0, p, 0, 0, 1000 + p) for p in positions]
    runs = [(number, 0, 1, 0) for number in range(len(positions))]
    return Frame(0, 1, HOME, 1, 2, roots, runs, list(positions), 0, 0)


def task_of(logic: Any, kind: str = "map") -> MapTask | WindowRows:
    outputs = Outputs(2, HOME, 1, lambda: 7, 0)
    around = Around("work", 2, ("source",), {0: "source"}, True)
    code = UserCode(Results(around, outputs), kind, logic, lambda _: None)
    return WindowRows(code, lambda: 7) if kind == "hold" else MapTask(code)


def done(task: MapTask | WindowRows) -> list[int]:
    return sorted(
        root.position + offset + j for root, offset, count, _ in task.results.finished for j in range(count)
    )


class Pairs(Window):
    """Two rows of one parity are a pair; `seen`: every row that user code ever saw."""

    max_age_s = None

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def key(self, row: int, source: str) -> int:
        self.seen.add(row)
        return row % 2

    def ready(self, key: int, rows: Any) -> bool:
        return len(rows) == 2

    def finish(self, key: int, rows: list[int]) -> list[int]:
        return rows


# ── how far ─────────────────────────────────────────────────────────────────────────────────────


def test_every_row_and_every_try_moves_it() -> None:
    watch = CallWatch()
    moved: list[int] = []

    def call(row: int) -> int:
        moved.append(watch.moved)
        if row == 2:
            raise ValueError
        return row

    attempts.each(call, range(4), lambda _: None, watch)
    assert len(set(moved)) == len(moved) == 6
    attempts.once(lambda: call(2), lambda _: None, watch)
    assert len(set(moved[-3:])) == 3


# ── poison ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
def test_a_poisoned_row_is_buried_before_user_code_meets_it(kind: str) -> None:
    met: list[int] = []
    logic = {
        "map": lambda row: met.append(row) or row,
        "filter": lambda row: met.append(row) is None,
        "flat_map": lambda row: met.append(row) or [row],
    }[kind]
    task = task_of(logic, kind)
    task.code.watch.poison = Poison({(0, 0, 5, 0, "row"): VERDICT, (0, 0, 900, 0, "row"): VERDICT})
    acks = task.take(frame(4, 5, 6), 0)
    assert met == [4, 6] and done(task) == [4, 6]
    (letter,) = task.results.letters
    assert (letter.position, letter.row, letter.error, letter.traceback) == (5, "5", *VERDICT)
    assert [ack.value for _, ack in acks] == [1004, 1005, 1006], "buried rows are acked like the others"


def test_another_variant_of_the_position_is_another_row() -> None:
    task = task_of(lambda row: row)
    task.code.watch.poison = Poison({(0, 0, 5, 3, "row"): VERDICT})
    task.take(frame(5), 0)
    assert not task.results.letters and done(task) == [5]


def test_a_poisoned_row_never_enters_its_pane() -> None:
    logic = Pairs()
    task = task_of(logic, "hold")
    task.code.watch.poison = Poison({(0, 0, 2, 0, "row"): VERDICT})
    task.take(frame(2, 4, 6), 0)
    assert (
        logic.seen == {4, 6}
        and done(task) == [4, 6]
        and [one.position for one in task.results.letters] == [2]
    )


def test_a_poisoned_pane_is_buried_whole() -> None:
    task = task_of(Pairs(), "hold")
    task.code.watch.poison = Poison({(0, 0, 2, 0, "bucket"): VERDICT})
    task.take(frame(4, 2), 0)
    assert sorted(one.position for one in task.results.letters) == [2, 4] and done(task) == []


def test_only_what_was_struck_three_times_and_is_of_this_task() -> None:
    def struck(task: str, position: int, times: int, kind: Any = "row") -> Struck:
        return Struck(task, "b", 1, position, 0, kind, times, "why", "stack")

    all_ = [struck("work", 5, 3), struck("work", 6, 2), struck("other", 7, 3), struck("work", 8, 4, "read")]
    poison = poison_of("work", ["a", "b"], all_)
    assert poison.rows == {(1, 1, 5, 0, "row"): ("why", "stack")}
    assert poison.waits_s == {(1, 8): 20.0}
    assert not poison_of("work", ["a"], all_).rows, "a source that this topology does not have"
    assert [wait_s(times) for times in (3, 4, 5, 30)] == [10.0, 20.0, 40.0, 300.0]


@pytest.mark.parametrize(
    ("first", "count", "touched"), [(0, 5, False), (0, 6, True), (5, 1, True), (6, 9, False)]
)
def test_a_run_is_looked_at_only_when_it_touches(first: int, count: int, touched: bool) -> None:
    poison = Poison({(0, 0, 5, 0, "row"): VERDICT, (0, 1, 6, 0, "row"): VERDICT})
    assert poison.touches(0, 0, first, count) is touched


# ── named in the meter ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def meter() -> Iterator[mt.Meter]:
    fd = mt.create()
    meter = mt.Meter(fd)
    os.close(fd)
    yield meter
    meter.close()


def named(meter: mt.Meter) -> tuple[int, int]:
    return meter.words[mt.H_ROW_THREAD], meter.words[mt.H_ROW_POSITION]


@pytest.mark.parametrize("kind", ["map", "hold"])
def test_when_careful_each_row_is_named_before_it_is_begun(meter: mt.Meter, kind: str) -> None:
    at = meter.thread_record()
    seen: list[tuple[int, int]] = []

    class Looks(Pairs):
        def key(self, row: int, source: str) -> int:
            seen.append(named(meter))
            return super().key(row, source)

    task = task_of(Looks() if kind == "hold" else lambda row: seen.append(named(meter)), kind)
    task.code.watch = watch = MeterWatch(meter.words, at, 2, threading.Lock())
    task.take(frame(3), 0)
    assert seen == [(0, 0)], "no row is named while all is well"
    meter.words[mt.H_CAREFUL] = 1
    watch.look()
    seen.clear()
    task.take(frame(4, 6), 0)
    assert seen == [(3, 4), (3, 6)] and named(meter)[0] == 0
    assert meter.words[at + mt.CALL_STARTED_NS] == 0


def test_calls_of_timers_are_timed_together_and_their_cpu_is_counted_apart(meter: mt.Meter) -> None:
    at = meter.thread_record()
    watch = MeterWatch(meter.words, at, 2, threading.Lock())
    seen = []

    def fire() -> bool:
        seen.append((watch.quick, meter.words[at + mt.CALL_STARTED_NS] > 0))
        before_ns = time.thread_time_ns()
        while time.thread_time_ns() == before_ns:
            pass
        return True

    assert watch.timers(fire) and seen == [(True, True)]
    assert not watch.quick and meter.words[at + mt.CALL_STARTED_NS] == 0
    assert meter.words[at + mt.TIMERS_NS] > 0 and meter.words[at + mt.BUSY_NS] == 0
    meter.words[mt.H_CAREFUL] = 1
    watch.look()
    watch.timers(fire)
    assert seen[-1] == (False, True), "each is named"


def test_when_careful_only_one_thread_is_in_user_code(meter: mt.Meter) -> None:
    meter.words[mt.H_CAREFUL] = 1
    one = threading.Lock()
    first = MeterWatch(meter.words, meter.thread_record(), 1, one)
    at = meter.thread_record()
    second = MeterWatch(meter.words, at, 2, one)
    first.look()
    second.look()
    first.enter((0, 0, 5, 0, "row"))
    waits = threading.Thread(target=lambda: (second.enter((0, 0, 6, 0, "row")), second.leave()), daemon=True)
    waits.start()
    waits.join(0.05)
    assert waits.is_alive() and named(meter) == (2, 5)
    assert meter.words[at + mt.CALL_STARTED_NS] == 0, "waiting for the others is no call"
    first.leave()
    waits.join(5)
    assert not waits.is_alive() and named(meter)[0] == 0
