"""Predictions of random placements against the definition, computed in another way: `numpy.interp` for the
curves, one variable per group of threads in SciPy's solver.
"""

from __future__ import annotations

import json
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
from worlds import chain, checked, model_of, models, topologies, vms_of

from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model, Spread, at_best, at_worst, has_spread, peak_rate
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict import row_shares as shares
from headgate.controller.plan.predict.prediction import OFF_BY, expected_least, predict
from headgate.controller.planning_commands.plan_sentences import headline
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology

VMS = vms_of(3, 2)
SLOTS = [slot for vm in VMS for slot in vm.all_slots()]
ROUTINGS = st.sampled_from(["weighted", "shuffle"])
INTERFERENCES = st.sampled_from(["cpu", "none"])
LET_THROUGH = 0.99  # of the rate: what the shares are sure to carry


@dataclass(frozen=True)
class Piece:
    """One group: `threads` threads of `task` in `slot`; `unit`: w of its task; `peak` 0: fixed size, which uses
    `each` of the CPU for one row/s besides."""

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
def worlds(draw: st.DrawFn, groupings: tuple[str, ...] = ("shuffle", "fields", "all")) -> World:
    """Any topology, with any threads in any slots."""
    topology = with_use(draw(topologies(groupings)), draw(EACH), draw(EACH))
    known = {task.name: draw(models(task.name)) for task in topology.tasks if task.static is None}
    bundles = []
    for place, task in enumerate(topology.breadth_first):
        for slot in draw(st.sets(st.integers(0, len(SLOTS) - 1), min_size=1, max_size=4)):
            bundles.append((slot, place, task.name, draw(st.integers(1, 130))))
    ordered = tuple(Bundle(SLOTS[slot], task, threads) for slot, _, task, threads in sorted(bundles))
    return World(topology, known, Placement(ordered))


EACH = st.sampled_from([0.0, 0.0, 0.0005, 0.01])


def with_use(topology: Topology, source: float, sink: float) -> Topology:
    """CPU that source and sink use for each row/s."""
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


@pytest.mark.parametrize(("reserved", "each"), [(0.1, 0.0), (0.0, 0.004)])
def test_slots_whose_rest_is_taken_by_others_are_not_the_same(reserved, each):
    """`a` and `b` are alike in both slots; in one of them is the sink as well."""
    *tasks, sink = with_use(chain("a", "b", ends=True), 0.0, each).tasks
    static = replace(sink.static, cpu=reserved)
    topology = replace(chain("a", "b", ends=True), tasks=(*tasks, replace(sink, static=static)))
    known = {name: model_of(name, (1, 100, 0.8, 0.1)) for name in "ab"}
    held = [(0, "source"), (1, "a"), (1, "b"), (2, "a"), (2, "b"), (2, "sink")]
    world = World(topology, known, Placement(tuple(Bundle(SLOTS[slot], task, 1) for slot, task in held)))
    found = predict(topology, known, world.placement, VMS)
    assert found.rate_tps == pytest.approx(highest(world, "weighted", "cpu"), rel=1e-6)
    of_slot = [sum(share.share for share in found.shares if share.slot == slot) for slot in SLOTS[1:3]]
    assert of_slot[0] > of_slot[1] - 1  # the sink's share is 1


@examples(300)
@given(worlds(("shuffle", "fields")), st.integers(2, 4))
def test_as_many_times_the_slots_carry_as_many_times_the_rate_and_the_same_ones_get_the_same(world, times):
    """All of it several times over, in slots of their own."""
    tasks = [
        replace(
            task, static=replace(s, threads=s.threads * times, cpu=s.cpu * times, memory=s.memory * times)
        )
        if (s := task.static)
        else task
        for task in world.topology.tasks
    ]
    topology = replace(world.topology, tasks=tuple(tasks))
    vms = tuple(Vm(f"{vm.vm}-{n}", vm.slots) for n in range(times) for vm in VMS)
    bundles = [
        replace(bundle, slot=Slot(f"{bundle.slot.vm}-{n}", bundle.slot.number))
        for n in range(times)
        for bundle in world.placement.bundles
    ]
    once = predict(world.topology, world.known, world.placement, VMS)
    found = predict(topology, world.known, Placement(tuple(bundles)), vms)
    assert found.rate_tps == pytest.approx(times * once.rate_tps, rel=1e-5, abs=1e-6)
    of_copies: dict[tuple[str, str, int], list[float]] = {}
    for share in found.shares:
        at = share.task, share.slot.vm.split("-")[0], share.slot.number
        of_copies.setdefault(at, []).append(share.share)
    for same in of_copies.values():
        assert same == pytest.approx([same[0]] * times, rel=1e-9)


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


# ── Models that say how far they may be off: predictions lie between two ends ───────────────────────────

ONE = Placement((Bundle(Slot("vm1", 0), "a", 1),))


def spread_out(model: Model, **half_widths: float) -> Model:
    points = tuple(replace(point, spread=Spread(**half_widths)) for point in model.points)
    return replace(model, points=points)


def test_half_widths_interpolate_between_points():
    model = model_of("a", (10, 100.0, 0.5, 0.2), (20, 200.0, 0.9, 0.2))
    first, last = model.points
    model = replace(
        model, points=(replace(first, spread=Spread(rate_tps=10.0)), replace(last, spread=Spread(0.2)))
    )
    low, high = at_worst(model), at_best(model)
    assert [peak_rate(low, q) for q in (5, 10, 15, 20, 30)] == pytest.approx([45, 90, 125, 160, 160])
    assert [peak_rate(high, q) for q in (5, 10, 15, 20, 30)] == pytest.approx([55, 110, 175, 240, 240])
    assert not has_spread(low)


def test_worst_takes_more_cpu_and_memory_and_nothing_goes_below_nothing():
    model = spread_out(model_of("a", (1, 10.0, 0.5, 0.01)), rate_tps=20.0, cpu=0.1, memory=0.02)
    assert at_worst(model) == model_of("a", (1, 0.0, 0.6, 0.03))
    assert at_best(model) == model_of("a", (1, 30.0, 0.4, 0.0))


def test_the_rate_lies_between_what_the_ends_of_the_spread_support():
    model = spread_out(model_of("a", (1, 100.0, 0.5, 0.2)), relative=0.05)
    found = predict(chain("a"), {"a": model}, ONE, VMS, 50.0)
    assert (found.rate_low_tps, found.rate_tps, found.rate_high_tps) == pytest.approx((95, 100, 105))
    use = found.slots[0]
    assert (use.cpu_low, use.cpu, use.cpu_high) == pytest.approx((0.25 / 1.05, 0.25, 0.25 / 0.95))
    assert (use.memory_low, use.memory, use.memory_high) == pytest.approx((0.1 / 1.05, 0.1, 0.1 / 0.95))


def test_at_its_worst_a_group_needs_what_it_needs_at_its_peak():
    model = spread_out(model_of("a", (1, 100.0, 0.5, 0.2)), relative=0.5, cpu=0.1)
    use = predict(chain("a"), {"a": model}, ONE, VMS).slots[0]
    assert (use.cpu, use.cpu_high) == pytest.approx((0.5, 0.6))


def test_a_rate_that_may_be_nothing_supports_nothing_at_worst():
    model = spread_out(model_of("a", (1, 100.0, 0.5, 0.2)), rate_tps=150.0)
    found = predict(chain("a"), {"a": model}, ONE, VMS)
    assert (found.rate_low_tps, found.rate_high_tps) == (0, 250)


def test_without_spread_there_is_no_interval():
    topology = chain("a")
    wide = spread_out(model_of("b", (1, 1.0, 0.5, 0.2)), relative=0.5)
    found = predict(topology, {"a": model_of("a", (1, 100.0, 0.5, 0.2)), "b": wide}, ONE, VMS)
    assert (found.rate_low_tps, found.rate_high_tps, found.slots[0].cpu_low) == (None, None, None)


@checked
@given(worlds(), ROUTINGS, INTERFERENCES, st.floats(0.0, 1.0), st.randoms(use_true_random=False))
def test_whatever_the_points_are_within_their_spread_the_rate_is_between(
    world, routing, interference, wide, random
):
    half = {"relative": 0.9 * wide, "cpu": 0.2 * wide}
    known = {name: spread_out(model, **half) for name, model in world.known.items()}
    true = {name: true_one(model, half, random) for name, model in world.known.items()}
    chosen = {"routing": routing, "interference": interference}
    found = predict(world.topology, known, world.placement, VMS, **chosen)
    truly = predict(world.topology, true, world.placement, VMS, **chosen).rate_tps
    assert found.rate_low_tps * (1 - 1e-6) <= truly <= found.rate_high_tps * (1 + 1e-6)
    assert found.rate_low_tps <= found.rate_tps <= found.rate_high_tps
    for use in found.slots:
        assert use.cpu_low <= use.cpu <= use.cpu_high
        assert use.memory_low <= use.memory <= use.memory_high


def true_one(model: Model, half: dict[str, float], random) -> Model:
    """A model that may be the true one behind this."""
    points = tuple(
        replace(
            point,
            rate_tps=point.rate_tps * (1 + random.uniform(-1, 1) * half["relative"]),
            cpu=max(0.0, point.cpu + random.uniform(-1, 1) * half["cpu"]),
        )
        for point in model.points
    )
    return replace(model, points=points)


# ── Of several slots that are about full, the slowest tells: what rate is likely then (decision 23) ─────

LIMITS = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=12)
LEAST_OF_NORMALS = {1: 0.0, 2: -0.5642, 3: -0.8463, 6: -1.2672}  # order statistics, H. L. Harter, 1961


@pytest.mark.parametrize(("slots", "expected"), LEAST_OF_NORMALS.items())
def test_of_equal_slots_the_slowest_is_below_by_as_much_as_there_are(slots: int, expected: float) -> None:
    assert expected_least([200.0] * slots) == pytest.approx(200.0 * (1 + OFF_BY * expected), rel=2e-4)


@given(LIMITS, st.floats(1.0, 1000.0), st.floats(0.1, 10.0))
def test_more_slots_never_carry_more_and_units_do_not_matter(
    limits: list[float], one: float, unit: float
) -> None:
    found = expected_least(limits)
    assert expected_least([*limits, one]) <= found * (1 + 2e-3)  # what falls out by FAR and DIGITS
    assert found <= min(limits) * (1 + 1e-6)
    assert expected_least([unit * limit for limit in limits]) == pytest.approx(unit * found, rel=2e-3)


def test_a_slot_far_from_full_makes_no_difference_and_nothing_is_likely_of_nothing() -> None:
    assert expected_least([100.0, 200.0]) == pytest.approx(expected_least([100.0]))
    assert expected_least([0.0, 100.0]) == 0.0


def measured(task: str) -> Model:
    """With spread, as profiles give."""
    model = model_of(task, (1, 100.0, 1.0, 0.1))
    return replace(model, points=tuple(replace(point, spread=Spread(rate_tps=2.0)) for point in model.points))


def test_a_prediction_tells_it_where_its_models_are_measured() -> None:
    """One slot full and one half full: as predicted; both full: less. Published models tell nothing of it."""
    vms = (Vm("vm1", 3),)
    one, two = (Placement(tuple(Bundle(Slot("vm1", n), "a", 1) for n in range(slots))) for slots in (1, 2))
    for placement, below in ((one, 0.0), (two, -0.5642)):
        found = predict(chain("a"), {"a": measured("a")}, placement, vms)
        assert found.likely_tps == pytest.approx(found.rate_tps * (1 + OFF_BY * below), rel=1e-3)
    assert predict(chain("a"), {"a": model_of("a", (1, 100.0, 1.0, 0.1))}, two, vms).likely_tps is None


def test_plans_tell_it_in_words_and_files() -> None:
    request = PlanRequest(chain("a"), {"a": measured("a")}, 190.0, (Vm("vm1", 2),))
    plan = make_plan(request)
    assert plan.prediction.likely_tps == pytest.approx(200 * (1 - 0.5642 * OFF_BY), rel=1e-3)
    assert "carries 200 rows/s (between 196 and 204 by its models, likely 194.4)" in headline(plan)
    assert plan_of(json.loads(json.dumps(plan_data(plan)))) == plan
