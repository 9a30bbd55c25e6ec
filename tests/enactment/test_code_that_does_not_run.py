"""Threads that cannot be built and workers that die for want of memory have a name and a way out: the plan is not
committed, another VM is tried, fewer threads are put into the slot; and a plan under which nothing is done is no plan
that has proved itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from enactment_world import TOPOLOGY, World, vm
from msgspec.structs import replace

from headgate.controller.analyze.slot_troubles import LEFT_OUT_S, UNBUILT_S, roomier
from headgate.controller.models.task_models import memory
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.api.cluster import SLOT_MEMORY_BYTES, Slot
from headgate.topology_runtime.wire import messages as m

HOW = "out of memory, its slot has 512 MiB: signal 9 (SIGKILL)"


def running(rate_tps: float = 100.0) -> World:
    return World(rate_tps=rate_tps).start().until("committed")


def on_probation() -> World:
    return World(rate_tps=100.0).start().until("probation")


def where(world: World, task: str) -> set[str]:
    return {t.slot.vm for t in world.rollout.threads if t.task == task and not t.leaving}


def starve(world: World, slot: Slot) -> None:
    one = world.vms[slot.vm]
    one.kill_worker(slot.number)
    one.workers[slot].last_exit = HOW
    world.run(1.0)


def taken_by_up(text: str) -> dict[str, Any]:
    """What `up` makes of the line that a text advises between ` and `."""
    (line,) = re.findall("`up ([^`]*)`", text)
    return cli.load("up").make_context("up", ["flow.py:flow", *line.split()]).params


def test_a_plan_under_which_nothing_is_done_is_not_committed_until_it_is() -> None:
    world = on_probation()
    world.hold_acks = True
    world.run(60)
    assert world.durable.phase == "probation"
    assert "not committed: rows wait, and none was processed" in world.loop.knowledge.alarms["enactment"]
    world.hold_acks = False
    world.run(30)
    assert world.durable.phase == "committed"
    assert "enactment" not in world.loop.knowledge.alarms


def test_a_plan_with_a_thread_that_cannot_be_built_is_not_committed_until_it_is() -> None:
    world = World(vms=(vm("vm1"),), rate_tps=100.0).start().until("probation")
    for one in world.vms.values():
        one.failing.add("work")
    world.run(60)
    assert world.durable.phase == "probation"
    assert "task work, thread" in world.loop.knowledge.alarms["enactment"]
    assert any(what.startswith("code ") for what in world.loop.knowledge.alarms)
    for one in world.vms.values():
        one.failing.clear()
    world.run(30)
    assert world.durable.phase == "committed"
    assert not any(what.startswith("code ") for what in world.loop.knowledge.alarms)


def test_a_plan_whose_worker_dies_again_and_again_is_not_committed() -> None:
    world = on_probation()
    slot = world.rollout.threads[0].slot
    for _ in range(40):
        world.vms[slot.vm].kill_worker(slot.number)
        world.run(1.0)
    assert world.durable.phase == "probation"
    assert f"the worker in {slot} died" in world.loop.knowledge.alarms["enactment"]


def test_another_vm_is_tried_where_a_thread_cannot_be_built() -> None:
    world = running()
    (bad,) = where(world, "work")
    world.vms[bad].failing.add("work")
    world.run(UNBUILT_S / 2)
    assert where(world, "work") == {bad}, "it may work soon"
    world.run(UNBUILT_S)
    assert where(world, "work").isdisjoint({bad})
    assert world.rollout.reason == "thread_failed"
    world.run(60)
    assert world.durable.phase == "committed", "who leaves and cannot be built is not waited for"
    world.vms[bad].failing.clear()
    world.run(LEFT_OUT_S)
    assert not world.loop.knowledge.left_out


def test_no_vm_is_tried_where_the_task_fails_everywhere() -> None:
    world = running(rate_tps=900.0)
    assert where(world, "work") == {"vm1", "vm2"}
    epoch = world.durable.next_epoch
    for one in world.vms.values():
        one.failing.add("work")
    world.run(3 * UNBUILT_S)
    assert world.durable.next_epoch == epoch


def test_a_slot_that_ran_out_of_memory_gets_fewer_threads() -> None:
    world = running(rate_tps=100.0)
    slot = next(t.slot for t in world.rollout.threads if t.task == "work")
    before = [t.slot for t in world.rollout.threads].count(slot)
    assert before >= 2
    starve(world, slot)
    assert not world.loop.knowledge.memory_more, "once may be an accident"
    starve(world, slot)
    world.run(5)
    assert world.rollout.reason == "out_of_memory"
    slots = [t.slot for t in world.rollout.threads if not t.leaving]
    assert max(map(slots.count, slots)) < before
    alarm = world.loop.knowledge.alarms[f"memory {slot}"]
    assert "ran out of memory 2 times" in alarm
    given = taken_by_up(alarm)
    assert given["slot_memory_bytes"] > SLOT_MEMORY_BYTES, "more than the slot has"
    world.run(400)
    assert f"memory {slot}" not in world.loop.knowledge.alarms


def test_where_no_slot_is_left_for_fewer_threads_larger_ones_are_advised() -> None:
    world = World(vms=(vm("vm1", 1),), rate_tps=40.0).start().until("committed")
    slot, epoch = world.rollout.threads[0].slot, world.durable.next_epoch
    for _ in range(2):
        starve(world, slot)
    assert world.durable.next_epoch == epoch
    assert (
        "no slots are left for fewer there; larger slots: " in world.loop.knowledge.alarms[f"memory {slot}"]
    )


def test_memory_beyond_a_model_counts_for_each_thread() -> None:
    world = running()
    (model,) = world.loop.knowledge.models.values()
    more = roomier(model, 0.3)
    assert [round(memory(more, n) - memory(model, n), 9) for n in (1, 2)] == [0.3, 0.6]
    assert roomier(model, 0.0) == replace(model)


def test_a_plan_that_was_gone_back_to_and_is_not_built_either_is_not_left_again() -> None:
    world = World(vms=(vm("vm1"), vm("vm2"), vm("vm3")), rate_tps=900.0).start().until("committed")
    world.ask("rate_set", rate_tps=40.0)
    world.until("switched")
    for one in world.vms.values():
        one.failing.add("work")
    world.run(50)
    assert [one.reason for one in world.durable.rollouts] == ["start", "rate_changed", "rolled_back"]
    assert any("does not run" in text for text in world.loop.knowledge.alarms.values())


def test_a_keyed_task_is_moved_too_and_its_state_is_asked_for_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = tuple(
        replace(task, kind="keyed", state="keyed") if task.name == "work" else task for task in TOPOLOGY.tasks
    )
    edges = tuple(replace(e, grouping="fields", key=0) if e.target == "work" else e for e in TOPOLOGY.edges)
    monkeypatch.setattr("enactment_world.TOPOLOGY", replace(TOPOLOGY, tasks=tasks, edges=edges))
    world = running()
    (bad,) = where(world, "work")
    had = {t.thread for t in world.rollout.threads if t.task == "work"}
    world.vms[bad].failing.add("work")
    world.run(2 * UNBUILT_S)
    assert where(world, "work").isdisjoint({bad})
    assert world.rollout.reason == "thread_failed"
    told = [message for name, message in world.sent if name != bad and isinstance(message, m.DesiredState)]
    homes = {home for one in told for keepers in one.keepers for home in keepers.homes}
    assert {(thread, bad) for thread in had} <= homes, "its snapshots are asked for there"


def test_of_a_task_that_may_not_be_moved_the_alarm_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tuple(replace(task, arriving=True if task.name == "source" else None) for task in TOPOLOGY.tasks)
    monkeypatch.setattr("enactment_world.TOPOLOGY", replace(TOPOLOGY, tasks=tasks))
    world = running()
    (bad,) = where(world, "source")
    world.vms[bad].failing.add("source")
    world.run(3 * UNBUILT_S)
    assert where(world, "source") == {bad}
    assert "no other VM is tried: events that it accepted" in world.loop.knowledge.alarms[f"code {bad}"]


def test_another_vm_is_tried_though_a_plan_waits_for_approval() -> None:
    """What is offered calls for a plan at every look."""
    world = World(rate_tps=100.0, mode="approve").start().until("committed")
    world.ask("rate_set", rate_tps=300.0)
    world.run(10)
    assert world.loop.knowledge.proposal is not None and world.rollout.epoch == 1
    (bad,) = where(world, "work")
    world.vms[bad].failing.add("work")
    world.run(2 * UNBUILT_S)
    assert where(world, "work").isdisjoint({bad}) and world.rollout.reason == "thread_failed"


def test_another_vm_is_tried_though_the_plan_for_the_rate_failed_lately() -> None:
    """It is called for at every look, and not made."""
    world = running()
    used = {thread.slot for thread in world.rollout.threads}
    for one in world.vms.values():
        one.hung.update(slot for slot in one.shape.all_slots() if slot not in used)
    world.ask("rate_set", rate_tps=300.0)
    world.run(20)
    assert world.rollout.reason == "rolled_back" and "failed lately" in world.traces[-1]["text"]
    for one in world.vms.values():
        one.hung.clear()
    (bad,) = where(world, "work")
    world.vms[bad].failing.add("work")
    world.run(2 * UNBUILT_S)
    assert world.loop.knowledge.open_circuits, "it is not tried again yet"
    assert where(world, "work").isdisjoint({bad}) and world.rollout.reason == "thread_failed"


def test_another_vm_is_tried_though_the_rate_falls_while_a_plan_is_on_probation() -> None:
    """A plan for less is called for at every look, and not made yet."""
    world = World(rate_tps=100.0, probation_window_s=20.0).start().until("committed", 90.0)
    world.ask("rate_set", rate_tps=300.0)
    world.until("probation")
    world.ask("rate_set", rate_tps=60.0)
    for _ in range(50):
        if "not now: plan 2 is on probation" in str(world.traces[-1]["text"]):
            break
        world.run(1)
    assert world.traces[-1]["trigger"] == "rate_changed"
    (bad,) = where(world, "sink")
    world.vms[bad].failing.add("sink")
    world.run(2 * UNBUILT_S)
    assert where(world, "sink").isdisjoint({bad}) and world.rollout.reason == "thread_failed"


def test_under_a_plan_that_was_given_it_is_decided_once_a_second_that_no_other_is_made() -> None:
    world = World(rate_tps=100.0, plan=running().rollout.plan).start().until("committed")
    (bad,) = where(world, "work")
    world.vms[bad].failing.add("work")
    world.run(2 * UNBUILT_S)
    decided = [one["time"] for one in world.traces if one["trigger"] == "thread_failed"]
    assert decided and len(decided) == len(set(decided)) and where(world, "work") == {bad}


def test_another_vm_is_tried_though_the_run_ends_meanwhile() -> None:
    """What was read is to be done."""
    world = running()
    world.hold_acks = True
    world.run(1.0)
    (bad,) = where(world, "work")
    world.vms[bad].failing.add("work")
    world.ask("stop")
    world.run(2 * UNBUILT_S)
    assert where(world, "work").isdisjoint({bad}) and world.rollout.reason == "thread_failed"
    world.hold_acks = False
    world.run(20)
    assert world.finish is not None and world.finish.summary is not None
    assert world.finish.summary["tuples"]["left"] == 0
