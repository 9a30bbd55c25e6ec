"""What every analysis is given: the aggregates as tables, the runs, and small means to read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards.analytics.results import POINTS_MOST
from dashboards.analytics.trace_runs import TraceRun

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class AnalysisInput:
    """`begin_us`: time of a run's first sample. Frames: see `aggregates`."""

    spark: SparkSession
    runs: Mapping[str, TraceRun]
    begin_us: Mapping[str, int]
    window_s: int
    bin_s: int
    frames: Mapping[str, DataFrame]

    def at_s(self, run: str, us: float) -> float:
        """Seconds since the run's first sample."""
        return round((us - self.begin_us.get(run, 0)) / 1e6, 3)

    def window_at_s(self, run: str, number: int, seconds: int) -> float:
        """When a window began, not before the run."""
        return max(0.0, self.at_s(run, number * seconds * 1e6))

    def facts(self, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
        """A small table of what is known of the runs, to join with."""
        return self.spark.createDataFrame(list(rows), schema)


def number(value: Any) -> float | None:
    """None for null, NaN and infinity."""
    if value is None:
        return None
    value = float(value)
    return value if math.isfinite(value) else None


def over(a: Any, b: Any) -> float | None:
    """a / b; None when undefined."""
    x, y = number(a), number(b)
    return None if x is None or not y else x / y


def thinned(frame: DataFrame, by: Iterable[str | Column], most: int = POINTS_MOST) -> list[Any]:
    """Its rows in this order, at most `most` of them, evenly chosen; never more leave Spark."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = frame.count()
    order = list(by)
    if rows > most:
        step = -(-rows // most)
        at = f.row_number().over(Window.orderBy(*order)) - 1
        frame = frame.withColumn("_at", at).where(f.col("_at") % step == 0).drop("_at")
    return frame.orderBy(*order).collect()
