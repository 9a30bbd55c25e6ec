"""Sums per second of time in numpy rings: what `Intake` writes and `windows` reads.

Every quantity is kept as an integral over time (counts, or a gauge × seconds), so that a block which lies
across two seconds is split between them and nothing depends on when agents happen to sample.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NS = 1_000_000_000
SECONDS_KEPT = 128  # windows reach back 120 s; late blocks a few more


class Ring:
    """(SECONDS_KEPT, series, columns) sums; series are added as VMs and latencies appear."""

    def __init__(self, columns: int, series: int = 0) -> None:
        self.used = series
        self.sums: Floats = np.zeros((SECONDS_KEPT, max(series, 1), columns))

    def add(self, count: int) -> int:
        """Room for `count` more series; the number of the first."""
        first, self.used = self.used, self.used + count
        if self.used > self.sums.shape[1]:
            more = max(self.used, 2 * self.sums.shape[1]) - self.sums.shape[1]
            self.sums = np.pad(self.sums, ((0, 0), (0, more), (0, 0)))
        return first

    def of(self, seconds: NDArray[np.int64]) -> Floats:
        """The sums (seconds, series, columns) of these seconds."""
        return self.sums[seconds % SECONDS_KEPT, : self.used]


class Timeline:
    """Which second is newest; rings are cleared as it moves on."""

    def __init__(self) -> None:
        self.newest: int | None = None
        self._rings: list[Ring] = []

    def ring(self, columns: int, series: int = 0) -> Ring:
        ring = Ring(columns, series)
        self._rings.append(ring)
        return ring

    def spread(self, end_ns: int, length_ns: int) -> Iterator[tuple[int, float]]:
        """(row of the rings, part of the time) for each second that end − length … end touches.

        Seconds that are no longer kept are left out."""
        start_ns = end_ns - length_ns
        self.advance((end_ns - 1) // NS)
        assert self.newest is not None
        for second in range(max(start_ns // NS, self.newest - SECONDS_KEPT + 1), (end_ns - 1) // NS + 1):
            overlap = min(end_ns, (second + 1) * NS) - max(start_ns, second * NS)
            yield second % SECONDS_KEPT, overlap / length_ns

    def advance(self, second: int) -> None:
        """Make `second` the newest, if it is; the rings are empty there."""
        if self.newest is None:
            self.newest = second
        for new in range(max(self.newest + 1, second - SECONDS_KEPT + 1), second + 1):
            for ring in self._rings:
                ring.sums[new % SECONDS_KEPT] = 0.0
        self.newest = max(self.newest, second)


class Marks:
    """The newest values of a few counters against time, oldest first, at least `step_ns` apart but for the
    newest one."""

    def __init__(self, counters: int, kept: int, step_ns: int) -> None:
        self._values: Floats = np.zeros((2 * kept, counters + 1))
        self._kept, self._step_ns, self._end = kept, step_ns, 0

    def add(self, now_ns: int, values: tuple[float, ...]) -> None:
        """A point at `now_ns`; the newest one gives way when it is too close to the one before it."""
        times = self._values[:, 0]
        while self._end and now_ns <= times[self._end - 1]:
            self._end -= 1
        if self._end > 1 and times[self._end - 1] - times[self._end - 2] < self._step_ns:
            self._end -= 1
        if self._end == len(self._values):
            self._values[: self._kept] = self._values[self._kept :].copy()
            self._end = self._kept
        self._values[self._end] = (now_ns, *values)
        self._end += 1

    def all(self) -> Floats:
        """(points, 1 + counters): time in ns, then the counters."""
        return self._values[max(0, self._end - self._kept) : self._end]
