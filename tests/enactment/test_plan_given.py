"""A controller that is given a plan runs it as it is, and plans nothing again."""

from __future__ import annotations

from enactment_world import MODELS, TOPOLOGY, World, vm
from msgspec.structs import replace

from headgate.controller.knowledge.plans import Plan
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.errors import InvalidInput


def given(rate_tps: float = 60.0) -> Plan:
    vms = (vm("vm1"), vm("vm2"))
    return make_plan(
        PlanRequest(TOPOLOGY, {model.task: model for model in MODELS}, rate_tps, vms, fixed=True)
    )


def test_the_given_plan_is_run_whatever_is_offered() -> None:
    plan = given()
    world = World(rate_tps=20.0, plan=plan).start().until("committed")
    assert world.rollout.plan.id == plan.id
    assert world.rollout.plan.placement == plan.placement
    assert world.ask("rate_set", rate_tps=500.0).error is None
    world.run(40)
    assert world.durable.next_epoch == world.rollout.epoch + 1
    assert world.rollout.plan.id == plan.id
    assert "held" in world.loop.knowledge.last_decision["text"]


def test_a_given_plan_for_other_vms_is_refused_with_every_fault() -> None:
    world = World(vms=(vm("vm1"),), plan=given()).start()
    world.run(3)
    assert world.finish is not None
    assert isinstance(world.finish.error, InvalidInput)
    assert any("vm2" in fault for fault in world.finish.error.faults)


def test_a_given_plan_from_other_models_is_refused() -> None:
    world = World(plan=replace(given(), models_digest="another")).start()
    world.run(3)
    assert world.finish is not None
    assert isinstance(world.finish.error, InvalidInput)
