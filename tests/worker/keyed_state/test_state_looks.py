"""A look at the state of a key tells what is there, and changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from test_keyed_frames import frame, task_of, whole_of
from test_timers import US, Bench, Last

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.wire.state_questions import STATE_MOST, StateAnswer, StateQuestion
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_looks import looked_up
from headgate.topology_runtime.worker.keyed_state.state_tables import split
from headgate.topology_runtime.worker.rows import row_values as wire

HOME = Slot("vm1", 2), 7


class Newest(Keyed):
    """The last value of a key; nothing can be saved while `away`."""

    away = False

    def new(self, key: Hashable) -> Any:
        return None

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        return row[1], []

    def snapshot(self, state: Any) -> Any:
        if self.away:
            raise OSError("no answer")
        return {"last": state}

    def restore(self, saved: Any) -> Any:
        if saved == {"last": "lost"}:
            raise LookupError("nothing of it is there")
        return saved["last"]


def asked(key: Hashable, number: int = 11, thread: int = 5) -> StateQuestion:
    return StateQuestion(number, HOME[0], thread, range_of(key), wire.write([key], wire.NESTED))


def told(task: KeyedRows, key: Hashable) -> StateAnswer:
    before = task.dirty, whole_of(task)
    answer = looked_up(task, asked(key), HOME, 99)
    assert (task.dirty, whole_of(task)) == before
    assert (answer.vm, answer.slot, answer.incarnation, answer.number, answer.thread, answer.wall_ns) == (
        "vm1", *HOME, 11, 5, 99,
    )  # fmt: skip
    return answer


@pytest.mark.parametrize("key", ["a", 17, 2.5, True, None, b"x", ("a", (1, 2.0)), date(2026, 11, 29)])
def test_it_finds_the_key_of_this_type_alone(key: Hashable) -> None:
    task = task_of(Newest())
    task.take(
        frame(
            [("a", 0), (17, 0), (2.5, 0), (True, 0), (1, 9), (None, 0), (b"x", 0), (date(2026, 11, 29), 0)]
        ),
        0,
    )
    task.take(frame([(("a", (1, 2.0)), 0), (key, "this one")], position=20), 0)
    answer = told(task, key)
    assert answer.outcome == "found" and wire.read(answer.saved, wire.NESTED) == [{"last": "this one"}]
    assert told(task, "not there").outcome == told(task, 17.0).outcome == "none"


def test_of_a_range_that_is_not_its_own_it_knows_nothing() -> None:
    task = task_of(Newest())
    task.take(frame([("a", 1)]), 0)
    task.ranges.owned.discard(range_of("a"))
    assert told(task, "a").outcome == "elsewhere"


def test_a_state_that_is_too_large_is_not_told() -> None:
    task = task_of(Newest())
    for number, value in enumerate(("x" * STATE_MOST, [0] * (STATE_MOST + 1), "x" * (STATE_MOST - 100))):
        task.take(frame([(number, value)], position=number), 0)
    assert [told(task, number).outcome for number in range(3)] == ["large", "large", "found"]


def test_a_snapshot_that_raises_costs_the_answer_alone() -> None:
    logic = Newest()
    task = task_of(logic)
    task.take(frame([("a", 1)]), 0)
    logic.away = True
    answer = looked_up(task, asked("a"), HOME, 99)
    logic.away = False
    assert answer.outcome == "failed" and "no answer" in answer.why and "test_state_looks.py" in answer.why
    task.take(frame([("a", 2)], position=1), 0)
    assert told(task, "a").outcome == "found"


def test_of_a_key_that_restore_does_not_take_it_tells_what_was_saved() -> None:
    task = task_of(Newest())
    saved = wire.write([["a", {"last": "lost"}]], wire.NESTED)
    task.states.unpack(range_of("a"), saved)
    assert wire.read(told(task, "a").saved, wire.NESTED) == [{"last": "lost"}]


def test_what_is_no_key_costs_the_answer_alone() -> None:
    task = task_of(Newest())
    for data in (b"", b"\xc1", wire.write([], wire.NESTED), wire.write([{"a": 1}], wire.NESTED)):
        assert looked_up(task, StateQuestion(1, HOME[0], 5, 3, data), HOME, 0).outcome == "failed"


def test_a_timed_task_tells_its_timers_too_between_two_frames(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logic=Last)
    bench.give(0, ("a", 5), ("a", 7))
    bench.hear(asked("a", 1))
    bench.hear(asked("b", 2))
    found, none = bench.core.behaviour.answers
    (saved,) = wire.read(found.saved, wire.NESTED)
    assert split(saved, timed=True) == (2, ((15 * US, "", False), (17 * US, "", False)))
    assert none.outcome == "none"
    assert found.slot == bench.slot and found.incarnation == bench.incarnation
