"""Traffic from task to task in each epoch, and what it waits for on the way.

Rates are all that went in an epoch over the seconds in which anything went: pairs of threads that follow each other are
not added up as if they were there together.
"""

from __future__ import annotations

from headgate.dashboards.analytics.asked import AnalysisInput, over
from headgate.dashboards.analytics.results import POINTS_MOST, Pair


def pairs(asked: AnalysisInput) -> list[Pair]:
    seconds = {
        (row["run"], row["epoch"]): row["seconds"] for row in asked.sums("link_seconds", "run", "epoch")
    }
    rows = asked.sums("link_sums", "run", "epoch", "from_task", "to_task")[:POINTS_MOST]
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
