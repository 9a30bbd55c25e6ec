"""A sink's rows are called and logged in pieces, so that a worker killed at them hides few copies.

What a sink did before its rows were in the log of finished rows, nobody can count. So a slow sink logs row by row, a
fast one as many as it takes in a millisecond, and how many are begun and not logged yet is in the worker's meter: its
agent counts those of a killed worker as not logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

PIECE_NS = 1_000_000
MOST_ROWS = 4096


class Pieces:
    """One thread of a sink. `begun(n)`: tells the meter of n rows that are begun and not logged. `log`: writes
    the log of what was finished."""

    def __init__(
        self, clock: Callable[[], int], begun: Callable[[int], None], log: Callable[[], None]
    ) -> None:
        self._clock, self._tell, self._log = clock, begun, log
        self._size = 1
        self._begun, self._since_ns = 0, 0

    def cut(self, rows: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of each piece; it is logged once the next one is asked for."""
        start = 0
        while start < rows:
            stop = min(rows, start + self._size)
            self.begin(stop - start)
            yield start, stop
            took_ns = self._clock() - self._since_ns
            self.logged()
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
        self._tell(self._begun)

    def end(self) -> None:
        """Rows begun are finished, and recorded as such: log them, if that took long enough."""
        if self._begun and self._clock() - self._since_ns > PIECE_NS:
            self.logged()

    def logged(self) -> None:
        self._log()
        self._begun = 0
        self._tell(0)
