"""Rows that waited for their key ranges are worked on together once those are here, and what comes of them is as if
they had come then, one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from keyed_rows_made import HERE, keyed_rows
from test_keyed_frames import Touchy, TouchyTogether, frame, seen

from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.rows.acks import (
    Addressed,
    BufferedRow,
    WaitingRows,
    single_rows,
    united,
)

BEFORE = 9  # the thread that has the ranges yet
MINE = Standing(2, (5,) * KEY_RANGES, (Layer(1, (BEFORE,) * KEY_RANGES),), frozenset({5, BEFORE}))


def waiting(logic: Touchy) -> KeyedRows:
    task = keyed_rows(logic, lambda row: row[0], owns=False)
    task.ranges.stand(MINE)
    return task


def claims(task: KeyedRows) -> list[Addressed]:
    task.ranges.hear(BEFORE, range(KEY_RANGES))
    return task.claim(0)


def some_rows(choose: random.Random, many: int) -> list[tuple[str, int]]:
    return [(choose.choice("abcdefg"), choose.randint(-1, 5)) for _ in range(many)]


@pytest.mark.parametrize("form", [Touchy, TouchyTogether])
@pytest.mark.parametrize("seed", range(5))
def test_rows_that_waited_are_worth_the_same_rows_one_by_one(form: type[Touchy], seed: int) -> None:
    """Also those that came twice meanwhile, in two attempts of their root."""
    choose = random.Random(seed)
    frames = [some_rows(choose, 20) for _ in range(4)]
    waited, one_by_one = waiting(form()), keyed_rows(Touchy(), lambda row: row[0])
    for attempt in (0, 1):
        for at, rows in enumerate(frames):
            waited.take(frame(rows, 20 * at, attempt), 0)
            if not attempt:
                for place, row in enumerate(rows):
                    one_by_one.take(frame([row], 20 * at + place), 0)
    for at, rows in enumerate(frames):
        for place, row in enumerate(rows):
            one_by_one.take(frame([row], 20 * at + place, 1), 0)
    assert waited.holding == 160
    claims(waited)
    states, out, letters = seen(waited)
    expected_states, expected_out, expected_letters = seen(one_by_one)
    assert states == expected_states
    assert sorted(out) == sorted(expected_out) and sorted(letters) == sorted(expected_letters)


def test_rows_of_many_frames_and_ranges_are_one_call() -> None:
    task = waiting(logic := TouchyTogether())
    for at in range(10):
        task.take(frame([(f"key {n}", 0) for n in range(30)], 30 * at), 0)
    claims(task)
    assert logic.calls == 1 and task.uncovered_rows == 300


def test_rows_of_a_key_are_taken_in_the_order_in_which_they_came_by_several_edges() -> None:
    """Each edge has a key of its own."""

    class Order(Touchy):
        def process(self, key: Any, row: Any, state: int) -> tuple[int, Sequence[Any]]:
            return state, [(key, row["n"])]

    task = waiting(Order())
    task.key_of = lambda edge: lambda row: row[edge]
    for at in range(6):
        edge = 3 + at // 2 % 2
        one = frame([{edge: "a", "n": 2 * at}, {edge: "b", "n": 2 * at + 1}], 2 * at)
        one.edge = edge
        task.take(one, 0)
    claims(task)
    _, out, letters = seen(task)
    assert not letters
    assert [n for key, n in out if key == "a"] == [0, 2, 4, 6, 8, 10]
    assert [n for key, n in out if key == "b"] == [1, 3, 5, 7, 9, 11]


def test_a_range_that_comes_earlier_takes_its_rows_alone() -> None:
    task = waiting(TouchyTogether())
    task.take(frame([("a", 0), ("b", 0), ("a", 0)]), 0)
    first = task.ranges.missing.copy()
    here = {at for at in task.side.places if len(task.side.of(at)) == 2}
    task.ranges.hear(BEFORE, here)
    task.claim(0)
    assert task.ranges.missing == first - here and task.uncovered_rows == 2 and len(task.side) == 1
    claims(task)
    assert task.uncovered_rows == 3 and not len(task.side)


def test_what_rows_that_waited_owe_is_acked_once_they_are_covered() -> None:
    """Their roots, and those that go along: nothing is left of the ids that they came with, but of what went on."""
    task, left = waiting(Touchy()), dict[RootKey, int]()

    def acked(acks: Sequence[Addressed]) -> None:
        for _, ack in acks:
            left[ack.key] ^= ack.value

    def root(number: int, along: Sequence[int] = ()) -> RootPart:
        left[RootKey(1, 1, number, 0)] = number + 1
        return RootPart(RootKey(1, 1, number, 0), HERE, 0, 2, 100 * number, 0, 0, number + 1, list(along))

    for numbers in ((0, 1), (2, 3), (4, 5)):
        roots = [root(numbers[0], [1]), root(numbers[1])]
        runs = [(0, 0, 2, 11), (1, 0, 2, 11)]
        rows = [("a", 2), ("b", 0), ("c", 1), ("a", 0)]
        acked(task.take(Frame(3, 1, HERE, 1, 5, roots, runs, rows, 0, 0), 0))
    acked(claims(task))
    acked(task.covered())
    for sent in task.results.outputs.flush(0, everything=True):
        for part in sent.roots:
            left[part.key] ^= part.id
    assert set(left.values()) == {0}


# ── rows at the side ────────────────────────────────────────────────────────────────────────────────


def singles(rows: Sequence[Any], position: int = 0) -> list[BufferedRow]:
    return list(single_rows(frame(rows, position), 3, lambda: 1))


def test_rows_leave_in_the_order_in_which_they_came_wherever_they_wait() -> None:
    side, rows = WaitingRows(), singles("abcdef")
    for row, place in zip(rows, (1, 2, 3, 1, 2, 3), strict=True):
        side.add(place, row)
    assert len(side) == 6 and set(side.places) == {1, 2, 3}
    assert [row.row for row in side.take([3, 1, 7])] == ["a", "c", "d", "f"]
    assert len(side) == 2 and side.take([1]) == []
    assert [row.row for row in side.of(2)] == ["b", "e"]


def test_rows_of_a_root_that_came_by_several_frames_have_one_root_together() -> None:
    along = RootPart(RootKey(7, 1, 0, 0), HERE, 0, 2, 0, 0, 0, 0)
    rows = singles("ab", 40)
    (other,) = singles("c", 40)
    other.along, other.roots, other.offset = (along,), (other.root, along), 2
    batch = united([*rows, other])
    assert list(batch.rows) == ["a", "b", "c"] and batch.runs == [(0, 0, 3, 11)]
    assert [part.key for part in batch.roots] == [rows[0].root.key, along.key]
    assert batch.roots[0].along == [1] and not rows[0].root.along
