"""The highest rate that plans on the VMs there are, and no higher one does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked, model_of, vms_of

from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.scaling import highest_plan
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

WORK = {"work": model_of("work", (1, 100, 0.9, 0.2))}


def test_fixed_vms_are_all_named():
    plan = highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(2, 2), fixed=True), 390.0)
    assert (plan.rate_tps, plan.slots.used, plan.slots.total) == (390.0, 4, 4)
    plan = highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(2, 2), fixed=True), 250.0)
    assert (plan.rate_tps, plan.slots.used, plan.slots.total) == (250.0, 3, 4)


def test_not_even_one_step_is_infeasible():
    with pytest.raises(Infeasible, match="no plan for 500 rows/s") as refused:
        highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(4), fixed=True), 500.0)
    assert refused.value.cause == "mba needs 5 slots"
    with pytest.raises(Infeasible):
        highest_plan(
            PlanRequest(chain("work"), WORK, 0.0, vms_of(1), excluded=frozenset({Slot("vm1", 0)})), 1.0
        )


def test_where_nothing_grows_there_is_no_highest_rate():
    ends = Topology("t", (Task("in", static=Static(1, 0.1, 0.1)),))
    with pytest.raises(InvalidInput, match="no highest rate"):
        highest_plan(PlanRequest(ends, {}, 0.0, vms_of(1)), 10.0)


@pytest.mark.parametrize("step", [0.0, -10.0, math.nan, math.inf, 1e13, 1e-7])
def test_a_step_is_a_rate(step):
    with pytest.raises(InvalidInput, match="rate step"):
        highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(1)), step)


def test_a_need_that_falls_as_the_rate_rises_hides_nothing():
    """One thread of each takes 0.9 of the memory at 10 rows/s, two take 0.1 at 20: both fit into one
    slot up to 5.5 rows/s, and again above 10."""
    odd = {name: model_of(name, (1, 10, 0.1, 0.9), (2, 20, 0.1, 0.1)) for name in ("a", "b")}
    request = PlanRequest(chain("a", "b"), odd, 7.0, vms_of(1))
    with pytest.raises(Infeasible):
        make_plan(request)
    for step, rate in (
        (1, 19),
        (2, 18),
        (3, 18),
        (4, 16),
        (5, 15),
        (6, 18),
        (7, 14),
        (8, 16),
        (9, 18),
        (11, 11),
    ):
        assert highest_plan(request, float(step)).rate_tps == rate


def test_a_step_that_would_be_tried_for_ever_is_refused():
    with pytest.raises(InvalidInput, match=r"0\.0001 rows/s is too fine") as refused:
        highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(1)), 1e-4)
    assert refused.value.hint == "a step of 0.1 gives three digits"
    assert highest_plan(PlanRequest(chain("work"), WORK, 0.0, vms_of(1)), 0.1).rate_tps == 100


@pytest.mark.parametrize("need", [(1.3, 0.1), (0.1, 1.4)], ids=["CPU", "memory"])
def test_a_rest_that_needs_more_than_a_slot_hides_no_full_bundle(need):
    """99 rows/s need 1.3 slots, 100 a full bundle in one: one slot carries 76 and 100, two up to 176."""
    model = {"work": model_of("work", (1, 100, *need))}
    for slots, rate in ((1, 100), (2, 200), (3, 300)):
        assert highest_plan(PlanRequest(chain("work"), model, 0.0, vms_of(slots)), 1.0).rate_tps == rate


def worlds_of_large_needs():
    """Models with points above the whole slot, as measured ones and imported ones may have."""
    fraction = st.integers(0, 40).map(lambda twentieths: twentieths / 20)
    point = st.tuples(st.integers(5, 60), fraction, fraction)
    return st.lists(st.lists(point, min_size=1, max_size=3), min_size=1, max_size=2)


@checked
@given(worlds_of_large_needs(), st.integers(1, 4), st.sampled_from(["sam", "dsm", "rsm"]))
def test_the_highest_rate_by_trying_every_one(points, slots, mapper):
    names = [f"t{number}" for number in range(len(points))]
    models = {
        name: model_of(name, *((threads, *point) for threads, point in enumerate(each, 1)))
        for name, each in zip(names, points, strict=True)
    }
    request = PlanRequest(chain(*names), models, 0.0, vms_of(slots), mapper=mapper, fixed=True)
    fitting = [rate for rate in range(5, 60 * slots + 1, 5) if fits(request, float(rate))]
    found = highest_plan(request, 5.0).rate_tps if fitting else None
    assert found == max(fitting, default=None)


def fits(request: PlanRequest, rate_tps: float) -> bool:
    try:
        make_plan(replace(request, rate_tps=rate_tps))
    except Infeasible:
        return False
    return True
