"""Numbers for trying things out: a source that can be read again from any position."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.topology_runtime.logic import Context, Exhausted, Source


class Counter(Source):
    """0, 1, 2 …: with n partitions, partition k gives k, k + n, k + 2 n … Ends before `limit` if given."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._first, self._stride = 0, 1

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions

    def read(self, position: int, limit: int) -> Sequence[int]:
        start = self._first + position * self._stride
        stop = start + limit * self._stride
        if self._limit is not None:
            if start >= self._limit:
                raise Exhausted
            stop = min(stop, self._limit)
        return range(start, stop, self._stride)
