"""Counters in shared memory and the latency buckets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.latency_buckets import (
    BUCKETS,
    COARSE,
    ERROR,
    PER_DOUBLING,
    as_now,
    bucket_ns,
    bucket_of,
    lowest_ns,
    percentile_ns,
    without_last_zeros,
)
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.messages import RootKey, RootPart
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.thread_records import (
    FOLDER,
    WORDS_PER_RUN,
    FinishedLog,
    log_name,
)


@pytest.fixture
def fd() -> Iterator[int]:
    made = mt.create()
    yield made
    os.close(made)


def test_what_one_process_counts_another_one_reads(fd: int) -> None:
    worker, agent = mt.Meter(fd), mt.Meter(fd)
    at = worker.thread_record()
    worker.words[at + mt.TUPLES_IN] += 5
    link = worker.link_record(3, 4)
    assert link is not None
    assert agent.words[mt.H_THREADS] == 1 and agent.words[mt.H_LINKS] == 1
    assert agent.words[mt.HEADER + mt.TUPLES_IN] == 5
    assert (agent.words[link + mt.L_FROM], agent.words[link + mt.L_TO]) == (3, 4)
    worker.close()
    agent.close()


def test_records_do_not_overlap_and_end(fd: int) -> None:
    meter = mt.Meter(fd)
    records = [meter.thread_record() for _ in range(mt.THREADS)]
    assert all(b - a == mt.THREAD_WORDS for a, b in zip(records, records[1:], strict=False))
    with pytest.raises(MemoryError, match="1024 threads"):
        meter.thread_record()
    links = [meter.link_record(1, n) for n in range(mt.LINKS)]
    assert links[0] == records[-1] + mt.THREAD_WORDS and links[-1] == mt.WORDS - mt.LINK_WORDS
    assert meter.link_record(1, 2) is None
    meter.close()


@searching(300)
@given(st.integers(2048, (1 << 51) - 1))
def test_a_bucket_says_a_latency_as_exactly_as_is_promised(ns: int) -> None:
    assert ERROR < 0.02 and abs(bucket_ns(bucket_of(ns)) - ns) <= ERROR * ns


def test_a_bucket_reaches_from_its_lowest_latency_to_the_next_ones() -> None:
    edges = [lowest_ns(bucket) for bucket in range(BUCKETS)]
    assert [bucket_of(ns) for ns in edges] == list(range(BUCKETS))
    assert all(bucket_of(after - 1) == bucket for bucket, after in enumerate(edges[1:]))


def test_every_bucket_is_hit_by_its_own_middle() -> None:
    assert [bucket_of(bucket_ns(n)) for n in range(BUCKETS)] == list(range(BUCKETS))
    assert bucket_of(-5) == 0


@pytest.mark.parametrize("median_ms", [0.3, 3.1, 50.0, 720.0])
def test_percentiles_are_as_exact_as_is_promised(median_ms: float) -> None:
    """By numpy, of latencies as they are: many a little slower, a few much."""
    drawn = np.random.default_rng(5).lognormal(np.log(median_ms * 1e6), 0.6, 20_000)
    buckets = [0] * BUCKETS
    for ns in drawn:
        buckets[bucket_of(int(ns))] += 1
    for share in (0.5, 0.95, 0.99):
        exact = np.quantile(drawn, share, method="inverted_cdf")
        assert percentile_ns(buckets, share) == pytest.approx(exact, rel=ERROR)


def test_histograms_of_earlier_versions_are_read_as_they_are_now() -> None:
    """Four buckets per doubling, of 1,024 ns: where each begins and ends, written down as it was then."""
    for bucket in range(160):
        begins = [b << 10 if b < 4 else (4 + b % 4) << (b // 4 + 9) for b in (bucket, bucket + 1)]
        old = [0] * bucket + [1000]
        now = as_now(old, COARSE)
        there = [n for n, rows in enumerate(now) if rows]
        assert len(now) <= BUCKETS and sum(now) == 1000
        assert [lowest_ns(there[0]), lowest_ns(there[-1] + 1)] == begins


@pytest.mark.parametrize(("many", "per_doubling"), [(161, COARSE), (BUCKETS + 1, PER_DOUBLING), (3, 8)])
def test_a_histogram_of_no_version_is_refused(many: int, per_doubling: int) -> None:
    with pytest.raises(ValueError, match=f"{many} latency buckets, {per_doubling} per doubling"):
        as_now([1] * many, per_doubling)


def test_last_zeros_of_a_histogram_need_not_be_sent() -> None:
    whole = [0, 3, *[0] * 7, 1, *[0] * (BUCKETS - 10)]
    assert without_last_zeros(whole) == (0, 3, *[0] * 7, 1)
    assert without_last_zeros([0] * BUCKETS) == ()


def test_percentile_of_nothing() -> None:
    assert percentile_ns([0] * BUCKETS, 0.5) == 0


def test_finished_rows_are_logged_as_five_numbers_a_run(tmp_path: os.PathLike[str]) -> None:
    log = FinishedLog(str(tmp_path), 6, 7, 8, DiskTroubles())
    part = RootPart(RootKey(1, 1, 0, 0), Slot("vm", 0), 2, 3, 1000, 0, 0, 0)
    log.append([(part, 5, 4, 9), (part, 0, 1, 2**31 - 1)])
    log.append([])
    log.close()
    with open(os.path.join(tmp_path, FOLDER, log_name(6, 7, 8)), "rb") as file:
        words = memoryview(file.read()).cast("q").tolist()
    assert words == [2, 3, 1005, 4, 9, 2, 3, 1000, 1, 2**31 - 1] and len(words) == 2 * WORDS_PER_RUN
