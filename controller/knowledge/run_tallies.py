"""Counts of a run that outlive a controller: of sources, sinks and latency. Types only.

They are best effort: lost ones cost duplicates (sources resume at an older position) and counts, never a tuple.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from headgate.topology_runtime.latency.latency_buckets import COARSE


class SourceTally(msgspec.Struct, frozen=True, array_like=True):
    """A partition's highest known positions: read, all below done, done in all; and rows sent again. `apart`:
    (thread, emitted, acked, done) of those whose open positions are not counted in them. `again`: was a part
    of it read once more? `offsets`: (position, offset to go on from there) of a source with offsets."""

    task: str
    partition: int
    emitted: int
    acked: int
    done: int
    replayed: int
    apart: tuple[tuple[int, int, int, int], ...] = ()
    again: bool = False
    offsets: tuple[tuple[int, int], ...] = ()


class FinishedTally(msgspec.Struct, frozen=True):
    """Rows that reached sinks, of settled positions: `floors`: (source number, partition, settled below);
    `tasks`: (sink, rows, distinct rows) of those; `logs`: (sink, thread, incarnation, bytes read); `passed`: VMs
    whose logs were not waited for."""

    floors: tuple[tuple[int, int, int], ...] = ()
    tasks: tuple[tuple[str, int, int], ...] = ()
    logs: tuple[tuple[str, int, int, int], ...] = ()
    passed: tuple[str, ...] = ()


class Tallies(msgspec.Struct, frozen=True):
    """Counts of a run so far. `latency`: (sink, source, buckets, so many `per_doubling`). `dead`: of older versions.
    `planning_s`: (epoch, seconds from the beginning of the turn until the plan was journaled)."""

    wall_ns: int
    sources: tuple[SourceTally, ...] = ()
    latency: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    dead: tuple[tuple[str, int, int], ...] = ()
    planning_s: tuple[tuple[int, float], ...] = ()
    finished: FinishedTally | None = None
    unlogged: tuple[tuple[str, int, int], ...] = ()  # VM, boot, rows that are in no log
    per_doubling: int = COARSE


# ── Sets of integers as intervals: what is contiguous takes next to nothing ─────────────────────────────


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

    def from_on(self, first: int) -> int:
        """How many integers from `first` on are in it."""
        there = bisect_right(self._ends, first)
        return sum(e - max(b, first) for b, e in zip(self._begins[there:], self._ends[there:], strict=True))

    def missing(self, first: int = 0) -> int:
        """How many integers from `first` on, and below the highest, are not in it."""
        return max(0, self.end - first) - self.from_on(first)

    def all(self) -> list[tuple[int, int]]:
        return list(zip(self._begins, self._ends, strict=True))
