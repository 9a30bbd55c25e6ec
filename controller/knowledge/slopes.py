"""Slopes of noisy series with their confidence intervals. Pure; no result is ever NaN or infinite.

Theil–Sen is the median of the slopes of all pairs of points; its interval is Sen's (1968), from the
variance of Kendall's S. Least squares is the raw test of paper 0, section 5.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z95 = 1.96  # standard deviations of a 95 % interval
MIN_POINTS = 3  # fewer points have no slope with an interval


class Slope(msgspec.Struct, frozen=True):
    """Units of y per unit of x, its 95 % interval, and the number of points behind it."""

    value: float
    low: float
    high: float
    points: int


def pair_slopes(x: Floats, y: Floats) -> Floats:
    """Slopes of all pairs; x ascends strictly. y: (points,) or (points, series) → (pairs, …)."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    rise = y[second] - y[first]
    return rise / (run if y.ndim == 1 else run[:, None])


def theil_sen(x: Floats, y: Floats) -> Slope:
    """The median slope of all pairs and Sen's interval; zero when there are fewer than 3 points."""
    n = len(x)
    if n < MIN_POINTS:
        return Slope(0.0, 0.0, 0.0, n)
    slopes = np.sort(pair_slopes(x, y))
    reach = Z95 * kendall_deviation(n)
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), n)


def theil_sen_each(x: Floats, y: Floats) -> Floats:
    """The median slope of each column of y (points, series); zeros when there are fewer than 3 points."""
    if len(x) < MIN_POINTS or y.shape[1] == 0:
        return np.zeros(y.shape[1])
    slopes: Floats = np.median(pair_slopes(x, y), axis=0)
    return slopes


def probability_above(x: Floats, y: Floats, limit: float) -> float:
    """How sure it is that the slope is above `limit` (0 … 1): Kendall's test against a line that steep."""
    n = len(x)
    if n < MIN_POINTS:
        return 0.5
    score = float(np.sign(pair_slopes(x, y) - limit).sum())
    return 0.5 * (1 + math.erf(score / kendall_deviation(n) / math.sqrt(2)))


def kendall_deviation(n: int) -> float:
    """Standard deviation of Kendall's S of n points without a trend."""
    return math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def least_squares(x: Floats, y: Floats) -> Slope:
    """The raw least-squares slope and its interval; zero when there are fewer than 3 points."""
    n = len(x)
    if n < MIN_POINTS:
        return Slope(0.0, 0.0, 0.0, n)
    dx = x - x.mean()
    spread = float(dx @ dx)
    slope = float(dx @ (y - y.mean())) / spread
    rest = y - y.mean() - slope * dx
    reach = Z95 * math.sqrt(float(rest @ rest) / (n - 2) / spread)
    return Slope(slope, slope - reach, slope + reach, n)
