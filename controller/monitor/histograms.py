"""Percentiles of latency histograms with the buckets of `topology_runtime.worker.meter`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topology_runtime.worker.meter import BUCKETS, bucket_ns

Floats = NDArray[np.float64]


def _edges_ns() -> Floats:
    """Where buckets begin, and where the last one ends: a bucket's middle is `bucket_ns`."""
    edges = [0.0]
    for bucket in range(BUCKETS):
        edges.append(2 * bucket_ns(bucket) - edges[-1])
    return np.array(edges)


EDGES_NS = _edges_ns()
MIDDLES_NS = (EDGES_NS[:-1] + EDGES_NS[1:]) / 2


def percentiles_ns(counts: Floats, shares: tuple[float, ...]) -> Floats:
    """For each row of counts (rows, BUCKETS) the latencies (rows, shares) below which these shares lie,
    linear inside a bucket; 0 where a row counts nothing."""
    below = np.cumsum(counts, axis=1)
    total = below[:, -1:]
    rows = np.arange(len(counts))[:, None]
    want = np.array(shares) * total  # (rows, shares), as all that follows
    bucket = np.minimum((below[:, :, None] < want[:, None]).sum(axis=1), BUCKETS - 1)
    there = counts[rows, bucket]
    part = (want - (below[rows, bucket] - there)) / np.maximum(there, 1e-12)
    part = np.minimum(np.maximum(part, 0.0), 1.0)
    begin = EDGES_NS[bucket]
    found: Floats = np.where(total > 0, begin + part * (EDGES_NS[bucket + 1] - begin), 0.0)
    return found


def mean_ns(counts: Floats) -> float:
    """The mean latency of a histogram (BUCKETS,), 0 when it is empty."""
    total = float(counts.sum())
    return float(counts @ MIDDLES_NS) / total if total > 0 else 0.0
