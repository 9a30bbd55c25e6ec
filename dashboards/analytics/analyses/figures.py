"""Every run in one row: what the other analyses found of it, put together, and its latencies and rates as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from headgate.dashboards.analytics.analyses.latency import quantile
from headgate.dashboards.analytics.asked import AnalysisInput, over
from headgate.dashboards.analytics.run_figures import RunFigures, waited_s

Whole = Mapping[str, Mapping[str, float | None]]  # run → figure → value


def latencies(asked: AnalysisInput) -> Whole:
    """Of each run over all its paths and epochs; where there was none, nothing."""
    rows = asked.sums("latency_histogram", "run", "bucket")
    found = {}
    for run, group in groupby(rows, lambda row: row["run"]):
        its = list(group)
        bins, top = [(row["bucket"], row["tuples"]) for row in its], max(row["max_s"] for row in its)
        found[run] = {f"p{q}_s": quantile(bins, q / 100, top) for q in (50, 95, 99)}
    return found


def rates(asked: AnalysisInput) -> Whole:
    """Means of each run's windows, each as often as it has rows."""
    names = ("offered_tps", "acked_tps")
    by_run = groupby(asked.rows("rate_windows", "run", "w", "epoch"), key=lambda row: row["run"])
    return {run: _means(list(rows), names) for run, rows in by_run}


def _means(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float | None]:
    known = {name: [row for row in rows if row[name] is not None] for name in names}
    return {
        name: over(sum(row[name] * row["n"] for row in of), sum(row["n"] for row in of))
        for name, of in known.items()
    }


def figures(asked: AnalysisInput, found: Mapping[str, Sequence[Any]], *wholes: Whole) -> list[RunFigures]:
    """`found`: the rows of the other tables."""
    made = []
    for key, run in asked.runs.items():
        of = {
            name: [row for row in found[name] if row.run == key] for name in ("cost", "episodes", "replans")
        }
        cost = next((row for row in of["cost"] if row.epoch is None), None)
        told = next(row for row in found["tuples_told"] if row.run == key)
        mine = {name: value for whole in wholes for name, value in whole.get(key, {}).items()}
        slow = "p50_s" in mine  # without a latency nobody knows whether rows waited
        made.append(
            RunFigures(
                run=key,
                topology=run.topology,
                started_us=run.started_us,
                seconds=cost.seconds if cost else None,
                **{name: mine.get(name) for name in ("offered_tps", "acked_tps", "p50_s", "p95_s", "p99_s")},
                waited_s=waited_s((one.from_s, one.to_s) for one in of["episodes"]) if slow else None,
                slots=cost.slots_used if cost else None,
                slot_hours=cost.slot_hours if cost else None,
                usd=cost.usd if cost else None,
                replans=sum(row.reason != "start" for row in of["replans"]) if of["replans"] else None,
                lost=told.lost,
                dead_lettered=told.dead_lettered,
                replayed=told.replayed,
                duplicates=told.duplicates,
            )
        )
    return made
