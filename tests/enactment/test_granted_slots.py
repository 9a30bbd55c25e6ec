"""A run that has a part of a cluster uses the slots that it was granted and no others, whatever happens."""

from __future__ import annotations

from typing import Any

from enactment_world import World, replace, vm

from headgate.controller.knowledge import loop_events as t
from headgate.topology_runtime.api.cluster import Slot

FOUR = ["vm1/0", "vm1/1", "vm2/0", "vm2/1"]


def granted(*slots: str, rate_tps: float = 100.0) -> World:
    """A run on VMs of which it may use these slots."""
    world = World((vm("vm1", 2), vm("vm2", 2)), rate_tps=rate_tps)
    world.do(t.Started((), None, 1))
    assert world.ask("grant", slots=list(slots)).error is None
    for one in world.vms.values():
        world.do(t.FromVm(one.hello()))
    return world


def used(world: World) -> set[str]:
    return {str(slot) for slot in world.rollout.slots}


def share(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.ask("share").data
    return found


def test_no_plan_uses_a_slot_that_was_not_granted() -> None:
    world = granted("vm1/1", "vm2/0").until("committed")
    assert used(world) <= {"vm1/1", "vm2/0"}
    status = world.ask("status").data
    assert status["slots"]["total"] == 2
    assert [slot["state"] for vm in status["vms"] for slot in vm["slots"]].count("withheld") == 2
    world.ask("rate_set", rate_tps=5000.0)
    world.run(60)
    assert used(world) <= {"vm1/1", "vm2/0"} and world.rollout.degraded
    assert share(world)["needs"] > 2


def test_without_a_slot_it_waits_and_begins_with_the_first() -> None:
    world = granted().run(20)
    assert world.durable.rollout is None and share(world)["needs"] >= 1
    assert "no slot that may be used" in world.loop.knowledge.alarms["plan"]
    world.ask("grant", slots=["vm2/1"])
    world.until("committed")
    assert used(world) == {"vm2/1"}


def test_a_slot_that_is_withdrawn_is_empty_once_its_threads_are_gone() -> None:
    world = granted(*FOUR, rate_tps=300.0).until("committed").run(10)
    slots = sorted(used(world))
    assert len(slots) > 1
    left = [slot for slot in FOUR if slot != slots[0]]
    assert slots[0] not in world.ask("grant", slots=left).data["empty"], "threads are in it still"
    world.run(60)
    assert world.phase == "committed" and slots[0] not in used(world)
    assert world.rollout.reason == "vm_drained" and slots[0] in share(world)["empty"]
    assert world.ask("status").data["tuples"]["lost"] == 0


def test_slots_that_are_granted_later_are_used_where_the_plan_carries_too_little() -> None:
    world = granted("vm1/0", rate_tps=30.0).until("committed").run(10)
    world.ask("rate_set", rate_tps=400.0)
    world.run(60)
    assert used(world) == {"vm1/0"} and world.rollout.degraded
    world.ask("grant", slots=FOUR)
    world.run(60)
    assert len(used(world)) > 1 and world.rollout.reason == "vm_joined"


def test_what_was_granted_outlives_the_controller() -> None:
    world = granted("vm1/0", "vm2/0").until("committed").run(5)
    world.restart_controller()
    world.run(20)
    assert share(world)["granted"] == ["vm1/0", "vm2/0"]
    world.ask("rate_set", rate_tps=5000.0)
    world.run(60)
    assert used(world) <= {"vm1/0", "vm2/0"}


def test_a_slot_of_a_vm_that_is_not_heard_is_not_called_empty() -> None:
    world = granted(*FOUR, rate_tps=300.0).until("committed").run(10)
    gone = sorted(used(world))[0].split("/")[0]
    world.vms[gone].down = True
    world.run(30)
    other = [slot for slot in FOUR if not slot.startswith(gone)]
    assert not [slot for slot in world.ask("grant", slots=other).data["empty"] if slot.startswith(gone)]


def test_a_run_that_moves_nothing_by_itself_says_so() -> None:
    world = granted(*FOUR).until("committed").run(5)
    assert share(world)["stays"] == ""
    assert world.ask("resume", mode="advise").error is None
    assert "advise" in share(world)["stays"]


def test_names_that_are_no_slots_are_refused_all_at_once_and_nothing_changes() -> None:
    world = granted("vm1/0")
    for bad in (None, "vm1/0", ["vm1"], ["vm1/-1"], ["../0"], ["vm1/99999"], [7]):
        reply = world.ask("grant", slots=bad)
        assert reply.error is not None and reply.error[1] == 3, bad
    assert world.durable.granted == (Slot("vm1", 0),)


def test_a_run_without_grants_is_as_it_was() -> None:
    world = World().start().until("committed")
    assert world.durable.granted is None and not world.loop.knowledge.withheld
    assert share(world)["granted"] is None and share(world)["empty"] == []
    assert replace(world.durable, granted=None) == world.durable
