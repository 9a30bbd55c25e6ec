"""Thousands of random plans, each checked by the verifier: random topologies, models, clusters and choices.

From every world comes a plan, or the best one that fits, then a plan for another rate on the same VMs, its
slots renamed to keep what runs, and threads left where they are. In half of the worlds memory is held, as by measured
models: by processes, tasks, threads and states; there it is added up here once more. In three of ten models say what
frames cost. Seeds count up from `--seed`; a
failing one alone: `--plans 1 --seed N`. Ends 8 when a plan has a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from headgate.controller.execute.plan_diff import diff
from headgate.controller.models.plans import Plan, TaskState, ThreadAt
from headgate.controller.models.task_models import BASE, WORKER, Model, ModelSlot, Point, Spread
from headgate.controller.plan.acquire import covering, exact
from headgate.controller.plan.mappers.free_slots import Weights
from headgate.controller.plan.plan_moves import relabel
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan, plan_acquiring
from headgate.controller.plan.schedulers import PAIRS, pairs
from headgate.controller.plan.steadiness import moving_least
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Grouping, Static, Task, Topology
from headgate.topology_runtime.errors import CheckFailed, Infeasible
from headgate.topology_runtime.measuring.wake_cost import CROSSING, FRAME, ROWS

SLOT = Vm("any", 1).slot_memory_bytes
WORKER_PART = 0.04  # of a slot's memory: a worker without tasks
SIZES = tuple(Vm(f"size{slots}", slots) for slots in (4, 2, 1))


@dataclass
class Found:
    """`failed`: (seed, faults); `by_pair`: plans per allocator+mapper; `fullest`: slot, by the memory that is held."""

    plans: int = 0
    infeasible: int = 0
    fullest: float = 0.0
    by_pair: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[int, list[str]]] = field(default_factory=list)


def verify(plans: int, seed: int, tell: Callable[[Found], None] = lambda found: None) -> Found:
    """At least `plans` plans from worlds `seed`, `seed` + 1 …"""
    found = Found()
    while found.plans < plans:
        try:
            faults = list(_faults(random.Random(seed), found))
        except Exception as error:  # a planner that raises is a fault of that seed, and the rest goes on
            faults = [f"{type(error).__name__}: {error}"]
        if faults:
            found.failed.append((seed, faults))
        seed += 1
        tell(found)
    return found


def _faults(chance: random.Random, found: Found) -> Iterator[str]:
    """Faults of the plans of one world."""
    request = random_request(chance)
    way = chance.choice(("given", "given", "acquired", "best"))
    if way == "acquired":
        request = replace(request, excluded=frozenset(), pinned={})
    first = _planned(chance, request, way)
    if first is None:
        found.infeasible += 1
        return
    yield from _checked(first, request, found)
    again = replace(request, vms=first.vms, may_add=(), rate_tps=request.rate_tps * chance.uniform(0.1, 1.2))
    try:
        second = make_plan(again)
    except Infeasible:
        found.infeasible += 1
        return
    threads = _scattered(chance, diff((), first.placement, request.topology, 1).start, first.vms)
    moved = relabel(second, threads, request.excluded if chance.random() < 0.5 else None)
    yield from _checked(moved, again, found)
    there = replace(again, in_force=first.placement)
    yield from _checked(moving_least(there, make_plan(there), first, first.placement), there, found)
    if _kept(moved, threads, request.topology) < _kept(second, threads, request.topology):
        yield "renaming slots keeps fewer threads"
    if (request.mapper, request.routing) == ("sam", "weighted"):
        yield from faults_of(second, again.topology, again.models, replaces=first)


def _planned(chance: random.Random, request: PlanRequest, way: str) -> Plan | None:
    try:
        if way == "acquired":
            return plan_acquiring(request, SIZES, chance.choice((exact, covering)))
        return best_plan(request) if way == "best" else make_plan(request)
    except Infeasible:
        return None


def _checked(plan: Plan, request: PlanRequest, found: Found) -> Iterator[str]:
    found.plans += 1
    found.by_pair[f"{plan.allocator}+{plan.mapper}"] += 1
    yield from faults_of(plan, request.topology, request.models)
    yield from (
        f"slot {bundle.slot} is excluded and used"
        for bundle in plan.placement.bundles
        if bundle.slot in request.excluded
    )
    found.fullest = max(found.fullest, *(held := _held(plan, request)).values())
    yield from (
        f"slot {slot} holds {part:.6f} of its memory" for slot, part in held.items() if part > 1 + 2e-6
    )
    low, rate, high = (
        plan.prediction.rate_low_tps, plan.prediction.rate_tps, plan.prediction.rate_high_tps
    )  # fmt: skip
    if low is not None and high is not None and not low * (1 - 1e-6) <= rate <= high * (1 + 1e-6) + 1e-9:
        yield f"{rate:g} rows/s are not between {low:g} and {high:g}"


def _held(plan: Plan, request: PlanRequest) -> dict[Slot, float]:
    """Slot → the part of its memory that is held there: a worker, imports once, what each group of threads has beyond,
    what tasks of fixed size reserve, states by the rows that come there. Nothing of models of papers."""
    used = {name: model for name, model in request.models.items() if WORKER in model.more}
    found = {bundle.slot: 0.0 for bundle in plan.placement.bundles}
    if not used and not request.states:
        return found
    states = {state.task: state.memory_bytes / SLOT for state in request.states}
    shares = {(one.slot, one.task): one.share for one in plan.prediction.shares}
    most = request.state_most_bytes / SLOT or 0.5
    for slot in found:
        groups = [bundle for bundle in plan.placement.bundles if bundle.slot == slot]
        imported, in_state = 0.0, 0.0
        for group in groups:
            task = request.topology.by_name[group.task]
            in_state += states.get(group.task, 0.0) * shares.get((slot, group.task), 0.0)
            if task.static is not None:
                found[slot] += task.static.memory * group.threads / task.static.threads
            elif (model := used.get(task.model_name)) is not None:
                held, base = _of_threads(model, group.threads), float(model.more[BASE])
                imported = max(imported, min(held, base))
                found[slot] += max(0.0, held - base)
        found[slot] += max((WORKER_PART for _ in used), default=0.0) + imported + min(most, in_state)
    return found


def _of_threads(model: Model, threads: int) -> float:
    """Straight lines between the points, and whole groups of the most threads beyond."""
    ends = [(0, 0.0), *((point.threads, point.memory) for point in model.points)]
    whole, rest = divmod(threads, ends[-1][0])
    (a, low), (b, high) = next(pair for pair in pairwise(ends) if rest <= pair[1][0])
    return whole * ends[-1][1] + low + (high - low) * (rest - a) / (b - a)


def _kept(plan: Plan, threads: tuple[ThreadAt, ...], topology: Topology) -> int:
    return len(diff(threads, plan.placement, topology, 1).keep)


def _scattered(
    chance: random.Random, threads: tuple[ThreadAt, ...], vms: tuple[Vm, ...]
) -> tuple[ThreadAt, ...]:
    slots = [slot for vm in vms for slot in vm.all_slots()]
    names = dict(zip(slots, chance.sample(slots, len(slots)), strict=True))
    return tuple(replace(thread, slot=names[thread.slot]) for thread in threads)


def random_request(chance: random.Random) -> PlanRequest:
    """Any topology, models and choices; VMs for about as much as the rate needs."""
    topology = random_topology(chance)
    models = {t.model_name: random_model(chance, t.model_name) for t in topology.tasks if t.static is None}
    vms = tuple(
        Vm(f"vm{n}", chance.choice((1, 2, 4, 4)), rack=f"r{chance.randint(1, 2)}")
        for n in range(1, chance.randint(1, 12) + 1)
    )
    more = tuple(Vm(f"more{n}", chance.choice((1, 2, 4))) for n in range(chance.choice((0, 0, 10))))
    if chance.random() < 0.4:
        vms, more = _of_speeds(chance, vms), _of_speeds(chance, more)
    held = chance.random() < 0.5
    if held:
        models = {name: _holding(chance, model) for name, model in models.items()}
    slots = [slot for vm in vms for slot in vm.all_slots()]
    allocator, mapper = chance.choice((*PAIRS * 4, *pairs())).split("+")
    made = PlanRequest(
        topology=topology,
        models=models,
        rate_tps=chance.choice((0.0, 1.0, 10.0, 100.0, 1000.0)) * chance.uniform(0.5, 2.0),
        vms=vms,
        may_add=more,
        excluded=frozenset(chance.sample(slots, min(len(slots) - 1, chance.choice((0, 0, 1, 3))))),
        pinned=_random_pins(chance, topology, slots),
        allocator=allocator,
        mapper=mapper,
        routing=chance.choice(("weighted", "weighted", "shuffle")),
        interference=chance.choice(("cpu", "cpu", "none")),
        weights=Weights(*(chance.choice((0.5, 1.0, 2.0)) for _ in range(3))),
        fixed=chance.random() < 0.3,
        states=_random_states(chance, topology) if held else (),
        state_most_bytes=round(chance.choice((0.0, 0.2, 0.8)) * SLOT) if held else 0,
    )
    apart = random.Random()  # what is drawn from `chance` stays as it was
    apart.setstate(chance.getstate())
    if apart.random() < 0.7:
        return made
    return replace(made, models={name: _framed(apart, model) for name, model in models.items()})


def _framed(chance: random.Random, model: Model) -> Model:
    """The model with what a frame costs, of the CPU that its rows take at the first point, and what crossing does."""
    first = model.points[0]
    rows = chance.choice((1.0, 50.0, 2048.0))
    a_row = first.cpu / first.rate_tps
    cost = chance.uniform(0.0, a_row * rows)  # at most all that a row was measured to take
    return replace(
        model, more={**model.more, FRAME: cost, ROWS: rows, CROSSING: chance.uniform(0, a_row / 2)}
    )


def _holding(chance: random.Random, model: Model) -> Model:
    """The model as if it had been measured: what threads hold only rises with their number, above what is imported."""
    base = chance.uniform(0, chance.choice((0.05, 0.4)))
    held, points = base, []
    for point in model.points:
        held += chance.uniform(0, chance.choice((0.02, 0.2, 0.5)))
        points.append(replace(point, memory=held))
    more = {"measured_at": "now", WORKER: WORKER_PART * SLOT, BASE: base}
    return replace(model, points=tuple(points), more=more)


def _random_states(chance: random.Random, topology: Topology) -> tuple[TaskState, ...]:
    sizes = {t.name: round(SLOT * chance.uniform(0.01, 0.6)) for t in topology.tasks if t.static is None}
    return tuple(TaskState(task, size, size) for task, size in sizes.items() if chance.random() < 0.3)


def _of_speeds(chance: random.Random, vms: tuple[Vm, ...]) -> tuple[Vm, ...]:
    return tuple(replace(vm, speed=chance.choice((0.5, 0.8, 1.0, 2.0))) for vm in vms)


def _random_pins(chance: random.Random, topology: Topology, slots: list[Slot]) -> dict[str, tuple[Slot, ...]]:
    if chance.random() < 0.6:
        return {}
    return {
        task.name: tuple(chance.choice(slots) for _ in range(task.static.threads))
        for task in topology.tasks
        if task.static is not None
    }


GROUPINGS: tuple[Grouping, ...] = (*("shuffle",) * 6, "fields", "local")


def random_topology(chance: random.Random) -> Topology:
    """One or two sources, up to twelve tasks behind them, and a sink."""
    sources = ["source", "other"][: chance.choice((1, 1, 2))]
    names = [f"t{n}" for n in range(chance.randint(1, 12))]
    edges = []
    for number, name in enumerate(names):
        before = names[:number] or sources
        for parent in chance.sample(before, min(len(before), chance.choice((1, 1, 2, 3)))):
            grouping: Grouping = chance.choice(GROUPINGS)
            edges.append(Edge(parent, name, chance.choice((0.25, 0.5, 1.0, 1.0, 2.0)), grouping))
    leaving = {edge.source for edge in edges}
    edges += [Edge(name, "sink") for name in (*sources, *names) if name not in leaving]
    fraction = [0.0, 0.1, 0.2, 0.3]
    fixed = [
        Task(name, kind="source", static=Static(chance.randint(1, 3), *chance.choices(fraction, k=2)))
        for name in sources
    ]
    lone = chance.choice(names) if chance.random() < 0.1 else ""
    middle = [Task(name, model=chance.choice((None, "shared")), exclusive=name == lone) for name in names]
    sink = Task("sink", static=Static(1, *chance.choices(fraction, k=2)))
    return Topology("random", (*fixed, *middle, sink), tuple(edges))


def random_model(chance: random.Random, task: str) -> Model:
    """One to six points; rates rise, stay or fall, CPU and memory may be more than a whole slot."""
    counts = sorted(chance.sample(range(1, 80), chance.randint(1, 6)))
    if chance.random() < 0.8:
        counts[0] = 1
    scale = chance.choice((5.0, 50.0, 500.0))
    points = []
    for count in counts:
        rate = scale * chance.uniform(0.2, 2.0)
        cpu, memory = chance.uniform(0, chance.choice((0.3, 1.0, 1.05))), chance.uniform(0, 0.9)
        spread = chance.choice((None, Spread(relative=0.1), Spread(rate_tps=rate / 5, cpu=0.02)))
        points.append(Point(count, rate, cpu, memory, spread if chance.random() < 0.3 else None))
    return Model(task, ModelSlot(), tuple(points))


def _bar(wanted: int) -> Callable[[Found], None]:
    """A line on stderr that says how far it is."""

    def tell(found: Found) -> None:
        done = min(found.plans, wanted)
        full = 40 * done // wanted
        sys.stderr.write(f"\r[{'█' * full}{' ' * (40 - full)}] {done}/{wanted}, {len(found.failed)} failed")
        sys.stderr.write("\n" if done == wanted else "")

    return tell if sys.stderr.isatty() else lambda found: None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("json", "table"), default="table")
    chosen = parser.parse_args()
    began = time.perf_counter()
    found = verify(chosen.plans, chosen.seed, _bar(chosen.plans))
    seconds = round(time.perf_counter() - began, 1)
    if chosen.output == "json":
        failed = [{"seed": seed, "faults": faults} for seed, faults in found.failed]
        told = {
            "plans": found.plans,
            "fullest_slot": found.fullest,
            "infeasible": found.infeasible,
            "pairs": dict(found.by_pair),
        }
        data = {"schema": "headgate/verified-plans/v1", "seed": chosen.seed, **told, "failed": failed}
        print(json.dumps(data | {"seconds": seconds}, indent=1, allow_nan=False))
    else:
        for seed, faults in found.failed:
            print(f"seed {seed}: {faults[0]}" + (f" (and {len(faults) - 1} more)" if faults[1:] else ""))
        pairs = ", ".join(f"{pair} {count}" for pair, count in sorted(found.by_pair.items()))
        print(f"{found.plans} plans from seed {chosen.seed} on: {len(found.failed)} seeds with faults")
        print(
            f"{pairs}; {found.infeasible} infeasible; the fullest slot holds {found.fullest:.4f}; {seconds} s"
        )
    return CheckFailed.exit_code if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
