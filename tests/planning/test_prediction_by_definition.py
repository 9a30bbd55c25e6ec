"""Predictions of random placements against the definition, computed in another way: `numpy.interp` for the
curves, one variable per group of threads in SciPy's solver."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from unittest import mock

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.optimize import linprog
from worlds import checked, models, topologies, vms_of

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Bundle, Placement
from headgate.controller.plan import shares
from headgate.controller.plan.predict import predict
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology

VMS = vms_of(3, 2)
SLOTS = [slot for vm in VMS for slot in vm.all_slots()]
ROUTINGS = st.sampled_from(["weighted", "shuffle"])
INTERFERENCES = st.sampled_from(["cpu", "none"])
LET_THROUGH = 0.99  # of the rate: what the shares are sure to carry


@dataclass(frozen=True)
class Piece:
    """One group: `threads` threads of `task` in `slot`; `unit`: w of its task; `peak` 0: fixed size, which uses
    `each` of the CPU for one tuple/s besides."""

    task: str
    slot: Slot
    threads: int
    part: float
    unit: float
    peak: float
    cpu: float
    memory: float
    each: float = 0.0


@dataclass
class World:
    topology: Topology
    known: dict[str, Model]
    placement: Placement

    @cached_property
    def groups(self) -> list[Piece]:
        return pieces(self)

    @cached_property
    def copied(self) -> set[str]:
        return {edge.target for edge in self.topology.edges if edge.grouping == "all"}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any topology, with any threads in any slots."""
    topology = with_use(draw(topologies(("shuffle", "fields", "all"))), draw(EACH), draw(EACH))
    known = {task.name: draw(models(task.name)) for task in topology.tasks if task.static is None}
    bundles = []
    for place, task in enumerate(topology.breadth_first):
        for slot in draw(st.sets(st.integers(0, len(SLOTS) - 1), min_size=1, max_size=4)):
            bundles.append((slot, place, task.name, draw(st.integers(1, 130))))
    ordered = tuple(Bundle(SLOTS[slot], task, threads) for slot, _, task, threads in sorted(bundles))
    return World(topology, known, Placement(ordered))


EACH = st.sampled_from([0.0, 0.0, 0.0005, 0.01])


def with_use(topology: Topology, source: float, sink: float) -> Topology:
    """CPU that source and sink use for each tuple/s."""
    use = {"source": source, "sink": sink}
    tasks = [
        replace(task, static=replace(task.static, cpu_per_tps=use[task.name])) if task.static else task
        for task in topology.tasks
    ]
    return replace(topology, tasks=tuple(tasks))


def read(model: Model, key: str, threads: int, bundles: bool) -> float:
    """A curve at a thread count; `bundles`: whole largest bundles add up above the largest point."""
    xs, ys = [0], [0.0]
    for point in model.points:
        xs.append(point.threads)
        ys.append(getattr(point, key))
    whole, rest = divmod(threads, xs[-1]) if bundles else (0, threads)
    return float(whole * ys[-1] + np.interp(rest, xs, ys))


def pieces(world: World) -> list[Piece]:
    rates = world.topology.rates(1.0)
    bundles = world.placement.bundles
    found = []
    for b in bundles:
        threads = sum(other.threads for other in bundles if other.task == b.task)
        unit = rates[b.task] * (threads if b.task in world.copied else 1)
        static = world.topology.by_name[b.task].static
        if static is not None:
            part = b.threads / static.threads
            values = (0.0, static.cpu * part, static.memory * part, static.cpu_each)
        else:
            model = world.known[b.task]
            values = (
                read(model, "rate_tps", b.threads, False),
                read(model, "cpu", b.threads, False),
                read(model, "memory", b.threads, True),
            )
        found.append(Piece(b.task, b.slot, b.threads, b.threads / threads, unit, *values))
    return found


def highest(world: World, routing: str, interference: str) -> float:
    """The largest Ω with Σ x = w Ω of each task, x ≤ I(q), Σ C(q) x / I(q) ≤ 1 in every slot."""
    groups, copied = world.groups, world.copied
    bounds = [(0, None)] + [(0, g.peak if g.peak else None) for g in groups]
    equal, below, limits = [], [], []
    for task in world.topology.by_name:
        mine = [n for n, g in enumerate(groups, 1) if g.task == task]
        rows = [(mine, 1.0)]
        if routing == "shuffle" or task in copied or world.topology.by_name[task].static:
            rows = [([n], groups[n - 1].part) for n in mine]
        for columns, part in rows:
            row = np.zeros(len(groups) + 1)
            row[0], row[columns] = -groups[columns[0] - 1].unit * part, 1
            equal.append(row)
    for slot in SLOTS if interference == "cpu" else ():
        row = np.zeros(len(groups) + 1)
        for n, g in enumerate(groups, 1):
            if g.slot == slot:
                row[n] = g.cpu / g.peak if g.peak else g.each
        below.append(row)
        limits.append(max(0.0, 1 - sum(g.cpu for g in groups if g.slot == slot and not g.peak)))
    cost = np.zeros(len(groups) + 1)
    cost[0] = -1
    found = linprog(cost, below or None, limits or None, np.array(equal), np.zeros(len(equal)), bounds)
    assert found.status == 0
    return float(found.x[0])


def plain_rates(world: World, routing: str, rate_tps: float) -> list[float]:
    """x of each group: in proportion to I(q) if `weighted`, else to its threads."""
    groups, copied = world.groups, world.copied
    found = []
    for g in groups:
        total = sum(other.peak for other in groups if other.task == g.task)
        by_peak = routing == "weighted" and g.task not in copied and total > 0
        found.append(g.unit * rate_tps * (g.peak / total if by_peak else g.part))
    return found


def plain_uses(world: World, rates: list[float]) -> dict[Slot, tuple[float, float]]:
    """Slot → CPU and memory at the groups' rates."""
    used: dict[Slot, tuple[float, float]] = {}
    for g, rate in zip(world.groups, rates, strict=True):
        part = rate / g.peak if g.peak else 1.0
        cpu, memory = used.get(g.slot, (0.0, 0.0))
        used[g.slot] = cpu + g.cpu * part + g.each * rate, memory + g.memory * part
    return used


@examples(300)
@given(worlds(), ROUTINGS, INTERFERENCES)
def test_the_rate_is_the_highest_there_is(world, routing, interference):
    found = predict(
        world.topology, world.known, world.placement, VMS, routing=routing, interference=interference
    )
    assert found.rate_tps == pytest.approx(highest(world, routing, interference), rel=1e-5, abs=1e-6)


@examples(150)
@given(worlds(), ROUTINGS, INTERFERENCES, st.floats(0.1, 2.0))
def test_slots_are_used_in_proportion_to_peaks_where_that_is_feasible(world, routing, interference, part):
    highest_tps = highest(world, routing, interference)
    most = plain_uses(world, plain_rates(world, routing, highest_tps))
    if routing == "weighted" and interference == "cpu" and any(cpu > 1 + 1e-7 for cpu, _ in most.values()):
        return
    found = predict(
        world.topology, world.known, world.placement, VMS, highest_tps * part, routing=routing,
        interference=interference,
    )  # fmt: skip
    uses = plain_uses(world, plain_rates(world, routing, min(1.0, part) * highest_tps))
    assert {(use.vm, use.slot) for use in found.slots} == {(slot.vm, slot.number) for slot in uses}
    for use in found.slots:
        assert (use.cpu, use.memory) == pytest.approx(uses[Slot(use.vm, use.slot)], rel=1e-4, abs=1e-4)


@checked
@given(worlds(), ROUTINGS, INTERFERENCES)
def test_shares_sum_to_one_and_give_the_use_of_slots(world, routing, interference):
    found = predict(
        world.topology, world.known, world.placement, VMS, routing=routing, interference=interference
    )
    shares = {(share.task, share.slot): share.share for share in found.shares}
    groups = world.groups
    rates = [g.unit * found.rate_tps * shares[g.task, g.slot] for g in groups]
    carried = [(g, LET_THROUGH * rate) for g, rate in zip(groups, rates, strict=True) if g.peak]
    assert all(rate <= g.peak * (1 + 1e-5) for g, rate in carried)
    for task in world.topology.by_name:
        assert math.fsum(s for (name, _), s in shares.items() if name == task) == pytest.approx(1)
    uses = plain_uses(world, rates)
    for use in found.slots:
        assert (use.cpu, use.memory) == pytest.approx(uses[Slot(use.vm, use.slot)], abs=1e-6)
    assert sum(vm.cpu for vm in found.vms) == pytest.approx(sum(slot.cpu for slot in found.slots))


@checked
@given(worlds())
def test_the_limiting_task_cannot_be_given_more(world):
    """With weighted routing every group of the limiting task is at its peak or in a slot without CPU, as long as
    shares give nothing up of the rate."""
    with mock.patch.object(shares, "GIVEN_UP", 0.0):
        found = predict(world.topology, world.known, world.placement, VMS)
    free = {Slot(use.vm, use.slot): 1 - use.cpu for use in found.slots}
    share_of = {(share.task, share.slot): share.share for share in found.shares}
    tight = [
        g.unit * found.rate_tps * share_of[g.task, g.slot] >= g.peak * (1 - 1e-5) or free[g.slot] <= 1e-5
        for g in world.groups
        if g.task == found.limited_by
    ]
    if world.topology.by_name[found.limited_by].static:
        assert any(free[g.slot] <= 1e-5 for g in world.groups if g.task == found.limited_by)
        return
    assert any(tight) if found.limited_by in world.copied else all(tight)
