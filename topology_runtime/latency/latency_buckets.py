"""Latencies counted in buckets: 32 per doubling, from microseconds to days, so that each is known to 1.6 %. Pure.

The layout is that of HDR histograms (Gil Tene, HdrHistogram): equal steps up to 2 µs, then each doubling in as many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

BUCKETS = 1312
PER_DOUBLING = 32
COARSE, COARSE_BUCKETS = 4, 160  # of agents of earlier versions, and in older traces
ERROR = 0.016  # of a quantile from these buckets, from 2 µs on: half a bucket's width, as a part of what it begins with
LATENCY_COLUMNS = ("task", "bucket", "rows")  # of rows in a task, as samples tell them; task: its number


def bucket_of(ns: int) -> int:
    """Which latency bucket: 32 per doubling from 2 µs (of 1,024 ns) to about 26 days, one per 64 ns below.

    >>> bucket_of(64), bucket_of(1 << 20), bucket_of(1 << 21)
    (1, 320, 352)
    """
    steps = ns >> 6
    if steps < 32:
        return steps if steps > 0 else 0
    bits = steps.bit_length()
    bucket = (bits - 5) * 32 + ((steps >> (bits - 6)) & 31)
    return bucket if bucket < BUCKETS else BUCKETS - 1


def lowest_ns(bucket: int) -> int:
    """Where a bucket begins, and the one before it ends."""
    return bucket << 6 if bucket < 32 else (32 + bucket % 32) << (bucket // 32 + 5)


def bucket_ns(bucket: int) -> int:
    """The middle of a bucket in ns (within 1.6 % of every value in it, from 2 µs on)."""
    return (lowest_ns(bucket) + lowest_ns(bucket + 1)) // 2


def finer(bucket: int, rows: int) -> list[tuple[int, int]]:
    """Rows of one of the `COARSE` buckets, spread evenly over those that it is: (bucket, rows).

    >>> finer(4, 20)
    [(64, 2), (65, 3), (66, 2), (67, 3), (68, 2), (69, 3), (70, 2), (71, 3)]
    """
    first, many = (16 * bucket, 16) if bucket < 4 else ((bucket // 4 + 1) * 32 + 8 * (bucket % 4), 8)
    return [(first + n, rows * (n + 1) // many - rows * n // many) for n in range(many)]


def as_now(buckets: Sequence[int], per_doubling: int) -> Sequence[int]:
    """Rows by bucket, of those of any version; like these they may lack the last ones. Raises ValueError for other
    buckets than there ever were, or more of them."""
    if per_doubling == COARSE and len(buckets) <= COARSE_BUCKETS:
        return [each for bucket, rows in enumerate(buckets) for _, each in finer(bucket, rows)]
    if per_doubling != PER_DOUBLING or len(buckets) > BUCKETS:
        raise ValueError(f"{len(buckets)} latency buckets, {per_doubling} per doubling")
    return buckets


def without_last_zeros(buckets: Sequence[int]) -> tuple[int, ...]:
    """As histograms are sent and kept: the end, in which nothing is, is most of one."""
    last = next((n for n in range(len(buckets), 0, -1) if buckets[n - 1]), 0)
    return tuple(buckets[:last])


def percentiles_ns(counts: Iterable[tuple[int, int]], counted: int, shares: Sequence[float]) -> list[float]:
    """The latencies below which these shares of the `counted` ones lie, as the middles of their buckets; 0
    when there are none. counts: (bucket, how many), by bucket."""
    there = [(bucket, count) for bucket, count in counts if count]
    if not there:
        return [0.0] * len(shares)
    below = list(accumulate(count for _, count in there))
    at = (bisect_left(below, share * counted) for share in shares)
    return [float(bucket_ns(there[min(n, len(there) - 1)][0])) for n in at]


def percentile_ns(buckets: Sequence[int], share: float) -> float:
    """The latency below which `share` of the counted ones lie (0 when there are none)."""
    return percentiles_ns(enumerate(buckets), sum(buckets), (share,))[0]
