"""The threads of each epoch that are nearest to their limit: task, slot, and how their queue grows.

A group of threads is limited by their own time (busy share) or by the CPU of their slot. A queue that grows is
the sign that the limit has been reached, and comes first. What does nothing, and has nothing waiting, limits nothing,
however full its slot is.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from headgate.dashboards.analytics.asked import AnalysisInput, number, over
from headgate.dashboards.analytics.results import POINTS_MOST, BottleneckAnswer

RANKS = 3
GROWN_S = 0.5  # a queue that has grown by what is taken in so long has grown, however long it took
LEAST_GROWTH_TPS = 1e-6  # less is what rounding makes of a queue that stands
LEAST_SHARE = 0.2  # of an epoch's windows: a group that was there for less is leaving


def bottlenecks(asked: AnalysisInput) -> list[BottleneckAnswer]:
    slots = {
        (row["run"], row["epoch"], row["vm"], row["slot"]): over(row["cpu_means"], row["cpu_windows"])
        for row in asked.sums("slot_sums", "run", "epoch", "vm", "slot")
    }
    found: list[BottleneckAnswer] = []
    rows = asked.sums("groups", "run", "epoch", "task", "vm", "slot")
    for (run, epoch), mine in groupby(rows, key=lambda row: (row["run"], row["epoch"])):
        groups = [
            _group(row, slots.get((run, epoch, row["vm"], row["slot"])), asked.window_s) for row in mine
        ]
        most = max(group["windows"] for group in groups)
        there = [
            group
            for group in groups
            if group["windows"] >= LEAST_SHARE * most
            and group["busy_share"] is not None
            and (group["taken_tps"] > 0 or group["grows"])
        ]
        there.sort(key=lambda g: (not g["grows"], -g["load"], -g["cpu_s"], g["task"], g["vm"], g["slot"]))
        found += [_row(run, epoch, rank + 1, group) for rank, group in enumerate(there[:RANKS])]
    return found[:POINTS_MOST]


def _group(row: dict[str, Any], cpu_share: float | None, window_s: int) -> dict[str, Any]:
    """How busy these threads are, their queue, and how much they take in."""
    from headgate.topology_runtime.stability.evidence import UNSTABLE_SLOPE

    seconds = row["seconds"]
    taken_tps = max(row["tuples_in"], row["tuples_out"]) / seconds
    busy_share, threads = over(row["busy_s"], row["window_s"]), row["window_s"] / seconds
    growth_tps = over(
        row["xy"] - row["x"] * row["y"] / row["windows"],
        (row["xx"] - row["x"] ** 2 / row["windows"]) * window_s,
    )
    limit = min(UNSTABLE_SLOPE, GROWN_S / seconds) * taken_tps
    return row | {
        "taken_tps": taken_tps,
        "busy_share": busy_share,
        "threads": threads,
        "queue_mean": row["queue"] / row["n"] * threads,
        "queue_growth_tps": growth_tps,
        "cpu_share": cpu_share,
        "load": max(busy_share or 0.0, cpu_share or 0.0),
        "grows": growth_tps is not None and growth_tps > max(LEAST_GROWTH_TPS, limit),
    }


def _row(run: str, epoch: int, rank: int, of: dict[str, Any]) -> BottleneckAnswer:
    return BottleneckAnswer(
        run, epoch, rank, of["task"], of["vm"], of["slot"], round(of["threads"], 2),
        number(of["busy_share"]), number(of["cpu_share"]), number(of["queue_mean"]),
        number(of["queue_growth_tps"]), number(of["load"]),
    )  # fmt: skip
