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
    total = below[:, -1]
    rows = np.arange(len(counts))
    out = np.zeros((len(counts), len(shares)))
    for k, share in enumerate(shares):
        want = share * total
        bucket = np.minimum((below < want[:, None]).sum(axis=1), BUCKETS - 1)
        inside = np.maximum(counts[rows, bucket], 1e-12)
        part = np.clip((want - (below[rows, bucket] - counts[rows, bucket])) / inside, 0.0, 1.0)
        value = EDGES_NS[bucket] + part * (EDGES_NS[bucket + 1] - EDGES_NS[bucket])
        out[:, k] = np.where(total > 0, value, 0.0)
    return out


def mean_ns(counts: Floats) -> float:
    """The mean latency of a histogram (BUCKETS,), 0 when it is empty."""
    total = float(counts.sum())
    return float(counts @ MIDDLES_NS) / total if total > 0 else 0.0
