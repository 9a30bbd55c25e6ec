"""Predicted against actual: rate, CPU and memory, over everything and by task, slot, VM, pair and epoch.

Rate: what came through against what a plan was predicted to carry, of the windows in which it was tried: more was
offered than was predicted, or rows waited for long (an episode); a plan that is never tried is neither right nor wrong.
The first window of a plan says nothing. CPU and memory: R² = 1 − SSres / SStot and the mean error are over the single
rows of `slots`; the quantiles of the error are over means of a window, so that one second's scheduling does not make
the worst error of a run; they come from bins 1.1 % wide. `r2_epochs` is over means of an epoch, as paper 0 has its
points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.dashboards.analytics.asked import AnalysisInput, number, over, thinned
from headgate.dashboards.analytics.held import np_of
from headgate.dashboards.analytics.results import POINTS_MOST, Episode, RateWindow, Residuals, SlotPredicted
from headgate.dashboards.analytics.sums import AGAINST, ERRORS_PER_DOUBLING, LEAST_ERROR, USES

if TYPE_CHECKING:
    import pyarrow as pa

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
    sums = n if varies else 0, sum(a for a, _ in rows), sum(a * a for a, _ in rows)
    ss = sum(x * x for x in left)
    return Residuals(
        of="rate",
        by=by,
        name=name,
        n=n,
        r2=r2(*sums, ss),
        r2_without_offset=r2(*sums, ss - sum(left) ** 2 / n),
        mae=sum(map(abs, left)) / n,
        median_error=quantile(errors, MEDIAN),
        p95_error=quantile(errors, HIGH),
        worst_error=errors[-1] if errors else None,
        mean_residual=sum(left) / n,
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
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import numpy as np
    import pyarrow.compute as pc

    if not errors.num_rows:
        return {}
    mine = errors.filter(pc.equal(errors["of"], of)).group_by([by, "bucket"], use_threads=False)
    rows = mine.aggregate([("n", "sum")]).sort_by([(by, "ascending"), ("bucket", "ascending")])
    names, buckets, counts = rows[by].to_pylist(), np_of(rows["bucket"]), np_of(rows["n_sum"])
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
    sums = row["n"] if row["most"] > row["least"] else 0, row["sum"], row["squares"]
    median, high = (None if each is None else min(each, row["worst"]) for each in errors)
    return Residuals(
        of=of,
        by=by,
        name=row[by],
        n=int(row["n"]),
        r2=r2(*sums, row["ss"]),
        r2_without_offset=r2(*sums, row["ss"] - row["residual"] ** 2 / row["n"]),
        mae=over(row["absolute"], row["n"]),
        median_error=number(median),
        p95_error=number(high),
        worst_error=number(row["worst"]),
        mean_residual=over(row["residual"], row["n"]),
    )


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
        RateWindow(
            run=row["run"],
            epoch=row["epoch"],
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            window_s=float(asked.window_s),
            offered_tps=number(row["offered_tps"]),
            emitted_tps=number(row["emitted_tps"]),
            acked_tps=number(row["acked_tps"]),
            planned_tps=number(row["planned_tps"]),
            predicted_tps=number(row["predicted_tps"]),
            tried=(row["run"], row["epoch"], row["w"]) in tested,
        )
        for row in thinned(asked.rows("rate_windows", "run", "w", "epoch"))
    ]


def scatter(asked: AnalysisInput) -> list[SlotPredicted]:
    """Slots over time: a sample, always the same one."""
    least = asked.rows("slot_points", "hash")[:POINTS_MOST]
    return [
        SlotPredicted(
            run=row["run"],
            pair=asked.runs[row["run"]].pair,
            epoch=row["epoch"],
            at_s=asked.window_at_s(row["run"], row["w"], asked.window_s),
            vm=row["vm"],
            slot=row["slot"],
            cpu=number(row["cpu"]),
            predicted_cpu=number(row["cpu_predicted"]),
            memory=number(row["memory"]),
            predicted_memory=number(row["memory_predicted"]),
        )
        for row in sorted(least, key=lambda row: [row[name] for name in ("run", "w", "epoch", "vm", "slot")])
    ]
