"""What a row of a task costs in CPU time alone in its slot, and beside other tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from headgate.dashboards.analytics.asked import AnalysisInput, over
from headgate.dashboards.analytics.results import Interference

BESIDE_MOST = 3

Sums = dict[str, float]


def interference(asked: AnalysisInput) -> list[Interference]:
    sums: dict[tuple[str, str], dict[bool, Sums]] = defaultdict(dict)
    windows: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in asked.sums("groups", "run", "task", "beside"):
        key, alone = (row["run"], row["task"]), row["beside"] == ""
        of = sums[key].setdefault(alone, defaultdict(float))
        for name in ("live_cpu_s", "live_tuples", "live_windows"):
            of[name] += row[name] or 0
        for other in [] if alone else row["beside"].split(","):
            windows[key][other] += row["windows"]
    return [
        _row(*key, of.get(True, {}), of.get(False, {}), windows[key])
        for key, of in sorted(sums.items())
        if any(each["live_windows"] for each in of.values())
    ]


def _row(run: str, task: str, alone: Sums, shared: Sums, others: Mapping[str, int]) -> Interference:
    alone_s, shared_s = (over(of.get("live_cpu_s"), of.get("live_tuples")) for of in (alone, shared))
    alone_windows, shared_windows = (int(of.get("live_windows", 0)) for of in (alone, shared))
    most = sorted(others, key=lambda other: (-others[other], other))
    return Interference(
        run,
        task,
        alone_s,
        shared_s,
        over(shared_s, alone_s),
        alone_windows,
        shared_windows,
        most[:BESIDE_MOST],
    )
