"""Logic of the benchmarks W1, W2, W3: tuples of (int, float, 10-byte str); f1: x+1, f2: x·2, f3: x−3."""

from __future__ import annotations

from headgate.topology_runtime.logic import Source

Tuple = tuple[int, float, str]


class Numbers(Source):
    """Replayable: the row of a position is that position."""

    def read(self, position: int, limit: int) -> list[Tuple]:
        return [(n, 0.5, "0123456789") for n in range(position, position + limit)]


def f1(row: Tuple) -> Tuple:
    x, y, s = row
    return x + 1, y, s


def f2(row: Tuple) -> Tuple:
    x, y, s = row
    return x * 2, y, s


def f3(row: Tuple) -> Tuple:
    x, y, s = row
    return x - 3, y, s


def count(row: Tuple) -> None:
    """The sink: rows are counted by the runtime."""
