"""Threads that take in far more than their share: twice what the others of their task do, or more.

Held against the median of the task's threads that were there for half of the epoch; where routing is weighted, each
relative to what the run's model lets a thread do where it is (with q threads in a slot the q-th part of what q can): a
thread alone in a slot may well do what four do together in another. With `fields` this is a hot key; with other
groupings it should not be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.results import POINTS_MOST, SkewedThread

TIMES = 2.0
LEAST_TUPLES = 100
LEAST_SHARE = 0.5  # of the time of the thread that was there for longest

Able = Mapping[tuple[str, str, int], float]  # run, task, threads in a slot → tuples/s of each


def skewed(asked: AnalysisInput) -> list[SkewedThread]:
    """The most skewed of each run and epoch first."""
    able = _able(asked)
    found: list[SkewedThread] = []
    rows = asked.rows("threads", "run", "epoch", "task")
    for _, group in groupby(rows, key=lambda row: (row["run"], row["epoch"], row["task"])):
        found += _of_task(list(group), able)
    found.sort(key=lambda row: (row.run, row.epoch, -row.times, row.task, row.thread))
    return found[:POINTS_MOST]


def _of_task(rows: Sequence[Mapping[str, Any]], able: Able) -> list[SkewedThread]:
    """Of one epoch."""
    longest_s = max(row["window_s"] for row in rows)
    there = [row for row in rows if row["window_s"] >= LEAST_SHARE * longest_s and row["window_s"] > 0]
    threads = Counter((row["vm"], row["slot"]) for row in there)
    rates = [row["tuples_in"] / row["window_s"] for row in there]
    each = [able.get((row["run"], row["task"], threads[row["vm"], row["slot"]])) for row in there]
    relative = [
        rate / able_tps if able_tps is not None and None not in each else rate
        for rate, able_tps in zip(rates, each, strict=True)
    ]
    middle, tuples = median(relative or [0.0]), sum(row["tuples_in"] for row in there)
    return [
        SkewedThread(
            row["run"], row["epoch"], row["task"], row["thread"], row["vm"], row["slot"], rate,
            median(rates), of / middle, row["tuples_in"] / tuples,
        )
        for row, rate, of in zip(there, rates, relative, strict=True)
        if middle > 0 and of / middle >= TIMES and row["tuples_in"] >= LEAST_TUPLES
    ]  # fmt: skip


def _able(asked: AnalysisInput) -> Able:
    """What one of q threads in a slot can do by the run's models."""
    return {
        (run.key, str(model["task"]), int(point["threads"])): float(point["rate_tps"]) / int(point["threads"])
        for run in asked.runs.values()
        if not run.even
        for model in run.models
        for point in _every(model)
    }


def _every(model: Any) -> list[dict[str, float]]:
    """The points of a model, and between two of them a straight line."""
    import numpy as np

    points = sorted(model["points"], key=lambda point: point["threads"])
    threads, rates = ([point[name] for point in points] for name in ("threads", "rate_tps"))
    every = range(1, int(threads[-1]) + 1)
    return [{"threads": n, "rate_tps": float(np.interp(n, threads, rates))} for n in every]
