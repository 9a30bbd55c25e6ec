"""Whatever bars a slot or a VM has a way out: where no plan can be made without it, it is tried again after a while,
and an alarm says what is waited for. Nothing stands still for good for a fault that is over."""

from __future__ import annotations

from enactment_world import S, World, replace, vm

from headgate.controller.analyze.slot_troubles import LEFT_OUT_S, RESTED_S
from headgate.controller.execute.plan_drift import unreached
from headgate.topology_runtime.api.cluster import Slot

ONE, OTHER = Slot("vm1", 0), Slot("vm2", 0)


def alarm(world: World, what: str) -> str:
    return world.loop.knowledge.alarms.get(what, "")


def planned_around_one() -> World:
    """Two VMs of one slot; the one that was used first is given up, and the plan is on the other one."""
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    assert set(world.rollout.slots) == {ONE}
    world.vms["vm1"].quarantine(0)
    world.run(5).until("committed")
    assert set(world.rollout.slots) == {OTHER}
    return world


def test_a_slot_that_was_given_up_is_tried_again_where_it_is_the_last_one() -> None:
    world = planned_around_one()
    world.vms["vm2"].down = True
    world.run(10)
    assert "no slot that may be used; vm2 is lost, vm1/0 was given up" in alarm(world, "plan")
    world.run(RESTED_S).until("committed")
    assert set(world.rollout.slots) == {ONE} and world.loop.knowledge.alarms == {}


def test_one_that_crashes_on_is_tried_once_a_minute_and_an_alarm_stays() -> None:
    world = planned_around_one()
    world.vms["vm1"].dying.add(ONE)
    world.vms["vm2"].down = True
    world.run(10)
    epoch, crashes = world.durable.next_epoch, world.vms["vm1"].workers[ONE].crashes
    world.run(10 * RESTED_S)
    assert 3 <= world.durable.next_epoch - epoch <= 10, "tried, and not every second"
    assert 12 <= world.vms["vm1"].workers[ONE].crashes - crashes <= 40
    assert "vm1/0 was given up, and is tried again" in alarm(world, "plan")


def test_a_slot_that_was_left_out_is_used_where_it_is_the_last_one() -> None:
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    world.vms["vm1"].failing.add("work")
    world.run(30).until("committed")
    assert set(world.rollout.slots) == {OTHER} and ONE in world.loop.knowledge.left_out
    world.vms["vm1"].failing.clear()
    world.vms["vm2"].down = True
    world.run(LEFT_OUT_S / 3).until("committed")
    assert set(world.rollout.slots) == {ONE}


def test_a_slot_with_leaving_threads_alone_is_tried_again_too() -> None:
    """It was given up while its threads were to go elsewhere, and that VM was lost before they were there."""
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    world.vms["vm2"].hung.add(OTHER)
    world.ask("drain", vms=["vm1"])
    world.run(2)
    assert world.durable.phase == "prepared" and set(world.rollout.slots) == {ONE, OTHER}
    world.vms["vm2"].down = True
    world.vms["vm1"].quarantine(0)
    world.ask("uncordon", vms=["vm1"])
    world.run(RESTED_S + 20).until("committed")
    assert set(world.rollout.slots) == {ONE}


def test_a_slot_that_rested_is_a_way_back() -> None:
    """The plan on the other VM never gets ready."""
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    world.vms["vm2"].hung.add(OTHER)
    world.vms["vm1"].quarantine(0)
    world.run(15)
    assert "no way back" in alarm(world, "enactment")
    world.run(RESTED_S).until("committed")
    assert set(world.rollout.slots) == {ONE}


def test_another_slot_is_tried_where_a_worker_does_not_get_ready_and_there_is_no_way_back() -> None:
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    world.vms["vm2"].hung.add(OTHER)
    world.vms["vm1"].down = True
    world.run(20)
    assert "no way back" in alarm(world, "enactment")
    world.vms["vm1"].restart()
    world.run(30).until("committed")
    assert set(world.rollout.slots) == {ONE}


def test_a_first_plan_whose_worker_does_not_get_ready_is_made_anew_elsewhere() -> None:
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0)
    world.vms["vm1"].hung.add(ONE)
    world.start().run(30).until("committed")
    assert set(world.rollout.slots) == {OTHER}


def test_a_vm_that_only_a_lost_one_did_not_reach_is_used() -> None:
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    k = world.loop.knowledge
    k.cut_off = {("vm1", "vm2"): world.mono_ns + 3600 * S}
    assert unreached(k) == {"vm2"}
    world.vms["vm1"].down = True
    world.run(20).until("committed")
    assert set(world.rollout.slots) == {OTHER}


def test_a_run_that_ends_leaves_no_slot_out_for_good() -> None:
    """What was read is done on the VM that was left out a while ago."""
    world = World((vm("vm1", 1), vm("vm2", 1)), rate_tps=20.0).start().until("committed")
    world.vms["vm1"].failing.add("work")
    world.run(30).until("committed")
    assert ONE in world.loop.knowledge.left_out
    world.vms["vm1"].failing.clear()
    world.hold_acks = True
    world.run(5)
    world.ask("stop")
    world.vms["vm2"].down = True
    world.run(20)
    assert set(world.rollout.slots) == {ONE}
    world.hold_acks = False
    world.run(60)
    assert world.finish is not None


def test_what_was_said_of_a_slot_before_a_plan_took_it_again_does_not_count() -> None:
    """Its agent had not heard of that plan yet."""
    world = planned_around_one()
    members = world.loop.knowledge.members
    epoch = world.durable.next_epoch
    members.take_up(ONE, epoch)
    world.run(2)
    assert ONE not in members.quarantined
    world.vms["vm1"].token = replace(world.vms["vm1"].token, epoch=epoch)
    world.run(2)
    assert ONE in members.quarantined, "also after it had"
