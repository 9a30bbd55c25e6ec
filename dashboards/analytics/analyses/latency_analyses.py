"""Latency of each path (source, sink) in each epoch, weighted by the tuples each sampled row stands for.

Quantiles come from a histogram of bins 4.4 % wide, and are interpolated in them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput, built, number, over, thinned
from headgate.dashboards.analytics.storage.result_tables import (
    HISTOGRAM_BINS_PER_DOUBLING,
    POINTS_MOST,
    Episode,
    LatencyBin,
    LatencyEpoch,
    LatencyForeseen,
    Pair,
)

MS = 1000.0
FINE_PER_DOUBLING = 16  # bins of the latency's histogram: quantiles err by at most half of one

Bins = Sequence[tuple[int, float]]  # bucket, tuples; ascending


def epochs(asked: AnalysisInput) -> list[LatencyEpoch]:
    keys = ("run", "epoch", "source", "sink")
    rows = asked.sums("latency_histogram", *keys, "bucket")
    found = []
    for (run, epoch, source, sink), group in groupby(rows, lambda row: [row[k] for k in keys]):
        its = list(group)
        tuples = sum(row["tuples"] for row in its)
        found.append(LatencyEpoch(run, epoch, source, sink, tuples, **spread_of(its)))
    return found


def foreseen(asked: AnalysisInput) -> list[LatencyForeseen]:
    """Predicted beside measured, of each plan, rate and sink."""
    rows = asked.ask("select * from mart_latency order by run, number, sink")
    return [built(LatencyForeseen, row) for row in thinned(rows)]


def overall_ms(asked: AnalysisInput) -> dict[str, float | None]:
    """p50, p95, p99 and max over everything, in ms."""
    spread = spread_of(asked.sums("latency_histogram", "bucket"))
    seconds = {name: spread[f"{name}_s"] for name in ("p50", "p95", "p99", "max")}
    return {name: None if value is None else round(value * MS, 3) for name, value in seconds.items()}


def spread_of(rows: Sequence[Any]) -> dict[str, Any]:
    """Of a histogram's rows: mean_s, p50_s, p95_s, p99_s, max_s (None without tuples), and a coarse one."""
    bins, top = (
        [(row["bucket"], row["tuples"]) for row in rows],
        max((row["max_s"] for row in rows), default=None),
    )
    mean_s = over(sum(row["weighted_s"] for row in rows), sum(many for _, many in bins))
    quantiles = {f"p{q}_s": quantile(bins, q / 100, top) for q in (50, 95, 99)}
    return {"mean_s": mean_s, **quantiles, "max_s": top, "histogram": coarse(bins)}


def quantile(bins: Bins, share: float, top: float | None) -> float | None:
    """The latency that this share of the tuples does not exceed, seconds; None without tuples."""
    desired = share * sum(tuples for _, tuples in bins)
    if desired <= 0 or top is None:
        return None
    below = 0.0
    for bucket, tuples in bins:
        if below + tuples >= desired:
            inside = (desired - below) / tuples
            return min(top, float(2.0 ** ((bucket + inside) / FINE_PER_DOUBLING)))
        below += tuples
    return top


def coarse(bins: Bins) -> list[LatencyBin]:
    """The histogram for a picture."""
    each = FINE_PER_DOUBLING // HISTOGRAM_BINS_PER_DOUBLING
    sums: dict[int, float] = {}
    for bucket, tuples in bins:
        sums[bucket // each] = sums.get(bucket // each, 0.0) + tuples

    def edge(n: int) -> float:
        return float(2.0 ** (n / HISTOGRAM_BINS_PER_DOUBLING))

    return [LatencyBin(edge(n), edge(n + 1), tuples) for n, tuples in sorted(sums.items())]


# ── Episodes: stretches of a run in which rows waited for long, and who held them up, as
# docs/reference/report-metrics.md defines them. One begins, and ends, where the latency leaves the noise of the bins
# that are not slow; a stretch without any row is as old as the row that ends it.


Floats = NDArray[np.float64]

CULPRITS = """
with held as (
  select
    e.number,
    b.task,
    b.vm,
    b.slot,
    sum(b.queue / cast(b.n as double) * b.threads * b.seconds) / nullif(sum(b.seconds), 0) as queue,
    greatest(sum(b.tuples_in), sum(b.tuples_out)) / nullif(sum(b.seconds), 0) as taken_tps,
    sum(b.busy_s) / nullif(sum(b.window_s), 0) as busy
  from sum_bundles b
  join episode_spans e on e.run = b.run and b.first_us < e.to_us and b.last_us > e.from_us
  group by e.number, b.task, b.vm, b.slot
)
select number, task, vm, slot, busy, queue / taken_tps as held_s
from held
where taken_tps > 0 and queue is not null
order by number, held_s desc, task, vm, slot
"""

TIMES, LEAST_S = 2.0, 0.25  # above the usual latency
USUAL = 0.1  # quantile of the bins
LEAST_BINS = 8  # fewer say nothing of what is usual
LONG_S = 3.0  # shorter ones are not told of
GAP_S = 5.0  # two episodes with less between them are one
NOISE = 4.0  # median deviations from the median
HELD_LEAST = 0.1  # of the excess latency
MOST = 200  # of a run


@dataclass(frozen=True)
class Stretch:
    """Bins `first` to `last`; from_s, to_s: when it began and ended."""

    first: int
    last: int
    from_s: float
    to_s: float
    usual_s: float


def stretches(at_s: Floats, high_s: Floats, bin_s: float) -> list[Stretch]:
    """Where rows waited for long. `at_s`: beginnings of the bins that have rows, ascending; `high_s`: the 90th
    percentile of the latency of each."""
    if len(at_s) < LEAST_BINS:
        return []
    usual_s = float(np.quantile(high_s, USUAL))
    slow = high_s > max(TIMES * usual_s, usual_s + LEAST_S)
    if not slow.any():
        return []
    quiet = high_s[~slow] if (~slow).any() else np.array([usual_s])
    middle = float(np.median(quiet))
    edge_s = middle + NOISE * max(1.4826 * float(np.median(np.abs(quiet - middle))), 0.05 * middle)
    found: list[Stretch] = []
    for first, last in _runs(at_s, slow, bin_s):
        while first > 0 and high_s[first - 1] > edge_s:
            first -= 1
        while last + 1 < len(at_s) and high_s[last + 1] > edge_s:
            last += 1
        oldest_s = float((at_s[first : last + 1] + bin_s - (high_s[first : last + 1] - usual_s)).min())
        from_s = min(float(at_s[first]), max(oldest_s, float(at_s[first - 1]) + bin_s if first else oldest_s))
        if found and from_s - found[-1].to_s < GAP_S:
            before = found.pop()
            first, from_s = before.first, before.from_s
        found.append(Stretch(first, last, from_s, float(at_s[last]) + bin_s, usual_s))
    return [one for one in found if one.to_s - one.from_s >= LONG_S]


def _runs(at_s: Floats, slow: NDArray[np.bool_], bin_s: float) -> list[tuple[int, int]]:
    """First and last of bins that are slow, one after the other."""
    found: list[tuple[int, int]] = []
    for n in map(int, slow.nonzero()[0]):
        if found and at_s[n] - at_s[found[-1][1]] - bin_s < GAP_S:
            found[-1] = (found[-1][0], n)
        else:
            found.append((n, n))
    return found


def episodes(asked: AnalysisInput) -> list[Episode]:
    """Of each run and path, in order of time."""
    found = []
    for (run, source, sink), bins in groupby(
        _bins(asked), key=lambda row: (row["run"], row["source"], row["sink"])
    ):
        found += _of_path(asked, run, source, sink, list(bins))
    culprits = _culprits(asked, found)
    return [_named(one, culprits.get(n, [])) for n, one in enumerate(found)]


def _bins(asked: AnalysisInput) -> list[Any]:
    """All bins of a path, those of two epochs in one put together."""
    found = []
    every = asked.rows("latency_windows", "run", "source", "sink", "w", "epoch")
    rows = [row for row in every if row["width_s"] == asked.widths.bin_s]
    keys = ("run", "source", "sink", "w")
    for of, group in groupby(rows, key=lambda row: tuple(row[key] for key in keys)):
        its = list(group)
        n = sum(row["n"] for row in its)
        found.append(
            dict(zip(keys, of, strict=True))
            | {
                "p90_s": sum(row["p90_s"] * row["n"] for row in its) / n,
                "max_s": max(row["max_s"] for row in its),
                "tuples": sum(row["tuples"] for row in its),
                "epoch": its[-1]["epoch"],
            }
        )
    return found


def _of_path(asked: AnalysisInput, run: str, source: str, sink: str, rows: Sequence[Any]) -> list[Episode]:
    width = float(asked.widths.bin_s)
    at_s = np.array([asked.at_s(run, row["w"] * width * 1e6) for row in rows])
    found = stretches(at_s, np.array([row["p90_s"] for row in rows]), width)[:MOST]
    return [_episode(run, source, sink, one, at_s, rows) for one in found]


def _episode(run: str, source: str, sink: str, one: Stretch, at_s: Floats, rows: Sequence[Any]) -> Episode:
    inside = rows[one.first : one.last + 1]
    top = max(range(len(inside)), key=lambda n: inside[n]["max_s"])
    return Episode(
        run=run,
        source=source,
        sink=sink,
        epoch=inside[0]["epoch"],
        from_s=round(max(0.0, one.from_s), 3),
        to_s=round(one.to_s, 3),
        peak_s=inside[top]["max_s"],
        peak_at_s=round(max(0.0, float(at_s[one.first + top])), 3),
        usual_s=one.usual_s,
        tuples=float(sum(row["tuples"] for row in inside)),
    )


def _culprits(asked: AnalysisInput, found: Sequence[Episode]) -> dict[int, list[Any]]:
    """Number of an episode → groups of threads, those before which rows waited longest first."""
    if not found:
        return {}
    us = [
        (n, e.run, *(int(at * 1e6) + asked.begin_us[e.run] for at in (e.from_s, e.to_s)))
        for n, e in enumerate(found)
    ]
    kinds = {"number": pa.int64(), "run": pa.string(), "from_us": pa.int64(), "to_us": pa.int64()}
    asked.put("episode_spans", us, kinds)
    by_number: dict[int, list[Any]] = defaultdict(list)
    for row in asked.ask(CULPRITS):
        by_number[row["number"]].append(row)
    return by_number


def _named(episode: Episode, groups: Sequence[Any]) -> Episode:
    """With who held up its rows, if anybody clearly did."""
    if not groups or groups[0]["held_s"] < HELD_LEAST * min(1.0, episode.peak_s - episode.usual_s):
        return episode
    first = groups[0]
    return msgspec.structs.replace(
        episode,
        task=first["task"],
        vm=first["vm"],
        slot=first["slot"],
        held_s=number(first["held_s"]),
        busy_share=number(first["busy"]),
    )


# ── Traffic from task to task in each epoch, and what it waits for on the way ───
#
# Rates are all that went in an epoch over the seconds in which anything went: pairs of threads that follow
# each other are not added up as if they were there together.


def pairs(asked: AnalysisInput) -> list[Pair]:
    seconds = {
        (row["run"], row["epoch"]): row["seconds"] for row in asked.sums("link_seconds", "run", "epoch")
    }
    rows = asked.sums("links", "run", "epoch", "from_task", "to_task")[:POINTS_MOST]
    return [
        Pair(
            run=row["run"],
            epoch=row["epoch"],
            from_task=row["from_task"],
            to_task=row["to_task"],
            tuples_tps=over(row["tuples"], seconds[row["run"], row["epoch"]]),
            bytes_per_s=over(row["bytes"], seconds[row["run"], row["epoch"]]),
            buffer_latency_s=over(row["buffer_s"], row["frames"]),
            channel_latency_s=over(row["channel_s"], row["frames"]),
        )
        for row in rows
    ]
