"""A made-up run for measuring what a picture costs: a real plan, and a window whose every value moves."""

from __future__ import annotations

import math
import random
from typing import Any

from msgspec.structs import replace

from headgate.controller.analyze.residuals import growing, nearness, predicted_slots
from headgate.controller.core.view_builder import view_of
from headgate.controller.knowledge import diagnoses as d
from headgate.controller.knowledge import measured_window as w
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Durable, Rollout, RolloutStarted, Submitted
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.membership import Member
from headgate.controller.knowledge.run_view import LoopResult, RunView
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, best_plan
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import Report, ThreadSpec, Token, WorkerStatus

NS = 1_000_000_000
WALL_NS = 1_790_000_000 * NS
BUNDLE = 5  # threads that fill a slot


def topology_of(tasks: int) -> Topology:
    """A chain: source, tasks, sink."""
    inner = [Task(f"task{n:02d}") for n in range(tasks - 2)]
    fixed = Static(1, 0.05, 0.05)
    every = (Task("source", "source", static=fixed), *inner, Task("sink", static=fixed))
    edges = tuple(Edge(a.name, b.name) for a, b in zip(every, every[1:], strict=False))
    return Topology("chain", every, edges)


def models_of(topology: Topology) -> tuple[Model, ...]:
    points = tuple(Point(n, 20.0 * n, 0.19 * n, 0.05 * n) for n in range(1, BUNDLE + 1))
    return tuple(Model(t.name, ModelSlot(), points) for t in topology.tasks if t.static is None)


def plan_for_slots(topology: Topology, slots: int) -> Plan:
    """A plan that fills most of so many slots, four a VM."""
    vms = tuple(Vm(f"vm{n}", 4, usd_per_hour=0.1) for n in range(1, -(-slots // 4) + 1))
    models = {model.task: model for model in models_of(topology)}
    most_tps = 100.0 * slots / (len(topology.tasks) - 2)  # what full slots of five threads carry
    return best_plan(PlanRequest(topology, models, most_tps, vms))


class Cluster:
    """A run whose windows move a little every second; `at(seconds)` is what the controller sees then."""

    def __init__(self, tasks: int = 10, slots: int = 20, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self.topology = topology_of(tasks)
        self.plan = plan_for_slots(self.topology, slots)
        self.k = Knowledge(ControllerSettings("made", initial=self.plan.vms))
        self.k.durable = self._durable()
        for vm in self.plan.vms:
            workers = tuple(WorkerStatus(slot, 1, "running") for slot in vm.all_slots())
            report = Report(vm.vm, 1, 1, Token(), workers)
            self.k.members.members[vm.vm] = Member(vm, 1, "joined", 0, report=report)

    @property
    def threads(self) -> int:
        return sum(bundle.threads for bundle in self.plan.placement.bundles)

    def _durable(self) -> Durable:
        places = [(b.slot, b.task) for b in self.plan.placement.bundles for _ in range(b.threads)]
        threads = tuple(ThreadSpec(n, task, slot) for n, (slot, task) in enumerate(places))
        planned = RolloutStarted(
            1, self.plan, "start", "the first plan", WALL_NS, threads, (), (), 1, (), 0, (), {}, 0
        )
        steps = ((0.0, self.plan.rate_tps * 0.8),)
        run = Submitted(self.topology, models_of(self.topology), steps, 0.0, (), WALL_NS)
        rollout = Rollout(
            1, "start", self.plan.rate_tps, self.plan.slots.used, WALL_NS, WALL_NS, WALL_NS + NS
        )
        return Durable(
            boot=1, run=run, rollout=planned, phase="committed", schedule=Schedule(WALL_NS, steps),
            started_ns=WALL_NS, rollouts=(rollout,),
        )  # fmt: skip

    def at(self, seconds: float) -> RunView:
        now = Now(int(seconds * NS), WALL_NS + int(seconds * NS))
        window = self._window(seconds)
        slope = self._chance.gauss(0, 0.004)
        stable = d.Stability(
            "stable", slope, slope - 0.01, slope + 0.01, 0.001, -0.01, 0.01, 1.0, 0.99, "keeps up"
        )
        need = d.Demand(window.offered_tps, window.offered_tps, "same", "as planned", (), {})
        predicted = predicted_slots(self.plan.prediction, self.topology, window.emitted_tps, {})
        models = {model.task: model for model in models_of(self.topology)}
        near = nearness(window, self.plan, self.topology, models, predicted)
        in_task = {task.name: self._in_task() for task in self.topology.tasks}
        grows = growing(window, stable)
        health = d.Health("stable", 0, 0.0, None, "stable")
        result = LoopResult(
            window, stable, health, need, (), (), (), predicted, predicted, near, grows, in_task
        )
        for known in self.k.members.members.values():
            assert known.report is not None
            known.report = replace(known.report, sequence=known.report.sequence + 1)
        self._decide(seconds)
        return self.view(result, now)

    def view(self, result: LoopResult | None, now: Now) -> RunView:
        return view_of(self.k, {}, None, result, now)

    def _decide(self, seconds: float) -> None:
        self.k.last_decision = {
            "time": str(seconds), "epoch": 1, "trigger": "fine", "evidence": {}, "alternatives": [],
            "action": "none", "text": "fine", "plan": None,
        }  # fmt: skip

    def _moved(self, value: float, part: float = 0.05) -> float:
        return max(0.0, value * (1 + self._chance.gauss(0, part)))

    def _window(self, seconds: float) -> w.MeasuredWindow:
        emitted = self._moved(self.plan.rate_tps * 0.8, 0.02)
        tasks = {task.name: self._task(emitted) for task in self.topology.tasks}
        slots = {slot: self._slot(slot) for vm in self.plan.vms for slot in vm.all_slots()}
        edges = {
            (e.source, e.target): w.EdgeWindow(
                self._moved(emitted, 0.02), 1e4, self._moved(1.0), self._moved(2.0)
            )
            for e in self.topology.edges
        }
        wave = 20 + 5 * math.sin(seconds / 7)
        latency = w.Latency(1000.0, wave, self._moved(wave), self._moved(3 * wave), self._moved(6 * wave))
        rates: dict[str, Any] = {"offered_tps": self.plan.rate_tps * 0.8, "emitted_tps": emitted}
        return w.MeasuredWindow(
            now_ns=int(seconds * NS), seconds=10.0, epoch=1, complete=1.0, offered_slope_tps_per_s=0.0,
            acked_tps=self._moved(emitted, 0.02), backlog=40.0, backlog_growth_tps=0.0, tasks=tasks, slots=slots,
            edges=edges, latency=latency, latencies={}, latency_series=w.LatencySeries(), progress=w.ProgressSeries(),
            **rates,
        )  # fmt: skip

    def _task(self, rate_tps: float) -> w.TaskWindow:
        rate, ms = self._moved(rate_tps, 0.02), self._moved(8.0)
        busy = min(1.0, self._moved(0.7))
        return w.TaskWindow(5.0, rate, rate, self._moved(6.0), 0.0, ms, 0.9, busy, 0.1, 0.01, 1e4, 1e4)

    def _in_task(self) -> tuple[float, float, float]:
        ms = self._moved(8.0)
        return ms, 2 * ms, 4 * ms

    def _slot(self, slot: Slot) -> w.SlotWindow:
        return w.SlotWindow(self._moved(0.76), self._moved(0.25, 0.01), 0.7, 1e8, 0.0, 0.0)
