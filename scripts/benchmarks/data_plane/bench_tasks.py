"""Tasks of the benchmarks W1, W2, W3; the work itself is in scripts/peers/work.py."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.api.logic import Keyed, Source
from headgate.topology_runtime.api.timed import Time, Timed
from peers.work import Tuple, f1, f2, f3, numbers

__all__ = ("Numbers", "count", "f1", "f2", "f3")
KEYS, TIMER_EVERY_US = 1000, 100_000  # a row is a microsecond of event time


class Numbers(Source):
    """Replayable: the row of a position is that position."""

    def read(self, position: int, limit: int) -> list[Tuple]:
        return numbers(position, limit)


def count(row: Tuple) -> None:
    """The sink: rows are counted by the runtime."""


def key(row: Tuple) -> int:
    return row[0] % KEYS


class CountedRows(Keyed[int, Tuple, int, Any]):
    """A count for each key, as a sink."""

    def new(self, key: int) -> int:
        return 0

    def process(self, key: int, row: Tuple, state: int) -> tuple[int, tuple[()]]:
        return state + 1, ()


class TimedCounts(Timed[int, Tuple, int, Any]):
    """The same, anew for each tenth of a second of event time, by a timer."""

    at, unit = 0, "us"

    def new(self, key: int) -> int:
        return 0

    def process(self, key: int, row: Tuple, state: int, time: Time) -> tuple[int, tuple[()]]:
        time.set((time.at_us // TIMER_EVERY_US + 1) * TIMER_EVERY_US)
        return state + 1, ()

    def on_timer(self, key: int, at: int, state: int, time: Time) -> tuple[int, tuple[()]]:
        return 0, ()
