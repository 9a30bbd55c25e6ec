"""A sink that takes many rows together: when it gets them, what of them it does not take."""

from __future__ import annotations

from typing import Any

from made_sinks import Patient, Table, Together
from test_panes_at_the_end import Bench

from headgate.topology_runtime.api.logic import RowId, Sink, kind_of
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Identity, Poison
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of


class Kept(Bench):
    """A thread whose task is a sink that takes four rows together, or what is two seconds old."""

    def __init__(self, sink: Sink[Any], watch: CallWatch | None = None) -> None:
        super().__init__()
        self.letters: list[str] = []
        self.core.behaviour = behaviour_of(self.core, sink, lambda _: None, watch)
        self.obey(None)

    def write(self, done: ToRecord, holding: int) -> None:
        self.letters += [letter.error for letter in done.letters]


def test_a_sink_that_asks_for_it_gets_so_many_rows_together_or_old_ones() -> None:
    table = Together()
    bench = Kept(table)
    assert kind_of(table) == kind_of(Together) == "hold" and kind_of(Table) == "map"
    for n in range(6):
        bench.take(n, ("row", n))
    assert table.calls == [4] and len(table.rows) == 4
    bench.look(0.5)
    assert table.calls == [4], "two rows wait"
    bench.look(1.0)
    assert table.calls == [4, 2]
    assert table.rows == {RowId("run", "source", 0, n, 0): ("row", n) for n in range(6)}


def test_of_rows_together_only_the_bad_one_is_lost_and_a_service_is_waited_for() -> None:
    table, watch = Together(bad=[("row", 2)], away=7), Patient()
    bench = Kept(table, watch)
    keys = [bench.take(n, ("row", n)) for n in range(4)]
    assert sorted(row[1] for row in table.rows.values()) == [0, 1, 3]
    assert bench.letters == ["ValueError: cannot store ('row', 2)"]
    assert len(watch.waited) == 7
    bench.look()
    assert not any(bench.open[key] for key in keys), "all of them are done"


def test_rows_together_that_killed_a_worker_are_not_written_once_more() -> None:
    table, watch = Together(), Patient()
    name: Identity = (0, 0, 0, 0, "bucket")
    watch.poison = Poison({name: ("it killed the worker", "")})
    bench = Kept(table, watch)
    for n in range(4):
        bench.take(n, ("row", n))
    assert not table.calls and bench.letters == ["it killed the worker"] * 4
