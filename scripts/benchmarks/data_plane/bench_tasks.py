"""Tasks of the benchmarks W1, W2, W3; the work itself is in scripts/peers/work.py."""

from __future__ import annotations

from headgate.topology_runtime.api.logic import Source
from peers.work import Tuple, f1, f2, f3, numbers

__all__ = ("Numbers", "count", "f1", "f2", "f3")


class Numbers(Source):
    """Replayable: the row of a position is that position."""

    def read(self, position: int, limit: int) -> list[Tuple]:
        return numbers(position, limit)


def count(row: Tuple) -> None:
    """The sink: rows are counted by the runtime."""
