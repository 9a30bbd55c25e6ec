"""The topologies that are simulated, and what is known of each without running it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.knowledge.plans import Placement, Plan
from headgate.controller.simulation.logic import Row, fails, group, other_group, skewed
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

MEMORY = 1 << 29
TPS_A_THREAD = 12.0
PARTED_TPS = 30.0  # four slots suffice
SINKS_CPU, SLOT_CPU = 0.95, 1.05  # of `parted` sinks together; of one of their threads and a source's
RATES_TPS = (8.0, 12.0, 20.0, 30.0, 45.0)
HERE = "headgate.controller.simulation.logic"


@dataclass(frozen=True)
class Shape:
    """need: distinct rows at sinks for every source position. holds: a task keeps rows. keys: keyed task → the
    key of a row. fails: positions that must become dead letters. live: its source cannot be read again.
    machines: slots of each VM, one of these (none: two or three VMs of two to four slots). rates_tps: of which
    the seed chooses. calm_s: the run goes on so long, undisturbed, after all is settled."""

    topology: Topology
    need: int = 1
    holds: bool = False
    keys: dict[str, Callable[[Row], Hashable]] = field(default_factory=dict)
    fails: Callable[[int], bool] = lambda _: False
    live: bool = False
    machines: tuple[tuple[int, ...], ...] = ()
    rates_tps: tuple[float, ...] = RATES_TPS
    calm_s: float = 0.0

    @property
    def models(self) -> tuple[Model, ...]:
        points = tuple(Point(n, TPS_A_THREAD * n, 0.2 * n, 0.1 * n) for n in (1, 2, 3, 4))
        slot = ModelSlot(1.0, MEMORY)
        return tuple(Model(task.name, slot, points) for task in self.topology.tasks if task.static is None)


def arriving(shape: Shape) -> Shape:
    """The same with sources whose rows are taken as they come."""
    sources = shape.topology.sources
    tasks = (replace(task, arriving=True) if task in sources else task for task in shape.topology.tasks)
    return dataclasses.replace(shape, topology=replace(shape.topology, tasks=tuple(tasks)))


def parted(shape: Shape) -> Shape:
    """The same with sinks too large for a slot that a source is in: one of them dies without the other."""
    t = shape.topology
    threads = sum(sink.static.threads for sink in t.sinks if sink.static)
    sink_cpu = SINKS_CPU / threads
    cpu = dict.fromkeys([task.name for task in t.sources], SLOT_CPU - sink_cpu)
    cpu |= dict.fromkeys([task.name for task in t.sinks], sink_cpu)
    tasks = tuple(
        replace(task, static=replace(task.static, cpu=cpu[task.name]))
        if task.static and task.name in cpu
        else task
        for task in t.tasks
    )
    return dataclasses.replace(
        shape,
        topology=replace(t, tasks=tasks),
        machines=((), (1, 1, 2), (1, 2, 1)),
        rates_tps=tuple(rate for rate in shape.rates_tps if rate <= PARTED_TPS),
    )


def swapped(plan: Plan, one: str, other: str) -> Plan:
    """The same plan with two VMs of one size in each other's place."""
    to = {one: other, other: one}
    return _moved(plan, lambda slot: Slot(to.get(slot.vm, slot.vm), slot.number))


def turned(plan: Plan, vm: Vm) -> Plan:
    """The same plan with all that is in a slot of this VM in the next one."""
    return _moved(plan, lambda slot: Slot(vm.vm, (slot.number + 1) % vm.slots) if slot.vm == vm.vm else slot)


def _moved(plan: Plan, place: Callable[[Slot], Slot]) -> Plan:
    bundles = tuple(replace(b, slot=place(b.slot)) for b in plan.placement.bundles)
    order = sorted(range(len(bundles)), key=lambda n: (bundles[n].slot, n))
    p = plan.prediction
    slots = [(place(Slot(use.vm, use.slot)), use) for use in p.slots]
    prediction = replace(
        p,
        slots=tuple(replace(use, vm=slot.vm, slot=slot.number) for slot, use in slots),
        vms=tuple(replace(use, vm=place(Slot(use.vm, 0)).vm) for use in p.vms),
        shares=tuple(replace(share, slot=place(share.slot)) for share in p.shares),
    )
    return replace(plan, placement=Placement(tuple(bundles[n] for n in order)), prediction=prediction)


def machine(name: str, slots: int) -> Vm:
    return Vm(name, slots, 1.0, MEMORY)


def _source(threads: int = 1, name: str = "source", run: str = "Count") -> Task:
    static = Static(threads, 0.1, 0.1)
    return Task(name, kind="source", run=f"{HERE}:{run}", params={"name": name}, static=static)


def _task(name: str, run: str, kind: str = "map") -> Task:
    return Task(name, kind=kind, run=f"{HERE}:{run}")  # type: ignore[arg-type]


def _alone(name: str, run: str) -> Task:
    return Task(name, run=f"{HERE}:{run}", static=Static(1, 0.1, 0.1), exclusive=True)


def _keyed(name: str, run: str = "Tally") -> Task:
    return Task(name, kind="keyed", state="keyed", run=f"{HERE}:{run}", params={"name": name})


def _sink(name: str = "sink", run: str = "Sink", kind: str = "map", threads: int = 1) -> Task:
    static = Static(threads, 0.1, 0.1)
    return Task(name, kind=kind, run=f"{HERE}:{run}", static=static)  # type: ignore[arg-type]


def _edges(*pairs: str) -> tuple[Edge, ...]:
    ends = [pair.split() for pair in pairs]
    return tuple(Edge(source, target) for source, target in ends)


def _fields(source: str, target: str, key: str) -> Edge:
    return Edge(source, target, grouping="fields", key=f"{HERE}:{key}")


def _line(name: str, source: Task, work: Task) -> Topology:
    return Topology(name, (source, work, _sink()), _edges(f"source {work.name}", f"{work.name} sink"))


def _counting(name: str, key: str) -> Topology:
    return Topology(
        name,
        (_source(), _task("work", "work"), _keyed("tally"), _sink()),
        (*_edges("source work"), _fields("work", "tally", key), *_edges("tally sink")),
    )


BRANCHES = (_task("left", "left"), _task("right", "right"))
WORK = _task("work", "work")

SHAPES: dict[str, Shape] = {
    "line": Shape(_line("line", _source(), WORK)),
    "two sources": Shape(_line("two_sources", _source(2), WORK)),
    "failing": Shape(_line("failing", _source(), _task("work", "Picky")), fails=fails),
    "live": Shape(_line("live", replace(_source(run="SimFeed"), arriving=False), WORK), live=True),
    "one slot": Shape(
        _line("one_slot", _source(), WORK), machines=((1,), (1, 1)), rates_tps=(8.0, 12.0, 20.0)
    ),
    "twice": Shape(
        Topology(
            "twice",
            (_source(), _task("twice", "twice", "flat_map"), _sink(threads=2)),
            (Edge("source", "twice"), Edge("twice", "sink", selectivity=2.0)),
        ),
        need=2,
    ),
    "feeds": Shape(
        Topology(
            "feeds",
            (_source(), _source(name="other"), WORK, _sink()),
            _edges("source work", "other work", "work sink"),
        )
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
                _fields("left", "join", "identity"),
                _fields("right", "join", "identity"),
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
    "join of sources": Shape(
        Topology(
            "join_of_sources",
            (_source(), _source(name="other"), _task("join", "Meetings", "hold"), _sink()),
            (
                _fields("source", "join", "identity"),
                _fields("other", "join", "identity"),
                Edge("join", "sink", selectivity=0.5),
            ),
        ),
        holds=True,
    ),
    "keyed": Shape(_counting("keyed", "group"), holds=True, keys={"tally": group}),
    "skewed": Shape(_counting("skewed", "skewed"), holds=True, keys={"tally": skewed}),
    "keyed twice": Shape(
        Topology(
            "keyed_twice",
            (_source(), _keyed("tally"), _keyed("count", "TallyTogether"), _sink()),
            (
                _fields("source", "tally", "group"),
                _fields("tally", "count", "other_group"),
                *_edges("count sink"),
            ),
        ),
        holds=True,
        keys={"tally": group, "count": other_group},
    ),
    "batch": Shape(
        Topology(
            "batch",
            (_source(), WORK, _sink("batch", "Batches", "hold")),
            _edges("source work", "work batch"),
        ),
        holds=True,
    ),
    "batched": Shape(
        Topology(
            "batched",
            (
                _source(),
                _task("work", "together_work"),
                _task("columns", "column_work"),
                _keyed("tally", "TallyTogether"),
                _sink(),
            ),
            (
                *_edges("source work", "work columns"),
                _fields("columns", "tally", "group"),
                *_edges("tally sink"),
            ),
        ),
        holds=True,
        keys={"tally": group},
    ),
    "long holds": Shape(
        Topology(
            "long_holds",
            (_source(), _task("window", "Windows", "hold"), _sink()),
            _edges("source window", "window sink"),
        ),
        holds=True,
        rates_tps=(8.0, 12.0),
        calm_s=45.0,
    ),
}

SELDOM = ("long holds",)  # they take long
ASKED = ("batched",)  # only when they are asked for: seeds stay the worlds that they were
DRAWN = (*sorted(SHAPES.keys() - {*SELDOM, *ASKED}) * 2, *SELDOM)  # shapes that seeds choose from
