"""Models of tasks made from a trace: what a number of threads in one slot did while they were busy all the time.

A peak rate shows only where more came than could be done. A point therefore needs windows in which the task was
alone in its slot and its threads were busy for nearly all of the time; of these it takes medians, with half the
distance of the quartiles as their spread. CPU is that of the slot's process, as models count it. Where there are none,
it is said, and no file is written.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.results import Refitted
from headgate.dashboards.analytics.sums import BUSY_LEAST
from headgate.dashboards.analytics.trace_runs import TraceRun

SCHEMA = "headgate/model/v1"
WINDOWS_LEAST = 3
DIGITS = 5
WORKER = "worker_bytes"  # of a measured model's file: what a bare worker holds

Slot = tuple[float, float]  # cores, memory in bytes


def refit(asked: AnalysisInput, models: DataPlace) -> list[Refitted]:
    """Write the models that the data supports into this folder; what came of each task."""
    points, busiest = _points(asked), _busiest(asked)
    fixed = {task for run in asked.runs.values() for task in run.sources}
    found = []
    for task in sorted(busiest):
        if task in fixed:
            found.append(Refitted(task, None, 0, 0, "a source takes in no rows"))
            continue
        found.append(_refit(asked, models, task, points.get(task, []), busiest[task]))
    return found


def _refit(
    asked: AnalysisInput, models: DataPlace, task: str, points: Sequence[Mapping[str, Any]], busiest: float
) -> Refitted:
    if not points:
        why = (
            f"never alone in its slot with rows waiting and busy for {BUSY_LEAST:.0%} of the time "
            f"in {WINDOWS_LEAST} windows (at most {busiest:.0%} busy): its peak rate did not show"
        )
        return Refitted(task, None, 0, 0, why)
    bare = _worker_bytes(asked.runs[p["run"]] for p in points)
    if bare is None:
        return Refitted(task, None, 0, 0, "no model of the run says what a bare worker holds in memory")
    sizes = {_slot(asked.runs[p["run"]], p["vm"]) for p in points}
    if None in sizes or len(sizes) != 1:
        why = "the size of its slots is not known" if None in sizes else "its slots are of several sizes"
        return Refitted(task, None, 0, 0, why)
    slot = next(size for size in sizes if size)
    model = model_of(task, points, slot, sorted({p["run"] for p in points}), bare)
    model |= {"window_s": asked.window_s, "vms": sorted({p["vm"] for p in points})}
    name = f"{task}.json"
    (models / name).write(json.dumps(model, indent=1, allow_nan=False).encode() + b"\n")
    return Refitted(task, name, len(model["points"]), sum(p["windows"] for p in points), None)


def model_of(
    task: str, found: Sequence[Mapping[str, Any]], slot: Slot, runs: Sequence[str], bare: float
) -> dict[str, Any]:
    """The file: points by threads; of several VMs' medians the median, weighted by nothing. `bare`: bytes that a worker
    holds before it runs anything, which are in no model."""
    by_threads: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for point in found:
        by_threads[int(point["threads"])].append(point)
    points = [_point(threads, mine, slot, bare) for threads, mine in sorted(by_threads.items())]
    return {
        "schema": SCHEMA,
        "task": task,
        "slot": {"cores": slot[0], "memory_bytes": int(slot[1]), "machine": "as in the trace"},
        "points": points,
        WORKER: int(bare),
        "method": "refitted from a trace",
        "refitted_from": list(runs),
        "busy_least": BUSY_LEAST,
    }


def _point(threads: int, mine: Sequence[Mapping[str, Any]], slot: Slot, bare: float) -> dict[str, Any]:
    rate = median(p["rate_tps"] for p in mine)
    return {
        "threads": threads,
        "rate_tps": _round(rate),
        "cpu": _round(median(p["cpu"] for p in mine)),
        "memory": _round(max(0.0, median(p["memory_bytes"] for p in mine) - bare) / slot[1]),
        "spread": {"rate_tps": _round(median((p["high_tps"] - p["low_tps"]) / 2 for p in mine))},
        "windows": sum(int(p["windows"]) for p in mine),
    }


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _points(asked: AnalysisInput) -> dict[str, list[dict[str, Any]]]:
    """Task → per run, VM and number of threads: medians over the windows at the peak."""
    peaks = asked.held["peaks"]
    if not peaks.num_rows:
        return {}
    from pyspark.sql import functions as f

    window = ["run", "epoch", "vm", "slot", "w"]
    process = asked.frames["slot_windows"]().where(f.col("cpu").isNotNull()).select(*window, "cpu")
    rows = (
        process.join(f.broadcast(asked.spark.createDataFrame(peaks)), window)
        .groupBy("run", "vm", "task", "threads")
        .agg(
            f.percentile("rate", [0.25, 0.5, 0.75]).alias("rates"),
            f.percentile("cpu", 0.5).alias("cpu"),
            f.percentile("memory", 0.5).alias("memory_bytes"),
            f.count("*").alias("windows"),
        )
        .where(f.col("windows") >= WINDOWS_LEAST)
        .orderBy("task", "threads", "run", "vm")
        .collect()
    )
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        low, middle, high = row["rates"]
        found[row["task"]].append(row.asDict() | {"low_tps": low, "rate_tps": middle, "high_tps": high})
    return found


def _busiest(asked: AnalysisInput) -> dict[str, float]:
    """Task → the highest share of a window in which its threads were busy."""
    return {row["task"]: row["max_busy"] or 0.0 for row in asked.sums("groups", "task")}


def _worker_bytes(runs: Iterable[TraceRun]) -> float | None:
    """Of a bare worker, by the models of the runs; None when none says."""
    told = [model.get(WORKER) for run in runs for model in run.models]
    known = [float(size) for size in told if isinstance(size, int | float) and size > 0]
    return max(known, default=None)


def _slot(run: TraceRun, vm: str) -> Slot | None:
    """Size of a VM's slots; VMs that came later are as the spare one."""
    cores = run.cores.get(vm, run.spare.get("slot_cores"))
    memory = run.memory_bytes.get(vm, run.spare.get("slot_memory_bytes"))
    return None if cores is None or memory is None else (float(cores), float(memory))
