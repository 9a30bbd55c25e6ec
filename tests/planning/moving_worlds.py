"""Random worlds, by number, in which a plan is in force and the rate changes; and what such a change moves, counted
apart from the planner."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from headgate.controller.core.plan_choice import PlanChoice, PlanQuestion, choose
from headgate.controller.models.plans import Placement, Plan, ThreadAt
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.schedulers import pair_of, pairs
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible

QUICK = tuple(pair for pair in pairs() if "optimal" not in pair)
EVERY = pairs()


def curve(rng: random.Random, name: str) -> Model:
    """More threads carry more, each of them less than the one before; CPU and memory rise with them."""
    counts = sorted(rng.sample(range(1, 25), rng.randint(1, 4)))
    one_tps, bend = rng.uniform(5.0, 80.0), rng.uniform(0.6, 1.0)
    cpu, memory = rng.uniform(0.2, 1.0), rng.uniform(0.05, 0.5)
    points = [Point(n, one_tps * n**bend, cpu * n / counts[-1], memory * n / counts[-1]) for n in counts]
    return Model(name, ModelSlot(), tuple(points))


def topology_of(rng: random.Random, keyed: bool = False) -> Topology:
    """A source, 2 to 5 tasks in a row or apart, and a sink."""
    names = [f"t{n}" for n in range(rng.randint(2, 5))]
    tasks = [Task("source", kind="source", static=Static(rng.randint(1, 2), 0.1, 0.05))]
    tasks += [Task(name, state="keyed" if keyed else "none") for name in names]
    tasks.append(Task("sink", static=Static(1, 0.1, 0.05)))
    grouping = "fields" if keyed else "shuffle"
    edges = []
    for place, name in enumerate(names):
        above = rng.choice(["source", *names[:place]])
        key = {"key": 0} if keyed else {}
        edges.append(Edge(above, name, rng.choice([0.5, 1.0, 1.0]), grouping, **key))
    ends = [name for name in names if name not in {edge.source for edge in edges}]
    return Topology("world", tuple(tasks), (*edges, *(Edge(name, "sink") for name in ends)))


def worlds(pair: str, seeds: Iterable[int], keyed: bool = False) -> Iterator[tuple[int, PlanRequest]]:
    allocator, mapper = pair_of(pair)
    for seed in seeds:
        rng = random.Random(seed)
        topology = topology_of(rng, keyed)
        models = {task.name: curve(rng, task.name) for task in topology.tasks if task.static is None}
        vms = tuple(Vm(f"vm{n}", 4) for n in range(1, 17))
        rate_tps = rng.uniform(40.0, 600.0)
        yield seed, PlanRequest(topology, models, rate_tps, vms, allocator=allocator, mapper=mapper)


def threads_in(placement: Placement) -> tuple[ThreadAt, ...]:
    places = [bundle for bundle in placement.bundles for _ in range(bundle.threads)]
    partitions = Counter[str]()
    found = []
    for number, bundle in enumerate(places):
        found.append(ThreadAt(number, bundle.task, bundle.slot, partitions[bundle.task]))
        partitions[bundle.task] += 1
    return tuple(found)


def first(request: PlanRequest) -> Plan | None:
    try:
        choice = choose(PlanQuestion(request, (), None, False, frozenset()))
    except Infeasible:
        return None
    return choice.plan if choice.action == "enact" and not choice.degraded else None


def changed(request: PlanRequest, before: Plan, times: float) -> PlanChoice:
    """What is chosen when the rate becomes so many times what it was, while this plan is in force."""
    asked = replace(request, rate_tps=times * request.rate_tps, in_force=before.placement)
    threads = threads_in(before.placement)
    return choose(PlanQuestion(asked, threads, before, False, frozenset(), len(threads)))


def moved(before: Placement, after: Placement) -> int:
    """Threads that start and threads that end."""
    had, has = ({(b.slot, b.task): b.threads for b in one.bundles} for one in (before, after))
    return sum(abs(had.get(at, 0) - has.get(at, 0)) for at in had.keys() | has.keys())


def required(before: Placement, after: Placement) -> int:
    """… if each task only had as many threads more or less as its count changes by."""
    had, has = (Counter[str](), Counter[str]())
    for counts, one in ((had, before), (has, after)):
        for bundle in one.bundles:
            counts[bundle.task] += bundle.threads
    return sum(abs(had[task] - has[task]) for task in had.keys() | has.keys())
