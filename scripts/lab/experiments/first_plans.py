"""Is the first plan of an unknown topology near the fewest slots, and how far do models of one slot reach?

By costs that are planted: in each random topology (by its seed) a row of a task costs 1 to 20 ms of CPU, and in two of
five tasks waits as long or longer. A run that knows nothing has one thread for each task. What samples say of it in
the seconds after which a run learns (2 where rows pile up) is drawn: rows by chance, each row's cost log-normal
(0.2), the clock of work 2 % off. Of these seconds models are made as in a run (`learned_models`).

first   the plan for 20 to 60 slots' work, by its models: slots / those of the optimal planner for the true costs.
        It is near where that is within 5 %; carries: of the rate, by the planted costs alone
reach   the rate that a plan for 64 slots' work was predicted to carry / what it carries by the planted costs

What plans do not know of (links, frames, busy machines) is not in it. A JSON line: how many were near, in per cent
how far slots and predictions were off.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from headgate.controller.core.learned_models import EARLY, USUAL, WAKE_S, RowCost, model_from, row_cost
from headgate.controller.knowledge.knowledge import RowsSeen
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.lab.experiments.never_more_slots import request_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.wake_cost import share_of_wakes

CORES, REACH, NEAR = 0.5, 64, 0.05
SIZES = (Vm("size4", 4, CORES), Vm("size1", 1, CORES))
HELD = 0.05  # of a slot's memory, by each task
ROW_SPREAD, CLOCK_SPREAD = 0.2, 0.02


@dataclass(frozen=True)
class PlantedCost:
    """Of a row, in s."""

    cpu_s: float
    wait_s: float


@dataclass(frozen=True)
class FirstPlan:
    """slots: of the plan by what was learned; fewest: with true models. carries: part of the rate. reach: predicted /
    carried of a plan for `REACH` slots' work."""

    seed: int
    slots: int
    fewest: int
    carries: float
    reach: float

    @property
    def near(self) -> bool:
        return abs(self.slots - self.fewest) <= NEAR * self.fewest


def first_plan_of(seed: int, most_tasks: int = 6) -> FirstPlan:
    chance = random.Random(seed)
    topology = request_of(seed, most_tasks).topology
    unit = topology.rates(1.0)
    planted = {task.name: _cost(chance) for task in topology.tasks if task.static is None}
    work_s = math.fsum(unit[name] * cost.cpu_s for name, cost in planted.items())
    rate_tps = chance.randint(20, 60) * CORES / work_s
    true = {name: _model(name, RowCost(0.0, cost.cpu_s, cost.wait_s)) for name, cost in planted.items()}
    learned = _learned(chance, topology, planted, rate_tps)
    request = PlanRequest(topology, learned, rate_tps, ())
    first = plan_acquiring(request, SIZES)
    best = plan_acquiring(replace(request, models=true, allocator="optimal", mapper="optimal"), SIZES)
    far = plan_acquiring(replace(request, rate_tps=REACH * CORES / work_s), SIZES)
    carried_tps = carried_of(first, topology, planted)
    return FirstPlan(
        seed,
        first.slots.used,
        best.slots.used,
        carried_tps / rate_tps,
        far.prediction.rate_tps / carried_of(far, topology, planted),
    )


def carried_of(plan: Plan, topology: Topology, planted: dict[str, PlantedCost]) -> float:
    """The highest rate at which no slot has more work than CPU, and no thread more than time: by planted costs, and
    the plan's shares of rows."""
    unit = topology.rates(1.0)
    threads = {(bundle.slot, bundle.task): bundle.threads for bundle in plan.placement.bundles}
    reserved = {task.name: task.static.cpu for task in topology.tasks if task.static is not None}
    work_s: dict[object, float] = {}
    free: dict[object, float] = {}
    least_tps = math.inf
    for part in plan.prediction.shares:
        share = part.share * unit[part.task]
        free[part.slot] = free.get(part.slot, 1.0) - part.share * reserved.get(part.task, 0.0)
        if part.task in planted and share > 0:
            cost = planted[part.task]
            work_s[part.slot] = work_s.get(part.slot, 0.0) + share * cost.cpu_s
            full_tps = threads[part.slot, part.task] / (cost.cpu_s + cost.wait_s) / share
            least_tps = min(least_tps, full_tps)
    return min([least_tps, *(free[slot] * CORES / needs_s for slot, needs_s in work_s.items())])


def _cost(chance: random.Random) -> PlantedCost:
    cpu_s = 10 ** chance.uniform(-3, math.log10(0.02))
    waits = chance.random() < 0.4
    return PlantedCost(cpu_s, cpu_s * chance.uniform(1, 10) if waits else 0.0)


def _model(name: str, cost: RowCost) -> Model:
    slot = ModelSlot(CORES, SIZES[0].slot_memory_bytes)
    return model_from(Model(name, slot, (Point(1, 1.0, 1.0, HELD),), {"unmeasured": True}), cost, HELD, "")


def _learned(
    chance: random.Random, topology: Topology, planted: dict[str, PlantedCost], rate_tps: float
) -> dict[str, Model]:
    """From the seconds of one thread each, at the rate that the slowest of them takes."""
    unit = topology.rates(1.0)
    most = {name: min(1 / (c.cpu_s + c.wait_s), CORES / c.cpu_s) for name, c in planted.items()}
    taken_tps = min([rate_tps, *(most[name] / unit[name] for name in planted)])
    seconds = EARLY if taken_tps < rate_tps else USUAL
    found = {}
    for name, cost in planted.items():
        seen = [_second(chance, cost, taken_tps * unit[name]) for _ in range(seconds)]
        while (learned := row_cost(seen, CORES)) is None:  # too few rows: a run waits, too
            seen.append(_second(chance, cost, taken_tps * unit[name]))
        found[name] = _model(name, learned)
    return found


def _second(chance: random.Random, cost: PlantedCost, tps: float) -> RowsSeen:
    rows = max(1.0, round(chance.gauss(tps, math.sqrt(tps))))
    clock = 1 + CLOCK_SPREAD * chance.gauss(0, 1)
    cpu_s, wait_s = (rows * each * _mean_of(chance, rows) for each in (cost.cpu_s, cost.wait_s))
    cpu_s += rows * WAKE_S * share_of_wakes(tps) if wait_s else 0.0
    return RowsSeen(rows, rows, cpu_s * clock, cpu_s + wait_s, wait_s, 0.0, 0.01, False)


def _mean_of(chance: random.Random, rows: float) -> float:
    """Of as many log-normal draws of mean 1, about."""
    return max(0.1, 1 + math.sqrt(math.expm1(ROW_SPREAD**2) / rows) * chance.gauss(0, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--count", type=int, default=100)
    asked = parser.parse_args()
    found = [first_plan_of(seed) for seed in range(asked.first, asked.first + asked.count)]
    off = np.array([100 * (one.slots / one.fewest - 1) for one in found])
    reach = np.array([100 * abs(one.reach - 1) for one in found])
    carries = np.array([one.carries for one in found])
    print(
        json.dumps(
            {
                "topologies": len(found),
                "near": sum(one.near for one in found),
                "at_most_one_slot_off": sum(abs(one.slots - one.fewest) <= 1 for one in found),
                "slots_off_percent": {name: round(float(np.percentile(off, q)), 1) for name, q in QUANTILES},
                "carries": {name: round(float(np.percentile(carries, q)), 3) for name, q in QUANTILES},
                "reach_off_percent": {
                    name: round(float(np.percentile(reach, q)), 1) for name, q in QUANTILES
                },
            }
        )
    )
    return 0


QUANTILES = (("p5", 5), ("median", 50), ("p95", 95))

if __name__ == "__main__":
    raise SystemExit(main())
