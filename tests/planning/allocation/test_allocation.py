"""Threads and slots that the allocators reserve (paper 0, Alg. 2 and 3)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked, checked_few, model_of, models, requests, vms_of

from headgate.controller.models.model_data import model_of as read_model
from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Sure, TaskAllocation
from headgate.controller.models.task_models import Model, Point, Spread, peak, peak_rate
from headgate.controller.plan.allocators.allocation_rules import slots_for
from headgate.controller.plan.allocators.lsa import lsa
from headgate.controller.plan.allocators.mba import bundles_for, mba
from headgate.controller.plan.plan_steps import MOST, by_spread
from headgate.controller.plan.planner import PlanRequest, carrying_plan, make_plan
from headgate.controller.plan.verifier import faults_of
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.measuring.model_store import stand_in

PI = model_of("pi", (1, 105, 0.92, 0.02), (2, 110, 0.95, 0.035))


@pytest.mark.parametrize("peaks", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_whole_peaks_take_whole_bundles_only(peaks, off):
    found = bundles_for("pi", peaks * 110 * (1 + off), PI)
    assert (found.full_bundles, found.rest_threads, found.threads) == (peaks, 0, 2 * peaks)
    assert found.cpu_slots == peaks


def test_a_rest_for_one_thread_is_scaled_down():
    found = bundles_for("pi", 110 + 21, PI)
    assert (found.full_bundles, found.rest_threads) == (1, 1)
    assert found.rest_cpu == pytest.approx(0.92 * 21 / 105)
    assert found.memory_slots == pytest.approx(1 + 0.02 * 21 / 105)


def test_a_rest_for_several_threads_is_not_scaled():
    found = bundles_for("pi", 110 + 108, PI)
    assert (found.full_bundles, found.rest_threads, found.rest_cpu) == (1, 2, 0.95)


def test_a_task_without_rows_has_a_thread_that_reserves_nothing():
    for allocation in (mba(chain("pi"), {"pi": PI}, 0.0), lsa(chain("pi"), {"pi": PI}, 0.0)):
        assert [(t.threads, t.cpu_slots, t.memory_slots) for t in allocation.tasks] == [(1, 0, 0)]
        assert allocation.slots == 0


def test_tasks_of_fixed_size_are_not_counted_in_slots():
    topology = Topology("t", (Task("in", static=Static(3, 0.9, 0.9)), Task("pi")), (Edge("in", "pi"),))
    allocation = mba(topology, {"pi": PI}, 105.0)
    assert allocation.slots == 1
    assert [(t.task, t.threads, t.static) for t in allocation.tasks] == [("in", 3, True), ("pi", 1, False)]


@pytest.mark.parametrize(("used", "slots"), [(0.0, 0), (1e-12, 0), (1.0, 1), (3 * 1.1 / 3.3, 1), (1.001, 2)])
def test_rounding_makes_no_slot(used, slots):
    assert slots_for([TaskAllocation("a", 1.0, 1, used, 0.0)]) == slots
    assert slots_for([TaskAllocation("a", 1.0, 1, 0.0, used)]) == slots


@pytest.mark.parametrize("allocator", [mba, lsa])
@pytest.mark.parametrize("edge", [{"grouping": "global"}, {"grouping": "all"}])
def test_one_thread_carries_the_whole_rate_or_nothing_does(allocator, edge):
    topology = chain("a", "pi", **edge)
    known = {"a": model_of("a", (1, 1000, 0.1, 0.1)), "pi": PI}
    found = allocator(topology, known, 105.0).tasks[1]
    assert (found.threads, found.cpu_slots) == (1, pytest.approx(0.92))
    with pytest.raises(Infeasible) as refused:
        allocator(topology, known, 106.0)
    assert refused.value.exit_code == 4
    assert "task 'pi' is reached by" in refused.value.faults[0]


def test_an_exclusive_task_has_one_thread():
    topology = Topology("t", (Task("pi", exclusive=True),))
    assert mba(topology, {"pi": PI}, 50.0).tasks[0].threads == 1
    with pytest.raises(Infeasible):
        mba(topology, {"pi": PI}, 110.0)


@checked
@given(models("t"), st.floats(0.0, 1e5))
def test_mba_threads_suffice_and_reserve_what_they_were_measured_with(model, rate):
    found = bundles_for("t", rate, model)
    peak_tps, peak_threads = peak(model)
    carried = found.full_bundles * peak_tps + peak_rate(model, found.rest_threads)
    assert carried >= rate * (1 - 1e-6)
    assert found.threads == found.full_bundles * peak_threads + found.rest_threads >= 1
    assert found.full_bundles * peak_tps <= rate * (1 + 1e-6)
    assert 0 <= found.rest_cpu <= max(point.cpu for point in model.points)
    assert 0 <= found.rest_memory <= max(point.memory for point in model.points)


@checked
@given(models("t"), st.floats(0.0, 1e4), st.floats(1.0, 3.0))
def test_lsa_is_linear(model, rate, times):
    once, more = (lsa(chain("t"), {"t": model}, r).tasks[0] for r in (rate, rate * times))
    assert more.cpu_slots == pytest.approx(once.cpu_slots * times, rel=1e-6, abs=1e-6)
    assert more.memory_slots == pytest.approx(once.memory_slots * times, rel=1e-6, abs=1e-6)
    assert more.threads * peak_rate(model, 1) >= rate * times * (1 - 1e-6)


# ── Tasks that were not measured: one thread in a slot of their own, whatever the rate, and a limit of
# nothing


def lacking(task):
    model, faults = read_model(stand_in(task, {"cores": 1.0}))
    assert not faults and model.unmeasured
    return model


@pytest.mark.parametrize("rate_tps", [1.0, 90.0, 250.0])
def test_it_has_one_thread_in_a_slot_of_its_own_and_limits_nothing(rate_tps):
    work = model_of("work", (1, 100, 0.9, 0.2))
    request = PlanRequest(
        chain("work", "store"), {"work": work, "store": lacking("store")}, rate_tps, vms_of(4, 4)
    )
    plan = make_plan(request)
    (bundle,) = (b for b in plan.placement.bundles if b.task == "store")
    assert bundle.threads == 1
    assert [b.task for b in plan.placement.bundles if b.slot == bundle.slot] == ["store"]
    alone = make_plan(replace(request, topology=chain("work"), models={"work": work}))
    assert plan.prediction.rate_tps == pytest.approx(alone.prediction.rate_tps)
    assert plan.prediction.limited_by == "work" and plan.slots.used == alone.slots.used + 1


@checked_few
@given(requests())
def test_plans_with_it_are_sound_and_nobody_shares_its_slot(request):
    lacks = next(task.name for task in request.topology.tasks if task.static is None)
    models = {**request.models, lacks: lacking(lacks)}
    room = (*request.vms, Vm("more1", 8), Vm("more2", 8))
    given_ = replace(request, models=models, vms=room, pinned={}, rate_tps=5.0)
    try:
        plan = make_plan(given_)
    except Infeasible:
        return
    assert faults_of(plan, request.topology, models) == []
    (bundle,) = (b for b in plan.placement.bundles if b.task == lacks)
    assert bundle.threads == 1 and sum(b.slot == bundle.slot for b in plan.placement.bundles) == 1


# ── How much more than the rate is planned for: by the models' spread, or as asked for, and told in the
# plan

TOPOLOGY = chain("a", "b", ends=True)


def spread(name: str, **half: float) -> Model:
    """A slot of a or b carries 100 rows/s with two threads, give or take."""
    model = model_of(name, (1, 60.0, 0.5, 0.2), (2, 100.0, 0.9, 0.3))
    points = tuple(replace(point, spread=Spread(**half)) if half else point for point in model.points)
    return replace(model, points=points)


def asked(models: dict[str, Model], **more) -> PlanRequest:
    given = {"allocator": "optimal", "mapper": "optimal", **more}
    return PlanRequest(TOPOLOGY, models, 215.0, vms_of(4, 4), **given)


def test_without_spread_there_is_no_margin_and_the_plan_says_so():
    plan = make_plan(asked({name: spread(name) for name in "ab"}))
    assert (plan.allocation.margin, plan.allocation.margin_why) == (1.0, "the models have no spread")


def test_the_peak_that_may_be_least_of_what_it_is_gives_the_margin():
    """a may carry a twentieth less, b a tenth: 100 / 90, not both."""
    models = {"a": spread("a", relative=0.05), "b": spread("b", rate_tps=10.0)}
    plan = make_plan(asked(models))
    assert plan.allocation.margin == pytest.approx(100 / 90, abs=1e-4)
    assert plan.allocation.margin_why == "by its spread a slot of b may carry 10.0% less than its model says"
    assert plan.prediction.rate_tps >= 215 * 100 / 90 * (1 - 1e-4) and plan.rate_tps == 215.0
    assert faults_of(plan, TOPOLOGY, models) == []
    assert plan.slots.used > make_plan(asked({name: spread(name) for name in "ab"})).slots.used


def test_the_low_end_is_that_of_every_point():
    """The best point is off by far more than the other one, which is then the best."""
    points = (Point(1, 90.0, 0.5, 0.2, Spread(relative=0.0)), Point(2, 100.0, 0.9, 0.3, Spread(relative=0.5)))
    models = {"a": replace(spread("a"), points=points), "b": spread("b")}
    assert by_spread(TOPOLOGY, models)[0] == pytest.approx(100 / 90, abs=1e-4)
    lost = replace(spread("a"), points=(Point(1, 90.0, 0.5, 0.2, Spread(relative=0.99)),))
    assert by_spread(TOPOLOGY, {"a": lost, "b": spread("b")})[0] == MOST


def test_what_is_asked_for_goes_before_the_spread_and_holds_for_any_allocator():
    models = {"a": spread("a", relative=0.05), "b": spread("b", relative=0.1)}
    for pair in (("optimal", "optimal"), ("mba", "sam")):
        plan = make_plan(asked(models, allocator=pair[0], mapper=pair[1], margin=1.3))
        assert (plan.allocation.margin, plan.allocation.margin_why) == (1.3, "it was asked for")
        assert plan.allocation.rate_tps == pytest.approx(215 * 1.3)
        assert faults_of(plan, TOPOLOGY, models) == []
    none = make_plan(asked(models, margin=1.0))
    assert none.allocation.margin == 1.0 and none.slots.used <= make_plan(asked(models)).slots.used
    usual = make_plan(asked(models, allocator="mba", mapper="sam"))
    assert (usual.allocation.margin, usual.allocation.margin_why) == (1.0, "")
    for wrong in (0.9, float("nan"), 100.0):
        with pytest.raises(InvalidInput, match="cannot be planned"):
            make_plan(asked(models, margin=wrong))


def test_a_plan_that_is_to_be_sure_has_the_margin_that_this_takes():
    models = {name: spread(name, relative=0.1) for name in "ab"}
    plan = make_plan(asked(models, sure=Sure(0.9, strict=False)))
    assert plan.prediction.sure is not None and plan.allocation.margin == 1.0
    assert faults_of(plan, TOPOLOGY, models) == []


def test_a_plan_that_is_raised_until_it_carries_keeps_its_margin():
    models = {name: spread(name, relative=0.1) for name in "ab"}
    for pair in (("optimal", "dsm"), ("optimal", "optimal"), ("lsa", "dsm")):
        plan, _ = carrying_plan(asked(models, allocator=pair[0], mapper=pair[1], margin=1.1))
        assert [fault for fault in faults_of(plan, TOPOLOGY, models) if "sees" in fault] == []


def test_the_margin_is_in_the_file_and_read_back():
    plan = make_plan(asked({name: spread(name, relative=0.1) for name in "ab"}))
    data = json.loads(json.dumps(plan_data(plan)))
    assert data["margin"] == {"factor": plan.allocation.margin, "why": plan.allocation.margin_why}
    assert plan_of(data) == plan
    with pytest.raises(InvalidInput) as refused:
        plan_of({**data, "margin": {"factor": 0.5}})
    assert any("margin.factor" in fault for fault in refused.value.faults)


def test_the_option_is_told_in_words(capsys):
    line = ["plan", "linear", "--rate", "50", "--planner", "optimal"]
    assert cli.main([*line, "--margin", "0.2"]) == 0
    assert "Margin 20.0%: it was asked for." in capsys.readouterr().out
    assert cli.main(line) == 0
    assert "Margin 0.0%: the models have no spread." in capsys.readouterr().out
    assert cli.main([*line, "--margin", "0.2", "--sure", "0.9"]) == 2
