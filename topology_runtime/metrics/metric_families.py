"""Figures as Prometheus's families. Pure; `metrics_port.py` tells them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from headgate.topology_runtime.latency.latency_buckets import bucket_ns, bucket_of

# two per doubling from 0.5 ms to 137 s, where buckets of the meter begin: (the first that is not counted, bound in s)
BOUNDS = tuple((bucket_of(ns), ns / 1e9) for bits in range(17, 36) for ns in (4 << bits, 6 << bits))[:-1]

Labelled = Mapping[tuple[str, ...], float | None]


def gauge(name: str, about: str, value: float | None) -> Iterable[Metric]:
    """A gauge without labels; nothing when it is not known."""
    if defined(value):
        yield GaugeMetricFamily(name, about, value=value)


def gauges(name: str, about: str, labels: Sequence[str], values: Labelled) -> Iterable[Metric]:
    """A gauge with labels; series that are not known are left out."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for key, value in values.items():
        if value is not None and defined(value):
            family.add_metric(key, value)
    if family.samples:
        yield family


def defined(value: float | None) -> bool:
    """Is it a number? Neither NaN nor infinity is ever told."""
    return value is not None and math.isfinite(value)


def latency(name: str, about: str, label: str, counts: Mapping[str, Sequence[int]]) -> Iterable[Metric]:
    """A histogram per label from the meter's buckets. The bounds are exact; the sum takes a bucket's rows
    for its middle (within 1.6 %)."""
    family = HistogramMetricFamily(name, about, labels=[label])
    for key, buckets in counts.items():
        below = [0, *accumulate(buckets)]
        rows = [(f"{bound:.9g}", float(below[first])) for first, bound in BOUNDS]
        seconds = sum(count * bucket_ns(b) for b, count in enumerate(buckets) if count) / 1e9
        family.add_metric([key], [*rows, ("+Inf", float(below[-1]))], seconds)
    if family.samples:
        yield family
