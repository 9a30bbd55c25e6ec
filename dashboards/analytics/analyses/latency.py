"""Latency of each path (source, sink) in each epoch, weighted by the tuples each sampled row stands for.

Quantiles come from a histogram of bins 4.4 % wide, and are interpolated in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from headgate.dashboards.analytics.aggregates import FINE_PER_DOUBLING
from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.results import HISTOGRAM_BINS_PER_DOUBLING, LatencyBin, LatencyEpoch

MS = 1000.0

Bins = Sequence[tuple[int, float]]  # bucket, tuples; ascending


def epochs(asked: AnalysisInput) -> list[LatencyEpoch]:
    keys = ("run", "epoch", "source", "sink")
    rows = asked.sums("latency_histogram", *keys, "bucket")
    return [_epoch(key, list(group)) for key, group in groupby(rows, lambda row: [row[k] for k in keys])]


def overall_ms(asked: AnalysisInput) -> dict[str, float | None]:
    """p50, p95, p99 and max over everything, in ms."""
    found = asked.sums("latency_histogram", "bucket")
    bins, top = [(row["bucket"], row["tuples"]) for row in found], _top(found)
    ms = {f"p{q}": _ms(quantile(bins, q / 100, top)) for q in (50, 95, 99)}
    return ms | {"max": _ms(top)}


def quantile(bins: Bins, share: float, top: float | None) -> float | None:
    """The latency that this share of the tuples does not exceed, seconds; None without tuples."""
    desired = share * sum(tuples for _, tuples in bins)
    if desired <= 0 or top is None:
        return None
    below = 0.0
    for bucket, tuples in bins:
        if below + tuples >= desired:
            inside = (desired - below) / tuples
            return min(top, float(2.0 ** ((bucket + inside) / FINE_PER_DOUBLING)))
        below += tuples
    return top


def coarse(bins: Bins) -> list[LatencyBin]:
    """The histogram for a picture."""
    each = FINE_PER_DOUBLING // HISTOGRAM_BINS_PER_DOUBLING
    sums: dict[int, float] = {}
    for bucket, tuples in bins:
        sums[bucket // each] = sums.get(bucket // each, 0.0) + tuples

    def edge(n: int) -> float:
        return float(2.0 ** (n / HISTOGRAM_BINS_PER_DOUBLING))

    return [LatencyBin(edge(n), edge(n + 1), tuples) for n, tuples in sorted(sums.items())]


def _epoch(key: list[Any], rows: Sequence[Any]) -> LatencyEpoch:
    bins, top = [(row["bucket"], row["tuples"]) for row in rows], _top(rows)
    tuples = sum(many for _, many in bins)
    mean = sum(row["weighted_s"] for row in rows) / tuples if tuples else None
    p50, p95, p99 = (quantile(bins, share, top) for share in (0.5, 0.95, 0.99))
    run, epoch, source, sink = key
    return LatencyEpoch(run, epoch, source, sink, tuples, mean, p50, p95, p99, top, coarse(bins))


def _top(rows: Iterable[Any]) -> float | None:
    highest: float | None = max((row["max_s"] for row in rows), default=None)
    return highest


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * MS, 3)
