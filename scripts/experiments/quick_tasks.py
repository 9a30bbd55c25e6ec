"""Topologies of tasks that do next to nothing, in a line, side by side and many in a row (decision 80)."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.logic import Source, keep_if, no_effects

Row = tuple[int, int]


class Numbers(Source):
    """Rows without end."""

    def read(self, position: int, limit: int) -> list[Row]:
        return [(n, n % 17) for n in range(position, position + limit)]


def double(row: Row) -> Row:
    return row[0] * 2, row[1]


@keep_if
def some(row: Row) -> bool:
    return row[1] != 3


@no_effects
def nothing(row: Any) -> None:
    """A sink."""


line = topology("quick-line")
(
    line.source("numbers", Numbers)
    >> line.task("double", double)
    >> line.task("some", some)
    >> line.task("sink", nothing)
)

fan = topology("quick-fan")
numbers, sink = fan.source("numbers", Numbers), fan.task("sink", nothing)
for number in range(5):
    numbers >> fan.task(f"double{number}", double) >> sink

row = topology("quick-row")
last = row.source("numbers", Numbers)
for number in range(8):
    last = last >> row.task(f"double{number}", double)
last >> row.task("sink", nothing)
