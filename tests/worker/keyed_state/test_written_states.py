"""States that rows leave are written once, when they are looked at: a snapshot has them so, in whatever form, of
whatever keys and whenever ranges leave meanwhile."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_keyed_frames import frame, task_of, whole_of
from test_states_beyond_memory import bounded, states

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state import written_states
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart

KEYS: list[Hashable] = [*"abcdefghij", *range(10), b"b", (1, "c"), 1.0, True, None]
VALUES: list[Any] = [
    7,
    1.5,
    "text",
    None,
    {"n": 1},
    {"n": 1, "of": "x"},
    (1, 2),
    {"n": (1,)},
    [1, [2]],
    {1: 2},
]
ENOUGH = 1 << 30  # bytes


class LastValue(Keyed):
    """The state of a key is what its last row says; a row that says "no" fails."""

    def new(self, key: Hashable) -> Any:
        return None

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        if row[1] == "no":
            raise ValueError("no")
        return row[1], [key]


class LastValuesTogether(LastValue):
    def process_all(self, keys: Sequence[Hashable], rows: Sequence[Any], found: dict[Any, Any]) -> Any:
        for key, row in zip(keys, rows, strict=True):
            found[key], _ = self.process(key, row, found[key])
        return list(keys), None


class LastValuesBackwards(LastValuesTogether):
    """Puts the states in another order."""

    def process_all(self, keys: Sequence[Hashable], rows: Sequence[Any], found: dict[Any, Any]) -> Any:
        came = super().process_all(keys, rows, found)
        for key in reversed(list(found)):
            found[key] = found.pop(key)
        return came


class Chained:
    """A thread and what is saved of it: a whole snapshot, and changes behind it."""

    def __init__(self, task: KeyedRows) -> None:
        self.task, self.position = task, 0
        self.data = whole_of(task)
        task.mark()
        task.covered()
        self.told = dict(task.ranges.versions)
        self.change()  # of no row, so that states may be written from here on

    def take(self, rows: Sequence[tuple[Hashable, Any]]) -> None:
        self.task.take(frame(rows, self.position), 0)
        self.position += len(rows)

    def begin(self) -> None:
        self.task.cut(self.told)
        self.task.cover()
        self.told = dict(self.task.ranges.versions)
        self.expected = states(self.task)

    def end(self) -> form.StateChange:
        change = self.task.was_cut()
        data, _ = form.behind(self.data, None, SavedPart(change))
        assert data is not None
        self.data = data
        assert states(self.restored()) == self.expected
        return change

    def change(self) -> form.StateChange:
        self.begin()
        return self.end()

    def restored(self) -> KeyedRows:
        again = task_of(type(self.task.code.logic)())
        again.restore(form.stream(self.data))
        by_range = task_of(type(self.task.code.logic)())
        for copy in filter(lambda copy: copy.data, form.read(self.data).copies):
            by_range.states.unpack(copy.key_range, form.contents_of(copy).states)
        assert states(by_range) == states(again), "and so it is for one that takes a part of it"
        return again


def one_each(keys: Iterable[Hashable], value: Any = 1) -> list[tuple[Hashable, Any]]:
    return [(key, value) for key in keys]


def test_a_state_of_its_own_for_most_rows_is_written_as_each_row_leaves_it() -> None:
    chained = Chained(task_of(LastValue()))
    chained.take(one_each(range(100)))
    chained.take(one_each(range(50), 2))
    change = chained.change()
    assert len(change.states.ranges) == 150
    chained.take(one_each(["a"]))
    assert len(chained.change().states.ranges) == 1, "what was durable is not there again"


def test_states_of_few_keys_are_written_once_for_each_snapshot() -> None:
    chained = Chained(task_of(LastValue()))
    for _ in range(2):
        for _ in range(10):
            chained.take(one_each(range(5)))
        many = len(chained.change().states.ranges)
    assert many == 5
    chained.take(one_each(range(100)))
    chained.change()
    chained.take(one_each(range(50)))
    chained.take(one_each(range(25)))
    assert len(chained.change().states.ranges) == 75, (
        "and again one for each row, when these are of many keys"
    )


@pytest.mark.parametrize("logic", [LastValue, LastValuesTogether, LastValuesBackwards])
@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_has_what_there_was_at_its_beginning(
    seed: int, logic: type[Keyed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)
    monkeypatch.setattr(written_states, "WRITTEN_MOST", choose.choice([30, 100, 1 << 20]))
    values = choose.choice([VALUES[:4], VALUES[:6], VALUES])
    bad = choose.choice(["no", 1])
    chained = Chained(task_of(logic()) if seed % 2 else bounded(logic(), tmp_path, ENOUGH))
    for _ in range(8):
        keys = KEYS[: choose.choice([10, 20, len(KEYS)])]
        for begun in range(3):
            for _ in range(choose.randrange(4)):
                some = choose.sample(keys, choose.randrange(1, len(keys)))
                chained.take([(key, choose.choice([*values, bad])) for key in some])
            if begun == 0:
                chained.begin()
                chained.task.states.keep_some_cut(2)
            elif begun == 1:
                chained.end()


def test_states_of_a_range_that_leaves_are_in_no_snapshot() -> None:
    chained = Chained(task_of(LastValue()))
    chained.take(one_each(range(40)))
    leaving = range_of(7)
    chained.task.states.drop(leaving)
    chained.task.ranges.drop(leaving)
    chained.take(one_each(key for key in range(40, 60) if range_of(key) != leaving))
    change = chained.change()
    assert leaving not in change.states.ranges and len(set(change.states.ranges)) > 40


def test_a_copy_of_a_range_that_comes_counts_more_than_what_was_written_before() -> None:
    other = Chained(task_of(LastValue()))
    other.take(one_each([7], "newer"))
    chained = Chained(task_of(LastValue()))
    chained.take(one_each(range(40)))
    chained.task.states.unpack(range_of(7), form.contents_of(other.task.copy(range_of(7))).states)
    assert chained.task.states.of(range_of(7)) == {7: "newer"}
    chained.begin()
    chained.expected = [(at, key, 1) for at, key, _ in chained.expected if key != "7"]
    assert 7 not in [key for key, _ in rows_of(chained.task.was_cut())]


def rows_of(change: form.StateChange) -> list[tuple[Hashable, Any]]:
    return list(zip(*form.columns_of(change.states), strict=True))


def test_what_a_failed_snapshot_had_is_in_the_whole_one_that_follows() -> None:
    chained = Chained(task_of(LastValue()))
    chained.take(one_each(range(40)))
    chained.begin()
    chained.task.was_cut()  # and it is not written
    chained.take(one_each(range(20), 2))
    chained.data = whole_of(chained.task)
    chained.task.mark()
    assert states(chained.restored()) == states(chained.task)
    assert not rows_of(chained.task.change(chained.told)), "what is in a whole one is not written behind it"
