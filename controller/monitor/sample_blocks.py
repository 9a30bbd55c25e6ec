"""A sample block's bytes as arrays, checked: whatever an agent sends, nothing but `BadMessage` comes out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.latency.latency_buckets import (
    BUCKETS,
    COARSE,
    COARSE_BUCKETS,
    LATENCY_COLUMNS,
    as_now,
    bucket_ns,
    finer,
    lowest_ns,
)
from headgate.topology_runtime.stability.slopes import Floats
from headgate.topology_runtime.wire.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock

Ints = NDArray[np.int64]

MAX_ROWS = 65_536  # of threads or links in a block: 8 workers of a VM, each with its meter full
MAX_WINDOW_NS = 1 << 60  # an agent may wait for its first topology as long as it likes
MAX_THREAD = 1 << 24  # threads are numbered from 0 in a run


class Arrays(NamedTuple):
    """A block: (columns, rows) in the order of `messages.…_COLUMNS`, and buckets per (sink, source)."""

    threads: Ints
    slots: Ints
    links: Ints
    latency: tuple[tuple[str, str, Ints], ...]


def _matrix(block: SampleBlock, what: str, columns: dict[str, bytes], names: tuple[str, ...]) -> Ints:
    if not columns:
        return np.zeros((len(names), 0), np.int64)
    parts = [columns[name] for name in names if name in columns]
    lengths = set(map(len, parts))
    if len(parts) < len(names) or len(lengths) != 1 or (length := lengths.pop()) % 8 or length > MAX_ROWS * 8:
        absent = ", ".join(name for name in names if name not in columns)
        raise _bad(block, f"{what} columns are absent ({absent}) or of unequal or odd length")
    return np.frombuffer(b"".join(parts), "<i8").reshape(len(names), -1)


def _bad(block: SampleBlock, cause: str) -> BadMessage:
    return BadMessage(
        f"samples of {block.vm} cannot be used", cause=f"{cause}; block {block.sequence} of boot {block.boot}"
    )


def arrays_of(block: SampleBlock) -> Arrays:
    """The block's arrays. Raises BadMessage when lengths, times or numbers make no sense."""
    threads = _matrix(block, "thread", block.threads, SAMPLE_COLUMNS)
    slots = _matrix(block, "slot", block.slots, SLOT_COLUMNS)
    links = _matrix(block, "link", block.links, LINK_COLUMNS)
    if threads.shape[1] != len(block.tasks):
        raise _bad(block, f"{threads.shape[1]} threads but {len(block.tasks)} task names")
    if not 0 < block.window_ns <= MAX_WINDOW_NS:
        raise _bad(block, f"a window of {block.window_ns} ns")
    if threads.size and not 0 <= threads[0].min() <= threads[0].max() < MAX_THREAD:
        raise _bad(block, f"a thread number outside 0 … {MAX_THREAD - 1}")
    return Arrays(threads, slots, links, tuple(_histogram(block, *entry) for entry in block.latency))


def task_latency_of(block: SampleBlock) -> Ints:
    """(task, bucket, rows) × what was counted. Raises BadMessage when lengths make no sense."""
    found = _matrix(block, "task latency", block.task_latency, LATENCY_COLUMNS)
    if block.per_doubling != COARSE:
        return found
    parts = [
        (task, *part)
        for task, bucket, rows in found.T.tolist()
        if 0 <= bucket < COARSE_BUCKETS
        for part in finer(bucket, rows)
    ]
    return np.array(parts, np.int64).reshape(-1, len(LATENCY_COLUMNS)).T


def _histogram(block: SampleBlock, sink: str, source: str, buckets: tuple[int, ...]) -> tuple[str, str, Ints]:
    counts = np.zeros(BUCKETS, np.int64)
    try:
        now = as_now(buckets, block.per_doubling)
        counts[: len(now)] = now
    except ValueError as error:
        raise _bad(block, str(error)) from error
    except OverflowError as error:
        raise _bad(block, "a latency count beyond 64 bits") from error
    return sink, source, counts


# ── Percentiles of latency histograms with the buckets of `headgate.topology_runtime.worker.meters.meter` ───


EDGES_NS: Floats = np.array([lowest_ns(bucket) for bucket in range(BUCKETS + 1)], np.float64)
MIDDLES_NS: Floats = np.array([bucket_ns(bucket) for bucket in range(BUCKETS)], np.float64)


def percentiles_ns(counts: Floats, shares: tuple[float, ...]) -> Floats:
    """For each row of counts (rows, BUCKETS) the latencies (rows, shares) below which these shares lie, as the middles
    of their buckets; 0 where a row counts nothing."""
    below = counts.cumsum(axis=1)
    total = below[:, -1:]
    want = np.array(shares) * total  # (rows, shares)
    bucket = np.array([np.searchsorted(row, of) for row, of in zip(below, want, strict=True)], np.int64)
    bucket = np.minimum(bucket.reshape(want.shape), BUCKETS - 1)
    found: Floats = np.where(total > 0, MIDDLES_NS.take(bucket), 0.0)
    return found


def mean_ns(counts: Floats) -> float:
    """The mean latency of a histogram (BUCKETS,), 0 when it is empty."""
    total = float(counts.sum())
    return float(counts @ MIDDLES_NS) / total if total > 0 else 0.0
