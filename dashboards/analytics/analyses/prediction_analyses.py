"""Predicted against actual: rate, CPU and memory, over everything and by task, slot, VM, pair and epoch.

Rate: what came through against what a plan was predicted to carry, of the windows in which it was tried: more was
offered than was predicted, or rows waited for long (an episode); a plan that is never tried is neither right nor wrong.
The first window of a plan says nothing. CPU and memory: R² = 1 − SSres / SStot and the mean error are over the single
rows of `slots`; the quantiles of the error are over means of a window, so that one second's scheduling does not make
the worst error of a run; they come from bins 1.1 % wide. `r2_epochs` is over means of an epoch, as paper 0 has its
points.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.dashboards.analytics.analyses.analysis_input import (
    AnalysisInput,
    built,
    number,
    over,
    thinned,
)
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import (
    POINTS_MOST,
    Episode,
    RateWindow,
    Refitted,
    ResidualCell,
    Residuals,
    SlotPredicted,
    TaskResidual,
)
from headgate.dashboards.analytics.storage.trace_runs import TraceRun

USES = ("cpu", "memory")
AGAINST = ("n", "sum", "squares", "residual", "absolute", "ss")
ERRORS_PER_DOUBLING = 64  # bins of errors, 1.1 % wide: quantiles err by at most half of that
LEAST_ERROR = 1e-9
BUSY_LEAST = 0.9  # share of a window in which its threads ran the task's code: it is at its peak
MEDIAN, HIGH = 0.5, 0.95
KINDS = ("all", "pair", "epoch", "slot", "vm")  # by which use of slots is told

Window = Mapping[str, Any]  # a row of `rate_windows`
Name = tuple[str, str]  # by, name


class RateTried(NamedTuple):
    """What came and what was predicted, in one window."""

    actual: float
    predicted: float


def residuals(asked: AnalysisInput, hard: Sequence[Window]) -> list[Residuals]:
    """`hard`: windows that tried the plan (`tried`)."""
    rates: dict[Name, list[RateTried]] = defaultdict(list)
    for row in hard:
        pair = asked.runs[row["run"]].pair
        names = [("all", ""), ("epoch", f"{row['run']} {row['epoch']}")]
        for name in names + ([("pair", pair)] if pair is not None else []):
            rates[name].append(RateTried(row["acked_tps"], row["predicted_tps"]))
    return [
        *_of_rates(rates),
        *(row for of in USES for row in of_slots(asked, of)),
        *_of_rates(_tasks(asked)),
    ]


def tried(asked: AnalysisInput, episodes: Sequence[Episode]) -> list[Window]:
    """Windows of rates in which the plan was tried."""
    rows = asked.rows("rate_windows", "run", "w", "epoch")
    first: dict[tuple[str, int], int] = {}
    for row in rows:
        first.setdefault((row["run"], row["epoch"]), row["w"])
    slow: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in episodes:
        slow[one.run].append(
            (int(one.from_s * 1e6) + asked.begin_us[one.run], int(one.to_s * 1e6) + asked.begin_us[one.run])
        )
    width_us = asked.window_s * 1_000_000
    return [
        row
        for row in rows
        if row["acked_tps"] is not None
        and (row["predicted_tps"] or 0) > 0
        and row["w"] > first[row["run"], row["epoch"]]
        and (
            (row["offered_tps"] or 0) > row["predicted_tps"]
            or any(a <= row["w"] * width_us and (row["w"] + 1) * width_us <= b for a, b in slow[row["run"]])
        )
    ]


def _of_rates(by_name: Mapping[Name, Sequence[RateTried]]) -> list[Residuals]:
    return [_of_rate(*name, by_name[name]) for name in sorted(by_name)]


def _of_rate(by: str, name: str, rows: Sequence[RateTried]) -> Residuals:
    """Errors are relative to what came."""
    errors = sorted(abs(a - p) / abs(a) for a, p in rows if a)
    n, left = len(rows), [a - p for a, p in rows]
    varies = len({p for _, p in rows}) > 1
    sums = {
        "n": n,
        "sum": sum(a for a, _ in rows),
        "squares": sum(a * a for a, _ in rows),
        "residual": sum(left),
    }
    sums |= {"absolute": sum(map(abs, left)), "ss": sum(x * x for x in left)}
    worst = errors[-1] if errors else None
    return _residuals(
        "rate", by, name, sums, varies, (quantile(errors, MEDIAN), quantile(errors, HIGH), worst)
    )


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The least value that so many are not above."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)] if ascending else None


def of_slots(asked: AnalysisInput, of: str) -> list[Residuals]:
    """`of`: cpu or memory. By each of `KINDS`."""
    sums, errors = (_by_kinds(asked, asked.held[name]) for name in ("slot_sums", "slot_errors"))
    found: list[Residuals] = []
    for by in KINDS if sums.num_rows else ():
        quantiles = _quantiles(errors, of, by)
        for row in _added_up(sums, of, by):
            if row[by] is not None and row["n"]:
                found.append(_row(of, by, row, quantiles.get(row[by], (None, None))))
    return sorted(found, key=lambda row: (row.by, row.name))


def _by_kinds(asked: AnalysisInput, table: pa.Table) -> pa.Table:
    """With a column for each kind, its name."""
    if not table.num_rows:
        return table
    slot, epoch = (pc.cast(table[name], pa.string()) for name in ("slot", "epoch"))
    pairs = {key: run.pair for key, run in asked.runs.items()}
    columns = {
        "all": pa.array([""] * table.num_rows),
        "pair": pa.array([pairs[run] for run in table["run"].to_pylist()], pa.string()),
        "epoch": pc.binary_join_element_wise(table["run"], epoch, " "),
        "slot": pc.binary_join_element_wise(table["vm"], slot, "/"),
        "vm": table["vm"],
    }
    return pa.table({name: table[name] for name in table.column_names if name not in columns} | columns)


def _added_up(table: pa.Table, of: str, by: str) -> list[dict[str, Any]]:
    rules = [(f"{of}_{name}", "sum") for name in AGAINST]
    ends = [(f"max_{of}_error", "max"), (f"min_{of}_predicted", "min"), (f"max_{of}_predicted", "max")]
    found = table.group_by(by, use_threads=False).aggregate([*rules, *ends])
    names = [f"{name}_{rule}" for name, rule in (*rules, *ends)]
    told = (*AGAINST, "worst", "least", "most")
    return [
        {by: row[by]} | {short: row[name] for short, name in zip(told, names, strict=True)}
        for row in found.to_pylist()
    ]


def _quantiles(errors: pa.Table, of: str, by: str) -> dict[str, tuple[float, float]]:
    """Name → (median, 95th percentile)."""
    if not errors.num_rows:
        return {}
    mine = errors.filter(pc.equal(errors["of"], of)).group_by([by, "bucket"], use_threads=False)
    rows = mine.aggregate([("n", "sum")]).sort_by([(by, "ascending"), ("bucket", "ascending")])
    names, buckets, counts = rows[by].to_pylist(), rows["bucket"].to_numpy(), rows["n_sum"].to_numpy()
    firsts = [n for n in range(len(names)) if n == 0 or names[n] != names[n - 1]]
    found = {}
    for first, end in zip(firsts, [*firsts[1:], len(names)], strict=True):
        reached = np.cumsum(counts[first:end])
        at = [int(np.searchsorted(reached, math.ceil(share * reached[-1]))) for share in (MEDIAN, HIGH)]
        low, high = (size_of(int(buckets[first + n])) for n in at)
        found[names[first]] = low, high
    return found


def size_of(bucket: int) -> float:
    """The middle of a bin of errors; of the first, which has whatever is smaller, 0."""
    least = math.floor(math.log2(LEAST_ERROR) * ERRORS_PER_DOUBLING)
    return 0.0 if bucket <= least else 2.0 ** ((bucket + 0.5) / ERRORS_PER_DOUBLING)


def _row(of: str, by: str, row: Mapping[str, Any], errors: tuple[float | None, float | None]) -> Residuals:
    median, high = (None if each is None else min(each, row["worst"]) for each in errors)
    return _residuals(of, by, row[by], row, row["most"] > row["least"], (median, high, row["worst"]))


def _residuals(
    of: str,
    by: str,
    name: str,
    sums: Mapping[str, Any],
    varies: bool,
    errors: tuple[float | None, float | None, float | None],
) -> Residuals:
    """sums: `AGAINST`; varies: not all predictions are the same; errors: median, 95th percentile, worst."""
    n = int(sums["n"])
    known = n if varies else 0, sums["sum"], sums["squares"]
    middle, high, worst = errors
    return Residuals(
        of, by, name, n,
        r2(*known, sums["ss"]), over(sums["absolute"], n), number(middle), number(high), number(worst),
        over(sums["residual"], n),
        r2(*known, sums["ss"] - sums["residual"] ** 2 / n),
    )  # fmt: skip


def r2(n: float, total: float, squares: float, residual: float) -> float | None:
    """1 − SSres / SStot; None when there are fewer than two points or they are all the same. (So it is when all
    predictions are the same: it cannot be above 0 then, whatever they are worth.)"""
    if n < 2:
        return None
    spread = squares - total * total / n
    return None if spread <= 1e-12 * max(squares, 1e-12) else 1 - residual / spread


def r2_epochs(asked: AnalysisInput, hard: Sequence[Window]) -> dict[str, float | None]:
    """R² of means of an epoch: of the rate where it was tried, and of CPU and memory of each slot."""
    epochs: dict[tuple[str, int], list[RateTried]] = defaultdict(list)
    for row in hard:
        epochs[row["run"], row["epoch"]].append(RateTried(row["acked_tps"], row["predicted_tps"]))
    slots = asked.sums("slot_sums", "run", "epoch", "vm", "slot")
    points = {
        "rate": [(len(of), sum(a for a, _ in of), sum(a - p for a, p in of)) for of in epochs.values()]
    } | {of: [(row[f"{of}_n"], row[f"{of}_sum"], row[f"{of}_residual"]) for row in slots] for of in USES}
    return {of: _of_points(its) for of, its in points.items()}


def _of_points(sums: Iterable[tuple[float, float, float]]) -> float | None:
    """sums: of each point how many rows, and the sums of what was measured and of what is left."""
    means = [(total / n, left / n) for n, total, left in sums if n]
    actual = [a for a, _ in means]
    return r2(len(means), sum(actual), sum(a * a for a in actual), sum(d * d for _, d in means))


def _tasks(asked: AnalysisInput) -> dict[Name, list[RateTried]]:
    """Rate of tasks: rows taken in, against what the selectivities make of what the sources emitted. Of windows that an
    epoch fills."""
    emitted_tps = {
        (row["run"], row["epoch"], row["w"]): row["emitted_tps"] for row in asked.rows("rate_windows")
    }
    found: dict[Name, list[RateTried]] = defaultdict(list)
    for row in asked.rows("task_windows", "run", "w", "epoch", "task"):
        run, task = asked.runs[row["run"]], row["task"]
        emitted, weight = emitted_tps.get((row["run"], row["epoch"], row["w"])), run.weights.get(task)
        if emitted is None or weight is None or task in run.sources or row["tuples_in"] is None:
            continue
        if row["seconds"] >= 0.8 * asked.window_s:
            found["task", task].append(RateTried(row["tuples_in"] / row["seconds"], emitted * weight))
    return found


def series(asked: AnalysisInput, hard: Sequence[Window]) -> list[RateWindow]:
    """Rates over time."""
    tested = {(row["run"], row["epoch"], row["w"]) for row in hard}
    return [
        built(
            RateWindow,
            row,
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            window_s=float(asked.window_s),
            tried=(row["run"], row["epoch"], row["w"]) in tested,
        )
        for row in thinned(asked.rows("rate_windows", "run", "w", "epoch"))
    ]


def scatter(asked: AnalysisInput) -> list[SlotPredicted]:
    """Slots over time: a sample, always the same one."""
    least = asked.rows("slot_points", "hash")[:POINTS_MOST]
    return [
        built(
            SlotPredicted,
            row,
            pair=asked.runs[row["run"]].pair,
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            predicted_cpu=number(row["cpu_predicted"]),
            predicted_memory=number(row["memory_predicted"]),
        )
        for row in sorted(least, key=lambda row: [row[name] for name in ("run", "w", "epoch", "vm", "slot")])
    ]


# ── Tasks in each epoch against what was predicted, and where in the slots the difference lies ──────────


def tasks(asked: AnalysisInput) -> list[TaskResidual]:
    emitted_tps = emitted_of(asked)
    found = []
    for row in asked.sums("groups", "run", "epoch", "task")[:POINTS_MOST]:
        run, task = asked.runs[row["run"]], row["task"]
        is_source = task in run.sources
        seconds = (row["max_last_us"] - row["min_first_us"]) / 1e6 + 1
        rate = over(row["tuples_out" if is_source else "tuples_in"], seconds)
        weight, emitted = run.weights.get(task), emitted_tps.get((row["run"], row["epoch"]))
        predicted = None if is_source or weight is None or emitted is None else emitted * weight
        threads = over(row["window_s"], seconds) or 0.0
        memory = over(row["memory_bytes"], row["n"])
        found.append(
            TaskResidual(
                run=row["run"],
                epoch=row["epoch"],
                task=task,
                threads=round(threads, 2),
                rate_tps=rate,
                predicted_tps=predicted,
                residual_tps=None if rate is None or predicted is None else rate - predicted,
                cpu_cores=over(row["cpu_s"], seconds),
                cpu_s_per_tuple=over(row["cpu_s"], max(row["tuples_in"], row["tuples_out"])),
                busy_share=over(row["busy_s"], row["window_s"]),
                memory_bytes=None if memory is None else memory * threads,
            )
        )
    return found


def emitted_of(asked: AnalysisInput) -> dict[tuple[str, int], float | None]:
    """(run, epoch) → mean rate of the sources: of the windows, each as often as it has rows."""
    found = {}
    rows = asked.rows("rate_windows", "run", "epoch", "w")
    for key, its in groupby(rows, key=lambda row: (row["run"], row["epoch"])):
        windows = list(its)
        known = [row["emitted_tps"] * row["n"] for row in windows if row["emitted_tps"] is not None]
        found[key] = over(sum(known), sum(row["n"] for row in windows)) if known else None
    return found


def residual_map(asked: AnalysisInput) -> list[ResidualCell]:
    """A slot's residual is shared out to its tasks by the CPU time they took."""
    slots = {
        (row["run"], row["vm"], row["slot"]): (
            over(row["cpu_means"], row["cpu_windows"]),
            over(row["cpu_residual"], row["cpu_n"]),
        )
        for row in asked.sums("slot_sums", "run", "vm", "slot")
    }
    cells = asked.sums("groups", "run", "task", "vm", "slot")
    whole: dict[tuple[str, str, int], float] = defaultdict(float)
    for cell in cells:
        whole[cell["run"], cell["vm"], cell["slot"]] += cell["cpu_s"] or 0.0
    found = []
    for cell in cells[:POINTS_MOST]:
        place = (cell["run"], cell["vm"], cell["slot"])
        cpu, residual = slots.get(place, (None, None))
        share = over(cell["cpu_s"], whole[place])
        found.append(
            ResidualCell(
                cell["run"], cell["task"], cell["vm"], cell["slot"], _times(cpu, share), _times(residual, share),
                cell["windows"],
            )
        )  # fmt: skip
    return found


def _times(value: object, share: object) -> float | None:
    a, b = number(value), number(share)
    return None if a is None or b is None else a * b


# ── Models of tasks made from a trace: what a number of threads in one slot did while they were busy all
# the time
#
# A point needs windows in which the task was alone in its slot and its threads were busy for nearly all of the time; of
# these it takes medians, with half the distance of the quartiles as their spread.

SCHEMA = "headgate/model/v1"
WINDOWS_LEAST = 3
DIGITS = 5
WORKER = "worker_bytes"  # of a measured model's file: what a bare worker holds

POINTS = f"""
select
  p.run,
  p.vm,
  p.task,
  p.threads,
  percentile_cont(0.25) within group (order by p.rate) as low_tps,
  percentile_cont(0.5) within group (order by p.rate) as rate_tps,
  percentile_cont(0.75) within group (order by p.rate) as high_tps,
  percentile_cont(0.5) within group (order by s.cpu) as cpu,
  percentile_cont(0.5) within group (order by p.memory) as memory_bytes,
  count(*) as windows
from sum_peaks p
join sum_slot_windows s on s.run = p.run and s.epoch = p.epoch and s.vm = p.vm and s.slot = p.slot and s.w = p.w
where s.cpu is not null
group by p.run, p.vm, p.task, p.threads
having count(*) >= {WINDOWS_LEAST}
order by p.task, p.threads, p.run, p.vm
"""

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
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in asked.ask(POINTS):
        found[row["task"]].append(row)
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
