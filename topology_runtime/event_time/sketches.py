"""Sketches: quantiles and distinct values in little memory, with a stated error. Pure.

Both give the same for the same rows in any order, split and merged in any way; so what a window gives does not depend
on disorder, moves or replays. That is why they are here: sketches of libraries draw random numbers (KLL) or estimate
by the order in which values came (HyperLogLog with HIP).

Sources: C. Masson, J. E. Rim, H. K. Lee, DDSketch, PVLDB 12(12), 2019. P. Flajolet et al., HyperLogLog, 2007, with the
estimator of O. Ertl, New cardinality estimation algorithms for HyperLogLog sketches, 2017.
"""

from __future__ import annotations

import math
from typing import Any

BINS_MOST = 4096
LOG_MOST = 709.0  # exp of more is no number any more
EXACT_MOST = 256  # distinct values that are counted exactly, by their hashes
HASH_BITS = 63  # a state may hold whole numbers of 64 bits with a sign


class QuantileSketch:
    """Counts of values in bins that grow by a factor: a quantile is off by at most `error` of its value (1 % at 0.01),
    whatever the values. Past 4,096 bins the smallest values share one.

    >>> sketch = QuantileSketch(0.01)
    >>> for value in range(1, 1001):
    ...     sketch.add(value)
    >>> abs(sketch.quantile(0.5) - 500) <= 5
    True
    """

    __slots__ = ("_factor", "count", "high", "low", "negative", "positive", "zeros")

    def __init__(self, error: float) -> None:
        self._factor = math.log((1 + error) / (1 - error))
        self.positive: dict[int, int] = {}
        self.negative: dict[int, int] = {}
        self.zeros = self.count = 0
        self.low, self.high = math.inf, -math.inf

    def add(self, value: float) -> None:
        """A finite number."""
        if value == 0:
            self.zeros += 1
        else:
            bins = self.positive if value > 0 else self.negative
            number = math.ceil(math.log(abs(value)) / self._factor)
            bins[number] = bins.get(number, 0) + 1
            if len(bins) > BINS_MOST:
                _share(bins)
        self.count += 1
        self.low, self.high = min(self.low, value), max(self.high, value)

    def merge(self, other: QuantileSketch) -> None:
        for mine, theirs in ((self.positive, other.positive), (self.negative, other.negative)):
            for number, times in theirs.items():
                mine[number] = mine.get(number, 0) + times
            while len(mine) > BINS_MOST:
                _share(mine)
        self.zeros += other.zeros
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def quantile(self, share: float) -> float | None:
        """The value below which this share of the values lies; None without any."""
        if not self.count:
            return None
        left = math.floor(share * (self.count - 1))
        for number in sorted(self.negative, reverse=True):
            left -= self.negative[number]
            if left < 0:
                return self._within(-self._middle(number))
        left -= self.zeros
        if left < 0:
            return 0.0
        for number in sorted(self.positive):
            left -= self.positive[number]
            if left < 0:
                return self._within(self._middle(number))
        return float(self.high)

    def _middle(self, number: int) -> float:
        return 2 * math.exp(min(number * self._factor, LOG_MOST)) / (math.exp(self._factor) + 1)

    def _within(self, value: float) -> float:
        return float(min(max(value, self.low), self.high))

    def saved(self) -> list[Any]:
        bins = [[list(pair) for pair in sorted(bins.items())] for bins in (self.positive, self.negative)]
        return [*bins, self.zeros, self.count, self.low, self.high]

    def restored(self, saved: list[Any]) -> QuantileSketch:
        positive, negative, self.zeros, self.count, self.low, self.high = saved
        self.positive, self.negative = dict(positive), dict(negative)
        return self


def _share(bins: dict[int, int]) -> None:
    """The two bins nearest to 0 become one."""
    first, second = sorted(bins)[:2]
    bins[second] += bins.pop(first)


class DistinctSketch:
    """How many different values: exact to 256, then by 2^bits registers, with a standard error of 1.04 / √2^bits.

    >>> sketch = DistinctSketch(12)
    >>> for value in [3, 3.0, "a", ("a", 1)]:
    ...     sketch.add(hashed(value))
    >>> sketch.count()
    3
    """

    __slots__ = ("_bits", "exact", "registers")

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self.exact: set[int] | None = set()
        self.registers = bytearray()

    def add(self, digest: int) -> None:
        if self.exact is None:
            self._register(digest)
            return
        self.exact.add(digest)
        if len(self.exact) > EXACT_MOST:
            self._spread()

    def _spread(self) -> None:
        exact, self.exact = self.exact, None
        self.registers = bytearray(1 << self._bits)
        for digest in exact or ():
            self._register(digest)

    def _register(self, digest: int) -> None:
        place = digest >> (HASH_BITS - self._bits)
        rest = digest & ((1 << (HASH_BITS - self._bits)) - 1)
        rank = HASH_BITS - self._bits - rest.bit_length() + 1
        if rank > self.registers[place]:
            self.registers[place] = rank

    def merge(self, other: DistinctSketch) -> None:
        if other.exact is not None:
            for digest in other.exact:
                self.add(digest)
            return
        if self.exact is not None:
            self._spread()
        self.registers = bytearray(map(max, self.registers, other.registers))

    def count(self) -> int:
        if self.exact is not None:
            return len(self.exact)
        size, most = 1 << self._bits, HASH_BITS - self._bits
        ranks = [0] * (most + 2)
        for rank in self.registers:
            ranks[rank] += 1
        z = size * _tau(1 - ranks[most + 1] / size)
        for rank in range(most, 0, -1):
            z = 0.5 * (z + ranks[rank])
        z += size * _sigma(ranks[0] / size)
        return round(size * size / (2 * math.log(2)) / z)

    def saved(self) -> list[Any]:
        return [None if self.exact is None else sorted(self.exact), bytes(self.registers)]

    def restored(self, saved: list[Any]) -> DistinctSketch:
        self.exact = None if saved[0] is None else set(saved[0])
        self.registers = bytearray(saved[1])
        return self


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x, before = x * x, z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        x, before = math.sqrt(x), z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3


def hashed(value: Any) -> int:
    """63 bits, the same for equal values."""
    from hashlib import blake2b

    digest = blake2b(spelled(value).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def spelled(value: Any) -> str:
    """A text for a plain value, the same for equal ones: 1, 1.0 and True are equal, and dicts in any order."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return repr(int(value))
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{spelled(k)}:{spelled(v)}" for k, v in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "<" + ",".join(sorted(map(spelled, value))) + ">"
    if isinstance(value, list | tuple):
        return ("[" if isinstance(value, list) else "(") + ",".join(map(spelled, value)) + ")"
    return repr(value)
