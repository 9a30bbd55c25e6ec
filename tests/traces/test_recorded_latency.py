"""Latencies as a trace has them: a sample of each second's rows, from which the quantiles of a run are right."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.controller.monitor.sample_blocks import arrays_of
from headgate.controller.recording.trace_writer import latency
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, ERROR, PER_DOUBLING, bucket_of
from headgate.topology_runtime.wire.messages import SampleBlock

SECONDS, ROWS = 400, 300


def recorded(drawn_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(latency, error, tuples) of the rows of the table, one block of samples for each second (seconds, rows)."""
    parts = []
    for number, second in enumerate(drawn_s):
        buckets = [0] * BUCKETS
        for each_s in second:
            buckets[bucket_of(int(each_s * 1e9))] += 1
        told = (("store", "rows", tuple(buckets)),)
        block = SampleBlock(
            "vm1", 1, number, number * 10**9, 10**9, 1, (), {}, {}, {}, told, per_doubling=PER_DOUBLING
        )
        made = latency(block, arrays_of(block))
        parts.append(np.array([made["latency_s"], made["error_s"], made["tuples"]]))
    every = np.concatenate(parts, axis=1)
    return every[0], every[1], every[2]


def weighted(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99, 0.995])
def test_quantiles_of_a_run_are_those_of_all_its_rows(share: float) -> None:
    """A second has twenty rows in the table: had they the same places in each, none was ever above 97.5 %."""
    drawn_s = np.random.default_rng(7).lognormal(-4.0, 0.8, (SECONDS, ROWS))
    latency_s, _, tuples = recorded(drawn_s)
    assert tuples.sum() == pytest.approx(SECONDS * ROWS)
    exact = np.quantile(drawn_s, share, method="inverted_cdf")
    assert weighted(latency_s, tuples, share) == pytest.approx(exact, rel=0.05)


def test_each_latency_is_as_exact_as_it_says() -> None:
    drawn_s = np.random.default_rng(8).lognormal(-4.0, 1.5, (50, 12))
    latency_s, error_s, tuples = recorded(drawn_s)
    assert (error_s <= ERROR * latency_s).all()
    nearest_s = np.abs(latency_s[:, None] - drawn_s.ravel()[None, :]).min(axis=1)
    assert (nearest_s <= error_s * (1 + 1e-9)).all() and (tuples == 1).all()
