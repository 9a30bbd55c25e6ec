"""What a row of a task costs in CPU time alone in its slot, and beside other tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboards.analytics.asked import AnalysisInput, over
from dashboards.analytics.results import Interference

if TYPE_CHECKING:
    from pyspark.sql import Column

BESIDE_MOST = 3
LEAST_TUPLES = 1  # a window without rows says nothing of a row's cost


def interference(asked: AnalysisInput) -> list[Interference]:
    from pyspark.sql import functions as f

    bundles = asked.frames["neighbours"].where(f.greatest("tuples_in", "tuples_out") >= LEAST_TUPLES)
    alone = f.col("beside") == ""

    def sums(name: str, when: Column) -> list[Column]:
        tuples = f.greatest("tuples_in", "tuples_out")  # a source takes nothing in
        return [
            f.sum(f.when(when, f.col("cpu_s"))).alias(f"{name}_cpu_s"),
            f.sum(f.when(when, tuples)).alias(f"{name}_tuples"),
            f.sum(f.when(when, 1).otherwise(0)).alias(f"{name}_windows"),
        ]

    rows = bundles.groupBy("run", "task").agg(*sums("alone", alone), *sums("shared", ~alone))
    beside = _beside(asked)
    return [
        _row(row, beside.get((row["run"], row["task"]), [])) for row in rows.orderBy("run", "task").collect()
    ]


def _row(row: Any, beside: list[str]) -> Interference:
    alone = over(row["alone_cpu_s"], row["alone_tuples"])
    shared = over(row["shared_cpu_s"], row["shared_tuples"])
    return Interference(
        row["run"],
        row["task"],
        alone,
        shared,
        over(shared, alone),
        row["alone_windows"],
        row["shared_windows"],
        beside,
    )


def _beside(asked: AnalysisInput) -> dict[tuple[str, str], list[str]]:
    """(run, task) → the tasks that it shared slots with for longest."""
    from pyspark.sql import functions as f

    frame = asked.frames["neighbours"].where(f.col("beside") != "")
    split = frame.withColumn("other", f.explode(f.split("beside", ",")))
    rows = split.groupBy("run", "task", "other").count().orderBy("run", "task", f.desc("count"), "other")
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows.collect():
        others = found.setdefault((row["run"], row["task"]), [])
        if len(others) < BESIDE_MOST:
            others.append(row["other"])
    return found
