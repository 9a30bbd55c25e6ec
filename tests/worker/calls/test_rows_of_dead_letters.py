"""A dead letter has its row as the task was given it, and whence, so that it can be given to it again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed, Window
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge
from headgate.topology_runtime.wire.dead_letter_messages import ROW_BYTES_MOST, DeadLetter, weighed
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart, Route
from headgate.topology_runtime.worker.calls.dead_lettering import Around, bytes_of
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import Router
from headgate.topology_runtime.worker.calls.user_code import Results, UserCode
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.operators.thread_core import MapTask
from headgate.topology_runtime.worker.operators.window_task import WindowRows
from headgate.topology_runtime.worker.rows import row_values as wire

HERE = Slot("vm", 0)
AROUND = Around("t", 5, ("source",), {3: "before", 4: "beside"}, False, 2)


def outputs() -> Outputs:
    out = Outputs(5, HERE, 1, lambda: 7, 0)
    route = Route(0, ((9, 1.0),))
    out.route_by([(0, Router(Edge("t", "u"), route, frozenset(), None, lambda _: 99, 5))])
    return out


def frame(row: Any, edge: int = 3) -> Frame:
    root = RootPart(RootKey(1, 1, 0, 0), HERE, 0, 2, 100, 0, 0, 0xF00)
    return Frame(edge, 1, HERE, 1, 5, [root], [(0, 0, 1, 11)], [row], 0, 0)


def raising(*_: Any) -> Any:
    raise ValueError("no")


class Raising(Window):
    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        return True

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        raise ValueError("no")


class RaisingKeyed(Keyed):
    def new(self, key: Hashable) -> Any:
        raise ValueError("no")

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        return state, []


def code(kind: str, logic: Any) -> UserCode:
    return UserCode(Results(AROUND, outputs()), kind, logic, lambda _: None)


def task_of(kind: str) -> MapTask | WindowRows | KeyedRows:
    if kind == "hold":
        return WindowRows(code(kind, Raising()), lambda: 9)
    if kind != "keyed":
        return MapTask(code(kind, raising))
    keyed = KeyedRows(code(kind, RaisingKeyed()), lambda: 9, lambda _: lambda row: row)
    keyed.ranges.stand(Standing(1, (5,) * KEY_RANGES, (), frozenset({5}), {}))
    keyed.claim(0)
    return keyed


@pytest.mark.parametrize("kind", ["map", "flat_map", "hold", "keyed"])
def test_the_row_can_be_read_back_whatever_the_task(kind: str) -> None:
    row = (1, "é", datetime(2026, 1, 2, tzinfo=UTC), [None, {"a": 2.5}])
    task = task_of(kind)
    task.take(frame(row, edge=4), 0)
    (letter,) = task.results.letters
    assert wire.read(letter.data, letter.shape) == [row]
    assert (letter.feeder, letter.variant, letter.again) == ("beside", 11, 0)


def test_what_a_task_gives_on_and_cannot_travel_is_nobody_elses_to_give() -> None:
    task = MapTask(code("map", lambda row: object()))
    task.take(frame(1), 0)
    (letter,) = task.results.letters
    assert (letter.data, letter.feeder) == (b"", "")


def test_large_rows_and_rows_that_are_none_are_kept_as_text_alone() -> None:
    assert bytes_of("x" * ROW_BYTES_MOST) == (0, b"") == bytes_of(object())
    assert len(bytes_of("x" * (ROW_BYTES_MOST - 100))[1]) > ROW_BYTES_MOST - 100


def test_letters_with_large_rows_go_in_smaller_parts() -> None:
    def letter(size: int) -> DeadLetter:
        return DeadLetter("t", 1, "source", 0, 1, "", "", "", data=b"x" * size)

    assert weighed([letter(0)] * 50, 30) == 30 and weighed([], 30) == 0
    assert weighed([letter(16_000)] * 100, 100) == 32
    assert weighed([letter(1 << 20)] * 2, 30) == 1, "one goes in any case"
