"""Tasks that were not measured: one thread in a slot of their own, whatever the rate, and a limit of nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace
from worlds import chain, checked_few, model_of, requests, vms_of

from headgate.controller.knowledge.model_data import model_of as read_model
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.verify import faults_of
from headgate.topology_runtime.calibration.store import stand_in
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Infeasible


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
