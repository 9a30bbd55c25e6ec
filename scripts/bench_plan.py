"""How long planning takes: MBA + SAM with prediction, then verifying, diffing, routing and relabelling.

Random topologies of tasks with the published models, on VMs of four slots, at rates just below what the
slots carry. Prints the median and the highest of `--repeat` plans in ms per size, imports not counted.
"""
# bench: plan – MBA + SAM for 15 tasks on 65 slots up to 1,000 tasks on 10,000 slots

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controller.execute.diff import diff
from controller.execute.routes import routes
from controller.knowledge.model_files import read_models
from controller.plan.planner import PlanRequest, best_plan, make_plan
from controller.plan.relabel import relabel
from controller.plan.verify import faults_of
from topology_runtime.cluster import Vm
from topology_runtime.topology import Edge, Static, Task, Topology

MODELS = read_models(Path(__file__).parent.parent / "tests" / "golden" / "models")
SIZES = ((15, 65), (100, 1000), (250, 2500), (500, 5000), (1000, 10000))  # tasks with their ends, slots
GOALS_MS = {65: 5.0, 10000: 1000.0}
STEP = 0.998  # each plan is for a slightly lower rate, so that none is like the one before


def topology(tasks: int) -> Topology:
    """A random graph of `tasks` tasks, source and sink among them, whose rates stay near the input rate."""
    chance = random.Random(tasks)
    names = [f"t{number}" for number in range(tasks - 2)]
    edges = []
    for number, name in enumerate(names):
        before = names[max(0, number - 5) : number] or ["source"]
        parents = chance.sample(before, min(len(before), chance.choice((1, 1, 2))))
        share = chance.uniform(0.9, 1.1) / len(parents)
        edges += [Edge(parent, name, round(share, 3)) for parent in parents]
    leaving = {edge.source for edge in edges}
    edges += [Edge(name, "sink", 0.01) for name in names if name not in leaving]
    middle = [Task(name, model=chance.choice(sorted(MODELS))) for name in names]
    source = Task("source", kind="source", static=Static(1, 0.10, 0.15))
    return Topology(
        f"random{tasks}", (source, *middle, Task("sink", static=Static(1, 0.10, 0.20))), tuple(edges)
    )


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """(what it gave, ms)."""
    began = time.perf_counter()
    found = action()
    return found, (time.perf_counter() - began) * 1e3


def measure(tasks: int, slots: int, repeat: int) -> dict[str, Any]:
    vms = tuple(Vm(f"vm{number}", 4) for number in range(1, -(-slots // 4) + 1))
    spare = tuple(Vm(f"spare{number}", 4) for number in range(1, 2 + len(vms) // 20))  # rests may fit worse
    shape = topology(tasks)
    full = best_plan(PlanRequest(shape, MODELS, 1e5, vms))
    times = []
    for number in range(repeat):
        fresh = replace(shape, name=f"{shape.name}-{number}")  # nothing of it is cached yet
        request = PlanRequest(fresh, MODELS, full.rate_tps * STEP**number, vms, spare)
        times.append(timed(partial(make_plan, request))[1])
    threads = diff((), full.placement, shape, 1).start
    lower = make_plan(PlanRequest(shape, MODELS, full.rate_tps * 0.8, vms))
    relabelled, relabel_ms = timed(lambda: relabel(lower, threads, frozenset()))
    faults, verify_ms = timed(lambda: faults_of(full, shape, MODELS))
    assert not faults, faults
    change, diff_ms = timed(lambda: diff(threads, relabelled.placement, shape, len(threads) + 1))
    return {
        "tasks": tasks,
        "slots": full.slots.used,
        "threads": len(threads),
        "plan_ms": round(statistics.median(times), 2),
        "plan_ms_max": round(max(times), 2),
        "goal_ms": GOALS_MS.get(slots),
        "n": repeat,
        "verify_ms": round(verify_ms, 2),
        "diff_ms": round(diff_ms, 2),
        "routes_ms": round(timed(lambda: routes(shape, full, threads))[1], 2),
        "relabel_ms": round(relabel_ms, 2),
        "stay": len(change.keep),
        "stay_unlabelled": len(diff(threads, lower.placement, shape, len(threads) + 1).keep),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", choices=("json", "table"), default="table")
    parser.add_argument("--repeat", type=int, default=20)
    chosen = parser.parse_args()
    measure(15, 65, 3)  # imports and caches
    rows = [measure(tasks, slots, chosen.repeat) for tasks, slots in SIZES]
    if chosen.output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "benchmark": "plan", "rows": rows}, indent=1))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items() if value is not None))


if __name__ == "__main__":
    main()
