"""Rows of keyed tasks are worked on by the frame, and what comes of it is as if they came one by one."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import pytest
from keyed_rows_made import HERE, keyed_rows, sent

from headgate.topology_runtime.api.logic import Keyed, processes_all
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.worker.calls.router import KNOWN_MOST, KeyRanges, range_of
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart


class Touchy(Keyed):
    """Counts, but fails on some rows."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        if row[1] < 0:
            raise ValueError("no")
        return state + 1, [(key, state + 1)] * (row[1] % 3)


class TouchyTogether(Touchy):
    def __init__(self) -> None:
        self.calls = 0

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Any], states: dict[Any, Any]
    ) -> tuple[list[Any], list[int]]:
        self.calls += 1
        found: list[list[Any]] = []
        for key, row in zip(keys, rows, strict=True):
            states[key], out = self.process(key, row, states[key])
            found.append(list(out))
        return [row for out in found for row in out], [len(out) for out in found]


class Unequal(CountByKey):
    """Gives results of too few rows."""

    def process_all(self, keys: Sequence[Hashable], rows: Sequence[Any], states: dict[Any, Any]) -> Any:
        return super().process_all(keys, rows, states)[0][1:], None


def task_of(logic: Keyed) -> KeyedRows:
    return keyed_rows(logic, lambda row: row[0])


def whole_part(task: KeyedRows) -> SavedPart:
    """All that there is, at once."""
    whole, applied = task.begin_whole()
    return SavedPart(None, whole, task.swept(1 << 40), True, applied)


def whole_of(task: KeyedRows) -> bytes:
    data, _ = form.behind(None, None, whole_part(task))
    assert data is not None
    return data


def frame(rows: Sequence[Any], position: int = 0, attempt: int = 0, id_: int = 0xF00) -> Frame:
    root = RootPart(RootKey(1, 1, position, attempt), HERE, 0, 2, position, 0, 0, id_)
    return Frame(3, 1, HERE, 1, 5, [root], [(0, 0, len(rows), 11)], list(rows), 0, 0)


def seen(task: KeyedRows) -> tuple[dict[Any, Any], list[Any], list[tuple[int, str]]]:
    states = {key: state for at in sorted(task.states.filled) for key, state in task.states.of(at).items()}
    return states, sent(task), [(letter.position, letter.error) for letter in task.results.letters]


@pytest.mark.parametrize("form", [Touchy, TouchyTogether])
@pytest.mark.parametrize("seed", range(10))
def test_a_frame_is_worth_its_rows_one_by_one(form: type[Keyed], seed: int) -> None:
    choose = random.Random(seed)
    rows = [
        (choose.choice("abcdefg"), choose.randint(-1 if choose.random() < 0.2 else 0, 5)) for _ in range(60)
    ]
    by_frame, one_by_one = task_of(form()), task_of(Touchy())
    for begin in range(0, 60, 20):
        by_frame.take(frame(rows[begin : begin + 20], begin), 0)
    for position, row in enumerate(rows):
        one_by_one.take(frame([row], position), 0)
    assert seen(by_frame) == seen(one_by_one)


def test_a_frame_is_one_call() -> None:
    logic = TouchyTogether()
    task_of(logic).take(frame([("a", n) for n in range(50)]), 0)
    assert logic.calls == 1


def test_results_that_are_not_one_for_each_row_fail_the_rows_of_the_call() -> None:
    task = task_of(Unequal())
    task.take(frame([("a", 1), ("b", 2)]), 0)
    states, out, letters = seen(task)
    assert not states.get("a") and not out and [position for position, _ in letters] == [0, 1]


def test_a_subclass_with_another_process_is_not_asked_for_frames() -> None:
    class Doubles(CountByKey):
        def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[tuple[Hashable, int]]]:
            return state + 2, [(key, state + 2)]

    class Begins(CountByKey):
        def new(self, key: Hashable) -> int:
            return 10

    forms = (Touchy(), TouchyTogether(), CountByKey(), Doubles(), Begins())
    assert [processes_all(logic) for logic in forms] == [False, True, True, False, True]
    task = task_of(Doubles())
    task.take(frame([("a", 1), ("a", 1)]), 0)
    assert sent(task) == [("a", 2), ("a", 4)]


def test_keys_that_are_equal_and_of_several_types_stay_apart() -> None:
    task = task_of(CountByKey())
    keys: list[Hashable] = [1, True, 1.0, 1, "1", b"1", True, (1,), (1.0,)]
    for begin in (0, 100):
        task.take(frame([(key, 0) for key in keys], begin), 0)
        task.take(frame([(1, 0)] * 3, begin + 50), 0)
    counts = {(type(key), repr(key)): n for key, n in sent(task)}
    expected = {"1": 10, "True": 4, "1.0": 2, "'1'": 2, "b'1'": 2, "(1,)": 2, "(1.0,)": 2}
    assert {shown: n for (_, shown), n in counts.items()} == expected


def test_ranges_that_are_looked_up_are_those_of_the_routes() -> None:
    ranges = KeyRanges()
    for keys in (["a", "b", "a"], [1, 2, 1], [1, True, 1.0], [b"x"], [(1, "a")], ["x" * 1000], [], [1, "1"]):
        assert ranges.of(keys) == [range_of(key) for key in keys]
    many = list(range(2 * KNOWN_MOST + 10))
    for _ in range(2):
        assert ranges.placed(many) == (many, ranges.of(many)) == (many, [range_of(key) for key in many])
        assert 0 < ranges.size <= KNOWN_MOST + 10


def test_a_key_that_has_no_range_fails_its_row_only() -> None:
    task = task_of(CountByKey())
    task.take(frame([("a", 1), (object(), 1), ("a", 1), (1 << 70, 1)]), 0)
    states, out, letters = seen(task)
    assert states == {"a": 2} and out == [("a", 1), ("a", 2)]
    assert [position for position, _ in letters] == [1, 3]


def test_one_share_keeps_the_rows_of_a_frame_until_a_snapshot_covers_them() -> None:
    """What comes in and goes out again adds up to nothing, whoever asks when."""
    task = task_of(CountByKey())
    acks = task.take(frame([("a", 1), ("b", 1), ("a", 1)], id_=0xABC), 0)
    (out,) = task.results.outputs.flush(0, everything=True)
    ((_, ack),) = acks
    assert ack.held == task.holding == 3 and ack.value not in (0, 0xABC ^ out.roots[0].id)
    ((_, covered),) = task.covered()
    assert covered.held == -3 and 0xABC ^ ack.value ^ covered.value == 0xABC ^ 0xABC ^ out.roots[0].id
    assert task.holding == 0 and not task.covered()


def test_rows_of_a_root_that_came_in_two_frames_are_kept_apart() -> None:
    """Under one share they would cancel each other: the root would be done, and its rows in no snapshot."""
    task, root = task_of(CountByKey()), RootPart(RootKey(1, 1, 0, 0), HERE, 0, 2, 0, 0, 0, 0)
    value = 0
    for offset, row in enumerate([("a", 1), ("b", 1)]):
        ((_, ack),) = task.take(Frame(3, 1, HERE, 1, 5, [root], [(0, offset, 1, 11)], [row], 0, 0), 0)
        (out,) = task.results.outputs.flush(0, everything=True)
        value ^= ack.value ^ out.roots[0].id
    assert value != 0
    ((_, covered),) = task.covered()
    assert value ^ covered.value == 0


def test_rows_that_come_again_among_new_ones_go_out_again_and_count_once() -> None:
    task = task_of(CountByKey())
    task.take(frame([("a", 1), ("b", 1)]), 0)
    assert sent(task) == [("a", 1), ("b", 1)]
    task.take(frame([("a", 1), ("b", 1), ("b", 2), ("a", 2)], attempt=1), 0)
    assert sorted(sent(task)) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert task.holding == 6


def test_two_attempts_of_a_row_in_one_frame_count_once() -> None:
    task = task_of(CountByKey())
    roots = [RootPart(RootKey(1, 1, 0, attempt), HERE, 0, 2, 0, 0, 0, 5) for attempt in range(2)]
    rows = [("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    task.take(Frame(3, 1, HERE, 1, 5, roots, [(0, 0, 2, 11), (1, 0, 2, 11)], rows, 0, 0), 0)
    assert sent(task) == [("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    assert {key: n for at in task.states.filled for key, n in task.states.of(at).items()} == {"a": 1, "b": 1}
