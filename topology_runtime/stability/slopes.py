"""Slopes of noisy series with their confidence intervals. Pure; no result is ever NaN or infinite.

Theil–Sen is the median of the slopes of all pairs of points. Its quick interval is Sen's (1968), from the
variance of Kendall's S, for points that err independently of each other. `trend` has an interval for
points that do not, by a block bootstrap of the residuals (Künsch 1989, in a circle: Politis and Romano
1992). Least squares is the raw test of paper 0, section 5.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Z95 = 1.96  # standard deviations of a 95 % interval
MIN_POINTS = 3  # fewer points have no slope with an interval
RESAMPLES = 200
SEED = 20170623  # of the resampling: the same points always give the same interval
ALIKE = 0.3  # correlation below which residuals no longer tell of each other
LEAST_BLOCKS = 3
FEW_POINTS = 24  # up to which the places of all drawn pairs are kept (half a megabyte for so many)


class Slope(msgspec.Struct, frozen=True):
    """Units of y per unit of x, its 95 % interval, and the number of points behind it. `error`: its
    standard error; `freedom`: degrees of freedom behind that (0: no interval was asked for)."""

    value: float
    low: float
    high: float
    points: int
    error: float = 0.0
    freedom: float = 0.0

    def z_above(self, limit: float) -> float:
        """How many standard deviations of a normal distribution it is above the limit, that is what
        Student's t is worth in them (Wallace 1959)."""
        if self.freedom <= 0:
            return 0.0
        n, t = self.freedom, (self.value - limit) / max(self.error, 1e-12)
        z = (8 * n + 1) / (8 * n + 3) * math.sqrt(n * math.log1p(t * t / n))
        return math.copysign(z, t)


def probability(z: float) -> float:
    """That a normal deviate is below z."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def pair_slopes(x: Floats, y: Floats) -> Floats:
    """Slopes of all pairs; x ascends strictly. y: (…, points) → (…, pairs)."""
    first, second = _pairs(len(x))
    slopes: Floats = (y.take(second, -1) - y.take(first, -1)) / (x.take(second) - x.take(first))
    return slopes


def median_slopes(x: Floats, y: Floats) -> Floats:
    """The median slope of each row of y (series, points), at least 2 points."""
    return _medians(pair_slopes(x, y))


def _medians(rows: Floats) -> Floats:
    """Of each row, which is put in order; np.median takes ten times as long, and a partition longer too."""
    rows.sort(axis=1)
    size = rows.shape[1]
    middle: Floats = (rows[:, (size - 1) // 2] + rows[:, size // 2]) / 2
    return middle


@lru_cache(maxsize=64)
def _pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, second = np.triu_indices(n, 1)
    return first, second


def theil_sen(x: Floats, y: Floats) -> Slope:
    """The median slope of all pairs and Sen's interval; zero when there are fewer than 3 points."""
    n = len(x)
    if n < MIN_POINTS:
        return Slope(0.0, 0.0, 0.0, n)
    slopes = np.sort(pair_slopes(x, y))
    reach = Z95 * kendall_deviation(n)
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    middle = (slopes[(len(slopes) - 1) // 2] + slopes[len(slopes) // 2]) / 2
    return Slope(float(middle), float(slopes[low]), float(slopes[high]), n)


def theil_sen_each(x: Floats, y: Floats) -> Floats:
    """The median slope of each column of y (points, series); zeros when there are fewer than 3 points."""
    if len(x) < MIN_POINTS or y.shape[1] == 0:
        return np.zeros(y.shape[1])
    return median_slopes(x, y.T)


def trend(x: Floats, y: Floats, resolution: float = 0.0) -> Slope:
    """Theil–Sen with error and interval by block bootstrap. `resolution`: y is known no finer than this,
    so that points which happen to agree are not taken for certain."""
    n = len(x)
    if n < MIN_POINTS:
        return Slope(0.0, 0.0, 0.0, n)
    value = float(median_slopes(x, y[None])[0])
    rest = y - value * x
    rest = rest - np.add.reduce(rest) / n  # its mean, in a third of the time
    block = block_length(rest)
    slopes = _medians(resampled_slopes(x, rest, block))
    unknown = resolution / math.sqrt(12 * float(((x - x.mean()) ** 2).sum())) if resolution else 0.0
    small = n / (n - 2 * block)  # blocks of residuals vary less than of errors: the line was fitted to them
    error = math.hypot(small * float(slopes.std()), unknown)
    freedom = max(1.0, min(n / block, independent(rest)) - 2)
    wide = small * t95(freedom) / Z95
    ordered = np.sort(slopes)
    low, high = (wide * quantile(ordered, share) for share in (0.025, 0.975))
    reach = Z95 * unknown
    return Slope(value, value + min(low, -reach), value + max(high, reach), n, error, freedom)


def quantile(ordered: Floats, share: float) -> float:
    """Of ascending values, linear between two of them: np.percentile to the last bit, in a twentieth of its
    time."""
    place = share * (len(ordered) - 1)
    below = int(place)
    a, b, part = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)]), place - below
    return b - (b - a) * (1 - part) if part >= 0.5 else a + (b - a) * part


def independent(rest: Floats) -> float:
    """How many independent points these residuals of a line are worth, if each tells of the next alone
    (an autoregression of order 1, its correlation freed of what fitting a line takes from it)."""
    n, power = len(rest), float(rest @ rest)
    if power <= 0:
        return float(n)
    raw = float(rest[1:] @ rest[:-1]) / power
    alike = min(0.99, max(0.0, raw + (2 + 4 * raw) / n))
    return n * (1 - alike) / (1 + alike)


def t95(freedom: float) -> float:
    """Student's t of a 95 % interval (Wallace 1959, as `z_above` the other way round: 38 % too wide at
    1 degree of freedom, 4 % at 2, exact from 3 on)."""
    scaled = Z95 * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(scaled * scaled / freedom))


def block_length(rest: Floats) -> int:
    """Points that have to be drawn together: twice the distance at which residuals no longer tell of
    each other, at most a third of them all."""
    n, power = len(rest), float(rest @ rest)
    far = 1
    while power > 0 and far < n // LEAST_BLOCKS and float(rest[far:] @ rest[:-far]) > ALIKE * power:
        far += 1
    return max(1, min(2 * far, n // LEAST_BLOCKS))


@lru_cache(maxsize=256)
def resampled(n: int, block: int) -> NDArray[np.int64]:
    """Which points make up each resample, (RESAMPLES, n): whole blocks from random places of the circle."""
    blocks = math.ceil(n / block)
    begins = np.random.default_rng([SEED, n, block]).integers(0, n, (RESAMPLES, blocks, 1))
    drawn: NDArray[np.int64] = (begins + np.arange(block)) % n
    return drawn.reshape(RESAMPLES, blocks * block)[:, :n]


def resampled_slopes(x: Floats, rest: Floats, block: int) -> Floats:
    """`pair_slopes` of each resample, (RESAMPLES, pairs)."""
    n = len(x)
    if n > FEW_POINTS:
        return pair_slopes(x, rest[resampled(n, block)])
    first, second = _pairs(n)
    apart = np.subtract.outer(rest, rest)  # every difference that can be drawn is among them
    slopes: Floats = apart.take(_drawn_pairs(n, block)) / (x.take(second) - x.take(first))
    return slopes


@lru_cache(maxsize=32)
def _drawn_pairs(n: int, block: int) -> NDArray[np.int64]:
    """Which differences of n points (second − first, row by row) make up the pairs of each resample."""
    first, second = _pairs(n)
    drawn = resampled(n, block)
    pairs: NDArray[np.int64] = drawn[:, second] * n + drawn[:, first]
    return pairs


def probability_above(x: Floats, y: Floats, limit: float) -> float:
    """How sure it is that the slope is above `limit` (0 … 1): Kendall's test against a line that steep."""
    n = len(x)
    if n < MIN_POINTS:
        return 0.5
    score = float(np.sign(pair_slopes(x, y) - limit).sum())
    return probability(score / kendall_deviation(n))


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
    error = math.sqrt(float(rest @ rest) / (n - 2) / spread)
    return Slope(slope, slope - Z95 * error, slope + Z95 * error, n, error, n - 2)
