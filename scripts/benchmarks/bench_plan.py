"""How long planning takes as topologies and clusters grow: each pair, from allocation to prediction.

Random topologies of tasks with the published models, on VMs of four slots, at rates just below what the
slots carry. Prints the median and the highest of up to `--repeat` plans in ms per pair and size, imports
not counted, and the exponents of log-log fits over slots and over groups (the threads of one task in one
slot: what a plan lists; round robin makes far more of them than slots). 1 is linear. For MBA + SAM also
verifying, diffing, routing and relabelling. Pairs that mix tasks in their slots predict for shuffle
routing: the best shares of crowded slots are a linear program, whose time is not that of planning.
"""
# bench: plan – each pair for 15 tasks on 65 slots up to 1,000 tasks on 10,000 slots

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headgate.controller.execute.plan_diff import diff
from headgate.controller.execute.rollout import routes
from headgate.controller.files.planning_inputs import read_models
from headgate.controller.plan.plan_moves import relabel
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.schedulers import ALLOCATORS, PAIRS
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api import shipped_examples as examples
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

MODELS = read_models(examples.MODELS)
SIZES = ((15, 65), (100, 1000), (300, 3000), (1000, 10000))  # tasks with their ends, slots
GOALS_MS = {("mba+sam", 65): 5.0, ("mba+sam", 10000): 1000.0}
STEP = 0.998  # each plan is for a slightly lower rate, so that none is like the one before
ENOUGH_S = 20.0  # of plans of one pair and size, once there are three


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


def highest_rate(shape: Topology, allocator: str, slots: int) -> float:
    """The rate at which the allocator needs just `slots`."""
    low, high = 0.0, 1e5
    for _ in range(40):
        middle = (low + high) / 2
        enough = ALLOCATORS[allocator].allocate(shape, MODELS, middle).slots <= slots
        low, high = (middle, high) if enough else (low, middle)
    return low


def measure(pair: str, tasks: int, slots: int, repeat: int) -> dict[str, Any]:
    allocator, mapper = pair.split("+")
    vms = tuple(Vm(f"vm{number}", 4) for number in range(1, -(-slots // 4) + 1))
    spare = tuple(Vm(f"spare{number}", 4) for number in range(1, 2 + len(vms) // 8))  # threads may fit worse
    shape = topology(tasks)
    rate = highest_rate(shape, allocator, slots)
    routing = "weighted" if mapper == "sam" else "shuffle"
    times: list[float] = []
    while len(times) < repeat and (len(times) < 3 or sum(times) < ENOUGH_S * 1e3):
        fresh = replace(shape, name=f"{shape.name}-{len(times)}")  # nothing of it is cached yet
        request = PlanRequest(
            fresh, MODELS, rate * STEP ** (len(times) + 1), vms, spare,
            allocator=allocator, mapper=mapper, routing=routing,
        )  # fmt: skip
        plan, took_ms = timed(partial(make_plan, request))
        times.append(took_ms)
    return {
        "pair": pair,
        "tasks": tasks,
        "slots": slots,
        "threads": sum(bundle.threads for bundle in plan.placement.bundles),
        "groups": len(plan.placement.bundles),
        "plan_ms": round(statistics.median(times), 2),
        "plan_ms_max": round(max(times), 2),
        "goal_ms": GOALS_MS.get((pair, slots)),
        "n": len(times),
        **(afterwards(shape, request) if pair == "mba+sam" else {}),
    }


def afterwards(shape: Topology, request: PlanRequest) -> dict[str, Any]:
    """ms of what follows a plan, once each; threads that stay when the rate falls by a fifth."""
    full = make_plan(replace(request, topology=shape))
    threads = diff((), full.placement, shape, 1).start
    lower = make_plan(replace(request, topology=shape, rate_tps=full.rate_tps * 0.8))
    relabelled, relabel_ms = timed(lambda: relabel(lower, threads, frozenset()))
    faults, verify_ms = timed(lambda: faults_of(full, shape, MODELS))
    assert not faults, faults
    change, diff_ms = timed(lambda: diff(threads, relabelled.placement, shape, len(threads) + 1))
    return {
        "verify_ms": round(verify_ms, 2),
        "diff_ms": round(diff_ms, 2),
        "routes_ms": round(timed(lambda: routes(shape, full, threads))[1], 2),
        "relabel_ms": round(relabel_ms, 2),
        "stay": len(change.keep),
        "stay_unlabelled": len(diff(threads, lower.placement, shape, len(threads) + 1).keep),
    }


def exponents(rows: list[dict[str, Any]], size: str) -> dict[str, float]:
    """Pair → k of plan_ms ~ size^k, by least squares on the logarithms."""
    found = {}
    for pair in dict.fromkeys(row["pair"] for row in rows):
        points = [(math.log(row[size]), math.log(row["plan_ms"])) for row in rows if row["pair"] == pair]
        if len(points) > 1:
            found[pair] = round(statistics.linear_regression(*zip(*points, strict=True)).slope, 2)
    return found


def draw(rows: list[dict[str, Any]], growth: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for pair, exponent in growth.items():
        points = [(row["slots"], row["plan_ms"]) for row in rows if row["pair"] == pair]
        axes.plot(*zip(*points, strict=True), marker="o", label=f"{pair}: slots^{exponent:g}")
    axes.set(xscale="log", yscale="log", xlabel="slots", ylabel="ms per plan")
    axes.legend()
    figure.savefig(path)


def plans(
    repeat: int = 20, pairs: str = ",".join(PAIRS), most_slots: int = 10000, plot: Path | None = None
) -> dict[str, Any]:
    """repeat: plans of each pair and size, at most; most_slots: leave out larger sizes; plot: draw the curves."""
    sizes = [size for size in SIZES if size[1] <= most_slots]
    for pair in pairs.split(","):
        measure(pair, *SIZES[0], 3)  # imports and caches
    rows = [measure(pair, *size, repeat) for pair in pairs.split(",") for size in sizes]
    growth = exponents(rows, "slots")
    if plot:
        draw(rows, growth, plot)
    return {"rows": rows, "exponents": {"slots": growth, "groups": exponents(rows, "groups")}}


BENCHMARKS = {"plan": plans}
