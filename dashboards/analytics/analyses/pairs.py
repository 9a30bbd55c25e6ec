"""Traffic from task to task in each epoch, and what it waits for on the way."""

from __future__ import annotations

from dashboards.analytics.asked import AnalysisInput, number, over
from dashboards.analytics.results import POINTS_MOST, Pair


def pairs(asked: AnalysisInput) -> list[Pair]:
    from pyspark.sql import functions as f

    seconds = f.nullif(f.col("window_s"), f.lit(0.0))
    rows = (
        asked.frames["link_sums"]
        .groupBy("run", "epoch", "from_task", "to_task")
        .agg(
            f.sum(f.col("tuples") / seconds).alias("tuples_tps"),
            f.sum(f.col("bytes") / seconds).alias("bytes_per_s"),
            *(f.sum(name).alias(name) for name in ("frames", "buffer_s", "channel_s")),
        )
        .orderBy("run", "epoch", "from_task", "to_task")
        .limit(POINTS_MOST)
        .collect()
    )
    return [
        Pair(
            run=row["run"],
            epoch=row["epoch"],
            from_task=row["from_task"],
            to_task=row["to_task"],
            tuples_tps=number(row["tuples_tps"]),
            bytes_per_s=number(row["bytes_per_s"]),
            buffer_latency_s=over(row["buffer_s"], row["frames"]),
            channel_latency_s=over(row["channel_s"], row["frames"]),
        )
        for row in rows
    ]
