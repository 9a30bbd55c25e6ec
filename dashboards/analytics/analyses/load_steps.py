"""Runs that were led up and down a stair of rates: what each step did, and what the slots used meanwhile.

Whoever leads a run leaves `steps.json` in its trace: {"schema": "headgate/steps/v1", "steps": [{"from_s": …, "to_s": …,
"offered_tps": …}]}, seconds since 1970 UTC. The first `SETTLE_S` of a step are not counted.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.aggregates import FINE_PER_DOUBLING
from headgate.dashboards.analytics.analyses.latency import coarse, quantile
from headgate.dashboards.analytics.asked import AnalysisInput, number
from headgate.dashboards.analytics.results import LeftOut, StepAnswer, StepSlot
from headgate.dashboards.analytics.trace_runs import TraceRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE, SCHEMA = "steps.json", "headgate/steps/v1"
SETTLE_S = 1.5
LEAST = 3  # seconds with rows, below which a slope says nothing
KEYS = ("run", "step")

Marks = tuple[str, int, float, float, float]  # run, step, from_s, to_s, offered_tps
Key = tuple[str, int]


def steps(asked: AnalysisInput) -> tuple[list[StepAnswer], list[StepSlot], list[LeftOut]]:
    """Nothing for runs without the file."""
    marks: list[Marks] = []
    left = []
    for run in asked.runs.values():
        found, why = marks_of(run)
        marks += found
        left += why
    if not marks:
        return [], [], left
    schema = "run string, step int, from_s double, to_s double, offered_tps double"
    known = asked.facts(marks, schema)
    return _steps(asked, marks, known), _slots(asked, known), left


def marks_of(run: TraceRun) -> tuple[list[Marks], list[LeftOut]]:
    """What the file says; why not, when it is none."""
    file = run.place / FILE
    try:
        data = json.loads(file.read())
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA!r}")
        rows = [(float(r["from_s"]), float(r["to_s"]), float(r["offered_tps"])) for r in data["steps"]]
        if not all(map(math.isfinite, sum(rows, ()))):
            raise ValueError("a time or a rate is not finite")
    except FileNotFoundError:
        return [], []
    except (OSError, ValueError, TypeError, KeyError) as error:
        return [], [LeftOut(file.uri, "foreign", f"no steps: {type(error).__name__}: {error}", None)]
    return [(run.key, n, *row) for n, row in enumerate(rows)], []


def _inside(frame: DataFrame, known: DataFrame) -> DataFrame:
    """Rows of the steps, without the beginning of each."""
    from pyspark.sql import functions as f

    at_s = f.unix_micros("time") / 1e6
    rows = frame.withColumn("at_s", at_s).join(f.broadcast(known), "run")
    return rows.where((f.col("at_s") >= f.col("from_s") + SETTLE_S) & (f.col("at_s") <= f.col("to_s")))


def _steps(asked: AnalysisInput, marks: Sequence[Marks], known: DataFrame) -> list[StepAnswer]:
    from pyspark.sql import functions as f

    rows = _inside(asked.frames["latency"](), known)
    seconds: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    by_second = rows.groupBy(*KEYS, f.floor("at_s").alias("second")).agg(
        f.avg("at_s").alias("at_s"), f.percentile_approx("latency_s", 0.5, 200).alias("p50_s")
    )  # fmt: skip
    for row in by_second.orderBy(*KEYS, "second").collect():
        seconds[row["run"], row["step"]].append((row["at_s"], row["p50_s"]))
    bucket = f.floor(f.log2(f.greatest(f.col("latency_s"), f.lit(1e-6))) * FINE_PER_DOUBLING)
    histogram: dict[Key, list[Any]] = defaultdict(list)
    binned = rows.groupBy(*KEYS, bucket.alias("bucket")).agg(
        f.sum("tuples").alias("tuples"), f.max("latency_s").alias("max_s"),
        f.sum(f.col("tuples") * f.col("latency_s")).alias("weighted_s"),
    )  # fmt: skip
    for row in binned.orderBy(*KEYS, "bucket").collect():
        histogram[row["run"], row["step"]].append(row)
    done = _done(asked, rows, known)
    return [_step(asked, mark, seconds[mark[:2]], histogram[mark[:2]], done.get(mark[:2])) for mark in marks]


def _done(asked: AnalysisInput, latency: DataFrame, known: DataFrame) -> dict[Key, float]:
    """Tuples of the sources per second that came through: rows at the sinks by what they weigh."""
    from pyspark.sql import functions as f

    weights = [(r.key, task, w) for r in asked.runs.values() for task, w in r.weights.items() if w > 0]
    of = asked.facts(weights, "run string, task string, weight double")
    sinks = latency.select("run", f.col("sink").alias("task")).distinct().join(of, ["run", "task"])
    threads = (
        _inside(asked.frames["samples"](), known)
        .join(f.broadcast(sinks), ["run", "task"])
        .groupBy(*KEYS, "task", "weight", "thread")
        .agg((f.sum("tuples_in") / f.sum("window_s") / f.col("weight")).alias("tps"))
    )
    tasks = threads.groupBy(*KEYS, "task").agg(f.sum("tps").alias("tps"))
    rows = tasks.groupBy(*KEYS).agg(f.avg("tps").alias("tps")).collect()
    return {(row["run"], row["step"]): row["tps"] for row in rows}


def _step(
    asked: AnalysisInput,
    mark: Marks,
    seconds: list[tuple[float, float]],
    bins: list[Any],
    done_tps: float | None,
) -> StepAnswer:
    run, step, from_s, to_s, offered_tps = mark
    slope, stable = judged(seconds)
    tuples = sum(row["tuples"] for row in bins)
    top = max((row["max_s"] for row in bins), default=None)
    pairs = [(row["bucket"], row["tuples"]) for row in bins]
    p50, p95, p99 = (quantile(pairs, share, top) for share in (0.5, 0.95, 0.99))
    mean = sum(row["weighted_s"] for row in bins) / tuples if tuples else None
    return StepAnswer(
        run, step, asked.at_s(run, from_s * 1e6), to_s - from_s, offered_tps, number(done_tps),
        slope, stable, mean, p50, p95, p99, coarse(pairs),
    )  # fmt: skip


def judged(seconds: Iterable[tuple[float, float]]) -> tuple[float | None, bool | None]:
    """(slope of the seconds' median latencies, is it within the limit?); None: too few of them."""
    import numpy as np

    from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE
    from headgate.topology_runtime.stability.slopes import theil_sen

    points = np.array(list(seconds), dtype=float).reshape(-1, 2)
    if len(points) < LEAST:
        return None, None
    slope = theil_sen(points[:, 0] - points[0, 0], points[:, 1]).value
    return slope, bool(slope <= UNSTABLE_SLOPE)


def _slots(asked: AnalysisInput, known: DataFrame) -> list[StepSlot]:
    from pyspark.sql import functions as f

    def finite(name: str) -> Any:
        return f.avg(f.when(~f.isnan(name), f.col(name))).alias(name)

    rows = (
        _inside(asked.frames["slots"](), known)
        .groupBy(*KEYS, "vm", "slot")
        .agg(finite("cpu"), finite("memory"), f.count("*").alias("n"))
        .orderBy(*KEYS, "vm", "slot")
        .collect()
    )
    return [
        StepSlot(r["run"], r["step"], r["vm"], r["slot"], number(r["cpu"]), number(r["memory"]), r["n"])
        for r in rows
    ]
