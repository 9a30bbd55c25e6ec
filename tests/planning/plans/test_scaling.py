"""What a rate needs, how far the same slots reach, and what more slots buy: small cases by hand."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from msgspec.structs import replace
from worlds import chain, model_of, requests, vms_of

from headgate.controller.models.plans import Plan
from headgate.controller.plan.acquire import exact
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.scaling import (
    Supply,
    compared,
    highest_plan,
    scaling_analysis,
    step_for,
    usual_rates,
)
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

WORK = model_of("work", (1, 100, 0.9, 0.2))
WHOLE = model_of("whole", (2, 100, 0.9, 0.2))  # two threads or none: even a little takes most of a slot
SIZES = tuple(Vm(f"size{slots}", slots, usd_per_hour=0.1 * slots) for slots in (4, 2, 1))


def bought(topology: Topology, *models, **more: str) -> Supply:
    """Slots bought exactly, at 0.1 $ each."""
    request = PlanRequest(topology, {model.task: model for model in models}, 1.0, (), **more)
    return Supply(request, lambda asked: plan_acquiring(asked, SIZES), sizes=SIZES, acquire=exact)


def fixed(topology: Topology, *models, slots: tuple[int, ...]) -> Supply:
    vms = tuple(replace(vm, usd_per_hour=0.1 * vm.slots) for vm in vms_of(*slots))
    return Supply(PlanRequest(topology, {model.task: model for model in models}, 1.0, vms, fixed=True))


def test_a_rate_its_slots_and_the_next():
    found = scaling_analysis(bought(chain("work"), WORK), 250.0)
    assert (found["slots"]["total"], found["predicted_tps"]) == (3, pytest.approx(300))
    assert (found["limit"]["by"], found["limit"]["rate_tps"]) == ("peak", pytest.approx(300))
    assert (found["same_slots"]["slots"], found["same_slots"]["rate_tps"]) == (3, 300)
    assert (found["more_slots"]["slots"], found["more_slots"]["rate_tps"]) == (4, 400)
    assert (found["same_slots"]["usd_per_hour"], found["more_slots"]["usd_per_hour"]) == (0.3, 0.4)


def test_what_is_carried_is_no_more_than_planned_and_no_more_than_supported():
    more = replace(WORK, points=(replace(WORK.points[0], rate_tps=100.3),))
    found = scaling_analysis(bought(chain("work"), more), 250.0)["same_slots"]
    assert (found["rate_tps"], found["carried_tps"], found["predicted_tps"]) == (
        300,
        300,
        pytest.approx(300.9),
    )
    at_the_end = scaling_analysis(bought(chain("work"), more), 300.9)["same_slots"]
    assert (at_the_end["rate_tps"], at_the_end["slots"]) == (300.9, 3)  # no multiple of the step reaches it
    table = model_of("table", (1, 3, 0.1, 0.01), (40, 20, 0.27, 0.09), (60, 40, 0.54, 0.16))
    short = scaling_analysis(bought(chain("table"), table, allocator="lsa", mapper="dsm"), 30.0)["same_slots"]
    assert short["carried_tps"] == short["predicted_tps"] < short["rate_tps"] == 30


def test_slots_that_buy_nothing_are_passed_over():
    found = scaling_analysis(
        bought(chain("a", "b"), replace(WHOLE, task="a"), replace(WHOLE, task="b")), 100.0
    )
    assert (found["same_slots"]["slots"], found["same_slots"]["rate_tps"]) == (2, 100)
    assert (found["more_slots"]["slots"], found["more_slots"]["rate_tps"]) == (4, 200)


def test_no_number_of_slots_helps_a_task_of_one_thread():
    topology = Topology("t", (Task("work", exclusive=True),), ())
    found = scaling_analysis(bought(topology, WORK), 90.0)
    assert (found["same_slots"]["rate_tps"], found["more_slots"]) == (100, None)
    beyond = scaling_analysis(bought(topology, WORK), 101.0)
    assert beyond["slots"] is None
    assert "task 'work' is exclusive: its one thread carries 100 rows/s" in beyond["reason"]


def test_fixed_vms_grow_by_single_slots_of_the_last_ones_price():
    found = scaling_analysis(fixed(chain("work"), WORK, slots=(2, 1)), 120.0)
    assert (found["slots"]["used"], found["slots"]["total"]) == (2, 3)
    assert (found["same_slots"]["slots"], found["same_slots"]["rate_tps"]) == (3, 300)
    assert found["more_slots"]["vms"] == "2,1,1"
    assert (found["more_slots"]["rate_tps"], found["more_slots"]["usd_per_hour"]) == (400, 0.4)


def fits(request: PlanRequest, slots: int, rate_tps: float) -> bool:
    """Does a plan on so many slots of one VM carry this rate?"""
    try:
        plan = make_plan(replace(request, rate_tps=rate_tps, vms=vms_of(slots), may_add=(), fixed=True))
    except Infeasible:
        return False
    return plan.prediction.rate_tps >= rate_tps * (1 - 1e-9)


def is_highest(request: PlanRequest, slots: int, rate_tps: float, step_tps: float) -> bool:
    """It fits, and no higher rate does: the next fifty steps and then many further ones are tried."""
    higher = [rate_tps + step_tps * n for n in range(1, 51)] + [rate_tps * (1.25 + n / 8) for n in range(30)]
    return fits(request, slots, rate_tps) and not any(fits(request, slots, rate) for rate in higher)


@pytest.mark.parametrize("rate_tps", [40.0, 90.0, 110.0, 170.0])
@pytest.mark.parametrize("sizes", [(4, 4), (8,), (2, 2, 2)])
def test_of_vms_that_are_had_the_plans_own_slots_reach_as_far_as_a_plan_on_just_these(sizes, rate_tps):
    a, b = model_of("a", (1, 37, 0.6, 0.2), (2, 61, 0.9, 0.3)), model_of("b", (1, 90, 0.95, 0.1))
    vms = vms_of(*sizes)
    request = PlanRequest(chain("a", "b"), {"a": a, "b": b}, 1.0, vms[:1], may_add=vms[1:])
    found = scaling_analysis(Supply(request), rate_tps)
    used, step = found["slots"]["used"], step_for(rate_tps)
    assert found["same_slots"]["slots"] == used
    assert is_highest(request, used, found["same_slots"]["rate_tps"], step)
    more = found["more_slots"]["slots"]
    assert is_highest(request, more, found["more_slots"]["rate_tps"], step)
    for between in range(used + 1, more):
        assert is_highest(request, between, found["same_slots"]["rate_tps"], step)


def test_what_does_not_fit_is_a_cell_with_its_reason():
    cell = compared(fixed(chain("work"), WORK, slots=(2,)), "mba+dsm", 300.0)
    assert (cell["pair"], cell["rate_tps"], cell["slots"], cell["weighted_tps"]) == (
        "mba+dsm",
        300,
        None,
        None,
    )
    expected = "no plan for 300 rows/s fits into 2 slots: mba needs 3 slots"
    assert cell["reason"] == expected


def test_a_cell_says_what_both_routings_carry():
    table = model_of("table", (1, 3, 0.1, 0.01), (40, 20, 0.27, 0.09), (60, 40, 0.54, 0.16))
    cell = compared(bought(chain("table"), table, routing="shuffle"), "mba+sam", 100.0)
    assert (cell["weighted_tps"], cell["shuffle_tps"]) == (pytest.approx(100), pytest.approx(80))
    assert cell["slots"] is not None


@pytest.mark.parametrize(
    ("rate", "step"), [(100, 0.5), (250, 1), (399, 1), (400, 2), (2000, 10), (0.04, 0.0002)]
)
def test_steps_are_round_and_fine(rate, step):
    assert step_for(rate) == pytest.approx(step)


def test_rates_nobody_chose_go_up_to_about_forty_slots_or_all_there_are():
    assert usual_rates(bought(chain("work"), WORK)) == tuple(200.0 * n for n in range(1, 11))
    assert usual_rates(fixed(chain("work"), WORK, slots=(4, 4)))[-1] == 500
    slow = model_of("slow", (1, 0.001, 0.9, 0.2))
    assert usual_rates(bought(chain("slow"), slow))[-1] == pytest.approx(0.02)
    with pytest.raises(InvalidInput):
        usual_rates(bought(chain("work", "unknown"), WORK))


@examples(20)
@given(requests())
def test_an_outlook_reaches_at_least_the_rate_and_more_slots_carry_more(request):
    supply = bought(request.topology, *request.models.values())
    found = scaling_analysis(supply, 50.0)
    assert found["slots"] is not None
    assert found["same_slots"]["rate_tps"] >= 50
    assert found["same_slots"]["slots"] == found["slots"]["total"]
    vms = supply.plan(50.0).vms
    assert make_plan(replace(supply.request, rate_tps=found["same_slots"]["rate_tps"], vms=vms))
    if found["more_slots"] is not None:
        assert found["more_slots"]["slots"] > found["same_slots"]["slots"]
        assert found["more_slots"]["carried_tps"] > found["same_slots"]["carried_tps"]


def test_slots_that_carry_far_more_than_asked_for_are_told_in_larger_steps():
    found = scaling_analysis(fixed(chain("work"), WORK, slots=(4,)), 0.001)
    assert (found["same_slots"]["rate_tps"], found["more_slots"]["rate_tps"]) == (400, 500)


def test_every_reach_is_found_by_the_supplys_own_planner():
    supply, asked = fixed(chain("work"), WORK, slots=(2,)), []

    def highest(request: PlanRequest, step_tps: float) -> Plan:
        asked.append(len(request.vms))
        return highest_plan(request, step_tps)

    scaling_analysis(replace(supply, highest=highest), 120.0)
    assert asked == [1, 2]


def test_where_any_rate_fits_there_is_no_next_step():
    topology = Topology("t", (Task("in", static=Static(1, 0.2, 0.2)),), ())
    found = scaling_analysis(bought(topology), 1000.0)
    assert (found["slots"]["total"], found["same_slots"], found["more_slots"]) == (1, None, None)
    assert found["limit"]["by"] is None
