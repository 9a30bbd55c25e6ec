"""A sink's rows are called and logged in pieces, so that a worker killed at them hides few copies. Pure but for its
clock and its log, which the caller gives.

What a sink did before its rows were in the log of finished rows, nobody can count. So a slow sink logs row by row, a
fast one as many as it takes in a millisecond, and how many are begun and not logged yet is in the worker's meter: its
agent counts those of a killed worker as not logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from headgate.topology_runtime.messages import RootPart

PIECE_NS = 1_000_000
MOST_ROWS = 4096

Finished = tuple[RootPart, int, int, int]  # root, offset, count, variant of rows done at a sink


class PieceLog(Protocol):
    """Where the finished rows of one thread are kept (records.py)."""

    def begun(self, rows: int) -> None:
        """So many are begun and not logged."""

    def log(self, finished: list[Finished]) -> None: ...


class Pieces:
    """One thread of a sink."""

    def __init__(self, clock: Callable[[], int], log: PieceLog) -> None:
        self._clock, self._log = clock, log
        self._size = 1
        self._begun, self._since_ns = 0, 0

    def cut(self, rows: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of each piece; it is to be logged before the next one is asked for."""
        start = 0
        while start < rows:
            stop = min(rows, start + self._size)
            self.begin(stop - start)
            yield start, stop
            took_ns = self._clock() - self._since_ns
            if took_ns > PIECE_NS:
                self._size = max(1, self._size // 2)
            elif took_ns < PIECE_NS // 2 and stop - start == self._size:
                self._size = min(MOST_ROWS, self._size * 2)
            start = stop

    def begin(self, rows: int = 1) -> None:
        """So many rows are begun."""
        if not self._begun:
            self._since_ns = self._clock()
        self._begun += rows
        self._log.begun(self._begun)

    @property
    def long(self) -> bool:
        """Has what is begun taken so long that it is to be logged?"""
        return self._begun > 0 and self._clock() - self._since_ns > PIECE_NS

    def log(self, finished: list[Finished]) -> None:
        if not (finished or self._begun):
            return
        self._log.log(finished)
        self._begun = 0
        self._log.begun(0)
