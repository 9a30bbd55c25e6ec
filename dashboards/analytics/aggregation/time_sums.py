"""What slots and threads did in windows, put together over time: sums whose number grows with threads, slots and
epochs, and not with the length of a run. Of one part each; `held` adds up what parts say.

Besides sums there are a few rows of single windows: those in which a task was at its peak, and a sample for pictures.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from headgate.dashboards.analytics.storage.result_tables import POINTS_MOST

LEAST_TUPLES = 1  # a window without rows says nothing of a row's cost
COSTED_TUPLES = 20  # of a window: fewer say little of what a row costs
BUSY_LEAST = 0.9  # share of a window in which its threads ran the task's code: it is at its peak
QUEUED_LEAST = 1.0  # rows waiting in the mean: a thread that waits for rows is not
ERRORS_PER_DOUBLING = 64  # bins of errors, 1.1 % wide: quantiles err by at most half of that
LEAST_ERROR = 1e-9
BLOCKS_MOST = 48  # of a slot's memory
USES = ("cpu", "memory")
PARTS = ("run", "part")
AGAINST = ("n", "sum", "squares", "residual", "absolute", "ss")


def groups(bundles: DataFrame) -> DataFrame:
    """Threads of a task in a slot, beside certain other tasks ("a,b"; "" when alone), in an epoch. `live`: over windows
    with rows; `costed`: over those with twenty, logarithms of what a row costs and of rows per thread and second. x, y:
    number of the window since `first_w`, and rows queued; of them sums of products."""
    tuples = f.greatest("tuples_in", "tuples_out")  # a source takes nothing in
    live, costed = tuples >= LEAST_TUPLES, (tuples >= COSTED_TUPLES) & (f.col("cpu_s") > 0)
    cost, rate = f.log(f.col("cpu_s") / tuples), f.log(tuples / f.col("window_s"))
    rows = beside(bundles).withColumn("first_w", f.min("w").over(Window.partitionBy(*PARTS)))
    x, y = f.col("w") - f.col("first_w"), queued()
    sums = ("n", "seconds", "window_s", "cpu_s", "tuples_in", "tuples_out", "queue", "busy_s", "memory_bytes")
    return rows.groupBy(*PARTS, "first_w", "epoch", "task", "vm", "slot", "beside").agg(
        f.count("*").alias("windows"),
        *(f.sum(name).alias(name) for name in sums),
        f.min("first_us").alias("min_first_us"),
        f.max("last_us").alias("max_last_us"),
        f.max(f.col("busy_s") / f.col("window_s")).alias("max_busy"),
        f.count(f.when(live, 1)).alias("live_windows"),
        f.sum(f.when(live, f.col("cpu_s"))).alias("live_cpu_s"),
        f.sum(f.when(live, tuples)).alias("live_tuples"),
        f.count(f.when(costed, 1)).alias("costed_windows"),
        f.sum(f.when(costed, cost)).alias("costed_cost"),
        f.sum(f.when(costed, cost * cost)).alias("costed_squares"),
        f.sum(f.when(costed, rate)).alias("costed_rate"),
        f.sum(x).alias("x"),
        f.sum(x * x).alias("xx"),
        f.sum(y).alias("y"),
        f.sum(x * y).alias("xy"),
    )


def slots_of_groups(bundles: DataFrame, slots: DataFrame) -> DataFrame:
    """Threads of a task in a slot in an epoch: the CPU of that slot while they were there, measured and predicted, by
    the seconds that they were there in each window."""
    there = bundles.join(slots, ["run", "epoch", "vm", "slot", "w"])

    def weighted(name: str) -> Column:
        return f.sum(f.col(name) * f.col("seconds")) / f.sum(
            f.when(f.col(name).isNotNull(), f.col("seconds"))
        )

    return there.groupBy("run", "epoch", "task", "vm", "slot").agg(
        weighted("cpu").alias("cpu_share"), weighted("cpu_predicted").alias("predicted_share")
    )


def beside(bundles: DataFrame) -> DataFrame:
    """With `beside`: the other tasks in their slot in that window."""
    inside = f.collect_set("task").over(Window.partitionBy("run", "vm", "slot", "w"))
    others = f.array_except(f.sort_array(inside), f.array("task"))
    return bundles.withColumn("beside", f.array_join(others, ","))


def queued() -> Column:
    """Rows that wait for the threads of a bundle, in the mean."""
    return f.col("queue") / f.col("n") * f.col("threads")


def presence(bundles: DataFrame, window_s: int) -> DataFrame:
    """A VM in an epoch: seconds of its slots in which threads were sampled, and of its own."""
    epoch = (*PARTS, "epoch", "vm")
    most = f.least(f.max("seconds"), f.lit(float(window_s)))
    slots = bundles.groupBy(*epoch, "w", "slot").agg(most.alias("seconds"))
    windows = slots.groupBy(*epoch, "w").agg(f.sum("seconds").alias("slot_s"), f.max("seconds").alias("vm_s"))
    return windows.groupBy(*epoch).agg(f.sum("slot_s").alias("slot_s"), f.sum("vm_s").alias("vm_s"))


def task_windows(bundles: DataFrame) -> DataFrame:
    """A task in a window, wherever its threads are: rows taken in and queued, and the `seconds` it covers."""
    return bundles.groupBy(*PARTS, "epoch", "task", "w").agg(
        f.sum("tuples_in").alias("tuples_in"),
        ((f.max("last_us") - f.min("first_us")) / 1e6 + 1).alias("seconds"),
        f.sum(queued()).alias("queued"),
    )


def peaks(bundles: DataFrame, window_s: int) -> DataFrame:
    """Windows of tasks that were alone in their slot, busy for nearly all of it, with rows waiting."""
    busy = f.col("busy_s") / f.col("window_s")
    alone = beside(bundles).where(
        (f.col("beside") == "") & (busy >= BUSY_LEAST) & (f.col("tuples_in") > 0)
        & (queued() >= QUEUED_LEAST) & (f.col("seconds") >= 0.5 * window_s)
    )  # fmt: skip
    return alone.select(
        *PARTS, "epoch", "vm", "slot", "w", "task", "threads",
        (f.col("tuples_in") / f.col("seconds")).alias("rate"),
        (f.col("memory_bytes") / f.col("n") * f.col("threads")).alias("memory"),
    )  # fmt: skip


def slot_sums(windows: DataFrame) -> DataFrame:
    """A slot in an epoch: what R² is made of, and the sum of the means of CPU over the windows that have one; extremes
    of what was predicted and of the error of a window."""
    columns = [f.count("cpu").alias("cpu_windows"), f.sum("cpu").alias("cpu_means")]
    for of in USES:
        columns += [f.sum(f"{of}_{name}").alias(f"{of}_{name}") for name in AGAINST]
        columns += [
            f.min(_compared(of, f"{of}_predicted")).alias(f"min_{of}_predicted"),
            f.max(_compared(of, f"{of}_predicted")).alias(f"max_{of}_predicted"),
            f.max(error(of)).alias(f"max_{of}_error"),
        ]
    return windows.groupBy(*PARTS, "epoch", "vm", "slot").agg(*columns)


def _compared(of: str, column: str) -> Column:
    """Of the windows in which something was predicted, else null."""
    return f.when(f.col(f"{of}_n") > 0, f.col(column))


def error(of: str) -> Column:
    """Of the mean of a window."""
    return f.when(f.col(f"{of}_n") > 0, f.abs(f.col(of) - f.col(f"{of}_predicted")))


def slot_errors(windows: DataFrame) -> DataFrame:
    """How many windows of a slot in an epoch have an error of that size: a histogram."""
    each = f.array(*(f.struct(f.lit(of).alias("of"), error(of).alias("error")) for of in USES))
    rows = windows.select(*PARTS, "epoch", "vm", "slot", f.explode(each).alias("each"))
    size = f.log2(f.greatest(f.col("each.error"), f.lit(LEAST_ERROR))) * ERRORS_PER_DOUBLING
    return (
        rows.where(f.col("each.error").isNotNull())
        .groupBy(*PARTS, "epoch", "vm", "slot", f.col("each.of").alias("of"), f.floor(size).alias("bucket"))
        .agg(f.count("*").alias("n"))
    )


def memory_blocks(windows: DataFrame) -> DataFrame:
    """Memory of a slot: at most 48 blocks, each of 2^`level` windows; sums of the middles of its windows and of what
    was held in them."""
    slot = Window.partitionBy(*PARTS, "vm", "slot")
    ends = windows.where(f.col("memory") > 0).withColumns(
        {"first": f.min("w").over(slot), "last": f.max("w").over(slot)}
    )
    level = f.expr(
        f"filter(sequence(0, 40), k -> shiftright(last, k) - shiftright(first, k) < {BLOCKS_MOST})[0]"
    )
    return (
        ends.withColumn("level", level)
        .groupBy(*PARTS, "vm", "slot", "level", f.expr("shiftright(w, level)").alias("block"))
        .agg(
            f.count("*").alias("n"),
            f.sum(f.col("w") + 0.5).alias("at"),
            f.sum("memory").alias("memory"),
            f.min("w").alias("min_w"),
            f.max("w").alias("max_w"),
        )
    )


def slot_points(windows: DataFrame) -> DataFrame:
    """Slots in windows, so many of each run as pictures show at most: those whose hash is least. So they are a sample,
    and always the same one."""
    least = f.xxhash64("run", "epoch", "vm", "slot", "w")
    names = ("cpu", "cpu_predicted", "memory", "memory_predicted")
    return (
        windows.select(*PARTS, "epoch", "vm", "slot", "w", *names, least.alias("hash"))
        .withColumn("rank", f.row_number().over(Window.partitionBy(*PARTS).orderBy("hash")))
        .where(f.col("rank") <= POINTS_MOST)
        .drop("rank")
    )
