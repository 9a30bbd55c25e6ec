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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from headgate.controller.models.plans import ErrorSpread
from headgate.controller.models.prediction_ledger import LedgerEntry, TaskKept, corrected, correction_of
from headgate.controller.models.task_models import Model, Point, cpu, half_widths, peak_rate
from headgate.topology_runtime.wording import counted, significant

SPREAD = math.hypot(
    0.05, 0.053
)  # of a slot's CPU: all slots together, and each (docs/explanation/predictions.md)
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

    def off_from(self, factor: float, worth: float = WORTH) -> bool:
        """Is it surely another one than this, by so much?"""
        return abs(math.log(self.factor / factor)) - 2 * self.error >= math.log(worth)

    @property
    def bounded(self) -> bool:
        return not 1 / MOST <= self.raw <= MOST


@dataclass(frozen=True, slots=True)
class ModelBias:
    """cost: of a row, by what says what the task carries; cpu: CPU of a row, where that is known. plans: which."""

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


def vm_costs(entries: Iterable[LedgerEntry]) -> dict[str, tuple[LearnedFactor, LearnedFactor]]:
    """VM → by how much the same rows cost more there than on the others, and than models say; of those that share tasks
    with others. A speed that plans took a VM for counts as found: it is in the factors."""
    beside: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    against: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        for vm in {vm for task in entry.tasks for vm in task.vms}:
            more = [than for task in entry.tasks if (than := _than_on_others(task, vm)) is not None]
            own = _ratio([use for task in entry.tasks if (use := _base_use(task, vm)) is not None])
            if more and own is not None:
                planned = math.log(entry.speeds.get(vm, 1.0))
                weight = math.fsum(weight for _, weight in more)
                beside[vm][entry.run].append(math.fsum(log * part for log, part in more) / weight - planned)
                against[vm][entry.run].append(own - planned)
    return {vm: (learned(beside[vm]), learned(against[vm])) for vm in sorted(beside)}


def slow_vms(entries: Iterable[LedgerEntry]) -> dict[str, LearnedFactor]:
    """VM → by how much the same rows cost more there than on the others, of those where they do and surely; above
    what models say, too."""
    return {
        vm: how
        for vm, (how, against) in vm_costs(entries).items()
        if how.off and how.factor > 1 and against.factor > math.sqrt(WORTH)
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


def plan_error(entry: LedgerEntry, models: Mapping[str, Model]) -> float | None:
    """ln(what the plan's dearest task takes / what was predicted); None where that is not known, or of other models
    than these. A plan that kept up with what it was predicted to carry is off by no more than it was short of that."""
    found = [cost for task in entry.tasks if (cost := _cost_now(entry, task, models)) is not None]
    rate = entry.rate
    if not found or rate.carried_tps <= 0 or rate.predicted_tps <= 0:
        return max(found, default=None)
    short = math.log(rate.predicted_tps / rate.carried_tps)
    return {"no": max(found), "carried": min(max(found), short), "short": max(*found, short)}[rate.tested]


def _cost_now(entry: LedgerEntry, task: TaskKept, models: Mapping[str, Model]) -> float | None:
    if task.model not in models or task.rate_tps * entry.seconds < ROWS_LEAST:
        return None
    now = correction_of(models[task.model])
    if (task.version, task.time_factor, task.cpu_factor) != (now.of, now.time, now.cpu):
        return None
    cpu, busy = _ratio([(task.cpu, task.predicted_cpu)]), _ratio([(task.busy, task.predicted_busy)])
    return busy if task.waits else _dearer(cpu, busy)


def words_of(bias: ModelBias, corrected_by: float = 1.0) -> str:
    """`the model of parse is off: a row costs 3.1 times the CPU that it says (2 runs, 5 plans, ± 7 %)`."""
    cost = bias.cost
    times = cost.factor / corrected_by
    what = f"takes {times:.3g} times as long as" if bias.by_time else f"costs {times:.3g} times the CPU that"
    seen = f"{counted(cost.runs, 'run')}, {counted(cost.plans, 'plan')}, ± {cost.error:.0%}"
    bound = f"; {cost.raw:.2g} times was measured, which no correction goes to" if cost.bounded else ""
    return f"the model of {bias.model} is off: a row {what} it says ({seen}{bound})"


# ── What follows from the prediction ledger for models: which are to be corrected, and how surely plans
# hold. Pure

ENOUGH_RUNS = 5  # of a model, before its own errors are gone by
PLANS_TOLD = 10  # in a corrected model
QUICKER_MOST = 2.0  # a model gets so much quicker at a time: rows may cost more again when more of them come


def off_models(
    models: Mapping[str, Model], entries: Iterable[LedgerEntry]
) -> Iterator[tuple[Model, ModelBias]]:
    """The models that are surely off from what they are corrected by already."""
    known = tuple(entries)
    found = biases(known, slow_vms(known))
    for model in models.values():
        before = correction_of(model)
        bias = found.get((model.task, before.of))
        if bias is not None and not model.unmeasured and bias.cost.off_from(before.time):
            yield model, bias


def corrections(models: Mapping[str, Model], entries: Iterable[LedgerEntry]) -> Iterator[tuple[Model, str]]:
    """(the corrected model, why) of each that is off."""
    for model, bias in off_models(models, entries):
        yield corrected_by(model, bias), words_of(bias, correction_of(model).time)


def corrected_by(model: Model, bias: ModelBias, when: str | None = None) -> Model:
    """The next version of the model, which says where it comes from."""
    before = correction_of(model)
    time = max(bias.cost.factor, before.time / QUICKER_MOST)
    cpu = bias.cpu.factor * time / bias.cost.factor if bias.by_time and bias.cpu is not None else time
    provenance = {
        **({"at": when} if when is not None else {}),
        "by": "time" if bias.by_time else "cpu",
        "measured": round(bias.cost.raw, 6),
        "runs": bias.cost.runs,
        "plans": list(bias.plans[-PLANS_TOLD:]),
    }
    return corrected(model, time, cpu, provenance)


def spread_of(models: Mapping[str, Model], entries: Iterable[LedgerEntry]) -> ErrorSpread:
    """By how much plans with these models err. What is left of a bias after correction is a part of it; so is that a
    spread was estimated from few runs (the standard deviation of Student's distribution)."""
    known = tuple(entries)
    found = biases(known, slow_vms(known))
    learned: dict[str, tuple[float, float]] = {}
    for model in models.values():
        before = correction_of(model)
        bias = found.get((model.task, before.of))
        if bias is not None and bias.cost.runs >= ENOUGH_RUNS:
            freedom = PRIOR_RUNS + bias.cost.runs - 1
            own = math.hypot(bias.cost.spread * math.sqrt(freedom / (freedom - 2)), bias.cost.error)
            learned[model.task] = math.log(bias.cost.factor / before.time), own
    return ErrorSpread(models=learned)


# ── Does a model that was refitted from the trace of a run say something else than the one in force, and
# surely? Pure
#
# A refitted model has the numbers of threads that were seen at their peak, seldom more than one or two, so it
# takes no model's place: the model in force is scaled by what was measured / said at these, as the prediction
# ledger's corrections scale it (`models/prediction_ledger.py`). Of n windows with half a distance s of the
# quartiles the median errs by
# 1.86 s / √n (normal errors); what all windows of one run share, the mood of its machine, is `SPREAD`
# besides. What is less than two such errors off is what the model says.

SECONDS_LEAST = 30.0  # that a number of threads was at its peak
AGAIN = 2.0  # times what was seen when a model was refitted last, before it is refitted again
SURE = 2.0  # errors apart
QUARTILES = 1.2533 * 2 / 1.349  # error of a median of n values, × √n / half the distance of their quartiles


@dataclass(frozen=True, slots=True)
class RefitFound:
    """A row takes `time` times as long as the model in force says, and `cost` times the CPU; error: of ln of both.
    seconds: at the peak, of all numbers of threads. text: which numbers, from what."""

    time: float
    cost: float
    error: float
    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class _PointFound:
    """ln of time and cost of a row, measured / said, at one number of threads; error: of its median alone."""

    time: float
    cost: float
    error: float
    seconds: float
    text: str


def refit_of(model: Model, offered: Model, before_s: float) -> RefitFound | str:
    """By how much it is off, or why it is left as it is. before_s: seen when it was refitted last, 0: it never was."""
    window_s = _number(offered.more.get("window_s"))
    kept = offered.more.get("points", [])
    found = [
        _point_found(model, point, _number(more.get("windows")), window_s)
        for point, more in zip(offered.points, [*kept, *[{}] * len(offered.points)], strict=False)
    ]
    points = [one for one in found if one is not None]
    if not points:
        seen = max((_seconds(more, window_s) for more in kept), default=0.0)
        need = f"{SECONDS_LEAST:.0f} s and {ROWS_LEAST} rows are needed"
        return f"too little was seen: at most {seen:.0f} s at its peak with as many threads, {need}"
    seconds = math.fsum(one.seconds for one in points)
    if seconds < AGAIN * before_s:
        return f"it was refitted from {before_s:.0f} s, and {AGAIN * before_s:.0f} s are needed to refit it again"
    time, cost = (math.fsum(v * one.seconds for v, one in zip(values, points, strict=True)) / seconds
                  for values in ([one.time for one in points], [one.cost for one in points]))  # fmt: skip
    own = math.sqrt(math.fsum((one.seconds * one.error) ** 2 for one in points)) / seconds
    error = math.hypot(SPREAD, own)
    if any(abs(one.time - time) > SURE * math.hypot(error, one.error) for one in points):
        return f"its numbers of threads differ in how far they are off ({_texts(points)}): measure it again"
    if max(abs(time), abs(cost)) < SURE * error:
        return f"it says what was seen, within its error of {error:.0%} ({_texts(points)})"
    if max(abs(time), abs(cost)) > math.log(MOST):
        return f"it is off by more than × {MOST:g}, which is another task's model ({_texts(points)})"
    text = f"{_texts(points)} ({seconds:.0f} s at its peak, ± {error:.0%})"
    return RefitFound(math.exp(time), math.exp(cost), error, seconds, text)


def _point_found(model: Model, point: Point, windows: float, window_s: float) -> _PointFound | None:
    seconds = windows * window_s
    if seconds < SECONDS_LEAST or point.rate_tps * seconds < ROWS_LEAST:
        return None
    said_tps, said_cpu = peak_rate(model, point.threads), cpu(model, point.threads)
    time = math.log(said_tps / point.rate_tps)
    known = said_cpu > 0 and point.cpu > 0
    cost = time + math.log(point.cpu / said_cpu) if known else time
    error = QUARTILES * half_widths(point)[0] / point.rate_tps / math.sqrt(windows)
    text = (
        f"{counted(point.threads, 'thread')} {significant(said_tps)} → {significant(point.rate_tps)} rows/s, "
        f"CPU {said_cpu:.2f} → {point.cpu:.2f} of a slot"
    )
    return _PointFound(time, cost, error, seconds, text)


def _texts(points: list[_PointFound]) -> str:
    return "; ".join(one.text for one in points)


def _seconds(more: Mapping[str, Any], window_s: float) -> float:
    return _number(more.get("windows")) * window_s


def _number(value: Any) -> float:
    """Of a key that whoever reads models does not check; 0: none that can be used."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= 1e9 else 0.0
