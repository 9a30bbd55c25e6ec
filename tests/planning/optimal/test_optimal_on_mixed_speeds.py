"""The fewest slots of VMs of several speeds, with memory: found again by an integer program that is written from what a
slot may hold alone, each thread count and rate of each slot a variable of its own."""

from __future__ import annotations

import random

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import Bounds, LinearConstraint, milp
from worlds import model_of

from headgate.controller.models.task_models import Model, Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible

SPEEDS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def world(seed: int) -> PlanRequest:
    """One to three tasks that compute or wait, maybe one of one thread; a source and a sink that reserve some of a
    slot; up to six slots of at least two speeds, which the rate needs a part of, or more than all."""
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(chance.randint(1, 3))]
    models = {name: _model(name, chance) for name in names}
    tasks = [Task(name) for name in names]
    if chance.random() < 0.3:
        tasks[-1] = replace(tasks[-1], exclusive=True)
    ends = [Static(1, chance.choice((0.05, 0.1, 0.3)), chance.choice((0.05, 0.2, 0.4))) for _ in range(2)]
    tasks = [Task("source", kind="source", static=ends[0]), *tasks, Task("sink", static=ends[1])]
    edges = [
        Edge(a.name, b.name, chance.choice((0.5, 1.0, 2.0))) for a, b in zip(tasks, tasks[1:], strict=False)
    ]
    topology = Topology("chain", tuple(tasks), tuple(edges))
    speeds = chance.sample(SPEEDS, chance.randint(2, 3))
    vms = tuple(Vm(f"vm{n}", chance.randint(1, 2), speed=speed) for n, speed in enumerate(speeds))
    rates = topology.rates(1.0)
    cost = sum(
        rates[name] * min(point.cpu / point.rate_tps for point in models[name].points) for name in names
    )
    size = sum(vm.slots * vm.speed for vm in vms)
    rate_tps = chance.uniform(0.3, 1.0) * size / cost
    if tasks[-2].exclusive:
        carried = models[names[-1]].points[0].rate_tps * max(speeds)
        rate_tps = min(rate_tps, chance.uniform(0.3, 0.9) * carried / rates[names[-1]])
    return PlanRequest(topology, models, rate_tps, vms, allocator="optimal", mapper="optimal")


def _model(name: str, chance: random.Random) -> Model:
    """Measured, of a task that computes, or of one whose threads wait for the most part."""
    counts = sorted(chance.sample(range(1, 9), chance.randint(0, 2)))
    counts = [1, *(count for count in counts if count > 1)]
    one_tps, held, each = chance.uniform(20, 200), chance.uniform(0.02, 0.4), chance.uniform(0.0, 0.08)
    waits = chance.random() < 0.4
    one_cpu = chance.uniform(0.1, 0.4) if waits else chance.uniform(0.8, 1.0)
    points = []
    for count in counts:
        times = min(count, 0.95 / one_cpu) if waits else chance.uniform(0.9, 1.1)
        cpu = min(1.0, one_cpu * times)
        points.append((count, one_tps * times, cpu, min(0.95, held + each * count)))
    return replace(model_of(name, *points), more={"measured_at": "2026-12-01"})


def carried_tps(model: Model, point: Point, speed: float) -> float:
    """What a point's threads carry on a VM of that speed: as far below the bounds of a closed queue as measured."""
    per_row = point.cpu / point.rate_tps
    first = model.points[0]
    wait_s = max(0.0, (first.threads - first.cpu) / first.rate_tps)
    here = min(1 / per_row, point.threads / (wait_s + per_row))
    there = min(speed / per_row, point.threads / (wait_s + per_row / speed))
    return point.rate_tps * there / here


class _Program:
    """Variables by name, rows of them, and the least sum of those that cost."""

    def __init__(self) -> None:
        self.columns: dict[object, int] = {}
        self.whole: list[int] = []
        self.rows: list[tuple[dict[object, float], float, float]] = []

    def variable(self, name: object, whole: bool) -> object:
        self.columns[name] = len(self.columns)
        self.whole.append(int(whole))
        return name

    def least(self, costs: dict[object, float], most: float) -> float | None:
        matrix = np.zeros((len(self.rows), len(self.columns)))
        for number, (row, _, _) in enumerate(self.rows):
            for name, value in row.items():
                matrix[number, self.columns[name]] += value
        c = np.zeros(len(self.columns))
        for name, value in costs.items():
            c[self.columns[name]] = value
        lows, highs = [low for _, low, _ in self.rows], [high for _, _, high in self.rows]
        found = milp(
            c,
            constraints=LinearConstraint(matrix, lows, highs),
            integrality=self.whole,
            bounds=Bounds(0, most),
            options={"mip_rel_gap": 0.0},
        )
        assert found.status in (0, 2), "solved, or nothing fits"
        return float(found.fun) if found.status == 0 else None


def fewest_by_scipy(request: PlanRequest) -> int | None:
    """The fewest slots that carry the rate; None: all that there are do not."""
    topology, models, program = request.topology, request.models, _Program()
    rates = topology.rates(request.rate_tps)
    slots = [(number, vm.speed) for vm in request.vms for number in vm.all_slots()]
    in_all: dict[str, dict[object, float]] = {task.name: {} for task in topology.tasks}
    used = []
    for slot, speed in slots:
        used.append(program.variable((slot, "used"), whole=True))
        program.rows.append(({used[-1]: 1.0}, 0.0, 1.0))
        cpu, memory = {used[-1]: -1.0}, {used[-1]: -1.0}
        for task in topology.tasks:
            if task.static is not None:
                there = program.variable((slot, task.name), whole=True)
                cpu[there], memory[there] = task.static.cpu / speed, task.static.memory
                in_all[task.name][there] = 1.0
                continue
            model, groups = models[task.model_name], {}
            for point in model.points[:1] if task.exclusive else model.points:
                there = program.variable((slot, task.name, point.threads), whole=True)
                rows = program.variable((slot, task.name, point.threads, "rows"), whole=False)
                most_tps = carried_tps(model, point, speed)
                program.rows.append(({rows: 1.0, there: -most_tps}, -np.inf, 0.0))
                cpu[rows], memory[there] = point.cpu / point.rate_tps / speed, point.memory
                in_all[task.name][rows] = 1.0
                groups[there] = 1.0
            program.rows.append((groups, 0.0, 1.0))
            if task.exclusive:
                in_all[f"{task.name} there"] = in_all.get(f"{task.name} there", {}) | groups
        program.rows += [(cpu, -np.inf, 0.0), (memory, -np.inf, 0.0)]
    for name, row in in_all.items():
        if name in rates and topology.by_name[name].static is None:
            program.rows.append((row, rates[name] * (1 - 1e-9), np.inf))
        else:
            program.rows.append((row, 1.0, 1.0))
    found = program.least(dict.fromkeys(used, 1.0), max(rates.values()) + 1)
    return None if found is None else round(found)


def fewest_planned(request: PlanRequest) -> int | None:
    try:
        plan = make_plan(request)
    except Infeasible:
        return None
    assert faults_of(plan, request.topology, request.models) == []
    assert plan.prediction.rate_tps >= request.rate_tps * (1 - 1e-6)
    return plan.slots.used


def equal_in(seeds: range) -> list[int]:
    """Of these worlds, those that are planned with as few slots as there are."""
    return [seed for seed in seeds if fewest_planned(world(seed)) == fewest_by_scipy(world(seed))]


@pytest.mark.parametrize("ten", range(3))
def test_as_few_slots_as_there_are(ten):
    seeds = range(10 * ten, 10 * ten + 10)
    assert equal_in(seeds) == list(seeds)


@pytest.mark.full
def test_150_of_150():
    assert equal_in(range(150)) == list(range(150))
