"""Keeps account of what the plan in force was predicted to do, and of what it does: entries of the prediction
ledger. Pure.

A plan is looked at once it is committed, `SETTLED_S` old and nothing is on its way; whole windows of samples count,
each once. The first entry is written after `FIRST` windows, and again each time that they have doubled, so that a plan
that is cut short is reported, and one that stands for days takes a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.controller.analyze.model_bias import (
    ModelBias,
    corrected_by,
    off_models,
    plan_error,
    slow_vms,
    words_of,
)
from headgate.controller.analyze.residuals import LEAST, PredictedSlots
from headgate.controller.core.alarms import SETTLED_S
from headgate.controller.core.learned_models import slots_without_model
from headgate.controller.core.predicted_latency import NEAR as NEAR_RATE
from headgate.controller.core.predicted_latency import predicted_latency
from headgate.controller.core.profiling import may_plan
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis, Stability
from headgate.controller.knowledge.journal_records import Modelled, Submitted
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import KeepModel, Trace
from headgate.controller.knowledge.measured_window import MeasuredWindow, TaskWindow
from headgate.controller.models.model_data import model_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.prediction_ledger import (
    LedgerEntry,
    PlanKey,
    RateKept,
    SlotKept,
    TaskKept,
    Tested,
    correction_of,
    version_of,
)
from headgate.controller.models.task_models import Model
from headgate.controller.plan.predict.placement_load import PlacementLoad, load_of
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.traces.trace_tables import CORRECTED
from headgate.topology_runtime.wording import utc_iso

# ── What tasks use of their slots' CPU: as measured, and as models predict it for the rates that they take
# in. Pure
#
# Samples hold the CPU of each slot, which is a process, and of the threads in it. What a process uses beside
# its threads is its tasks', as models count it; so a slot's CPU is shared out among its tasks as the CPU of
# their threads is.

USED_LEAST = (
    0.3  # of a slot, measured or predicted: of one that is used less too much is what it needs by itself
)
THREADS_END = 0.5  # of a slot's CPU at a task's peak: below it its threads are full before the slot is


@dataclass(slots=True)
class TaskShare:
    """Sums over slots. by_vm: VM → (cpu, predicted)."""

    rate_tps: float
    busy: float
    predicted_busy: float
    waits: bool
    cpu: float = 0.0
    predicted: float = 0.0
    by_vm: dict[str, tuple[float, float]] = field(default_factory=dict)

    def use(self, vm: str, cpu: float, predicted: float) -> None:
        """One more slot of that VM."""
        self.cpu += cpu
        self.predicted += predicted
        before = self.by_vm.get(vm, (0.0, 0.0))
        self.by_vm[vm] = before[0] + cpu, before[1] + predicted

    def add(self, other: TaskShare) -> None:
        """Another window."""
        self.rate_tps += other.rate_tps
        self.busy += other.busy
        self.predicted_busy += other.predicted_busy
        for vm, (cpu, predicted) in other.by_vm.items():
            self.use(vm, cpu, predicted)


class RowsUse(NamedTuple):
    """What a task in a slot did: rows/s that it took in, and its part of the slot's CPU, as a fraction of the slot."""

    rate_tps: float
    cpu: float


class TaskShares:
    """Of one plan, with the models that it was made from. without_model: slots that nothing is predicted of."""

    def __init__(
        self, plan: Plan, topology: Topology, models: Mapping[str, Model], without_model: Set[Slot]
    ) -> None:
        self._without = without_model
        load = load_of(topology, models, plan.placement, plan.vms, plan.interference == "cpu")
        self._load: PlacementLoad = load
        self._modelled = {
            task.name
            for task in topology.tasks
            if task.static is None and not models[task.model_name].unmeasured
        }
        self._shares = load.in_order(plan.prediction.shares, load.even_shares())

    def of(self, window: MeasuredWindow) -> dict[str, TaskShare]:
        """Task with a model → what it uses; those that took in nothing are left out."""
        load = self._load
        rates = [self._rate(window, task) for task in range(len(load.tasks))]
        found = {
            load.tasks[task]: self._empty(task, rates[task], window)
            for task, members in enumerate(load.by_task)
            if rates[task] > LEAST and load.tasks[task] in self._modelled
        }
        predicted = self._predicted(window.emitted_tps, self._shares)
        for number, members in enumerate(load.by_slot):
            slot = load.slots[number]
            used = window.slots.get(slot)
            measured = {g: self._threads_cpu(g, window) for g in members}
            total = sum(measured.values())
            if used is None or slot in self._without or total <= 0:
                continue
            modelled = [g for g in members if load.tasks[load.groups[g].task] in found]
            cpu = {g: used.cpu * self._rows_cpu(g, window) / total for g in modelled}
            expected = {g: predicted[g] * self._taken(g, rates, window) for g in modelled}
            for g in modelled:
                if max(cpu[g], expected[g]) >= USED_LEAST:
                    found[load.tasks[load.groups[g].task]].use(slot.vm, cpu[g], expected[g])
        return found

    def by_vm(self, used: Mapping[tuple[Slot, str], RowsUse]) -> dict[str, TaskShare]:
        """Task with a model → what its rows took on each VM, beside what is predicted for as many rows there: however
        they were shared out. `used`: (slot, task) → what was measured."""
        load, nothing = self._load, RowsUse(0.0, 0.0)
        rates = [used.get((load.slots[g.slot], load.tasks[g.task]), nothing).rate_tps for g in load.groups]
        units = [load.unit[group.task] for group in load.groups]
        shares = [rate / unit if unit > 0 else 0.0 for rate, unit in zip(rates, units, strict=True)]
        predicted, found = self._predicted(1.0, shares), dict[str, TaskShare]()
        for number, group in enumerate(load.groups):
            slot, task = load.slots[group.slot], load.tasks[group.task]
            use = used.get((slot, task))
            if use is None or rates[number] <= LEAST or task not in self._modelled or slot in self._without:
                continue
            if max(use.cpu, predicted[number]) >= USED_LEAST:
                found.setdefault(task, TaskShare(0.0, 0.0, 0.0, waits=False)).use(
                    slot.vm, use.cpu, predicted[number]
                )
        return found

    def _rate(self, window: MeasuredWindow, task: int) -> float:
        now = window.tasks.get(self._load.tasks[task])
        return now.rate_in_tps if now is not None else 0.0

    def _threads_cpu(self, g: int, window: MeasuredWindow) -> float:
        """Cores of the group's threads: its part of what all threads of its task use."""
        now = window.tasks.get(self._load.tasks[self._load.groups[g].task])
        return now.cpu_cores * self._shares[g] if now is not None else 0.0

    def _rows_cpu(self, g: int, window: MeasuredWindow) -> float:
        """The same, with timers shared out evenly among all rows."""
        now = window.tasks.get(self._load.tasks[self._load.groups[g].task])
        return now.row_cores * self._shares[g] if now is not None else 0.0

    def _taken(self, g: int, rates: Sequence[float], window: MeasuredWindow) -> float:
        """What its task takes in, as a part of what it would at the rate that sources emit."""
        task = self._load.groups[g].task
        expected_tps = self._load.unit[task] * window.emitted_tps
        return rates[task] / expected_tps if expected_tps > LEAST else 1.0

    def _predicted(self, rate_tps: float, shares: Sequence[float]) -> list[float]:
        """Fraction of its slot that each group uses at this input rate; those of a slot sum to what it uses."""
        load = self._load
        there, needs = load.at(shares, rate_tps), load.needs(shares, rate_tps)
        alone = [there.cpu_of(g, share, rate_tps, full=False) for g, share in enumerate(shares)]
        alone = [
            own + (load.groups[g].cpu if load.groups[g].peak_tps is None else 0.0)
            for g, own in enumerate(alone)
        ]
        sums = [sum(alone[g] for g in members) for members in load.by_slot]
        return [
            needs[group.slot][0] * alone[g] / sums[group.slot] if sums[group.slot] > 0 else 0.0
            for g, group in enumerate(load.groups)
        ]

    def _empty(self, task: int, rate_tps: float, window: MeasuredWindow) -> TaskShare:
        load, members = self._load, self._load.by_task[task]
        now: TaskWindow = window.tasks[load.tasks[task]]
        threads = sum(load.groups[g].threads for g in members)
        parts = (
            load.groups[g].threads
            * load.part_of_peak(g, self._shares[g], rate_tps / load.unit[task] if load.unit[task] else 0.0)
            for g in members
        )
        waits = all(load.groups[g].wake.waits or load.groups[g].cpu < THREADS_END for g in members)
        return TaskShare(rate_tps, now.busy_share, sum(parts) / threads, waits)


NS = 1_000_000_000
FIRST = 2  # windows: twenty seconds
SLACK_NS = NS // 2  # which a turn may be early
NEAR = 0.95  # of what a plan carries, offered: then it is tested whether it does
PLANS_KEPT = 256  # of this life, of which is learned; the ledger's file has them all
SLOTS_MOST = 64  # that an entry lists; its tasks are of all
DIGITS = 6


@dataclass(slots=True)
class _PlanSums:
    """Over the windows so far. short, near: what was acked in those in which it did not keep up, and in those in which
    about as much was offered as it carries."""

    windows: int = 0
    seconds: float = 0.0
    offered: float = 0.0
    acked: float = 0.0
    short: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    latency: dict[str, float] = field(default_factory=dict)
    slots: dict[Slot, list[float]] = field(default_factory=dict)
    tasks: dict[str, TaskShare] = field(default_factory=dict)

    def add(
        self,
        window: MeasuredWindow,
        verdict: Stability,
        plan: Plan,
        slots: PredictedSlots,
        shares: Mapping[str, TaskShare],
    ) -> None:
        self.windows += 1
        self.seconds += window.seconds
        self.offered += window.offered_tps
        self.acked += window.acked_tps
        if verdict.verdict == "unstable":
            self.short.append(window.acked_tps)
        elif window.offered_tps >= NEAR * plan.prediction.rate_tps:
            self.near.append(window.acked_tps)
        for name in ("p50", "p95", "p99"):
            self.latency[name] = self.latency.get(name, 0.0) + getattr(window.latency, f"{name}_ms")
        for slot, predicted in slots.items():
            if (used := window.slots.get(slot)) is not None:
                values = (used.cpu, predicted[0], used.memory, predicted[1])
                self.slots[slot] = _sum(self.slots.get(slot, [0.0] * 4), values)
        self.add_tasks(shares)

    def add_tasks(self, shares: Mapping[str, TaskShare]) -> None:
        for name, share in shares.items():
            self.tasks.setdefault(name, TaskShare(0.0, 0.0, 0.0, share.waits)).add(share)

    def mean(self, total: float) -> float:
        return round(total / self.windows, DIGITS)

    def rate(self, plan: Plan) -> RateKept:
        found = plan.prediction
        tested: Tested = "short" if self.short else "carried" if self.near else "no"
        seen = self.short or self.near
        carried = round(sum(seen) / len(seen), DIGITS) if seen else self.mean(self.acked)
        return RateKept(self.mean(self.offered), carried, found.rate_tps, found.likely_tps, tested)


def _sum(sums: list[float], values: Iterable[float]) -> list[float]:
    return [a + b for a, b in zip(sums, values, strict=True)]


class Accounts:
    """Of the plan in force now, and of the last ones before it in this life: `entries`, the newest of each."""

    def __init__(self) -> None:
        self.entries: dict[PlanKey, LedgerEntry] = {}
        self.fresh = False  # since whoever learns from them looked last
        self._of: tuple[int, Plan, Submitted] | None = None
        self._shares: TaskShares | None = None
        self._errors: tuple[dict[str, Model], list[float]] | None = None
        self._sums = _PlanSums()
        self._next_ns = 0

    def look(
        self, turn: Turn, window: MeasuredWindow, verdict: Stability, slots: PredictedSlots
    ) -> LedgerEntry | None:
        """Once a turn, with what is predicted of `slots` at the present rate; the entry that is written now."""
        k, now_ns = turn.knowledge, turn.now.mono_ns
        plan, run = k.plan, k.durable.run
        if plan is None or run is None or not _calm(k, turn, window):
            self._next_ns = now_ns + round(k.settings.window_s * NS)
            return None
        if self._of is None or self._of != (k.epoch, plan, run):
            self._of, self._sums = (k.epoch, plan, run), _PlanSums()
            self._shares = TaskShares(plan, run.topology, k.models, slots_without_model(k))
        if now_ns < self._next_ns - SLACK_NS or self._shares is None:
            return None
        self._next_ns = now_ns + round(window.seconds * NS)
        self._sums.add(window, verdict, plan, slots, self._shares.of(window))
        if not _is_due(self._sums.windows):
            return None
        entry = _entry(turn, plan, run.topology, self._sums)
        self.keep(entry)
        turn.do(Trace("prediction", {"entry": entry}))
        return entry

    def errors(self, models: Mapping[str, Model]) -> list[float]:
        """ln(measured / predicted) of each plan of this life that speaks of these models."""
        if self._errors is None or self._errors[0] != models:
            found = (plan_error(entry, models) for entry in self.entries.values())
            self._errors = dict(models), [error for error in found if error is not None]
        return self._errors[1]

    def keep(self, entry: LedgerEntry) -> None:
        self.entries.pop(entry.key, None)
        self.entries[entry.key], self.fresh, self._errors = entry, True, None
        if len(self.entries) > PLANS_KEPT:
            del self.entries[next(iter(self.entries))]


def _calm(k: Knowledge, turn: Turn, window: MeasuredWindow) -> bool:
    """Is what the window shows the plan's own doing?"""
    d = k.durable
    if d.phase != "committed" or k.enacting or d.draining or d.rollout is None or d.rollout.leaving:
        return False
    in_force_s = k.in_force_s(turn.now)
    return (
        in_force_s is not None
        and in_force_s >= SETTLED_S
        and window.is_complete
        and window.epoch == k.epoch
        and window.seconds >= k.settings.window_s
        and window.emitted_tps > LEAST
        and "slot" not in k.alarms
    )


def _is_due(windows: int) -> bool:
    return windows >= FIRST and windows & (windows - 1) == 0


def _entry(turn: Turn, plan: Plan, topology: Topology, sums: _PlanSums) -> LedgerEntry:
    k, rollout = turn.knowledge, turn.knowledge.durable.rollout
    assert rollout is not None
    models = {task.name: k.models[task.model_name] for task in topology.tasks if task.model_name in k.models}
    return LedgerEntry(
        time=utc_iso(turn.now.wall_ns),
        topology=topology.name,
        topology_digest=topology.digest,
        run=k.settings.run,
        epoch=rollout.epoch,
        plan=plan.id,
        headgate=k.settings.version,
        seconds=round(sums.seconds, 3),
        rate=sums.rate(plan),
        latency_ms={name: sums.mean(value) for name, value in sums.latency.items()},
        slots=tuple(
            SlotKept(slot.vm, slot.number, *map(sums.mean, values))
            for slot, values in sorted(sums.slots.items())[:SLOTS_MOST]
        ),
        tasks=tuple(_task(name, models[name], share, sums) for name, share in sums.tasks.items()),
        speeds={vm.vm: vm.speed for vm in plan.vms},
        predicted_latency_ms=_predicted_latency(k, sums),
    )


def entry_of(turn: Turn, plan: Plan, topology: Topology, shares: Mapping[str, TaskShare]) -> LedgerEntry:
    """Of one stretch of time, of which only these uses are known; it is not written."""
    sums = _PlanSums(windows=1)
    sums.add_tasks(shares)
    return _entry(turn, plan, topology, sums)


def _predicted_latency(k: Knowledge, sums: _PlanSums) -> dict[str, float]:
    found, offered_tps = predicted_latency(k), sums.mean(sums.offered)
    if found is None or abs(found.rate_tps - offered_tps) > NEAR_RATE * offered_tps:
        return {}
    return dict(zip(("p50", "p95", "p99"), (round(ms, DIGITS) for ms in found.rows), strict=True))


def _task(name: str, model: Model, share: TaskShare, sums: _PlanSums) -> TaskKept:
    mean, correction = sums.mean, correction_of(model)
    return TaskKept(
        task=name,
        model=model.task,
        version=correction.of,
        rate_tps=mean(share.rate_tps),
        cpu=mean(share.cpu),
        predicted_cpu=mean(share.predicted),
        busy=mean(share.busy),
        predicted_busy=mean(share.predicted_busy),
        waits=share.waits,
        vms={vm: (mean(cpu), mean(predicted)) for vm, (cpu, predicted) in sorted(share.by_vm.items())},
        time_factor=correction.time,
        cpu_factor=correction.cpu,
    )


# ── Names models and VMs that are surely off, by what the prediction ledger says, and corrects the models.
# Pure
#
# A corrected model is a new version that says where it comes from (`models/prediction_ledger.py`); the one
# before it stays where it was read. It is planned with at once. VMs are named only: their rows do not count
# against models.


def by_ledger(turn: Turn) -> None:
    """Before the first plan, by what earlier runs found. A plan that was given is of the models as they are."""
    settings = turn.knowledge.settings
    if settings.ledger_trouble:
        turn.event("trouble", f"the prediction ledger is spoiled: {settings.ledger_trouble}", level="warning")
    if settings.plan is None:
        _correct(turn, _off(turn, settings.ledger))


def named(turn: Turn, accounts: Accounts) -> list[ModelBias]:
    """Models that are off by all that is known, after a new entry, until they are corrected; each is reported once."""
    k = turn.knowledge
    if not accounts.fresh:
        return []
    off = _off(turn, (*k.settings.ledger, *accounts.entries.values()))
    accounts.fresh = bool(off)
    return off


def found(turn: Turn, off: Sequence[ModelBias], need: Demand) -> Diagnosis | None:
    """A plan to be made since these models were corrected; None where none was."""
    k = turn.knowledge
    if not off or not may_plan(k):
        return None
    told = _correct(turn, off)
    evidence = {bias.model: round(bias.cost.factor, 4) for bias in off}
    return Diagnosis("replan", "model_off", told, need.target_tps, evidence, ())


def _off(turn: Turn, entries: Iterable[LedgerEntry]) -> list[ModelBias]:
    """The models at hand that are off from what they are corrected by already; each that was not is reported, and so
    are slow VMs."""
    k, known = turn.knowledge, tuple(entries)
    words = {
        f"VM {vm}": f"VM {vm} is slow: the same rows cost {how.factor:.2g} times the CPU there that they cost elsewhere"
        for vm, how in slow_vms(known).items()
    }
    off: list[ModelBias] = []
    for model, bias in off_models(k.models, known):
        off.append(bias)
        words[f"model {model.task}"] = words_of(bias, correction_of(model).time)
    for what, text in words.items():
        if what not in k.found_off:
            turn.event("off", text, level="warning", what=what)
    k.found_off = words
    return off


def _correct(turn: Turn, off: Iterable[ModelBias]) -> str:
    """Bring these into the models, and say so."""
    k = turn.knowledge
    fresh = [corrected_by(k.models[bias.model], bias, utc_iso(turn.now.wall_ns)) for bias in off]
    if not fresh:
        return ""
    texts = [_change(k.models[model.task], model) for model in fresh]
    turn.record(Modelled(tuple(fresh), turn.now.wall_ns))
    for model, text in zip(fresh, texts, strict=True):
        turn.do(KeepModel(model_data(model), CORRECTED))
        turn.event("corrected", text, model=model.task)
        k.found_off.pop(f"model {model.task}", None)
    return "; ".join(texts)


def _change(before: Model, after: Model) -> str:
    old, new = correction_of(before), correction_of(after)
    return (
        f"the model of {after.task} is corrected, its rates × {old.time / new.time:.3g}: version "
        f"{version_of(before)[:8]} → {version_of(after)[:8]}"
    )
