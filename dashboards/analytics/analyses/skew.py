"""Threads that take in far more than their share: twice what the others of their task do, or more.

Held against the median of the task's threads that were there for half of the epoch; where routing is weighted, each
relative to what the run's model lets a thread do where it is (with q threads in a slot the q-th part of what q can): a
thread alone in a slot may well do what four do together in another. With `fields` this is a hot key; with other
groupings it should not be.
"""

from __future__ import annotations

from typing import Any

from dashboards.analytics.asked import AnalysisInput
from dashboards.analytics.results import POINTS_MOST, SkewedThread

TIMES = 2.0
LEAST_TUPLES = 100
LEAST_SHARE = 0.5  # of the time of the thread that was there for longest


def skewed(asked: AnalysisInput) -> list[SkewedThread]:
    """The most skewed of each run and epoch first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_task, of_slot = (
        Window.partitionBy("run", "epoch", "task"),
        Window.partitionBy("run", "epoch", "task", "vm", "slot"),
    )
    rows = (
        asked.frames["threads"]
        .withColumn("longest_s", f.max("window_s").over(of_task))
        .where(f.col("window_s") >= LEAST_SHARE * f.col("longest_s"))
        .withColumn("threads", f.count("*").over(of_slot))
        .join(f.broadcast(_able(asked)), ["run", "task", "threads"], "left")
        .withColumn("rate_tps", f.col("tuples_in") / f.col("window_s"))
        .withColumn("relative", f.col("rate_tps") / f.coalesce("each_tps", f.lit(1.0)))
        .withColumn("known", f.min(f.col("each_tps").isNotNull()).over(of_task))
        .withColumn("relative", f.when(f.col("known"), f.col("relative")).otherwise(f.col("rate_tps")))
        .withColumn("middle", f.percentile("relative", f.lit(0.5)).over(of_task))
        .withColumn("middle_tps", f.percentile("rate_tps", f.lit(0.5)).over(of_task))
        .withColumn("times", f.col("relative") / f.col("middle"))
        .withColumn("share", f.col("tuples_in") / f.sum("tuples_in").over(of_task))
        .where((f.col("times") >= TIMES) & (f.col("tuples_in") >= LEAST_TUPLES))
        .orderBy("run", "epoch", f.desc("times"), "task", "thread")
        .limit(POINTS_MOST)
        .collect()
    )
    return [_row(row) for row in rows]


def _row(row: Any) -> SkewedThread:
    of = (
        row[name]
        for name in (
            "run",
            "epoch",
            "task",
            "thread",
            "vm",
            "slot",
            "rate_tps",
            "middle_tps",
            "times",
            "share",
        )
    )
    return SkewedThread(*of)


def _able(asked: AnalysisInput) -> Any:
    """What one of q threads in a slot can do by the run's models: run, task, threads, each_tps."""
    rows = [
        (run.key, str(model["task"]), int(point["threads"]), float(point["rate_tps"]) / int(point["threads"]))
        for run in asked.runs.values()
        if not run.even
        for model in run.models
        for point in _every(model)
    ]
    return asked.facts(rows, "run string, task string, threads long, each_tps double")


def _every(model: Any) -> list[dict[str, float]]:
    """The points of a model, and between two of them a straight line."""
    import numpy as np

    points = sorted(model["points"], key=lambda point: point["threads"])
    threads, rates = ([point[name] for point in points] for name in ("threads", "rate_tps"))
    every = range(1, int(threads[-1]) + 1)
    return [{"threads": n, "rate_tps": float(np.interp(n, threads, rates))} for n in every]
