"""Predicted against actual: rate, CPU and memory, over everything and by task, slot, VM, pair and epoch.

Rate: what came through against what a plan was predicted to carry, of the windows in which it was tried: more was
offered than was predicted, or rows waited for long (an episode); a plan that is never tried is neither right nor wrong.
The first window of a plan says nothing. CPU and memory: R² = 1 − SSres / SStot and the mean error are over the single
rows of `slots`; the quantiles of the error are over means of a window, so that one second's scheduling does not make
the worst error of a run. `r2_epochs` is over means of an epoch, as paper 0 has its points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboards.analytics.asked import AnalysisInput, number, over, thinned
from dashboards.analytics.results import Episode, RateWindow, Residuals, SlotPredicted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUMS = ("n", "sum", "squares", "residual", "absolute", "ss")


def residuals(asked: AnalysisInput, rates: DataFrame) -> list[Residuals]:
    """`rates`: windows that tried the plan (`tried`)."""
    from pyspark.sql import functions as f

    pairs = asked.facts([(r.key, r.pair) for r in asked.runs.values()], "run string, pair string")
    slots = asked.frames["slot_windows"].join(f.broadcast(pairs), "run", "left")
    rates = rates.join(f.broadcast(pairs), "run", "left")
    epoch = f.concat("run", f.lit(" "), "epoch")
    slot = f.concat("vm", f.lit("/"), "slot")
    everywhere = {"all": f.lit(""), "pair": f.col("pair"), "epoch": epoch}
    rows = _of(rates, "rate", f.col("acked_tps"), everywhere, relative=True)
    for name in ("cpu", "memory"):
        rows += _of(slots, name, f.col(name), everywhere | {"slot": slot, "vm": f.col("vm")}, relative=False)
    return rows + _of_tasks(asked)


def tried(asked: AnalysisInput, episodes: Sequence[Episode]) -> DataFrame:
    """Windows of rates in which the plan was tried, with the sums of what was acked against what was predicted."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first = f.min("w").over(Window.partitionBy("run", "epoch"))
    known = f.col("acked_tps").isNotNull() & (f.col("predicted_tps") > 0)
    later = (
        asked.frames["rate_windows"].withColumn("first", first).where(known & (f.col("w") > f.col("first")))
    )
    us = [(e.run, *(int(at * 1e6) + asked.begin_us[e.run] for at in (e.from_s, e.to_s))) for e in episodes]
    spans = asked.facts(us, "run string, from_us long, to_us long")
    width_us = asked.window_s * 1_000_000
    inside = (f.col("w") * width_us >= f.col("from_us")) & ((f.col("w") + 1) * width_us <= f.col("to_us"))
    more = f.coalesce(f.col("offered_tps") > f.col("predicted_tps"), f.lit(False))
    slow = later.where(~more).alias("r").join(
        f.broadcast(spans).alias("s"), (f.col("r.run") == f.col("s.run")) & inside, "left_semi"
    )  # fmt: skip
    return _against(later.where(more).unionByName(slow), f.col("acked_tps"), f.col("predicted_tps"))


def _against(frame: DataFrame, a: Column, p: Column) -> DataFrame:
    """Each row with the sums that `_of` adds up, of itself alone."""
    from pyspark.sql import functions as f

    sums = {
        "n": f.lit(1), "sum": a, "squares": a * a, "residual": a - p, "absolute": f.abs(a - p),
        "ss": (a - p) * (a - p), "predicted": p,
    }  # fmt: skip
    return frame.withColumns({f"rate_{name}": column for name, column in sums.items()})


def _of(
    frame: DataFrame, of: str, actual: Column, names: dict[str, Column], relative: bool
) -> list[Residuals]:
    """`frame` has the sums of `aggregates._against` with this prefix, and means by window."""
    from pyspark.sql import functions as f

    error = f.abs(actual - f.col(f"{of}_predicted"))
    error = error / f.nullif(f.abs(actual), f.lit(0.0)) if relative else error
    kinds = f.array(*(f.struct(f.lit(by).alias("by"), name.alias("name")) for by, name in names.items()))
    found = (
        frame.where(f.col(f"{of}_n") > 0)
        .withColumn("error", error)
        .withColumn("kind", f.explode(kinds))
        .where(f.col("kind.name").isNotNull())
        .groupBy("kind.by", "kind.name")
        .agg(
            *(f.sum(f"{of}_{name}").alias(name) for name in SUMS),
            f.percentile_approx("error", [0.5, 0.95], 1000).alias("errors"),
            f.max("error").alias("worst"),
            (f.max(f"{of}_predicted") > f.min(f"{of}_predicted")).alias("varies"),
        )
    )
    return [_row(of, row) for row in found.orderBy("by", "name").collect()]


def _row(of: str, row: Any) -> Residuals:
    errors = row["errors"] or [None, None]
    sums = row["n"] if row["varies"] else 0, row["sum"], row["squares"]
    return Residuals(
        of=of,
        by=row["by"],
        name=row["name"],
        n=int(row["n"]),
        r2=r2(*sums, row["ss"]),
        r2_without_offset=r2(*sums, row["ss"] - row["residual"] ** 2 / row["n"]),
        mae=over(row["absolute"], row["n"]),
        median_error=number(errors[0]),
        p95_error=number(errors[1]),
        worst_error=number(row["worst"]),
        mean_residual=over(row["residual"], row["n"]),
    )


def r2(n: float, total: float, squares: float, residual: float) -> float | None:
    """1 − SSres / SStot; None when there are fewer than two points or they are all the same. (So it is when all
    predictions are the same: it cannot be above 0 then, whatever they are worth.)"""
    if n < 2:
        return None
    spread = squares - total * total / n
    return None if spread <= 1e-12 * max(squares, 1e-12) else 1 - residual / spread


def r2_epochs(asked: AnalysisInput, rates: DataFrame) -> dict[str, float | None]:
    """R² of means of an epoch: of the rate where it was tried, and of CPU and memory of each slot."""
    from pyspark.sql import functions as f

    slots = asked.frames["slot_windows"]
    found = {}
    for of, frame, keys in (
        ("rate", rates, ["run", "epoch"]),
        ("cpu", slots, ["run", "epoch", "vm", "slot"]),
        ("memory", slots, ["run", "epoch", "vm", "slot"]),
    ):
        means = frame.where(f.col(f"{of}_n") > 0).groupBy(keys)
        n = f.sum(f"{of}_n")
        points = means.agg((f.sum(f"{of}_sum") / n).alias("a"), (f.sum(f"{of}_residual") / n).alias("d"))
        row = points.agg(
            f.count("*").alias("n"), f.sum("a").alias("sum"), f.sum(f.col("a") * f.col("a")).alias("squares"),
            f.sum(f.col("d") * f.col("d")).alias("ss"),
        ).collect()[0]  # fmt: skip
        found[of] = r2(row["n"], row["sum"] or 0.0, row["squares"] or 0.0, row["ss"] or 0.0)
    return found


def _of_tasks(asked: AnalysisInput) -> list[Residuals]:
    """Rate of tasks: rows taken in, against what the selectivities make of what the sources emitted."""
    from pyspark.sql import functions as f

    a, p = f.col("actual_tps"), f.col("task_predicted_tps")
    frame = task_windows(asked).where(a.isNotNull() & p.isNotNull())
    return _of(_against(frame, a, p), "rate", a, {"task": f.col("task")}, relative=True)


def task_windows(asked: AnalysisInput) -> DataFrame:
    """A task in a window: rows/s in, and predicted. Windows that an epoch fills."""
    from pyspark.sql import functions as f

    weights = [
        (r.key, task, w)
        for r in asked.runs.values()
        for task, w in r.weights.items()
        if task not in r.sources
    ]
    known = asked.facts(weights, "run string, task string, weight double")
    taken = (
        asked.frames["bundles"]
        .groupBy("run", "epoch", "task", "w")
        .agg(
            f.sum("tuples_in").alias("tuples_in"),
            ((f.max("last_us") - f.min("first_us")) / 1e6 + 1).alias("seconds"),
        )
        .where(f.col("seconds") >= 0.8 * asked.window_s)
    )
    rates = asked.frames["rate_windows"].select("run", "epoch", "w", "emitted_tps")
    return (
        taken.join(f.broadcast(known), ["run", "task"])
        .join(rates, ["run", "epoch", "w"])
        .withColumn("actual_tps", f.col("tuples_in") / f.col("seconds"))
        .withColumn("task_predicted_tps", f.col("emitted_tps") * f.col("weight"))
    )


def series(asked: AnalysisInput, rates: DataFrame) -> list[RateWindow]:
    """Rates over time; `rates`: windows that tried the plan."""
    from pyspark.sql import functions as f

    hard = rates.select("run", "epoch", "w", f.lit(True).alias("tried"))
    all_of = asked.frames["rate_windows"].join(hard, ["run", "epoch", "w"], "left")
    return [
        RateWindow(
            run=row["run"],
            epoch=row["epoch"],
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            window_s=float(asked.window_s),
            offered_tps=number(row["offered_tps"]),
            emitted_tps=number(row["emitted_tps"]),
            acked_tps=number(row["acked_tps"]),
            planned_tps=number(row["planned_tps"]),
            predicted_tps=number(row["predicted_tps"]),
            tried=bool(row["tried"]),
        )
        for row in thinned(all_of, ["run", "w", "epoch"])
    ]


def scatter(asked: AnalysisInput) -> list[SlotPredicted]:
    """Slots over time."""
    return [
        SlotPredicted(
            run=row["run"],
            pair=asked.runs[row["run"]].pair,
            epoch=row["epoch"],
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            vm=row["vm"],
            slot=row["slot"],
            cpu=number(row["cpu"]),
            predicted_cpu=number(row["cpu_predicted"]),
            memory=number(row["memory"]),
            predicted_memory=number(row["memory_predicted"]),
        )
        for row in thinned(asked.frames["slot_windows"], ["run", "w", "epoch", "vm", "slot"])
    ]
