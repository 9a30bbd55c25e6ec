"""A sink gets each row with its name; what it does not take is a dead letter; a service that is away costs no row."""

from __future__ import annotations

import pytest
from made_sinks import Patient, Table
from test_task_logic import S, code, flow, frame, root

from headgate.topology_runtime.api.logic import RowId


def test_rows_come_with_names_that_are_the_same_in_a_replay_and_another_for_each_row() -> None:
    table = Table()
    first = flow(table, sink=True)
    first.take(frame(["a", "b", "a"], root(position=40)), S)
    names = {RowId("", "source", 2, 40 + n, 0): row for n, row in enumerate("aba")}
    assert table.rows == names and table.calls == [3]
    flow(table, sink=True).take(frame(["a", "b", "a"], root(position=40, sequence=9)), S)
    assert table.rows == names
    assert str(RowId("run", "source", 0, 41, 0)) == "run/source/0/41/0"


def test_only_the_row_that_a_sink_refuses_is_a_dead_letter() -> None:
    table = Table(bad=["bad"])
    task = flow(table, sink=True)
    task.take(frame(["a", "bad", "b", "c"], root()), S)
    assert sorted(table.rows.values()) == ["a", "b", "c"]
    assert [(one.position, one.error) for one in task.results.letters] == [
        (101, "ValueError: cannot store bad")
    ]
    assert sum(count for _, _, count, _ in task.results.finished) == 3


@pytest.mark.parametrize("careful", [False, True])
def test_while_a_service_is_away_no_try_counts_and_no_row_dies(careful: bool) -> None:
    table, watch = Table(away=50), Patient()
    watch.careful = careful
    task = flow(table, sink=True)
    task.code.watch = watch
    task.take(frame([1, 2], root()), S)
    assert list(table.rows.values()) == [1, 2] and not task.results.letters
    assert watch.waited == ["no database"] * 50 and watch.back


def test_where_nobody_waits_a_service_that_is_away_is_a_failure_like_any() -> None:
    task = flow(Table(away=3), sink=True)
    task.take(frame([1], root()), S)
    assert [one.error for one in task.results.letters] == ["ServiceAway: no database"]


def test_a_sink_in_the_middle_passes_its_rows_on() -> None:
    made = code(Table(), "map")
    assert made.logic.write([], []) is None
    task = flow(Table())
    task.take(frame([5, 6], root()), S)
    assert [row for out in task.results.outputs.flush(S, everything=True) for row in out.rows] == [5, 6]
