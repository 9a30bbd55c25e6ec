"""Of several slots that are about full, the slowest tells: what rate is likely then (decision 23)."""

from __future__ import annotations

import json
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_prediction_by_definition import INTERFERENCES, ROUTINGS, VMS, World, worlds
from worlds import chain, checked, model_of

from headgate.controller.knowledge.models import Model, Spread
from headgate.controller.knowledge.plan_data import plan_data, plan_of
from headgate.controller.knowledge.plans import Bundle, Placement
from headgate.controller.offline.tables import headline
from headgate.controller.plan.likely import OFF_BY, expected_least
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict import predict
from headgate.topology_runtime.cluster import Slot, Vm

LIMITS = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=12)
LEAST_OF_NORMALS = {1: 0.0, 2: -0.5642, 3: -0.8463, 6: -1.2672}  # order statistics, H. L. Harter, 1961


@pytest.mark.parametrize(("slots", "expected"), LEAST_OF_NORMALS.items())
def test_of_equal_slots_the_slowest_is_below_by_as_much_as_there_are(slots: int, expected: float) -> None:
    assert expected_least([200.0] * slots) == pytest.approx(200.0 * (1 + OFF_BY * expected), rel=2e-4)


def test_it_is_the_mean_of_many_draws() -> None:
    chance, limits = random.Random(7), [100.0, 103.0, 104.0, 112.0, 150.0]
    draws = [min(limit * (1 + OFF_BY * chance.gauss(0, 1)) for limit in limits) for _ in range(40_000)]
    assert expected_least(limits) == pytest.approx(fmean(draws), rel=1e-3)


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
    assert "carries 200 tuples/s (between 196 and 204 by its models, likely 194.4)" in headline(plan)
    assert plan_of(json.loads(json.dumps(plan_data(plan)))) == plan


@checked
@given(worlds(), ROUTINGS, INTERFERENCES, st.sampled_from([0.0, 0.002]))
def test_what_is_likely_is_never_more_than_the_highest(
    world: World, routing: str, interference: str, wake_cpu: float
) -> None:
    known = {
        name: replace(model, points=tuple(replace(p, spread=Spread(relative=0.05)) for p in model.points))
        for name, model in world.known.items()
    }
    known = {name: replace(model, more={"wake_cpu": wake_cpu}) for name, model in known.items()}
    found = predict(world.topology, known, world.placement, VMS, routing=routing, interference=interference)
    assert found.likely_tps is None or 0.0 <= found.likely_tps <= found.rate_tps * (1 + 1e-5)
