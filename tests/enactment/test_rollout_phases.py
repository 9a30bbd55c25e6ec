"""Every phase of an enactment, its conditions and its time-outs, in a world that does as it is told."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from enactment_world import MODELS, TOPOLOGY, World, vm
from msgspec.structs import replace

from headgate.controller.core.loop import rested
from headgate.controller.execute.desired_state import chainable, computes
from headgate.controller.execute.rollout import stand_of
from headgate.controller.execute.rollout_steps import PREPARED_LIMIT_NS, next_step
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import Durable, Holds
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.replay.ideal_machines import Delays
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.messages import DesiredState, Token

S = 1_000_000_000


def running(rate_tps: float = 100.0, **settings: Any) -> World:
    """A world whose first plan is committed."""
    return World(rate_tps=rate_tps, **settings).start().until("committed")


def risen(world: World, rate_tps: float = 500.0) -> World:
    """The rate was raised and the plan for it decided."""
    epoch = world.durable.next_epoch
    assert world.ask("rate_set", rate_tps=rate_tps).error is None
    for _ in range(100):
        world.run(0.05)
        if world.durable.next_epoch > epoch:
            return world
    raise AssertionError(f"no plan: {world.loop.knowledge.last_decision}")


def test_the_first_plan_waits_for_all_vms_that_shall_be_there() -> None:
    world = World()
    late = world.vms.pop("vm2")
    world.start().run(5)
    assert world.durable.rollout is None
    world.vms["vm2"] = late
    world.do(t.FromVm(late.hello()))
    world.run(1)
    assert world.durable.rollout is not None


def test_the_first_plan_is_made_when_the_last_vm_has_reported() -> None:
    """Not in the next turn of the loop: whoever starts a run waits for it."""
    world = World()
    late = world.vms.pop("vm2")
    world.start().run(5.1)
    world.vms["vm2"] = late
    world.do(t.FromVm(late.hello()))
    assert world.durable.rollout is None
    world.do(t.FromVm(late.report()))
    assert world.durable.rollout is not None


def test_after_ten_seconds_the_first_plan_takes_those_there_are() -> None:
    world = World()
    world.vms.pop("vm2")
    world.start().run(9.5)
    assert world.durable.rollout is None
    world.run(1.5)
    assert {slot.vm for slot in world.rollout.slots} == {"vm1"}


def test_the_offer_begins_when_the_first_plan_is_switched() -> None:
    world = World()
    world.start()
    assert world.durable.schedule is None
    world.until("switched")
    assert world.durable.started_ns == pytest.approx(world.now.wall_ns, abs=S)
    world.run(3)
    assert world.loop.knowledge.counts.emitted > 150


def test_a_plan_goes_from_prepared_to_committed_and_leavers_go() -> None:
    world = risen(running())
    assert world.phase == "prepared"
    old = {t.thread for t in world.rollout.threads} - set(world.rollout.fresh)
    world.until("probation", 2)
    assert world.durable.rollouts[-1].in_force_ns - world.durable.rollouts[-1].decided_ns < 2 * S
    world.until("committed", 20).run(1)
    assert not world.rollout.leaving
    assert {t.thread for t in world.rollout.threads} != old


def test_prepared_has_the_old_routes_and_switched_the_new_ones() -> None:
    world = running()
    before = world.rollout.routes
    risen(world)
    told = world.loop.knowledge.desired
    assert told is not None and told.phase == "prepared" and told.routes == before
    world.until("switched")
    told = world.loop.knowledge.desired
    assert told is not None and told.phase == "switched" and told.routes == world.rollout.routes != before


def test_a_keyed_sink_is_to_say_that_its_ranges_have_moved() -> None:
    """It sends nothing; its state is under way nonetheless."""
    stand = stand_of(running().loop.knowledge, 0)
    assert stand is not None
    sinks = tuple(thread for thread in stand.planned.threads if thread.task == "sink")
    planned = replace(stand.planned, threads=sinks, routes_number=stand.planned.routes_number + 1)
    keyed = tuple(replace(task, state="keyed") if task.name == "sink" else task for task in TOPOLOGY.tasks)
    steps = [
        next_step(dataclasses.replace(stand, phase="switched", planned=planned, topology=topology)).kind
        for topology in (TOPOLOGY, replace(TOPOLOGY, tasks=keyed))
    ]
    assert steps == ["enter", "stay"]


def test_a_worker_that_is_not_ready_holds_the_plan_and_after_ten_seconds_it_is_taken_back() -> None:
    world = running()
    for one in world.vms.values():
        one.hung = {Slot(one.name, n) for n in range(4)} - set(one.workers)
    risen(world)
    bad, good = world.rollout, world.durable.rollouts[0]
    world.run(PREPARED_LIMIT_NS / S - 0.5)
    assert (world.phase, world.rollout.epoch) == ("prepared", bad.epoch)
    world.run(1)
    assert world.rollout.reason == "rolled_back" and world.rollout.undoes == bad.epoch
    assert world.durable.rollouts[1].rolled_back and not good.rolled_back
    assert world.loop.knowledge.open_circuits
    world.until("committed", 20).run(1)
    assert {t.thread for t in world.rollout.threads}.isdisjoint(bad.fresh)


def building(world: World, going_on: bool) -> None:
    """Do objects of `work` take their time?"""
    for one in world.vms.values():
        one.building = {"work"} if going_on else set()


def test_no_row_goes_to_a_thread_whose_object_is_being_built_however_long_that_takes() -> None:
    world = running()
    risen(world)
    plan = world.rollout
    building(world, True)
    world.run(3 * PREPARED_LIMIT_NS / S)
    assert (world.phase, world.rollout.epoch) == ("prepared", plan.epoch)
    assert "of work (being built)" in world.alarms["enactment"]
    building(world, False)
    world.until("committed", 20)
    assert world.rollout.epoch == plan.epoch and not world.durable.rollouts[-1].rolled_back


def test_an_object_that_is_built_for_long_and_fails_takes_its_plan_back_before_any_row_went_there() -> None:
    world = running()
    risen(world)
    bad = world.rollout
    building(world, True)
    world.run(3)
    for one in world.vms.values():
        one.failing.add("work")
    world.run(1)
    switched = [text for text in world.texts("switched") if f"plan {bad.epoch}:" in text]
    assert world.rollout.undoes == bad.epoch and not switched


def test_the_first_plan_begins_when_its_objects_are_built() -> None:
    world = World()
    building(world, True)
    world.start().run(3 * PREPARED_LIMIT_NS / S)
    assert world.phase == "prepared" and world.durable.schedule is None
    building(world, False)
    world.until("committed", 20)


def test_a_way_back_that_is_late_goes_no_further_back_and_is_told() -> None:
    world = running()
    for one in world.vms.values():
        one.hung = {Slot(one.name, n) for n in range(4)} - set(one.workers)
    risen(world).run(PREPARED_LIMIT_NS / S - 0.5)
    for one in world.vms.values():
        one.hung = {Slot(one.name, n) for n in range(4)}
    world.run(PREPARED_LIMIT_NS / S + 2)
    assert [rollout.reason for rollout in world.durable.rollouts] == ["start", "rate_changed", "rolled_back"]
    assert "has been prepared for long" in world.alarms["enactment"]


def test_a_plan_that_was_taken_back_is_not_tried_again_for_a_minute() -> None:
    world = running()
    for one in world.vms.values():
        one.hung = {Slot(one.name, n) for n in range(4)} - set(one.workers)
    risen(world)
    world.run(40)
    assert [rollout.reason for rollout in world.durable.rollouts] == ["start", "rate_changed", "rolled_back"]
    assert "failed lately" in str(world.loop.knowledge.last_decision)
    world.run(45)
    assert [rollout.reason for rollout in world.durable.rollouts][3:] == ["rate_changed", "rolled_back"]


def test_logic_that_cannot_be_built_takes_a_plan_back_at_once() -> None:
    world = running()
    world.vms["vm1"].failing = world.vms["vm2"].failing = {"work"}
    risen(world).run(0.5)
    assert world.rollout.reason == "rolled_back" and "ValueError: no" in world.rollout.text


def test_logic_that_cannot_be_built_ends_a_run_that_never_ran() -> None:
    world = World()
    world.vms["vm1"].failing = world.vms["vm2"].failing = {"work"}
    world.start().run(3)
    assert world.finish is not None and world.finish.error is not None
    assert world.finish.error.exit_code == 7
    assert "ValueError: no" in str(world.finish.error.cause)


def test_logic_that_turns_out_after_the_switch_not_to_be_built_takes_the_plan_back_too() -> None:
    """A worker is ready while its threads are being built."""
    world = risen(running()).until("switched")
    bad = world.rollout.epoch
    world.vms["vm1"].failing = world.vms["vm2"].failing = {"work"}
    world.run(0.5)
    assert world.rollout.undoes == bad and "task work, thread " in world.rollout.text
    assert "ValueError: no" in world.rollout.text


def test_logic_that_turns_out_after_the_first_switch_not_to_be_built_ends_the_run() -> None:
    world = World().start().until("switched")
    world.vms["vm1"].failing = world.vms["vm2"].failing = {"work"}
    world.run(1)
    assert world.finish is not None and world.finish.error is not None
    assert "ValueError: no" in str(world.finish.error.cause)


def test_machines_are_journaled_before_they_are_asked_for() -> None:
    world = risen(running(max_vms=3, spare=vm("x")), 1400.0)
    kinds = [type(record).__name__ for record in world.journal]
    assert kinds.index("MachineAsked") < kinds.index("RolloutStarted", kinds.index("MachineAsked"))
    assert [record.vm for record in world.durable.machines] == ["vm3"]
    world.run(0.1).until("committed", 20)
    assert "vm3" in {slot.vm for slot in world.rollout.slots}


def test_machines_that_do_not_come_are_given_up_and_the_old_plan_holds() -> None:
    world = running(max_vms=3, spare=vm("x"))
    world.lost_requests.add("vm3")
    risen(world, 1400.0)
    held = world.rollout.epoch
    assert world.durable.waiting is not None
    world.run(62)
    assert "vm3 was asked for" in world.loop.knowledge.alarms["vm"]
    world.run(55)
    assert world.durable.waiting is not None
    world.run(5)
    assert world.durable.waiting is None and "vm" not in world.loop.knowledge.alarms
    assert (world.rollout.epoch, world.durable.machines, world.asked) == (held, (), {})
    assert world.durable.rollouts[-1].abandoned or world.durable.rollouts[-2].abandoned


def test_a_vm_without_threads_is_given_back_after_the_commit() -> None:
    world = risen(running(max_vms=3, spare=vm("x")), 1400.0).until("committed", 20)
    world.run(40)
    risen_to_low(world)
    world.until("committed", 20).run(1)
    assert world.durable.machines == () and "vm3" not in world.vms and world.asked == {}


@pytest.mark.parametrize(
    ("machine_s", "times", "lost"),
    [
        (3.0, 2, False),
        (3.0, 2, True),
        (30.0, 2, False),
        pytest.param(30.0, 10, False, marks=pytest.mark.full),
    ],
)
def test_a_vm_that_takes_its_time_is_used_each_time(machine_s: float, times: int, lost: bool) -> None:
    """What it was before it was asked for again (given back, or lost) says nothing of it now."""
    world = running(max_vms=3, spare=vm("x"))
    world.delays = Delays(machine_s=machine_s)
    for _ in range(times):
        risen(world, 1400.0).run(machine_s + 2)
        assert len({slot.vm for slot in world.rollout.slots}) == 3, world.durable.rollouts[-1]
        world.until("committed", 30)
        if lost:
            (asked,) = world.asked
            world.vms[asked].down = True
        world.run(40)
        risen_to_low(world)
        world.until("committed", 30).run(2)
        assert world.asked == {}


def risen_to_low(world: World) -> None:
    world.ask("rate_set", rate_tps=50.0)
    epoch = world.durable.next_epoch
    for _ in range(3000):  # a rise that came again and again is waited for longer
        world.run(0.1)
        if world.durable.next_epoch > epoch:
            return
    raise AssertionError("the rate fell and nothing happened")


def test_tokens_only_rise_and_agents_are_told_again_every_two_seconds() -> None:
    world = risen(running()).until("committed", 20)
    tokens = world.tokens
    assert tokens == sorted(tokens)
    count = len([1 for name, message in world.sent if name == "vm1" and isinstance(message, DesiredState)])
    world.run(10)
    again = len([1 for name, message in world.sent if name == "vm1" and isinstance(message, DesiredState)])
    assert 4 <= again - count <= 6


def test_an_agent_that_is_behind_is_told_again_soon() -> None:
    world = running()
    world.vms["vm1"].token = Token()
    count = len(world.tokens)
    world.run(0.7)
    assert len(world.tokens) > count
    assert world.vms["vm1"].token == world.loop.knowledge.desired.token  # type: ignore[union-attr]


# ── A controller that is given a plan runs it as it is, and plans nothing again ─────────────────────────


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


# ── Workers are told which tasks may be chained: those that compute, if the operator wants it ───────────


def model(cpu: float, waiting: bool = False) -> Model:
    points = Point(1, 100.0, cpu, 0.1), Point(2, 110.0, 1.0, 0.1)
    return Model("work", ModelSlot(), points, {"wake_cpu": 0.001, "waiting": waiting})


@pytest.mark.parametrize(
    ("cpu", "waiting", "found"),
    [(1.0, False, True), (0.8, False, True), (0.5, False, False), (0.95, True, False)],
)
def test_a_task_computes_when_one_thread_fills_its_slot_and_does_not_wait(
    cpu: float, waiting: bool, found: bool
) -> None:
    assert computes(model(cpu, waiting)) is found


def test_of_a_task_without_a_model_nothing_is_known() -> None:
    topology = Topology("t", (Task("source", kind="source"), Task("work"), Task("alias", model="work")), ())
    assert chainable(topology, {"work": model(1.0)}) == ("work", "alias")
    assert chainable(topology, {}) == ()


@pytest.mark.parametrize("wanted", [True, False])
def test_every_worker_is_told(wanted: bool) -> None:
    world = World(rate_tps=100.0)
    world.settings = replace(world.settings, chaining=wanted)
    steep = replace(MODELS[0], points=tuple(replace(point, cpu=0.9) for point in MODELS[0].points))
    world.submitted = replace(world.submitted, models=(steep,))
    world.loop = type(world.loop)(world.settings, world.submitted)
    world.start().run(10)
    desired = world.loop.knowledge.desired
    assert desired is not None and desired.chained == (("work",) if wanted else ())


def test_a_task_that_leaves_its_slot_room_is_not_named() -> None:
    world = World(rate_tps=100.0)
    world.settings = replace(world.settings, chaining=True)
    world.loop = type(world.loop)(world.settings, world.submitted)
    world.start().run(10)
    desired = world.loop.knowledge.desired
    assert desired is not None and desired.threads and desired.chained == ()


# ── A controller that begins anew knows which holders of exclusive tasks had said that they ended ───────


def test_who_is_gone_had_said_so_unless_its_vm_is_held_dead() -> None:
    d = World().start().until("committed").durable
    assert d.rollout is not None
    running = next(thread for thread in d.rollout.threads if thread.task == "work")
    holds = (
        Holds("a", running.thread, running.slot),
        Holds("b", 1000, Slot("vm1", 0)),
        Holds("c", 1001, Slot("vm9", 0)),
    )
    assert rested(replace(d, holders=holds, held_dead=("vm9",))) == {1000}
    assert rested(Durable()) == set()
