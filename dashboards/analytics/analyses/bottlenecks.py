"""The threads of each epoch that are nearest to their limit: task, slot, and how their queue grows.

A group of threads is limited by their own time (busy share) or by the CPU of their slot. A queue that grows is
the sign that the limit has been reached, and comes first. What does nothing, and has nothing waiting, limits nothing,
however full its slot is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.analytics.asked import AnalysisInput, number
from dashboards.analytics.results import POINTS_MOST, BottleneckAnswer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANKS = 3
GROWN_S = 0.5  # a queue that has grown by what is taken in so long has grown, however long it took
LEAST_SHARE = 0.2  # of an epoch's windows: a group that was there for less is leaving


def bottlenecks(asked: AnalysisInput) -> list[BottleneckAnswer]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from topology_runtime.stability.evidence import UNSTABLE_SLOPE

    of_epoch = Window.partitionBy("run", "epoch")
    limit = f.least(f.lit(UNSTABLE_SLOPE), GROWN_S / f.col("seconds")) * f.col("taken_tps")
    grows = f.coalesce((f.col("queue_growth_tps") > limit) & (f.col("queue_growth_tps") > 0), f.lit(False))
    order = of_epoch.orderBy(f.desc("grows"), f.desc("load"), f.desc("cpu_s"), "task", "vm", "slot")
    slots = asked.frames["slot_windows"].groupBy("run", "epoch", "vm", "slot")
    rows = (
        _groups(asked)
        .withColumn("most", f.max("windows").over(of_epoch))
        .where((f.col("windows") >= LEAST_SHARE * f.col("most")) & ((f.col("taken_tps") > 0) | grows))
        .join(slots.agg(f.avg("cpu").alias("cpu_share")), ["run", "epoch", "vm", "slot"], "left")
        .withColumn("load", f.greatest("busy_share", "cpu_share"))
        .withColumn("grows", grows)
        .withColumn("rank", f.row_number().over(order))
        .where(f.col("rank") <= RANKS)
        .orderBy("run", "epoch", "rank")
        .limit(POINTS_MOST)
        .collect()
    )
    return [
        BottleneckAnswer(
            row["run"], row["epoch"], row["rank"], row["task"], row["vm"], row["slot"], round(row["threads"], 2),
            number(row["busy_share"]), number(row["cpu_share"]), number(row["queue_mean"]),
            number(row["queue_growth_tps"]), number(row["load"]),
        )
        for row in rows
    ]  # fmt: skip


def _groups(asked: AnalysisInput) -> DataFrame:
    """Of each epoch, task and slot: how busy its threads are, their queue, and how much they take in."""
    from pyspark.sql import functions as f

    seconds = f.sum("seconds")
    threads = f.sum("window_s") / seconds
    queued = f.col("queue") / f.col("n") * f.col("threads")
    since_s = f.col("w") * f.lit(float(asked.window_s)) - min(asked.begin_us.values()) / 1e6  # of few digits
    groups = asked.frames["bundles"].groupBy("run", "epoch", "task", "vm", "slot")
    return groups.agg(
        (f.sum("busy_s") / f.sum("window_s")).alias("busy_share"),
        threads.alias("threads"),
        (f.sum("queue") / f.sum("n") * threads).alias("queue_mean"),
        f.regr_slope(queued, since_s).alias("queue_growth_tps"),
        (f.greatest(f.sum("tuples_in"), f.sum("tuples_out")) / seconds).alias("taken_tps"),
        f.sum("cpu_s").alias("cpu_s"),
        seconds.alias("seconds"),
        f.count("*").alias("windows"),
    ).where(f.col("busy_share").isNotNull())
