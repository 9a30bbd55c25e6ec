"""What the prediction ledger teaches of models and VMs: by how much they are off, and how surely. Pure.

One observation is one run: the mean, over its plans, of ln(measured / predicted) of what a row costs, for plans of one
run share the mood of their machine; over those since the model was corrected last, which show what that led to. Of n
runs with mean m and variance s² (that of the trials that models were judged by, `SPREAD`, counts as `PRIOR_RUNS` runs
besides):

    error² = s² / n
    bias   = m · max(0, 1 − error² / m²)

the positive part of the factor of James and Stein for one mean (B. Efron, C. Morris, Stein's estimation rule and its
competitors, JASA 68, 1973): what may be chance is taken off, so a few per cent in one run are nothing, and a factor of
three stays what it is. Factors are bounded (`MOST`). A model or VM is called off when it is by more than `WORTH` with
two errors to spare.

What a row costs is CPU, or time where a model says that threads are full before their slot is; less CPU than a model
says counts only as far as threads are less busy, too. A VM is judged by the
same rows on others: slow is one whose rows cost more than theirs do, and more than the models say. Models are judged
without slow VMs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from headgate.controller.knowledge.prediction_ledger import LedgerEntry, TaskKept
from headgate.topology_runtime.faults.words import counted

SPREAD = math.hypot(0.05, 0.053)  # of a slot's CPU: all slots together, and each (docs/measured-models.md)
PRIOR_RUNS = 8
WORTH = 1.25  # a factor beyond is more than a model's usual error
MOST = 5.0  # a factor at most, and at least its inverse: beyond it is another task's model
SPREADS = (0.02, 0.5)  # between which a learned spread may lie
ROWS_LEAST = 200  # of a task in a plan; fewer say little
USED_LEAST = 0.1  # of slots, or of threads' time, measured or predicted: of less there is no ratio


@dataclass(frozen=True, slots=True)
class LearnedFactor:
    """factor: measured / predicted, shrunk and bounded; raw: as it was measured. spread: standard deviation of ln of
    it, from run to run. off: surely worth naming."""

    factor: float
    raw: float
    spread: float
    error: float
    runs: int
    plans: int

    @property
    def off(self) -> bool:
        return self.off_from(1.0)

    def off_from(self, factor: float) -> bool:
        """Is it surely another one than this?"""
        return abs(math.log(self.factor / factor)) - 2 * self.error >= math.log(WORTH)

    @property
    def bounded(self) -> bool:
        return not 1 / MOST <= self.raw <= MOST


@dataclass(frozen=True, slots=True)
class ModelBias:
    """cost: of a row, by what tells what the task carries; cpu: CPU of a row, where that is known. plans: which."""

    model: str
    version: str
    by_time: bool
    cost: LearnedFactor
    cpu: LearnedFactor | None
    plans: tuple[str, ...]


def learned(by_run: Mapping[str, Sequence[float]]) -> LearnedFactor:
    """From run → ln(measured / predicted) of its plans; at least one run with one plan."""
    values = [fmean(logs) for logs in by_run.values()]
    n, mean = len(values), fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    variance = (PRIOR_RUNS * SPREAD**2 + squares) / (PRIOR_RUNS + n - 1)
    error2 = variance / n
    kept = max(0.0, 1.0 - error2 / mean**2) if mean else 0.0
    most = math.log(MOST)
    return LearnedFactor(
        factor=math.exp(min(most, max(-most, mean * kept))),
        raw=math.exp(mean),
        spread=min(SPREADS[1], max(SPREADS[0], math.sqrt(variance))),
        error=math.sqrt(error2),
        runs=n,
        plans=sum(map(len, by_run.values())),
    )


def biases(entries: Iterable[LedgerEntry], slow: Iterable[str] = ()) -> dict[tuple[str, str], ModelBias]:
    """(model, version) → what is known of it. `slow`: VMs that do not count."""
    left_out = frozenset(slow)
    seen: dict[tuple[str, str], _Seen] = defaultdict(_Seen)
    for entry in entries:
        by_model: dict[tuple[str, str], list[TaskKept]] = defaultdict(list)
        for task in entry.tasks:
            if task.rate_tps * entry.seconds >= ROWS_LEAST:
                by_model[task.model, task.version].append(task)
        for key, tasks in by_model.items():
            seen[key].add(entry, tasks, left_out)
    return {key: found for key, one in seen.items() if (found := one.bias(*key)) is not None}


def slow_vms(entries: Iterable[LedgerEntry]) -> dict[str, LearnedFactor]:
    """VM → by how much the same rows cost more there than on the others, of those where they do and surely; above
    what models say, too."""
    beside: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    against: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        for vm in {vm for task in entry.tasks for vm in task.vms}:
            more = [than for task in entry.tasks if (than := _than_on_others(task, vm)) is not None]
            own = _ratio([use for task in entry.tasks if (use := _base_use(task, vm)) is not None])
            if more and own is not None:
                weight = math.fsum(weight for _, weight in more)
                beside[vm][entry.run].append(math.fsum(log * part for log, part in more) / weight)
                against[vm][entry.run].append(own)
    found = {vm: learned(runs) for vm, runs in beside.items()}
    return {
        vm: how
        for vm, how in sorted(found.items())
        if how.off and how.factor > 1 and learned(against[vm]).factor > math.sqrt(WORTH)
    }


class _Seen:
    """Of one model: run → ln(measured / predicted), of the CPU and the time of a row."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self.cost: dict[str, list[float]] = defaultdict(list)
        self.by_time = False
        self.corrected: dict[str, float] = {}  # run → by what, when it was measured last
        self.plans: list[str] = []

    def add(self, entry: LedgerEntry, tasks: Sequence[TaskKept], slow: frozenset[str]) -> None:
        uses = [use for task in tasks for vm in task.vms if vm not in slow and (use := _base_use(task, vm))]
        cpu = _ratio(uses)
        busy = _ratio([(task.busy, task.predicted_busy / task.time_factor) for task in tasks])
        self.by_time = all(task.waits for task in tasks)
        if self.corrected.setdefault(entry.run, tasks[0].time_factor) != tasks[0].time_factor:
            self.corrected[entry.run] = tasks[0].time_factor
            self.cpu.pop(entry.run, None)
            self.cost.pop(entry.run, None)
        if cpu is not None:
            self.cpu[entry.run].append(cpu)
        if (cost := busy if self.by_time else _dearer(cpu, busy)) is not None:
            self.cost[entry.run].append(cost)
        self.plans.append(f"{entry.run}/{entry.epoch}/{entry.plan[:8]}")

    def bias(self, model: str, version: str) -> ModelBias | None:
        if not self.cost:
            return None
        cpu = learned(self.cpu) if self.cpu else None
        return ModelBias(model, version, self.by_time, learned(self.cost), cpu, tuple(self.plans))


def _dearer(cpu: float | None, busy: float | None) -> float | None:
    """Of a task that is said to end at its slot's CPU: rows that take less CPU than is said need not come faster, if
    its threads are as busy as is said."""
    if cpu is None or busy is None:
        return cpu if cpu is not None and cpu >= 0 else None
    return max(cpu, busy)


def _base_use(task: TaskKept, vm: str) -> tuple[float, float] | None:
    """CPU of its rows on that VM, measured and as predicted by the model that its model comes from."""
    use = task.vms.get(vm)
    return (use[0], use[1] / task.cpu_factor) if use is not None else None


def _than_on_others(task: TaskKept, vm: str) -> tuple[float, float] | None:
    """(ln of what its rows cost there / on other VMs, how much that counts)."""
    own = _base_use(task, vm)
    others = [use for name in task.vms if name != vm and (use := _base_use(task, name)) is not None]
    there, elsewhere = _ratio([own] if own is not None else []), _ratio(others)
    if own is None or there is None or elsewhere is None:
        return None
    return there - elsewhere, min(own[1], math.fsum(use[1] for use in others))


def _ratio(uses: Sequence[tuple[float, float]]) -> float | None:
    """ln(measured / predicted) of all together; None where there is too little of it."""
    measured, predicted = math.fsum(use[0] for use in uses), math.fsum(use[1] for use in uses)
    if measured <= 0 or predicted <= 0 or max(measured, predicted) < USED_LEAST:
        return None
    return math.log(measured / predicted)


def words_of(bias: ModelBias, corrected_by: float = 1.0) -> str:
    """`the model of parse is off: a row costs 3.1 times the CPU that it says (2 runs, 5 plans, ± 7 %)`."""
    cost = bias.cost
    times = cost.factor / corrected_by
    what = f"takes {times:.3g} times as long as" if bias.by_time else f"costs {times:.3g} times the CPU that"
    seen = f"{counted(cost.runs, 'run')}, {counted(cost.plans, 'plan')}, ± {cost.error:.0%}"
    bound = f"; {cost.raw:.2g} times was measured, which no correction goes to" if cost.bounded else ""
    return f"the model of {bias.model} is off: a row {what} it says ({seen}{bound})"
