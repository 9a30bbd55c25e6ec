"""A state that cannot be saved costs the row that made it, and no other: the key is as it was before that row, all
other keys go on, snapshots are written."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from typing import Any

import pytest
from test_keyed_frames import frame, task_of, whole_of, whole_part

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.worker.calls.attempts import StartAgain
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import contents_of, of_range


class Kept(Keyed):
    """The rows of a key: in a list that is changed in its place."""

    def new(self, key: Hashable) -> list[Any]:
        return []

    def process(self, key: Hashable, row: Any, state: list[Any]) -> tuple[list[Any], Iterable[Any]]:
        state.append(row[1])
        return state, []


class Anew(Kept):
    """In a new list each time."""

    def process(self, key: Hashable, row: Any, state: list[Any]) -> tuple[list[Any], Iterable[Any]]:
        return [*state, row[1]], []


class Told(Kept):
    """`snapshot` raises of a key with an odd number."""

    def snapshot(self, state: list[Any]) -> Any:
        if "odd" in state:
            raise OSError("no answer")
        return tuple(state)

    def restore(self, saved: Any) -> list[Any]:
        return list(saved)


class Whole(Keyed):
    """The last value is the state."""

    def new(self, key: Hashable) -> Any:
        return 0

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        return row[1], []


def of(task: KeyedRows, key: str) -> Any:
    return task.states.of(range_of(key)).get(key)


@pytest.mark.parametrize("bad", [2**64, object(), {"a": 1j}, -(2**63) - 1, "\ud800"], ids=type)
def test_the_first_row_that_makes_a_bad_state_is_refused_however_many_were_good(bad: Any) -> None:
    task = task_of(Whole())
    task.take(frame([(f"k{n}", (n,)) for n in range(500)]), 0)
    task.take(frame([("a", 1), ("a", bad), ("b", 2)], position=500), 0)
    assert [letter.position for letter in task.results.letters] == [501]
    assert (of(task, "a"), of(task, "b")) == (1, 2)
    whole_part(task)


@pytest.mark.parametrize("logic", [Kept(), Told()], ids=["kept", "told"])
def test_a_state_spoilt_in_its_place_is_not_judged_by_later_rows(logic: Keyed[Any, Any, Any, Any]) -> None:
    task = task_of(logic)
    task.take(frame([("a", 1)]), 0)
    with pytest.raises(StartAgain):
        task.take(frame([("a", "odd" if isinstance(logic, Told) else 1j), ("a", 2)], position=1), 0)
    assert not task.results.letters


@pytest.mark.parametrize("logic", [Kept(), Told(), Anew()], ids=["kept", "told", "anew"])
def test_carefully_the_row_is_found_and_its_key_is_as_it_was(logic: Keyed[Any, Any, Any, Any]) -> None:
    task = task_of(logic)
    task.states.be_careful(1)
    bad = "odd" if isinstance(logic, Told) else 1j
    task.take(frame([("a", 1), ("a", bad), ("b", 2), ("a", 3)]), 0)
    assert [letter.position for letter in task.results.letters] == [1]
    assert (of(task, "a"), of(task, "b")) == ([1, 3], [2])
    saved = {
        key: state
        for copy in form.read(whole_of(task)).copies
        for key, state in of_range(contents_of(copy).states)
    }
    assert {key: list(state) for key, state in saved.items()} == {"a": [1, 3], "b": [2]}


@pytest.mark.parametrize("logic", [Kept(), Told(), Anew()], ids=["kept", "told", "anew"])
@pytest.mark.parametrize("careful", [0, 1])
def test_what_changed_since_a_range_came_is_what_is_saved_and_moved_next(
    logic: Keyed[Any, Any, Any, Any], careful: int
) -> None:
    """A thread that started again after a state was spoilt answered with states as they were when their range came."""
    data, before = whole_of(task_of(logic)), task_of(logic)
    before.take(frame([("a", 1), ("b", 1)]), 0)
    came = before.change({})
    assert came.moved is not None and range_of("a") in {copy.key_range for copy in came.moved.came}
    before.mark()
    before.take(frame([("a", 2)], position=2), 0)
    changed = before.change(before.ranges.versions)
    again = task_of(logic)
    if careful:
        again.states.be_careful(careful)
    again.restore(form.stream(data + form.added(came) + form.added(changed)))
    copy = again.copy(range_of("a"))
    assert [list(state) for _, state in of_range(contents_of(copy).states)] == [[1, 2]]


class Nested(Keyed):
    """A state of little lists that hold a large one."""

    def new(self, key: Hashable) -> list[Any]:
        return [0, [0, {}]]

    def process(self, key: Hashable, row: Any, state: list[Any]) -> tuple[list[Any], Iterable[Any]]:
        state[1][1][row[1]] = None
        return state, []


def test_a_large_state_is_not_looked_at_for_each_row_however_deep_it_lies() -> None:
    task, calls = task_of(Nested()), 0
    task.take(frame([("a", n) for n in range(2000)]), 0)

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        task.take(frame([("a", n) for n in range(500)], position=2000), 0)
    finally:
        sys.setprofile(None)
    assert len(of(task, "a")[1][1]) == 2000
    assert calls < 500 * 1000, "at one row in many, not at 2,000 values for each of 500"
