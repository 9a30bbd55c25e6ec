"""Models that say how far they may be off: predictions lie between two ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_prediction_by_definition import INTERFERENCES, ROUTINGS, VMS, worlds
from worlds import chain, checked, model_of, vms_of

from headgate.controller.execute.diff import diff
from headgate.controller.knowledge.models import Model, Spread, at_best, at_worst, has_spread, peak_rate
from headgate.controller.knowledge.plans import Bundle, Placement, ThreadAt
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict import predict
from headgate.controller.plan.relabel import relabel
from headgate.topology_runtime.cluster import Slot

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


def test_intervals_move_with_their_slots():
    model = spread_out(model_of("a", (1, 60, 0.5, 0.2), (2, 100, 0.9, 0.2)), relative=0.1)
    plan = make_plan(PlanRequest(chain("a"), {"a": model}, 130.0, vms_of(2)))
    swapped = tuple(
        ThreadAt(number, "a", Slot("vm1", 1 - thread.slot.number))
        for number, thread in enumerate(diff((), plan.placement, chain("a"), 1).start)
    )
    moved = relabel(plan, swapped, frozenset())
    before, after = plan.prediction.slots, moved.prediction.slots
    assert [(use.cpu_low, use.cpu_high) for use in after] == [
        (use.cpu_low, use.cpu_high) for use in reversed(before)
    ]
    assert before[0].cpu_high != before[1].cpu_high


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
