"""Sets of integers as intervals: what is contiguous takes next to nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Spans:
    """Disjoint half-open intervals of integers, ascending."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def add(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Add begin … end − 1; the parts of it that were not in it before."""
        if begin >= end:
            return []
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        fresh, at = [], begin
        for b, e in zip(self._begins[first:last], self._ends[first:last], strict=True):
            if at < b:
                fresh.append((at, b))
            at = max(at, e)
        if at < end:
            fresh.append((at, end))
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin], [end]
        return fresh

    @property
    def end(self) -> int:
        """Above the highest."""
        return max(self._ends, default=0)

    def missing(self, first: int = 0) -> int:
        """How many integers from `first` on, and below the highest, are not in it."""
        there = sum(max(0, e - max(b, first)) for b, e in zip(self._begins, self._ends, strict=True))
        return max(0, self.end - first) - there

    def all(self) -> list[tuple[int, int]]:
        return list(zip(self._begins, self._ends, strict=True))
