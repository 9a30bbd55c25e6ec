"""All rows of each table, put together by time: what comes out is small, and is made once.

Times are put together to windows of 10 s (5 s in runs of ten minutes, 60 s in those longer than a day);
latency to bins of 1 s (15 s in runs longer than three hours). What has no time is summed up over it. What slots and
threads did in windows is put together once more, in `sums`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from headgate.dashboards.analytics.aggregation.aggregate_parts import (
    LOOKS_BACK_US,
    SECOND_US,
    AggregatedPart,
    is_cut,
)
from headgate.dashboards.analytics.curation.curated_tables import Curated
from headgate.dashboards.analytics.curation.trace_segments import folder_of, spark_schema
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.trace_runs import TraceRun

LATE_S = LOOKS_BACK_US["rates"] / SECOND_US  # between two rows of rates: the controller was away
RUN = ("topology", "run", "part")
WINDOWS_S = ((600, 5), (86_400, 10), (float("inf"), 60))  # runs of so many seconds at most → their window
FINE_BIN_S, COARSE_BIN_S, FINE_RUN_S = 1, 15, 3 * 3600
STABILITY_WINDOW_S = 15  # as the controller judges
FINE_PER_DOUBLING = 16  # bins of the latency's histogram, 4.4 % wide: quantiles err by at most half of that


def window_s(span_s: float) -> int:
    """Length of the windows of runs that take so long at most."""
    return next(seconds for most_s, seconds in WINDOWS_S if span_s <= most_s)


def bin_s(span_s: float) -> int:
    """Of bins of their latency."""
    return FINE_BIN_S if span_s <= FINE_RUN_S else COARSE_BIN_S


@dataclass(frozen=True)
class CuratedTables:
    """The curated rows of the runs that are analysed. `span_s`: of the longest run; `kept`, `fresh`: parts that are
    there, and those to be made."""

    spark: SparkSession
    curated: DataPlace
    runs: Sequence[TraceRun]
    done: Curated
    span_s: float
    kept: Sequence[AggregatedPart] = ()
    fresh: Sequence[AggregatedPart] = ()

    @property
    def window_s(self) -> int:
        return window_s(self.span_s)

    @property
    def bin_s(self) -> int:
        return bin_s(self.span_s)

    @property
    def stretch_s(self) -> int:
        """That windows and bins divide."""
        return math.lcm(self.window_s, STABILITY_WINDOW_S)

    def parts(self, table: str) -> list[AggregatedPart]:
        """To be made of this table."""
        return [part for part in self.fresh if part.table == table]

    def read(self, table: str) -> DataFrame:
        """All of them, with a column `run` = topology/run."""
        return named(self._all(table, self.runs))

    def rows(self, table: str) -> DataFrame:
        """Those of the parts to be made, with columns `topology` and `run` (what is made from two for every row costs
        as much as a sum) and the number of their `part`; null for rows that others are only counted from."""
        parts = self.parts(table)
        desired = {part.run for part in parts}
        of = {run.key: run for run in self.runs if run.key in desired}
        frame = self._all(table, list(of.values()))
        if len(of) == 1:  # then nothing is grouped by it
            only = next(iter(of.values()))
            frame = frame.withColumns({"topology": f.lit(only.topology), "run": f.lit(only.name)})
        if not is_cut([part for part in self.kept if part.table == table], parts):
            return frame.withColumn("part", f.lit(parts[0].number))
        part, near, span_us = f.lit(None), f.lit(False), self.stretch_s * SECOND_US
        for each in parts:
            its = (f.col("topology") == of[each.run].topology) & (f.col("run") == of[each.run].name)
            end = f.timestamp_micros(f.lit(each.end * span_us - 1))
            begin = f.timestamp_micros(f.lit(each.begin * span_us))
            from_ = f.timestamp_micros(f.lit(each.begin * span_us - LOOKS_BACK_US.get(table, 0)))
            part = f.when(its & f.col("time").between(begin, end), each.number).otherwise(part)
            near |= its & f.col("time").between(from_, end)
        return frame.where(near).withColumn("part", part.cast("int"))

    def _all(self, table: str, runs: Sequence[TraceRun]) -> DataFrame:
        schema = spark_schema(table)
        there = [
            folder_of(self.curated, table, run).uri
            for run in runs
            if any(part.table == table for part in self.done.manifests[run.key].parts)
        ]
        if not there:
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).option("basePath", (self.curated / table).uri).parquet(*there)


def named(frame: DataFrame) -> DataFrame:
    """With `run` = topology/run in place of both."""
    return frame.withColumn("run", f.concat("topology", f.lit("/"), "run")).drop("topology")


def window(seconds: int) -> Column:
    """Number of the window of so many seconds that a row's time lies in."""
    return f.expr(f"unix_micros(time) div {seconds * SECOND_US}")


def slot_windows(tables: CuratedTables) -> DataFrame:
    """A slot in a window: means, and the sums that R² is made of over the single rows."""
    columns: list[Column] = []
    for name in ("cpu", "memory"):
        columns += _against(name, f"predicted_{name}", name)
        columns += [f.avg(_finite(name)).alias(name)]
    rows = tables.rows("slots").groupBy(*RUN, "epoch", "vm", "slot", window(tables.window_s).alias("w"))
    return named(rows.agg(*columns))


def rate_windows(tables: CuratedTables) -> DataFrame:
    """All sources in a window: means of the rates, and how many tuples were acked."""
    names = ("offered_tps", "emitted_tps", "acked_tps", "planned_tps", "predicted_tps")
    rows = of_the_second(tables.rows("rates"))
    groups = rows.groupBy(*RUN, "epoch", window(tables.window_s).alias("w"))
    return named(
        groups.agg(
            f.count("*").alias("n"),
            *(f.avg(_finite(name)).alias(name) for name in names),
            f.sum("acked").alias("acked"),
        )
    )


def of_the_second(rates: DataFrame) -> DataFrame:
    """With the rates of the time since the row before in place of the recorder's means over some seconds. Of a first
    row, and one after a stretch without any, nobody knows since when it counts: null."""
    us = f.unix_micros("time")
    since_s = (
        us - f.lag(us).over(Window.partitionBy("topology", "run", "source").orderBy("time"))
    ) / SECOND_US
    rows = rates.withColumn("since_s", since_s)
    known = (f.col("since_s") > 0) & (f.col("since_s") < LATE_S)
    for name in ("offered", "emitted", "acked"):
        rows = rows.withColumn(f"{name}_tps", f.when(known, f.col(name) / f.col("since_s")))
    return rows.drop("since_s").where(f.col("part").isNotNull())


def latency_bins(tables: CuratedTables, seconds: int) -> DataFrame:
    """A path in a bin: tuples, quantiles, and the least-squares slope of its rows against time, s/s."""
    at_s = f.unix_micros("time") / SECOND_US
    from_s = window(seconds) * seconds  # counted from there, so that squares of times stay exact
    return named(
        tables.rows("latency")
        .groupBy(*RUN, "epoch", "source", "sink", window(seconds).alias("w"))
        .agg(
            f.count("*").alias("n"),
            f.sum("tuples").alias("tuples"),
            f.percentile_approx("latency_s", [0.5, 0.9], 200).alias("quantiles"),
            f.max("latency_s").alias("max_s"),
            f.regr_slope("latency_s", at_s - from_s).alias("slope"),
        )
        .withColumn("p50_s", f.col("quantiles")[0])
        .withColumn("p90_s", f.col("quantiles")[1])
        .drop("quantiles")
    )


def latency_histogram(tables: CuratedTables) -> DataFrame:
    """A path in an epoch, by sixteenths of a doubling of the latency: tuples, their sum of it, its maximum."""
    bucket = f.floor(f.log2(f.greatest(f.col("latency_s"), f.lit(1e-6))) * FINE_PER_DOUBLING)
    return named(
        tables.rows("latency")
        .groupBy(*RUN, "epoch", "source", "sink", bucket.alias("bucket"))
        .agg(
            f.sum("tuples").alias("tuples"),
            f.sum(f.col("tuples") * f.col("latency_s")).alias("weighted_s"),
            f.max("latency_s").alias("max_s"),
        )
    )


def link_sums(tables: CuratedTables) -> DataFrame:
    """Threads of one task to those of another in an epoch: sums over the windows that were recorded."""
    return named(
        tables.rows("links")
        .groupBy(*RUN, "epoch", "from_task", "to_task")
        .agg(
            *(f.sum(name).alias(name) for name in ("tuples", "bytes", "frames")),
            f.sum(f.col("buffer_latency_s") * f.col("frames")).alias("buffer_s"),
            f.sum(f.col("channel_latency_s") * f.col("frames")).alias("channel_s"),
        )
    )


def link_seconds(tables: CuratedTables) -> DataFrame:
    """An epoch: seconds in which anything went over any link (each once, however many links there were)."""
    rows = tables.rows("links").groupBy(*RUN, "epoch", "time").agg(f.max("window_s").alias("window_s"))
    return named(rows.groupBy(*RUN, "epoch").agg(f.sum("window_s").alias("seconds")))


def _finite(name: str) -> Column:
    """null for NaN."""
    return f.when(_known(name), f.col(name))


def _known(name: str) -> Column:
    """Neither null nor NaN. (`isnan` of null is false.)"""
    return f.col(name).isNotNull() & ~f.isnan(name)


def _against(actual: str, predicted: str, prefix: str) -> list[Column]:
    """<prefix>_n, _sum, _squares, _residual, _absolute, _ss: over the rows that have both; and the mean
    prediction."""
    there = _known(actual) & _known(predicted)
    a = f.when(there, f.col(actual))
    residual = f.when(there, f.col(actual) - f.col(predicted))
    return [
        f.count(residual).alias(f"{prefix}_n"),
        f.sum(a).alias(f"{prefix}_sum"),
        f.sum(a * a).alias(f"{prefix}_squares"),
        f.sum(residual).alias(f"{prefix}_residual"),
        f.sum(f.abs(residual)).alias(f"{prefix}_absolute"),
        f.sum(residual * residual).alias(f"{prefix}_ss"),
        f.avg(f.when(there, f.col(predicted))).alias(f"{prefix}_predicted"),
    ]
