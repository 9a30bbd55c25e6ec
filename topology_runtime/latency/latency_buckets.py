"""Latencies counted in buckets: four per doubling, from microseconds to days. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BUCKETS = 160
LATENCY_COLUMNS = ("task", "bucket", "rows")  # of rows in a task, as samples tell them; task: its number


def bucket_of(ns: int) -> int:
    """Which latency bucket: four per doubling from 4 µs (of 1,024 ns) to about 12 days, one per µs below."""
    us = ns >> 10
    if us < 4:
        return us if us > 0 else 0
    bits = us.bit_length()
    bucket = (bits - 2) * 4 + ((us >> (bits - 3)) & 3)
    return bucket if bucket < BUCKETS else BUCKETS - 1


def lowest_ns(bucket: int) -> int:
    """Where a bucket begins, and the one before it ends."""
    return bucket << 10 if bucket < 4 else (4 + bucket % 4) << (bucket // 4 + 9)


def bucket_ns(bucket: int) -> int:
    """The middle of a bucket in ns (within 13 % of every value in it, from 4 µs on)."""
    return (lowest_ns(bucket) + lowest_ns(bucket + 1)) // 2


def percentiles_ns(counts: Iterable[tuple[int, int]], counted: int, shares: Sequence[float]) -> list[float]:
    """The latencies below which these shares (ascending) of the `counted` ones lie, which are spread evenly inside a
    bucket; 0 when there are none. counts: (bucket, how many), by bucket."""
    found: list[float] = []
    seen = 0
    for bucket, count in counts:
        while count and len(found) < len(shares) and seen + count >= shares[len(found)] * counted:
            part = max(0.0, shares[len(found)] * counted - seen) / count
            low = lowest_ns(bucket)
            found.append(low + part * (lowest_ns(bucket + 1) - low))
        seen += count
    return found + [found[-1] if found else 0.0] * (len(shares) - len(found))


def percentile_ns(buckets: Sequence[int], share: float) -> float:
    """The latency below which `share` of the counted ones lie (0 when there are none)."""
    return percentiles_ns(enumerate(buckets), sum(buckets), (share,))[0]
