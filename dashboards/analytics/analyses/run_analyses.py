"""Every run in one row: what the other analyses found of it, put together, and its latencies and rates as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput, built, over
from headgate.dashboards.analytics.analyses.latency_analyses import spread_of
from headgate.dashboards.analytics.storage.result_tables import Cost, RunFigures, waited_s

Whole = Mapping[str, Mapping[str, float | None]]  # run → figure → value


def latencies(asked: AnalysisInput) -> Whole:
    """Of each run over all its paths and epochs; where there was none, nothing."""
    rows = asked.sums("latency_histogram", "run", "bucket")
    return {run: spread_of(list(its)) for run, its in groupby(rows, lambda row: row["run"])}


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
        mine: dict[str, Any] = {name: value for whole in wholes for name, value in whole.get(key, {}).items()}
        slow = "p50_s" in mine  # without a latency nobody knows whether rows waited
        made.append(
            RunFigures(
                run=key,
                topology=run.topology,
                started_us=run.started_us,
                **{name: mine.get(name) for name in ("offered_tps", "acked_tps", "p50_s", "p95_s", "p99_s")},
                waited_s=waited_s((one.from_s, one.to_s) for one in of["episodes"]) if slow else None,
                slots=cost.slots_used if cost else None,
                **{name: getattr(cost, name, None) for name in ("seconds", "slot_hours", "usd")},
                replans=sum(row.reason != "start" for row in of["replans"]) if of["replans"] else None,
                **{name: getattr(told, name) for name in ("lost", "dead_lettered", "replayed", "duplicates")},
            )
        )
    return made


# ── Slot-hours and what the VMs cost: of each epoch and of each run

COST = """
select *, slots_held as slots_used, acked as tuples_acked, usd_per_million as usd_per_million_tuples
from mart_cost
where slot_hours is not null
order by run, epoch nulls last
"""


def cost(asked: AnalysisInput) -> list[Cost]:
    return [built(Cost, row) for row in asked.ask(COST)]
