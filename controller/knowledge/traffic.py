"""What tasks say to each other, and what CPU that takes, as it was measured. Frozen, plain values.

Everything is kept per tuple of the input rate, so that a plan for any rate is made of it. Measured pairs of threads are
summed by edge: a plan's threads are new ones, and those of a task are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

DIGITS = 3  # of what is handed to plans: what differs by less is the same plan

EdgeEnds = tuple[str, str]  # the task that sends, the one that receives


class TaskFlow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all threads of one task send to those of another. row_bytes: of a row between slots, if it is known."""

    source: str
    target: str
    rows_tps: float
    row_bytes: float | None = None


class TaskWork(msgspec.Struct, frozen=True, array_like=True):
    """CPU of all threads of a task: cores in use, each × the speed of its VM: what paper 1 counts in Hz."""

    task: str
    cores: float


class MeasuredTraffic(msgspec.Struct, frozen=True):
    """Per tuple of the input rate. rows: on an edge; row_bytes: of one of its rows, where rows left a slot;
    work: core-seconds of a task at speed 1. seconds: for how long it was measured."""

    seconds: float
    rows: dict[EdgeEnds, float]
    row_bytes: dict[EdgeEnds, float]
    work: dict[str, float]

    def flows(self, rate_tps: float) -> tuple[TaskFlow, ...]:
        """At an input rate."""
        return tuple(
            TaskFlow(*ends, _rounded(rows * rate_tps), self._size(ends)) for ends, rows in self.rows.items()
        )

    def works(self, rate_tps: float) -> tuple[TaskWork, ...]:
        """At an input rate, if every row costs what it costs now."""
        return tuple(TaskWork(task, _rounded(each * rate_tps)) for task, each in self.work.items())

    def _size(self, ends: EdgeEnds) -> float | None:
        size = self.row_bytes.get(ends)
        return None if size is None else _rounded(size)


def sized(flows: Iterable[TaskFlow]) -> tuple[TaskFlow, ...]:
    """Rows of unknown size are as large as the others in the geometric mean, since sizes differ by factors; where none
    is known, none is. Unknown is what never left a slot: once a plan parts it, it is known."""
    flows = tuple(flows)
    sizes = [flow.row_bytes for flow in flows if flow.row_bytes]
    if not sizes:
        return flows
    plain = _rounded(math.exp(math.fsum(map(math.log, sizes)) / len(sizes)))
    return tuple(replace(flow, row_bytes=plain) if flow.row_bytes is None else flow for flow in flows)


def weight_of(flow: TaskFlow) -> float:
    """What it counts where what is said is to stay near: bytes/s; rows/s where no size of rows is known."""
    return flow.rows_tps * (1.0 if flow.row_bytes is None else flow.row_bytes)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
