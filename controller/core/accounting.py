"""Keeps account of what the plan in force was predicted to do, and of what it does: entries of the prediction
ledger. Pure.

A plan is looked at once it is committed, `SETTLED_S` old and nothing is on its way; whole windows of samples count,
each once. The first entry is written after `FIRST` windows, and again each time that they have doubled, so that a plan
that is cut short is told of, and one that stands for days takes a few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.controller.analyze.residuals import LEAST, PredictedSlots
from headgate.controller.core.alarms import SETTLED_S
from headgate.controller.core.first_rows import slots_without_model
from headgate.controller.core.task_shares import TaskShare, TaskShares
from headgate.controller.knowledge.corrections import correction_of
from headgate.controller.knowledge.diagnoses import Stability
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.prediction_ledger import (
    LedgerEntry,
    PlanKey,
    RateKept,
    SlotKept,
    TaskKept,
    Tested,
)
from headgate.controller.knowledge.records import Submitted
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Trace
from headgate.controller.knowledge.windows import Window
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.utc import utc_iso

NS = 1_000_000_000
FIRST = 2  # windows: twenty seconds
SLACK_NS = NS // 2  # which a turn may be early
NEAR = 0.95  # of what a plan carries, offered: then it is tested whether it does
PLANS_KEPT = 256  # of this life, of which is learned; the ledger's file has them all
SLOTS_MOST = 64  # that an entry tells of; its tasks are of all
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
        window: Window,
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
        for name, share in shares.items():
            if name in self.tasks:
                self.tasks[name].add(share)
            else:
                self.tasks[name] = share

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
        self._sums = _PlanSums()
        self._next_ns = 0

    def look(
        self, turn: Turn, window: Window, verdict: Stability, slots: PredictedSlots
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

    def keep(self, entry: LedgerEntry) -> None:
        self.entries.pop(entry.key, None)
        self.entries[entry.key], self.fresh = entry, True
        if len(self.entries) > PLANS_KEPT:
            del self.entries[next(iter(self.entries))]


def _calm(k: Knowledge, turn: Turn, window: Window) -> bool:
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
    )


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
