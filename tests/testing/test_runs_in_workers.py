"""`testing.run(…, workers=2)`: the same result from real processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headgate import Exhausted, Keyed, Source, testing, topology


class Lines(Source):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


def parse(line: str) -> tuple[str, int]:
    name, value = line.split(",")
    return name, int(value)


class Totals(Keyed):
    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int) -> tuple[int, list[Any]]:
        return state + row[1], [(key, state + row[1])]


def keep(row: Any) -> None:
    """A sink that returns nothing."""


flow = topology("totals")
(
    flow.source("lines", Lines)
    >> flow.task("parse", parse)
    >> flow.task("total", Totals).by(0)
    >> flow.task("keep", keep)
)


@pytest.mark.live
def test_two_workers_give_what_this_process_gives() -> None:
    inputs = {"lines": ["a,1", "b;2", "a,3", "b,4"]}
    here, there = testing.run(flow, inputs), testing.run(flow, inputs, workers=2)
    assert there.rows == here.rows == {"keep": [("a", 1), ("a", 4), ("b", 4)]}
    assert there.states == here.states == {"total": {"a": 4, "b": 4}}
    assert [(one.task, one.row, one.line) for one in there.dead_letters] == [
        (one.task, one.row, one.line) for one in here.dead_letters
    ]
    assert len(there.dead_letters) == 1
