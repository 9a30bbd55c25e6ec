"""Percentiles of latency histograms with the buckets of `headgate.topology_runtime.worker.meter`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headgate.topology_runtime.latency_buckets import BUCKETS, lowest_ns

Floats = NDArray[np.float64]

EDGES_NS: Floats = np.array([lowest_ns(bucket) for bucket in range(BUCKETS + 1)], np.float64)
MIDDLES_NS = (EDGES_NS[:-1] + EDGES_NS[1:]) / 2


def percentiles_ns(counts: Floats, shares: tuple[float, ...]) -> Floats:
    """For each row of counts (rows, BUCKETS) the latencies (rows, shares) below which these shares lie,
    linear inside a bucket; 0 where a row counts nothing."""
    below = counts.cumsum(axis=1)
    total = below[:, -1:]
    want = np.array(shares) * total  # (rows, shares), as all that follows
    bucket = np.minimum((below[:, None, :] < want[:, :, None]).sum(axis=2), BUCKETS - 1)
    place = bucket + np.arange(0, counts.size, BUCKETS)[:, None]
    there = counts.take(place)
    part = (want - (below.take(place) - there)) / np.maximum(there, 1e-12)
    part = np.minimum(np.maximum(part, 0.0), 1.0)
    begin = EDGES_NS.take(bucket)
    found: Floats = np.where(total > 0, begin + part * (EDGES_NS.take(bucket + 1) - begin), 0.0)
    return found


def mean_ns(counts: Floats) -> float:
    """The mean latency of a histogram (BUCKETS,), 0 when it is empty."""
    total = float(counts.sum())
    return float(counts @ MIDDLES_NS) / total if total > 0 else 0.0
