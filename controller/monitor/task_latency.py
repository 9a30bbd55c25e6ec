"""Latency of rows in their tasks, from the histograms that sample blocks bring. Nothing is decided by it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from headgate.controller.knowledge.run_view import Percentiles
from headgate.controller.monitor.blocks import Ints, task_latency_of
from headgate.controller.monitor.histograms import percentiles_ns
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.latency_buckets import BUCKETS
from headgate.topology_runtime.messages import SampleBlock

ROWS_MOST = 1 << 40  # beyond them nobody means it
WINDOW_NS = 10_000_000_000
SHARES = (0.5, 0.95, 0.99)
MS = 1e6
NOTHING: Ints = np.zeros((3, 0), np.int64)


class TaskLatency:
    """percentiles: of the last ten seconds, whose blocks are added up when somebody asks; totals: of all. `tasks` in
    the order of the topology; one that did nothing is left out."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self._tasks = tasks
        self._blocks: deque[tuple[int, Ints]] = deque()
        self._totals = np.zeros((len(tasks), BUCKETS), np.int64)

    def add(self, block: SampleBlock, now_ns: int) -> None:
        """What makes no sense is passed over."""
        found = self._counted(block) if block.task_latency else NOTHING
        task, bucket, rows = found
        if len(task):
            np.add.at(self._totals, (task, bucket), rows)
            self._blocks.append((now_ns, found))
        self._forget(now_ns)

    def _counted(self, block: SampleBlock) -> Ints:
        """(task, bucket, rows) × what a block counted."""
        try:
            found = task_latency_of(block)
        except BadMessage:
            return NOTHING
        task, bucket, rows = found
        there = (task >= 0) & (task < len(self._tasks)) & (bucket >= 0) & (bucket < BUCKETS)
        return found[:, there & (rows > 0) & (rows < ROWS_MOST)]

    def totals(self) -> dict[str, tuple[int, ...]]:
        """Task → rows by bucket."""
        rows = zip(self._tasks, self._totals.tolist(), strict=True)
        return {name: tuple(counts) for name, counts in rows if any(counts)}

    def percentiles(self, now_ns: int) -> dict[str, Percentiles]:
        """By task."""
        self._forget(now_ns)
        if not self._blocks:
            return {}
        sums = np.zeros((len(self._tasks), BUCKETS))
        task, bucket, rows = np.concatenate([counts for _, counts in self._blocks], axis=1)
        np.add.at(sums.reshape(-1), task * BUCKETS + bucket, rows)
        at_ms = (percentiles_ns(sums, SHARES) / MS).tolist()
        done = sums.sum(axis=1) > 0
        return {name: tuple(at_ms[n]) for n, name in enumerate(self._tasks) if done[n]}

    def _forget(self, now_ns: int) -> None:
        while self._blocks and self._blocks[0][0] <= now_ns - WINDOW_NS:
            self._blocks.popleft()
