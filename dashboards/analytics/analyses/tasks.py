"""Tasks in each epoch against what was predicted, and where in the slots the difference lies."""

from __future__ import annotations

from dashboards.analytics.asked import AnalysisInput, number, over
from dashboards.analytics.results import POINTS_MOST, ResidualCell, TaskResidual


def tasks(asked: AnalysisInput) -> list[TaskResidual]:
    from pyspark.sql import functions as f

    rates = asked.frames["rate_windows"].groupBy("run", "epoch").agg(
        (f.sum(f.col("emitted_tps") * f.col("n")) / f.sum("n")).alias("emitted_tps")
    )  # fmt: skip
    sums = ("tuples_in", "cpu_s", "busy_s", "window_s", "memory_bytes", "n")
    rows = (
        asked.frames["bundles"]
        .groupBy("run", "epoch", "task")
        .agg(
            *(f.sum(name).alias(name) for name in sums),
            f.sum("tuples_out").alias("tuples_out"),
            ((f.max("last_us") - f.min("first_us")) / 1e6 + 1).alias("seconds"),
        )
        .join(rates, ["run", "epoch"], "left")
        .orderBy("run", "epoch", "task")
        .limit(POINTS_MOST)
        .collect()
    )
    found = []
    for row in rows:
        run, task = asked.runs[row["run"]], row["task"]
        is_source = task in run.sources
        rate = over(row["tuples_out" if is_source else "tuples_in"], row["seconds"])
        weight, emitted = run.weights.get(task), number(row["emitted_tps"])
        predicted = None if is_source or weight is None or emitted is None else emitted * weight
        threads = over(row["window_s"], row["seconds"]) or 0.0
        memory = over(row["memory_bytes"], row["n"])
        found.append(
            TaskResidual(
                run=row["run"],
                epoch=row["epoch"],
                task=task,
                threads=round(threads, 2),
                rate_tps=rate,
                predicted_tps=predicted,
                residual_tps=None if rate is None or predicted is None else rate - predicted,
                cpu_cores=over(row["cpu_s"], row["seconds"]),
                cpu_s_per_tuple=over(row["cpu_s"], max(row["tuples_in"], row["tuples_out"])),
                busy_share=over(row["busy_s"], row["window_s"]),
                memory_bytes=None if memory is None else memory * threads,
            )
        )
    return found


def residual_map(asked: AnalysisInput) -> list[ResidualCell]:
    """A slot's residual is shared out to its tasks by the CPU time they took."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    slots = asked.frames["slot_windows"].groupBy("run", "vm", "slot").agg(
        f.avg("cpu").alias("slot_cpu"), (f.sum("cpu_residual") / f.sum("cpu_n")).alias("slot_residual")
    )  # fmt: skip
    share = f.col("cpu_s") / f.sum("cpu_s").over(Window.partitionBy("run", "vm", "slot"))
    rows = (
        asked.frames["bundles"]
        .groupBy("run", "vm", "slot", "task")
        .agg(f.sum("cpu_s").alias("cpu_s"), f.count("*").alias("windows"))
        .withColumn("share", share)
        .join(slots, ["run", "vm", "slot"], "left")
        .orderBy("run", "task", "vm", "slot")
        .limit(POINTS_MOST)
        .collect()
    )
    return [
        ResidualCell(
            row["run"], row["task"], row["vm"], row["slot"], _times(row["slot_cpu"], row["share"]),
            _times(row["slot_residual"], row["share"]), row["windows"],
        )
        for row in rows
    ]  # fmt: skip


def _times(value: object, share: object) -> float | None:
    a, b = number(value), number(share)
    return None if a is None or b is None else a * b
