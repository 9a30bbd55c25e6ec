"""Every run in one row: what the other analyses found of it, put together, and its latencies and rates as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput, over
from headgate.dashboards.analytics.analyses.latency_analyses import spread_of
from headgate.dashboards.analytics.storage.result_tables import Cost, RunFigures, waited_s
from headgate.dashboards.analytics.storage.trace_runs import TraceRun

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


# ── Slot-hours and what the VMs cost: of each epoch and of each run. Prices: `usd_per_hour` in run.json's
# vms

HOUR_S = 3600.0


def cost(asked: AnalysisInput) -> list[Cost]:
    """A slot counts in the windows in which threads were sampled in it, a VM while one of its slots was. A run has all
    tuples that were counted, also those of a plan too short to be sampled."""
    acked = _acked(asked)
    by_run: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in asked.sums("presence", "run", "epoch", "vm"):
        by_run[row["run"]][row["epoch"]].append(row)
    found = []
    for run, epochs in by_run.items():
        of = [_of_epoch(asked.runs[run], n, parts, acked.get((run, n))) for n, parts in epochs.items()]
        counted = [tuples for (key, _), tuples in acked.items() if key == run]
        vms = len({part["vm"] for parts in epochs.values() for part in parts})
        found += [*of, _of_run(run, of, vms, sum(counted) if counted else None)]
    return found


def _acked(asked: AnalysisInput) -> dict[tuple[str, int], float]:
    """(run, epoch) → tuples that were counted."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for row in asked.rows("rate_windows"):
        if row["acked"] is not None:
            found[row["run"], row["epoch"]] += row["acked"]
    return found


def _of_epoch(
    run: TraceRun,
    epoch: int,
    parts: Sequence[Mapping[str, Any]],
    acked: float | None,
) -> Cost:
    seconds = max(part["vm_s"] for part in parts)
    slot_s, vm_s = sum(part["slot_s"] for part in parts), sum(part["vm_s"] for part in parts)
    prices = [(run.usd.get(part["vm"], run.spare.get("usd_per_hour")), part["vm_s"]) for part in parts]
    known = all(price is not None for price, _ in prices)
    usd = sum(float(price) * s / HOUR_S for price, s in prices if price is not None) if known else None
    return Cost(
        run.key, epoch, seconds, slot_s / seconds if seconds else 0.0, slot_s / HOUR_S, len(parts), vm_s / HOUR_S,
        usd, acked, _per_million(usd, acked),
    )  # fmt: skip


def _of_run(run: str, epochs: Sequence[Cost], vms: int, acked: float | None) -> Cost:
    seconds = sum(each.seconds for each in epochs)
    slot_hours = sum(each.slot_hours for each in epochs)
    usds = [each.usd for each in epochs]
    usd = None if None in usds else sum(each for each in usds if each is not None)
    return Cost(
        run, None, seconds, slot_hours * HOUR_S / seconds if seconds else 0.0, slot_hours, vms,
        sum(each.vm_hours for each in epochs), usd, acked, _per_million(usd, acked),
    )  # fmt: skip


def _per_million(usd: float | None, tuples: float | None) -> float | None:
    return None if usd is None or not tuples else usd / tuples * 1e6
