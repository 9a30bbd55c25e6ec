"""Does each epoch keep up, and each 15 s of it? By the means and limits of `topology_runtime.stability`.

Of an epoch: Theil–Sen on medians of its bins, put together to at most 24, and the same for queue / rate where the
windows are enough. It does not keep up when one of them surely grows, or when rows waited for long for 15 s or more in
episodes that began in it; it does when one surely does not grow; else nobody can tell. Of a window: the least-squares
slope of the latencies in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dashboards.analytics.aggregates import STABILITY_WINDOW_S
from dashboards.analytics.asked import AnalysisInput, number, thinned
from dashboards.analytics.results import Episode, StabilityAnswer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from topology_runtime.stability.slopes import Slope

POINTS = 24  # of an epoch: pairs of points grow with the square
LEAST = 4  # points or rows below which a slope says nothing
ERROR = 0.05  # of either verdict being wrong: what is less sure is not said
SLOW_LEAST_S = 15.0  # in episodes that began in the epoch

Key = tuple[str, int, str, str]


def epochs(asked: AnalysisInput, episodes: Iterable[Episode]) -> list[StabilityAnswer]:
    """`episodes`: those of the runs."""
    latency = _latency(asked)
    queue = _queues(asked)
    slow: dict[Key, float] = defaultdict(float)
    for one in episodes:
        slow[one.run, one.epoch, one.source, one.sink] += one.to_s - one.from_s
    return [
        _epoch(asked, key, points, queue.get(key[:2], []), slow[key])
        for key, points in sorted(latency.items())
    ]


def windows(asked: AnalysisInput) -> tuple[list[StabilityAnswer], dict[tuple[str, int], tuple[int, int]]]:
    """(windows, evenly chosen; of each epoch: how many grow, of how many)."""
    from pyspark.sql import functions as f

    from topology_runtime.stability.evidence import UNSTABLE_SLOPE

    frame = asked.frames["latency_windows"].where((f.col("n") >= LEAST) & f.col("slope").isNotNull())
    grows = f.sum((f.col("slope") > UNSTABLE_SLOPE).cast("int"))
    counts = frame.groupBy("run", "epoch").agg(grows.alias("grow"), f.count("*").alias("n")).collect()
    rows = thinned(frame, ["run", "w", "source", "sink", "epoch"])
    return [_window(asked, row) for row in rows], {
        (r["run"], r["epoch"]): (r["grow"], r["n"]) for r in counts
    }


def _window(asked: AnalysisInput, row: Mapping[str, Any]) -> StabilityAnswer:
    from topology_runtime.stability.evidence import UNSTABLE_SLOPE

    at_s, slope = asked.window_at_s(row["run"], row["w"], STABILITY_WINDOW_S), number(row["slope"])
    stable = None if slope is None else slope <= UNSTABLE_SLOPE
    return StabilityAnswer(
        row["run"], row["epoch"], "window", row["source"], row["sink"], at_s, at_s + STABILITY_WINDOW_S,
        slope, None, None, None, stable, row["n"],
    )  # fmt: skip


def _latency(asked: AnalysisInput) -> dict[Key, list[tuple[float, float]]]:
    """Per path and epoch at most 24 (time in s, median latency in s)."""
    found: dict[Key, list[tuple[float, float]]] = {}
    frame = merged(asked.frames["latency_bins"], ["run", "epoch", "source", "sink"], "p50_s", asked.bin_s)
    for row in frame.collect():
        key = (row["run"], row["epoch"], row["source"], row["sink"])
        found.setdefault(key, []).append((row["at_s"], row["value"]))
    return found


def _queues(asked: AnalysisInput) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Per epoch at most 24 (time in s, rows queued / rate in s)."""
    from pyspark.sql import functions as f

    queued = (
        asked.frames["bundles"]
        .groupBy("run", "epoch", "w")
        .agg(f.sum(f.col("queue") / f.col("n") * f.col("threads")).alias("queue"))
        .join(asked.frames["rate_windows"].select("run", "epoch", "w", "offered_tps"), ["run", "epoch", "w"])
        .where(f.col("offered_tps") > 0)
        .withColumn("wait_s", f.col("queue") / f.col("offered_tps"))
    )
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in merged(queued, ["run", "epoch"], "wait_s", asked.window_s).collect():
        found.setdefault((row["run"], row["epoch"]), []).append((row["at_s"], row["value"]))
    return found


def merged(frame: DataFrame, keys: list[str], value: str, width_s: int) -> DataFrame:
    """Neighbouring bins `w` of each key put together to at most 24: mean time `at_s` and `value`, in order."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    all_of = Window.partitionBy(*keys)
    each = f.ceil((f.max("w").over(all_of) - f.min("w").over(all_of) + 1) / POINTS)
    place = f.floor((f.col("w") - f.min("w").over(all_of)) / each)
    return (
        frame.where(f.col(value).isNotNull())
        .withColumn("place", place)
        .groupBy(*keys, "place")
        .agg(f.avg((f.col("w") + 0.5) * width_s).alias("at_s"), f.avg(value).alias("value"))
        .orderBy(*keys, "place")
    )


def _epoch(
    asked: AnalysisInput,
    key: Key,
    latency: list[tuple[float, float]],
    queue: list[tuple[float, float]],
    slow_s: float,
) -> StabilityAnswer:
    from topology_runtime.stability.evidence import LATENCY_RESOLUTION, Evidence, verdict_of
    from topology_runtime.stability.slopes import Slope

    none = Slope(0.0, 0.0, 0.0, 0)
    middle = sorted(value for _, value in latency)[len(latency) // 2]
    slope = _slope(latency, LATENCY_RESOLUTION * middle) or none
    growth = _slope(queue, 0.0)
    found = Evidence(slope, growth or none, slope, 1.0, 0.0, 0.0, 0.0, len(latency))
    verdict = "unstable" if slow_s >= SLOW_LEAST_S else verdict_of(found, ERROR, ERROR)
    known = slope.freedom > 0
    times = [asked.at_s(key[0], at * 1e6) for at, _ in latency]
    return StabilityAnswer(
        *key[:2], "epoch", *key[2:], max(0.0, times[0]), times[-1],
        slope.value if known else None, slope.low if known else None, slope.high if known else None,
        growth.value if growth else None,
        {"stable": True, "unstable": False, "unsure": None}[verdict], len(latency),
    )  # fmt: skip


def _slope(points: list[tuple[float, float]], resolution: float) -> Slope | None:
    import numpy as np

    from topology_runtime.stability.slopes import trend

    if len(points) < LEAST:
        return None
    x, y = (np.array([point[n] for point in points]) for n in (0, 1))
    return trend(x - x[0], y, resolution)
