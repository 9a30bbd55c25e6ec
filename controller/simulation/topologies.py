"""The topologies that are simulated, and how many sink rows each source position must give."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from controller.knowledge.models import Model, ModelSlot, Point
from controller.knowledge.plans import Placement, Plan
from topology_runtime.cluster import Slot, Vm
from topology_runtime.topology import Edge, Static, Task, Topology

MEMORY = 1 << 29
TPS_A_THREAD = 12.0
HERE = "controller.simulation.logic"


@dataclass(frozen=True)
class Shape:
    """need: distinct rows at sinks for every source position. holds: a task keeps rows."""

    topology: Topology
    need: int = 1
    holds: bool = False

    @property
    def models(self) -> tuple[Model, ...]:
        points = tuple(Point(n, TPS_A_THREAD * n, 0.2 * n, 0.1 * n) for n in (1, 2, 3, 4))
        slot = ModelSlot(1.0, MEMORY)
        return tuple(Model(task.name, slot, points) for task in self.topology.tasks if task.static is None)


def swapped(plan: Plan, one: str, other: str) -> Plan:
    """The same plan with two VMs of one size in each other's place."""
    to = {one: other, other: one}

    def place(slot: Slot) -> Slot:
        return Slot(to.get(slot.vm, slot.vm), slot.number)

    bundles = tuple(replace(b, slot=place(b.slot)) for b in plan.placement.bundles)
    order = sorted(range(len(bundles)), key=lambda n: (bundles[n].slot, n))
    p = plan.prediction
    prediction = replace(
        p,
        slots=tuple(replace(use, vm=to.get(use.vm, use.vm)) for use in p.slots),
        vms=tuple(replace(use, vm=to.get(use.vm, use.vm)) for use in p.vms),
        shares=tuple(replace(share, slot=place(share.slot)) for share in p.shares),
    )
    return replace(plan, placement=Placement(tuple(bundles[n] for n in order)), prediction=prediction)


def machine(name: str, slots: int) -> Vm:
    return Vm(name, slots, 1.0, MEMORY)


def _source(threads: int = 1) -> Task:
    return Task("source", kind="source", run=f"{HERE}:Count", static=Static(threads, 0.1, 0.1))


def _task(name: str, run: str, kind: str = "map") -> Task:
    return Task(name, kind=kind, run=f"{HERE}:{run}")  # type: ignore[arg-type]


def _alone(name: str, run: str) -> Task:
    return Task(name, run=f"{HERE}:{run}", static=Static(1, 0.1, 0.1), exclusive=True)


def _keyed(name: str, run: str) -> Task:
    return Task(name, kind="keyed", state="keyed", run=f"{HERE}:{run}")


def _sink(name: str = "sink", run: str = "sink", kind: str = "map", threads: int = 1) -> Task:
    static = Static(threads, 0.1, 0.1)
    return Task(name, kind=kind, run=f"{HERE}:{run}", static=static)  # type: ignore[arg-type]


def _edges(*pairs: str) -> tuple[Edge, ...]:
    ends = [pair.split() for pair in pairs]
    return tuple(Edge(source, target) for source, target in ends)


BRANCHES = (_task("left", "left"), _task("right", "right"))

SHAPES: dict[str, Shape] = {
    "line": Shape(
        Topology("line", (_source(), _task("work", "work"), _sink()), _edges("source work", "work sink"))
    ),
    "two sources": Shape(
        Topology(
            "two_sources", (_source(2), _task("work", "work"), _sink()), _edges("source work", "work sink")
        )
    ),
    "failing": Shape(
        Topology(
            "failing",
            (_source(), _task("work", "work_that_fails"), _sink()),
            _edges("source work", "work sink"),
        )
    ),
    "twice": Shape(
        Topology(
            "twice",
            (_source(), _task("twice", "twice", "flat_map"), _sink(threads=2)),
            (Edge("source", "twice"), Edge("twice", "sink", selectivity=2.0)),
        ),
        need=2,
    ),
    "diamond": Shape(
        Topology(
            "diamond",
            (_source(), *BRANCHES, _task("again", "work"), _sink()),
            _edges("source left", "source right", "left again", "right again", "again sink"),
        ),
        need=2,
    ),
    "join": Shape(
        Topology(
            "join",
            (_source(), *BRANCHES, _task("join", "Pairs", "hold"), _sink()),
            (
                *_edges("source left", "source right"),
                Edge("left", "join", grouping="fields", key=f"{HERE}:identity"),
                Edge("right", "join", grouping="fields", key=f"{HERE}:identity"),
                Edge("join", "sink", selectivity=0.5),
            ),
        ),
        holds=True,
    ),
    "exclusive": Shape(
        Topology(
            "exclusive",
            (_source(), _task("work", "work"), _alone("alone", "work"), _sink()),
            _edges("source work", "work alone", "alone sink"),
        )
    ),
    "keyed": Shape(
        Topology(
            "keyed",
            (_source(), _task("work", "work"), _keyed("tally", "Tally"), _sink()),
            (
                *_edges("source work"),
                Edge("work", "tally", grouping="fields", key=f"{HERE}:group"),
                *_edges("tally sink"),
            ),
        ),
        holds=True,
    ),
    "batch": Shape(
        Topology(
            "batch",
            (_source(), _task("work", "work"), _sink("batch", "Batches", "hold")),
            _edges("source work", "work batch"),
        ),
        holds=True,
    ),
}

DRAWN = tuple(sorted(SHAPES.keys() - {"exclusive"}))  # shapes that seeds choose from
