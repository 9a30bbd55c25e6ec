"""Random topologies, models and clusters for the property tests of planning, and small fixed ones."""

from __future__ import annotations

from itertools import pairwise

from examples import examples
from hypothesis import strategies as st

from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

checked, checked_few = examples(100), examples(40)


def model_of(task: str, *points: tuple[int, float, float, float]) -> Model:
    return Model(task, ModelSlot(), tuple(Point(*point) for point in points))


def chain(*names: str, ends: bool = False, **edge: object) -> Topology:
    """names[0] → names[1] → …; with `ends` a source before and a sink after."""
    tasks = [Task(name) for name in names]
    if ends:
        source = Task("source", kind="source", static=Static(1, 0.1, 0.15))
        tasks = [source, *tasks, Task("sink", static=Static(1, 0.1, 0.2))]
    edges = tuple(Edge(a.name, b.name, **edge) for a, b in pairwise(tasks))
    return Topology("chain", tuple(tasks), edges)


def vms_of(*slots: int, first: int = 1) -> tuple[Vm, ...]:
    return tuple(Vm(f"vm{number}", count) for number, count in enumerate(slots, first))


@st.composite
def models(draw: st.DrawFn, task: str) -> Model:
    """One to five points; rates may rise, stay or fall, memory and CPU may nearly fill the slot."""
    counts = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=5)))
    fraction = st.integers(0, 1050).map(lambda thousandths: thousandths / 1000)
    points = tuple(
        Point(count, draw(st.floats(0.5, 500.0)), draw(fraction), draw(fraction)) for count in counts
    )
    return Model(task, ModelSlot(), points)


@st.composite
def topologies(draw: st.DrawFn, groupings: tuple[str, ...] = ("shuffle", "fields", "local")) -> Topology:
    """A connected graph of 1 to 6 modelled tasks behind one source, before one sink."""
    count = draw(st.integers(1, 6))
    names = [f"t{number}" for number in range(count)]
    grouping, selectivity = st.sampled_from(groupings), st.sampled_from([0.25, 1.0, 1.0, 2.0])
    edges = []
    for number, name in enumerate(names):
        before = names[:number] or ["source"]
        for parent in sorted(draw(st.sets(st.sampled_from(before), min_size=1, max_size=3))):
            edges.append(Edge(parent, name, draw(selectivity), draw(grouping)))
    leaving = {edge.source for edge in edges}
    edges += [Edge(name, "sink") for name in names if name not in leaving]
    fraction = st.sampled_from([0.0, 0.1, 0.2, 0.3])
    tasks = [
        Task("source", kind="source", static=Static(draw(st.integers(1, 3)), draw(fraction), draw(fraction))),
        *[Task(name) for name in names],
        Task("sink", static=Static(1, draw(fraction), draw(fraction))),
    ]
    return Topology("random", tuple(tasks), tuple(edges))


@st.composite
def requests(draw: st.DrawFn, **fixed: object) -> PlanRequest:
    """A request with 1 to 6 VMs of 1 to 4 slots, some excluded slots, some pinned threads."""
    topology = draw(topologies())
    known = {task.name: draw(models(task.name)) for task in topology.tasks if task.static is None}
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    vms = vms_of(*sizes)
    slots = [slot for vm in vms for slot in vm.all_slots()]
    excluded = draw(st.frozensets(st.sampled_from(slots), max_size=3))
    pins: dict[str, tuple[Slot, ...]] = {
        task.name: tuple(draw(st.lists(st.sampled_from(slots), max_size=task.static.threads)))
        for task in topology.tasks
        if task.static is not None and draw(st.booleans())
    }
    more = vms_of(*draw(st.lists(st.integers(1, 4), max_size=4)), first=len(vms) + 1)
    rate = draw(st.floats(0.0, 2000.0))
    return PlanRequest(topology, known, rate, vms, more, excluded, pins, **fixed)  # type: ignore[arg-type]
