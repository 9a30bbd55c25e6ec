"""How fast each slot is, and what each task costs another beside it: one regression of what a row costs in CPU time.

The logarithm of the cost of a task's row in a slot, beside certain other tasks, is taken for the sum of what the task
costs, of the slot's slowness, of one effect for each task beside it, and of what a row costs more where few come (a
slope per task on the logarithm of rows per thread and second, held near 0). Weighted least squares over means of the
windows of an epoch; intervals are 95 % (Student's t), wider where means scatter more than their windows say.

A slot is held against the mean of the others that it shares tasks with. What the run cannot tell apart (a task that is
always beside the same one, a slot whose tasks are nowhere else) has no row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, groupby
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.dashboards.analytics.analyses.analysis_input import AnalysisInput, over
from headgate.dashboards.analytics.storage.result_tables import (
    Interference,
    Leak,
    PairCost,
    SlotSpeed,
    StabilityAnswer,
)
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.stability.memory_growth import Points, has_fallen, leak_of, longest_life
from headgate.topology_runtime.stability.slopes import t95

Floats = NDArray[np.float64]

LEAST_WINDOWS = 3  # of an epoch
SLOW, DISTURBS = 0.9, 1.1  # the whole interval is below, above
SCATTER = 0.02  # by which means of an epoch differ without any cause
HELD = 0.5  # standard deviation of the slopes on the rate, before anything is seen
SLOTS_MOST = 400  # of a run; of more the VMs are told apart, not their slots
SAME = 1e-6  # of a contrast's length: it lies in what the run has seen

SLOT = ("run", "vm", "slot")
Cell = Mapping[str, Any]  # task, place, beside (tasks), cost, rate (logarithms), scatter of windows, windows
Place = tuple[str, int | None]
Interval = tuple[float, float, float]  # value, low, high


def speeds(asked: AnalysisInput) -> tuple[list[SlotSpeed], list[PairCost]]:
    """(slots, the slowest of each run first; pairs, those that surely disturb most first)."""
    slots: list[SlotSpeed] = []
    pairs: list[PairCost] = []
    for run, cells in groupby(_cells(asked), key=lambda cell: cell["run"]):
        mine, theirs = fitted(run, list(cells))
        slots += mine
        pairs += theirs
    return slots, pairs


def _cells(asked: AnalysisInput) -> Sequence[Cell]:
    """Means over the windows of an epoch, and by how much these scatter."""
    rows = []
    for row in asked.sums("groups", "run", "epoch", "task", "vm", "slot", "beside"):
        n = row["costed_windows"]
        if n >= LEAST_WINDOWS:
            cost, squares = row["costed_cost"] / n, row["costed_squares"] / n
            scatter = math.sqrt(max(0.0, squares - cost * cost) * n / (n - 1))
            rows.append(
                row | {"cost": cost, "scatter": scatter, "rate": row["costed_rate"] / n, "windows": n}
            )
    found: list[dict[str, Any]] = []
    for _, mine in groupby(rows, key=lambda row: row["run"]):
        cells = list(mine)
        by_vm = len({(cell["vm"], cell["slot"]) for cell in cells}) > SLOTS_MOST
        for cell in cells:
            beside = [other for other in cell["beside"].split(",") if other]
            found.append(cell | {"beside": beside, "place": (cell["vm"], None if by_vm else cell["slot"])})
    return found


def fitted(run: str, cells: Sequence[Cell]) -> tuple[list[SlotSpeed], list[PairCost]]:
    """Of one run."""
    tasks = sorted({cell["task"] for cell in cells})
    places = sorted({cell["place"] for cell in cells}, key=str)
    pairs = sorted({(cell["task"], other) for cell in cells for other in cell["beside"]})
    names: list[Any] = [*tasks, *places, *pairs]
    at = {name: n for n, name in enumerate(names)}
    seen = np.zeros((len(cells), len(names)))
    for n, cell in enumerate(cells):
        for name in (cell["task"], cell["place"], *((cell["task"], other) for other in cell["beside"])):
            seen[n, at[name]] = 1.0
    fit = _Fit(seen, cells, tasks)
    windows: dict[Any, int] = defaultdict(int)
    for cell in cells:
        for name in (cell["place"], *((cell["task"], other) for other in cell["beside"])):
            windows[name] += cell["windows"]
    near = _near(cells)
    slots = [
        _slot_speed(run, place, found, windows[place])
        for place in places
        if (found := fit.of(_against_others(place, near[place], at))) is not None
    ]
    costs = [
        _pair_cost(run, pair, found, windows[pair])
        for pair in pairs
        if (found := fit.of(_one(at[pair], len(names)))) is not None
    ]
    return sorted(slots, key=lambda slot: slot.speed), sorted(costs, key=lambda cost: -cost.low)


def _slot_speed(run: str, place: Place, slowness: Interval, windows: int) -> SlotSpeed:
    speed, high, low = (math.exp(-value) for value in slowness)
    return SlotSpeed(run, *place, speed, low, high, windows, slow=high < SLOW)


def _pair_cost(run: str, pair: tuple[str, str], more: Interval, windows: int) -> PairCost:
    factor, low, high = (math.exp(value) for value in more)
    return PairCost(run, *pair, factor, low, high, windows, disturbs=low > DISTURBS)


def _one(at: int, size: int) -> Floats:
    contrast = np.zeros(size)
    contrast[at] = 1.0
    return contrast


def _near(cells: Sequence[Cell]) -> dict[Place, set[Place]]:
    """Place → those that it shares tasks with, directly or through others, and itself."""
    by_task: dict[str, set[Place]] = defaultdict(set)
    by_place: dict[Place, set[str]] = defaultdict(set)
    for cell in cells:
        by_task[cell["task"]].add(cell["place"])
        by_place[cell["place"]].add(cell["task"])
    found: dict[Place, set[Place]] = {}
    for place in by_place:
        if place in found:
            continue
        near, more = {place}, [place]
        while more:
            for task in by_place[more.pop()]:
                fresh = by_task.pop(task, set()) - near
                near |= fresh
                more += fresh
        found |= dict.fromkeys(near, near)
    return found


def _against_others(place: Place, near: set[Place], at: Mapping[Any, int]) -> Floats:
    """The slot less the mean of those near it."""
    contrast = _one(at[place], len(at))
    contrast[[at[other] for other in near if other != place]] = -1.0 / max(1, len(near) - 1)
    return contrast if len(near) > 1 else 0 * contrast


class _Fit:
    """Weighted least squares, with what it can tell."""

    def __init__(self, seen: Floats, cells: Sequence[Cell], tasks: Sequence[str]) -> None:
        slopes = np.zeros((len(cells), len(tasks)))
        for k, task in enumerate(tasks):
            mine = [n for n, cell in enumerate(cells) if cell["task"] == task]
            rates = np.array([cells[n]["rate"] for n in mine])
            slopes[mine, k] = rates - rates.mean()
        y = np.array([cell["cost"] for cell in cells])
        error = np.array([(cell["scatter"] or 0.0) ** 2 / cell["windows"] + SCATTER**2 for cell in cells])
        held = np.hstack([np.zeros((len(tasks), seen.shape[1])), np.eye(len(tasks)) / HELD])
        x = np.vstack([np.hstack([seen, slopes]) / np.sqrt(error)[:, None], held])
        squares, axes = np.linalg.eigh(seen.T @ seen)
        self._axes = axes.T[squares > 1e-9 * squares[-1]]
        self._inverse = np.linalg.pinv(x.T @ x, hermitian=True)
        self._values = self._inverse @ x.T @ np.concatenate([y / np.sqrt(error), np.zeros(len(tasks))])
        rest = (y - np.hstack([seen, slopes]) @ self._values) / np.sqrt(error)
        self._freedom = max(1.0, float(len(cells) - len(self._axes)))
        self._scale = math.sqrt(max(1.0, float(rest @ rest) / self._freedom))

    def of(self, contrast: Floats) -> Interval | None:
        """(value, low, high) of a sum of effects; None when the run does not tell it."""
        length = float(np.linalg.norm(contrast))
        if length == 0 or np.linalg.norm(contrast - (contrast @ self._axes.T) @ self._axes) > SAME * length:
            return None
        whole = np.concatenate([contrast, np.zeros(len(self._values) - len(contrast))])
        value = float(whole @ self._values)
        reach = t95(self._freedom) * self._scale * math.sqrt(max(0.0, float(whole @ self._inverse @ whole)))
        return value, value - reach, value + reach


# ── What a row of a task costs in CPU time alone in its slot, and beside other tasks ────────────────────

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


# ── Memory that only grows: slots whose process held more and more, at a steady pace, for a minute or longer


def leaks(asked: AnalysisInput, epochs: Iterable[StabilityAnswer]) -> list[Leak]:
    """Those that fill their slot first, first. Of the `epochs` those that do not keep up are left out: queues fill
    then, up to their bound."""
    tasks = _tasks(asked)
    behind = {(row.run, row.epoch) for row in epochs if row.stable is False}
    found = []
    rows = [
        row
        for row in asked.rows("memory_blocks", *SLOT, "epoch", "block")
        if (row["run"], row["epoch"]) not in behind
    ]
    for (run, vm, slot), blocks in groupby(rows, key=itemgetter(*SLOT)):
        life = longest_life(_without_steps(list(blocks), asked.window_s))
        slope = leak_of(life)
        if slope is None:
            continue
        size = memory_bytes_of(asked.runs[run], vm)
        pace, low, high = (None if size is None else at * size for at in (slope.value, slope.low, slope.high))
        begin_s, end_s = (asked.at_s(run, life[n][0] * 1e6) for n in (0, -1))
        held, here = life[-1][1], tasks.get((run, vm, slot), [])
        full_in_s = (1 - held) / slope.value
        found.append(Leak(run, vm, slot, here, begin_s, end_s, pace, low, high, held, full_in_s))
    return sorted(found, key=lambda leak: leak.full_in_s)


def _without_steps(parts: Sequence[Mapping[str, Any]], window_s: float) -> Points:
    """Means of blocks, as if all plans held what the newest does: what changed from one to the next, more than it grows
    under each, is taken off, unless it fell as for another process. parts: of blocks, under one plan each, in order of
    time."""
    held = [(part["at"] / part["n"] * window_s, part["memory"] / part["n"]) for part in parts]
    same = [(a, b) for a, b in combinations(range(len(parts)), 2) if parts[a]["epoch"] == parts[b]["epoch"]]
    pace = median((held[b][1] - held[a][1]) / (held[b][0] - held[a][0]) for a, b in same) if same else 0.0
    sums: dict[int, list[float]] = {}
    step, last = 0.0, len(parts) - 1
    for at in range(last, -1, -1):
        part, (at_s, memory), (next_s, next_held) = parts[at], held[at], held[min(at + 1, last)]
        if part["epoch"] != parts[min(at + 1, last)]["epoch"] and not has_fallen(memory, next_held):
            step += next_held - memory - pace * (next_s - at_s)
        values = part["n"], part["at"], part["memory"] + part["n"] * step, part["cpu"]
        sums[part["block"]] = [a + b for a, b in zip(sums.get(part["block"], [0.0] * 4), values, strict=True)]
    return [(at / n * window_s, memory / n, cpu / n) for n, at, memory, cpu in reversed(sums.values())]


def _tasks(asked: AnalysisInput) -> dict[tuple[str, str, int], list[str]]:
    found: dict[tuple[str, str, int], list[str]] = {}
    for row in asked.sums("groups", "run", "vm", "slot", "task"):
        found.setdefault((row["run"], row["vm"], row["slot"]), []).append(row["task"])
    return found


def memory_bytes_of(run: TraceRun, vm: str) -> float | None:
    """Of a slot of this VM; VMs that came later are as the spare one."""
    size = run.memory_bytes.get(vm, run.spare.get("slot_memory_bytes"))
    return None if size is None else float(size)
