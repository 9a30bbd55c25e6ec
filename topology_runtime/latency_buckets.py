"""Latencies counted in buckets: four per doubling, from microseconds to days. Pure."""

from __future__ import annotations

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


def percentile_ns(buckets: list[int], share: float) -> int:
    """The latency below which `share` of the counted ones lie (0 when there are none)."""
    total = sum(buckets)
    if total == 0:
        return 0
    want = share * total
    seen = 0
    for bucket, count in enumerate(buckets):
        seen += count
        if count and seen >= want:
            return bucket_ns(bucket)
    return bucket_ns(BUCKETS - 1)
