"""Made-up results of an analysis: a run of five plans, one of which did not keep up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.analytics.storage.result_tables import PolicyTried, RunFigures, changes

RUN = "demo/run-1"
EPOCHS = (
    (1, 0.0, 80.0, 4),
    (2, 20.0, 24.0, 2),
    (3, 32.0, 100.0, 4),
    (4, 60.0, 210.0, 7),
    (5, 95.0, 290.0, 8),
)
END_S = 125.0
TASKS = ("parse", "score", "lookup", "join")
REASONS = ("start", "rate_changed", "rate_changed", "rate_changed", "overloaded")


def document(**more: Any) -> dict[str, Any]:
    return {
        "schema": "headgate/analysis/v1",
        "rows": 12_345,
        "rate": {"r2": 0.981, "median_error": 0.03, "worst_error": 0.2, "n": 120},
        "cpu": {"r2": 0.953, "mae": 0.021},
        "memory": {"r2": None, "mae": None},
        "latency_ms": {"p50": 120.0, "p95": 480.0, "p99": 910.0, "max": 1500.0},
        "models": "models",
    } | more


def epoch_at(at_s: float) -> tuple[int, float, float, int]:
    return [epoch for epoch in EPOCHS if epoch[1] <= at_s][-1]


def tables(tasks: tuple[str, ...] = TASKS) -> dict[str, list[Any]]:
    """Every table, with names of tasks that may be hostile."""
    chance = np.random.default_rng(7)
    found: dict[str, list[Any]] = {name: [] for name in r.TABLES}
    for at_s in range(1, int(END_S)):
        epoch, _, planned, _ = epoch_at(at_s)
        offered = 80 + 60 * math.sin(at_s / 20) + 2 * chance.standard_normal()
        acked = min(offered, planned * 0.9) * (1 + 0.03 * chance.standard_normal())
        found["rate_windows"].append(
            r.RateWindow(
                RUN,
                epoch,
                float(at_s),
                1.0,
                offered,
                offered,
                acked,
                planned,
                planned * 1.05,
                offered > planned * 1.05,
            )
        )
    for number, (epoch, from_s, _, slots) in enumerate(EPOCHS):
        to_s = EPOCHS[number + 1][1] if number < 4 else END_S
        for slot in range(slots):
            for at_s in range(int(from_s) + 5, int(to_s), 5):
                cpu = 0.4 + 0.08 * slot + 0.02 * epoch
                seen = cpu * (1 + 0.05 * chance.standard_normal())
                place, memory = (f"vm{1 + slot // 4}", slot % 4), (0.05 + seen / 40, 0.05 + cpu / 40)
                found["slots_predicted"].append(
                    r.SlotPredicted(RUN, "mba+sam", epoch, at_s, *place, seen, cpu, *memory)
                )
        _add_epoch(found, chance, epoch, from_s, to_s, tasks)
    _add_whole(found, tasks)
    return found


def _add_epoch(
    found: dict[str, list[Any]], chance: Any, epoch: int, from_s: float, to_s: float, tasks: tuple[str, ...]
) -> None:
    _, _, planned, slots = EPOCHS[epoch - 1]
    slope = 0.31 if epoch == 3 else 0.002
    slopes = slope, slope - 0.01, slope + 0.012, 0.0
    found["stability"].append(
        r.StabilityAnswer(RUN, epoch, "epoch", "events", "archive", from_s, to_s, *slopes, epoch != 3, 20)
    )
    spread = np.exp(chance.normal(math.log(0.1 * (3 if epoch == 3 else 1)), 0.5, 4000))
    step = r.HISTOGRAM_BINS_PER_DOUBLING
    at, many = np.unique(np.floor(step * np.log2(spread)).astype(int), return_counts=True)
    bins = [
        r.LatencyBin(2 ** (a / step), 2 ** ((a + 1) / step), float(m)) for a, m in zip(at, many, strict=True)
    ]
    quantiles = [float(q) for q in np.quantile(spread, (0.5, 0.95, 0.99, 1.0))]
    found["latency_epochs"].append(
        r.LatencyEpoch(RUN, epoch, "events", "archive", 4000.0, float(spread.mean()), *quantiles, bins)
    )
    p50_s, p95_s, p99_s, _ = quantiles
    foreseen = (p50_s, 1.1 * p50_s, 0.1, p95_s, 0.8 * p95_s, -0.2, p99_s, 0.8 * p99_s, -0.2)
    found["latency_foreseen"].append(
        r.LatencyForeseen(RUN, epoch, f"plan{epoch}", "archive", planned, from_s + 20, to_s, 900.0, *foreseen)
    )
    for number, task in enumerate(tasks):
        busy = 0.2 + 0.15 * number + 0.03 * epoch
        found["tasks_residuals"].append(
            r.TaskResidual(RUN, epoch, task, 2.0, 80.0, 82.0, -2.0, 0.1, 0.001, busy, 3e7)
        )
        found["bottlenecks"].append(
            r.BottleneckAnswer(
                RUN, epoch, len(tasks) - number, task, "vm1", number % 4, 2.0, busy, 0.8, 1.5, 0.01
            )
        )
    long_s = to_s - from_s
    hours = long_s, slots, slots * long_s / 3600, 2, 0.05
    found["cost"].append(r.Cost(RUN, epoch, *hours, None, 2000, None, long_s, 1.0))
    gaps = (None, 3.1, 0.12) if epoch == 4 else (40.0, None, 0.0)  # pause_ms, silent_s, dip
    found["replans"].append(
        r.Replan(
            RUN, epoch, from_s, REASONS[epoch - 1], planned, planned * 1.05, slots, 8, 0.01, 0.8, *gaps,
            f"{planned} rows/s are offered",
        )
    )  # fmt: skip


def _add_findings(found: dict[str, list[Any]], tasks: tuple[str, ...]) -> None:
    found["slot_speeds"] += [
        r.SlotSpeed(RUN, "vm1", slot, speed, speed - 0.03, speed + 0.03, 40, slow=speed < 0.9)
        for slot, speed in enumerate((1.02, 0.7, 1.01, 0.99))
    ]
    found["pair_costs"] += [
        r.PairCost(RUN, tasks[0], tasks[1], 1.4, 1.3, 1.5, 30, disturbs=True),
        r.PairCost(RUN, tasks[2], tasks[1], 1.05, 0.98, 1.12, 30, disturbs=False),
    ]
    found["leaks"].append(r.Leak(RUN, "vm1", 3, [tasks[0]], 5.0, 120.0, 2.5e5, 2.2e5, 2.8e5, 0.31, 1_480.0))
    found["skewed_threads"].append(r.SkewedThread(RUN, 3, tasks[1], 17, "vm1", 2, 90.0, 30.0, 3.0, 0.5))
    path, held_up_by = ("events", "archive"), (tasks[1], "vm1", 2)
    found["episodes"].append(
        r.Episode(RUN, *path, 3, 41.0, 63.5, 2.4, 58.0, 0.3, 1_900.0, *held_up_by, 1.7, 0.96)
    )
    # offered, emitted, acked, in flight, lost, dead lettered, sent again, twice
    counts = (10_000, 9_900, 9_876, 4, 0, 20, 31, 12)
    found["tuples_told"].append(r.TuplesTold(RUN, END_S, True, *counts))
    found["run_notes"] += [
        r.RunNote(RUN, 40.2, 3, "vm_lost", "vm2 is silent"),
        r.RunNote(RUN, 44.0, 3, "advice", "advice: 8 slots for 240.0 rows/s"),
    ]


def _add_whole(found: dict[str, list[Any]], tasks: tuple[str, ...]) -> None:
    _add_findings(found, tasks)
    for number, task in enumerate(tasks):
        for slot in range(8):
            cell = None if (number + slot) % 3 == 0 else 0.02 * (number - 1.5) * (slot - 3)
            found["residual_map"].append(
                r.ResidualCell(RUN, task, f"vm{1 + slot // 4}", slot % 4, 0.4, cell, 12)
            )
        found["interference"].append(
            r.Interference(RUN, task, 1e-3, 1.1e-3, 1.0 + 0.08 * number, 20, 30, ["parse"])
        )
        found["residuals"].append(
            r.Residuals("cpu", "task", task, 90, 0.9, 0.02, 0.01, 0.05, 0.2, 0.012 * number)
        )
    for slot, mae, mean in (("vm1/0", 0.03, 0.0298), ("vm2/3", 0.14, 0.0467), ("vm2/2", 0.05, -0.05)):
        found["residuals"].append(r.Residuals("cpu", "slot", slot, 90, 0.9, mae, mae, 0.3, 0.4, mean))
    found["residuals"].append(r.Residuals("rate", "all", "", 120, 0.981, 2.0, 0.03, 0.1, 0.2, -1.0))
    found["cost"].append(
        r.Cost(RUN, None, END_S, 5.2, 5.2 * END_S / 3600, 2, 0.07, None, 9876, None, END_S, 1.0)
    )
    for at_s in range(0, 180, 3):
        kind = "actual" if at_s < 100 else "fitted" if at_s < 125 else "forecast"
        rate = 80 + 60 * math.sin(at_s / 20)
        band = (rate - 12, rate + 12) if kind == "forecast" else (None, None)
        found["forecast"].append(r.Forecast(RUN, kind, float(at_s), rate, *band))
    found["seasons"].append(r.Season(RUN, 120.0, 0.93, 0.8, "last season", 25.0, 4.2, 0.05, 21.0, None))
    found["refitted"].append(r.Refitted("parse", "parse.json", 3, 80, None))
    found["refitted"].append(r.Refitted("join", None, 0, 2, "too few windows at its peak"))
    found["pairs"].append(r.Pair(RUN, 1, "parse", "score", 80.0, 20_000.0, 0.001, 0.002))
    _add_changes(found)
    found["policies_tried"] += [
        PolicyTried(RUN, "recorded", None, 0.18, None, 5.4, 72.0, 10_000.0, 4, 12, 10.0, 105.0),
        PolicyTried(RUN, "static-max", 1, 0.23, None, 0.0, 0.0, 10_000.0, 0, 0),
    ]
    bins = [r.LatencyBin(0.1, 0.2, 300.0)]
    found["steps"].append(
        r.StepAnswer(RUN, 0, 10.0, 6.0, 50.0, 49.5, 0.001, True, 0.15, 0.15, 0.19, 0.2, bins)
    )
    found["step_slots"].append(r.StepSlot(RUN, 0, "vm1", 0, 0.5, 0.1, 6))
    found["left_out"].append(
        r.LeftOut("demo/run-1/samples/7.parquet", "truncated", "it ends in the middle", None)
    )


def _add_changes(found: dict[str, list[Any]]) -> None:
    now = RunFigures(
        run=RUN, topology="demo", started_us=2, seconds=END_S, offered_tps=80.0, acked_tps=79.0, p50_s=0.12, p95_s=0.48,
        p99_s=0.91, waited_s=22.5, slots=5.2, slot_hours=5.2 * END_S / 3600, usd=None, replans=4, lost=0,
        dead_lettered=20, replayed=31, duplicates=12,
    )  # fmt: skip
    before = replace(now, run="demo/run-0", started_us=1, offered_tps=60.0, p99_s=0.4, waited_s=0.0)
    found["run_figures"].append(now)
    found["run_changes"] += changes([now], [before])


def write(folder: Path, found: dict[str, list[Any]] | None = None, **more: Any) -> Path:
    """An analysis on disk as `headgate analyze` leaves it."""
    (folder / "results").mkdir(parents=True)
    (folder / "analysis.json").write_text(json.dumps(document(**more)), "utf-8")
    for name, rows in (tables() if found is None else found).items():
        (folder / "results" / f"{name}.json").write_bytes(msgspec.json.encode(rows, enc_hook=float))
    return folder
