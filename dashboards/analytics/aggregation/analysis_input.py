"""What every analysis is given: the aggregates, the runs, and small means to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headgate.dashboards.analytics.aggregation.row_sums import added_up
from headgate.dashboards.analytics.storage.result_tables import POINTS_MOST
from headgate.dashboards.analytics.storage.trace_runs import TraceRun


@dataclass(frozen=True)
class AnalysisInput:
    """`begin_us`: time of a run's first sample. frames: what Spark reads when it is asked; held: aggregates that are
    here (see `aggregates`, `sums`). stretches: (run, table) → stretch of `stretch_s` → digest of what is in it; memory:
    of earlier turns of a follower, by what it was made of."""

    spark: SparkSession
    runs: Mapping[str, TraceRun]
    begin_us: Mapping[str, int]
    window_s: int
    bin_s: int
    frames: Mapping[str, Callable[[], DataFrame]]
    held: Mapping[str, pa.Table]
    stretch_s: int = 60
    stretches: Mapping[tuple[str, str], Mapping[int, str]] = field(default_factory=dict)
    memory: dict[Any, Any] = field(default_factory=dict)

    def made_of(self, run: str, table: str, from_us: int, to_us: int) -> tuple[str | None, ...]:
        """Changes with the segments of this table in which rows of that time could be."""
        its, span_us = self.stretches.get((run, table), {}), self.stretch_s * 1_000_000
        return tuple(its.get(n) for n in range(from_us // span_us, to_us // span_us + 1))

    def rows(self, name: str, *by: str) -> list[dict[str, Any]]:
        """Of an aggregate that is held, in the order of these columns."""
        table = self.held[name]
        if not table.num_rows:
            return []
        order: Any = [(column, "ascending") for column in by]
        return list((table.sort_by(order) if by else table).to_pylist())

    def sums(self, name: str, *keys: str) -> list[dict[str, Any]]:
        """The same, added up to one row for each value of the keys."""
        table = self.held[name]
        return list(added_up(table, keys).to_pylist()) if table.num_rows else []

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


Result = TypeVar("Result", bound=msgspec.Struct)


def built(kind: type[Result], row: Mapping[str, Any], **more: Any) -> Result:
    """A result by the names in the row (None for NaN and infinity), and by `more`."""
    values = {name: row[name] for name in kind.__struct_fields__ if name in row}
    known = {name: number(value) if isinstance(value, float) else value for name, value in values.items()}
    return kind(**(known | more))


def thinned(rows: Sequence[Any], most: int = POINTS_MOST) -> Sequence[Any]:
    """At most `most` of them, evenly chosen."""
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows
