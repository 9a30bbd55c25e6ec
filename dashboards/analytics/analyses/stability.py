"""Does each epoch keep up, and each 15 s of it? By the means and limits of `headgate.topology_runtime.stability`.

Of an epoch: Theil–Sen on medians of its bins, put together to at most 24, and the same for queue / rate where the
windows are enough. It does not keep up when one of them surely grows, or when rows waited for long for 15 s or more in
episodes that began in it; it does when one surely does not grow; else nobody can tell. Of a window: the least-squares
slope of the latencies in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.aggregates import STABILITY_WINDOW_S
from headgate.dashboards.analytics.asked import AnalysisInput, number, thinned
from headgate.dashboards.analytics.results import Episode, StabilityAnswer

if TYPE_CHECKING:
    from headgate.topology_runtime.stability.slopes import Slope

POINTS = 24  # of an epoch: pairs of points grow with the square
LEAST = 4  # points or rows below which a slope says nothing
ERROR = 0.05  # of either verdict being wrong: what is less sure is not said
SLOW_LEAST_S = 15.0  # in episodes that began in the epoch

Key = tuple[str, int, str, str]
Point = tuple[float, float]


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
    from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE

    rows = [
        row
        for row in asked.rows("latency_windows", "run", "w", "source", "sink", "epoch")
        if row["n"] >= LEAST and row["slope"] is not None
    ]
    counts: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        grow, n = counts[row["run"], row["epoch"]]
        counts[row["run"], row["epoch"]] = grow + (row["slope"] > UNSTABLE_SLOPE), n + 1
    return [_window(asked, row) for row in thinned(rows)], dict(counts)


def _window(asked: AnalysisInput, row: Mapping[str, Any]) -> StabilityAnswer:
    from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE

    at_s, slope = asked.window_at_s(row["run"], row["w"], STABILITY_WINDOW_S), number(row["slope"])
    stable = None if slope is None else slope <= UNSTABLE_SLOPE
    return StabilityAnswer(
        row["run"], row["epoch"], "window", row["source"], row["sink"], at_s, at_s + STABILITY_WINDOW_S,
        slope, None, None, None, stable, row["n"],
    )  # fmt: skip


def _latency(asked: AnalysisInput) -> dict[Key, list[Point]]:
    """Per path and epoch at most 24 (time in s, median latency in s)."""
    values: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    for row in asked.rows("latency_bins", "w"):
        if row["p50_s"] is not None:
            values[row["run"], row["epoch"], row["source"], row["sink"]].append((row["w"], row["p50_s"]))
    return {key: merged(of, asked.bin_s) for key, of in values.items()}


def _queues(asked: AnalysisInput) -> dict[tuple[str, int], list[Point]]:
    """Per epoch at most 24 (time in s, rows queued / rate in s)."""
    offered_tps = {
        (row["run"], row["epoch"], row["w"]): row["offered_tps"] for row in asked.rows("rate_windows")
    }
    values: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for row in asked.sums("task_windows", "run", "epoch", "w"):
        offered = offered_tps.get((row["run"], row["epoch"], row["w"]))
        if offered is not None and offered > 0 and row["queued"] is not None:
            values[row["run"], row["epoch"]].append((row["w"], row["queued"] / offered))
    return {key: merged(of, asked.window_s) for key, of in values.items()}


def merged(values: Sequence[tuple[int, float]], width_s: int) -> list[Point]:
    """Neighbouring bins (number, value), ascending, put together to at most 24: mean times in s, and means."""
    first, last = values[0][0], values[-1][0]
    each = -(-(last - first + 1) // POINTS)
    found = []
    for _, group in groupby(values, key=lambda value: (value[0] - first) // each):
        its = list(group)
        at_s = sum((w + 0.5) * width_s for w, _ in its) / len(its)
        found.append((at_s, sum(value for _, value in its) / len(its)))
    return found


def _epoch(
    asked: AnalysisInput,
    key: Key,
    latency: list[Point],
    queue: list[Point],
    slow_s: float,
) -> StabilityAnswer:
    from headgate.topology_runtime.stability.evidence import LATENCY_RESOLUTION, Evidence, verdict_of
    from headgate.topology_runtime.stability.slopes import Slope

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


def _slope(points: list[Point], resolution: float) -> Slope | None:
    import numpy as np

    from headgate.topology_runtime.stability.slopes import trend

    if len(points) < LEAST:
        return None
    x, y = (np.array([point[n] for point in points]) for n in (0, 1))
    return trend(x - x[0], y, resolution)
