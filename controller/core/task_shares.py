"""What tasks use of their slots' CPU: as measured, and as models predict it for the rates that they take in. Pure.

Samples tell the CPU of each slot, which is a process, and of the threads in it. What a process uses beside its
threads is its tasks', as models count it; so a slot's CPU is shared out among its tasks as the CPU of their threads is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from headgate.controller.analyze.residuals import LEAST
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.windows import TaskWindow, Window
from headgate.controller.plan.load import PlacementLoad, load_of
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology

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

    def of(self, window: Window) -> dict[str, TaskShare]:
        """Task with a model → what it uses; those that took in nothing are left out."""
        load = self._load
        rates = [self._rate(window, task) for task in range(len(load.tasks))]
        found = {
            load.tasks[task]: self._empty(task, rates[task], window)
            for task, members in enumerate(load.by_task)
            if rates[task] > LEAST and load.tasks[task] in self._modelled
        }
        predicted = self._predicted(window.emitted_tps)
        for number, members in enumerate(load.by_slot):
            slot = load.slots[number]
            used = window.slots.get(slot)
            measured = {g: self._threads_cpu(g, window) for g in members}
            total = sum(measured.values())
            if used is None or slot in self._without or total <= 0:
                continue
            modelled = [g for g in members if load.tasks[load.groups[g].task] in found]
            cpu = {g: used.cpu * measured[g] / total for g in modelled}
            expected = {g: predicted[g] * self._taken(g, rates, window) for g in modelled}
            for g in modelled:
                if max(cpu[g], expected[g]) >= USED_LEAST:
                    found[load.tasks[load.groups[g].task]].use(slot.vm, cpu[g], expected[g])
        return found

    def _rate(self, window: Window, task: int) -> float:
        now = window.tasks.get(self._load.tasks[task])
        return now.rate_in_tps if now is not None else 0.0

    def _threads_cpu(self, g: int, window: Window) -> float:
        """Cores of the group's threads: its part of what all threads of its task use."""
        now = window.tasks.get(self._load.tasks[self._load.groups[g].task])
        return now.cpu_cores * self._shares[g] if now is not None else 0.0

    def _taken(self, g: int, rates: Sequence[float], window: Window) -> float:
        """What its task takes in, as a part of what it would at the rate that sources emit."""
        task = self._load.groups[g].task
        expected_tps = self._load.unit[task] * window.emitted_tps
        return rates[task] / expected_tps if expected_tps > LEAST else 1.0

    def _predicted(self, rate_tps: float) -> list[float]:
        """Fraction of its slot that each group uses at this input rate; those of a slot sum to what it uses."""
        load, shares = self._load, self._shares
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

    def _empty(self, task: int, rate_tps: float, window: Window) -> TaskShare:
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
