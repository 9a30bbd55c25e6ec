"""How much what rows take differs from row to row, by sums that are cheap to keep. Pure.

Of each call, of n rows in t µs, t² / n is added up. If rows take m on average and differ by a variance v, each by
itself, that is v + n m² on average: so v is known of frames of any size, without a time of each row. It is said as the
standard deviation of the logarithm (log-normal), which is about the share of m that a row differs by.

One row in a thousand (the first one, a collection of garbage) may have more variance than all others, and is nothing
that one row in a hundred meets: so the median of stretches of `CALLS_LEAST` calls counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

CPU_SPREAD, WAIT_SPREAD = "cpu_spread", "wait_spread"  # keys of a model's file; absent: not measured
CALLS_LEAST = 50
MOST = 2.0  # p99 is about a hundred times the median: above, a few rows are all there is


class Calls(NamedTuple):
    """Of some calls: their rows, how many they are, the time that all took, and the sum of µs² / rows."""

    rows: float
    calls: float
    time_us: float
    squares_us2: float

    def and_of(self, more: Calls) -> Calls:
        return Calls(*(a + b for a, b in zip(self, more, strict=True)))

    def without(self, earlier: Calls) -> Calls:
        """Those that came after a look at the same sums."""
        return Calls(*(a - b for a, b in zip(self, earlier, strict=True)))


def row_spread(parts: Iterable[Calls]) -> float | None:
    """By calls of successive seconds or so. None: too few to tell.

    >>> row_spread([Calls(rows=100, calls=100, time_us=1000.0, squares_us2=10_400.0)])  # 10 µs each, give or take 2
    0.198
    """
    found, stretch = list[float](), Calls(0, 0, 0, 0)
    for part in parts:
        stretch = stretch.and_of(part)
        if stretch.calls >= CALLS_LEAST:
            if stretch.time_us > 0:
                found.append(_of_stretch(stretch))
            stretch = Calls(0, 0, 0, 0)
    return round(median(found), 3) if found else None


def _of_stretch(stretch: Calls) -> float:
    mean_us = stretch.time_us / max(stretch.rows, stretch.calls)
    variance = max(0.0, stretch.squares_us2 - stretch.time_us * mean_us) / stretch.calls
    return min(MOST, math.sqrt(math.log1p(variance / mean_us**2)))


def of_rows(spread: float, rows: int) -> float:
    """That of what so many rows take together.

    >>> of_rows(0.2, 1), round(of_rows(0.2, 4), 3)
    (0.2, 0.101)
    """
    return spread if rows <= 1 else math.sqrt(math.log1p(math.expm1(spread**2) / rows))
