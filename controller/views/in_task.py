"""Latency of rows in their tasks, from the histograms that sample blocks bring.

Beside the loop: a run is decided the same, whether anybody asks for them or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from controller.monitor.blocks import Ints, task_latency_of
from controller.monitor.histograms import percentiles_ns
from topology_runtime.errors import BadMessage
from topology_runtime.latency_buckets import BUCKETS
from topology_runtime.messages import SampleBlock

TASKS_MOST, ROWS_MOST = 4096, 1 << 40  # beyond them nobody means it
WINDOW_NS = 10_000_000_000
SHARES = (0.5, 0.95, 0.99)
MS = 1e6

Percentiles = tuple[float, float, float]  # p50, p95, p99 in ms


def counted(block: SampleBlock) -> Ints:
    """(task, bucket, rows) × what a block counted; without what makes no sense."""
    try:
        found = task_latency_of(block)
    except BadMessage:
        return np.zeros((3, 0), np.int64)
    task, bucket, rows = found
    there = (task >= 0) & (task < TASKS_MOST) & (bucket >= 0) & (bucket < BUCKETS)
    return found[:, there & (rows > 0) & (rows < ROWS_MOST)]


class InTask:
    """Of the last ten seconds; blocks are added up when somebody asks, and not before."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, Ints]] = deque()

    def add(self, block: SampleBlock, now_ns: int) -> None:
        self._blocks.append((now_ns, counted(block)))
        self._forget(now_ns)

    def percentiles(self, tasks: Sequence[str], now_ns: int) -> dict[str, Percentiles]:
        """By task, in the order of the topology; a task that did nothing is left out."""
        self._forget(now_ns)
        if not self._blocks or not tasks:
            return {}
        task, bucket, rows = np.concatenate([counts for _, counts in self._blocks], axis=1)
        known = task < len(tasks)
        places = task[known] * BUCKETS + bucket[known]
        sums = np.zeros((len(tasks), BUCKETS))
        np.add.at(sums.reshape(-1), places, rows[known])
        at_ms = (percentiles_ns(sums, SHARES) / MS).tolist()
        done = sums.sum(axis=1) > 0
        return {name: tuple(at_ms[n]) for n, name in enumerate(tasks) if done[n]}

    def _forget(self, now_ns: int) -> None:
        while self._blocks and self._blocks[0][0] <= now_ns - WINDOW_NS:
            self._blocks.popleft()
