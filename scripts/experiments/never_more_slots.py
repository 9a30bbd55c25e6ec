"""Random requests planned by `--planner optimal` and by MBA+SAM: never more slots, every plan verified.

Chains, forks and joins of one to `--tasks` tasks with random models (a few points each, rising rates, CPU and memory),
at random rates. A line for each request that does not hold, with its seed, and a summary: how many, slots in all of
both, how many with gap 0, times. The seed of a request is its number, so each can be had again with `--from`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from msgspec.structs import replace

from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, plan_acquiring
from headgate.controller.plan.verify import faults_of
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

SIZES = tuple(Vm(f"size{slots}", slots) for slots in (4, 2, 1))


def request_of(seed: int, most_tasks: int) -> PlanRequest:
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(chance.randint(1, most_tasks))]
    edges = []
    for number, name in enumerate(names):
        before = names[max(0, number - 3) : number] or ["source"]
        parents = chance.sample(before, min(len(before), chance.choice((1, 1, 2))))
        edges += [Edge(parent, name, round(chance.uniform(0.4, 1.3) / len(parents), 3)) for parent in parents]
    leaving = {edge.source for edge in edges}
    edges += [Edge(name, "sink", round(chance.uniform(0.01, 1), 3)) for name in names if name not in leaving]
    ends = [Static(1, round(chance.uniform(0.02, 0.3), 2), round(chance.uniform(0.02, 0.3), 2)) for _ in "ab"]
    tasks = (
        Task("source", kind="source", static=ends[0]),
        *map(Task, names),
        Task("sink", static=ends[1]),
    )
    models = {name: model_of(name, chance) for name in names}
    rate = round(chance.uniform(5, 400), 1)
    return PlanRequest(Topology(f"random{seed}", tasks, tuple(edges)), models, rate, ())


def model_of(name: str, chance: random.Random) -> Model:
    """Rates that rise with the threads, and at last may fall; CPU and memory that rise."""
    threads = sorted(chance.sample(range(1, 13), chance.randint(1, 5)))
    rate, cpu, memory = chance.uniform(20, 200), chance.uniform(0.05, 0.5), chance.uniform(0.02, 0.2)
    exponents = [chance.uniform(0.3, 1.1) for _ in range(3)]
    points = [
        Point(
            n,
            rate * n ** exponents[0],
            min(1.0, cpu * n ** exponents[1]),
            min(1.0, memory * n ** exponents[2]),
        )
        for n in threads
    ]
    return Model(name, ModelSlot(1.0, 1 << 30), tuple(points))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=6)
    asked = parser.parse_args()
    slots, exact, seconds, failed = [0, 0], 0, [], 0
    planned = 0
    for seed in range(asked.first, asked.first + asked.count):
        request = request_of(seed, asked.tasks)
        try:
            usual = plan_acquiring(request, SIZES)
        except Infeasible:
            continue
        began = time.process_time()
        found = plan_acquiring(replace(request, allocator="optimal", mapper="optimal"), SIZES)
        seconds.append(time.process_time() - began)
        planned += 1
        faults = faults_of(found, request.topology, request.models)
        if found.slots.total > usual.slots.total or faults:
            failed += 1
            print(
                json.dumps({"seed": seed, "slots": [usual.slots.total, found.slots.total], "faults": faults})
            )
        slots = [slots[0] + usual.slots.total, slots[1] + found.slots.total]
        exact += found.allocation.gap == 0
    spent = {"median": round(statistics.median(seconds), 3), "most": round(max(seconds), 3)}
    print(json.dumps({"first": asked.first, "planned": planned, "failed": failed, "mba_sam": slots[0],
                      "optimal": slots[1], "gap_0": exact, "cpu_s": spent}))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
