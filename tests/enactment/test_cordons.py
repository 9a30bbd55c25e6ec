"""VMs that an operator sets apart: drained ones end up empty, with all rows done; what that may cost is said."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import World, vm

from headgate.controller.knowledge.records import Cordoned, HandedOver
from headgate.topology_runtime import messages as m


def running(rate_tps: float = 100.0, vms: int = 3, **settings: Any) -> World:
    shapes = [vm(f"vm{n}") for n in range(1, vms + 1)]
    return World(shapes, rate_tps=rate_tps, **settings).start().until("committed")


def exit_code(reply: m.Reply) -> int:
    return reply.error[1] if reply.error is not None else 0


def used(world: World) -> set[str]:
    return {slot.vm for slot in world.rollout.slots}


def cordons(world: World) -> dict[str, str | None]:
    return {one["vm"]: one["cordon"] for one in world.ask("status").data["vms"]}


def drained(world: World, *vms: str) -> World:
    """Until the controller says so."""
    for _ in range(120):
        world.run(0.5)
        if all(cordons(world)[name] == "drained" for name in vms):
            return world
    raise AssertionError(f"not drained: {cordons(world)}, {world.phase}")


def held_by(world: World, name: str) -> set[int]:
    """Threads that the VM itself still has, whatever the controller thinks."""
    return {thread for one in world.vms[name].workers.values() for thread in one.threads}


# ── drain ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["vm1", "vm2", "vm3"])
def test_a_drained_vm_is_empty_and_every_row_is_done(name: str) -> None:
    world = running(rate_tps=1400.0)
    assert name in used(world), "else nothing is tried here"
    assert world.ask("drain", vms=[name], force=True).data == {"vms": [{"vm": name, "cordon": "draining"}]}
    drained(world, name)
    assert world.rollout.reason == "vm_drained" and name not in used(world)
    assert not held_by(world, name)
    world.ask("stop")
    world.run(20)
    assert world.finish is not None and world.finish.error is None
    assert world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] > 1000
    assert (tuples["lost"], tuples["replayed"]) == (0, 0)


def test_the_plan_goes_on_without_it_whatever_the_rate_does() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)
    world.ask("rate_set", rate_tps=700.0)
    world.run(30)
    assert world.rollout.reason == "rate_changed" and busy not in used(world)


def test_one_that_nothing_runs_on_is_drained_at_once() -> None:
    world = running()
    idle = next(name for name in world.vms if name not in used(world))
    assert world.ask("drain", vms=[idle]).data == {"vms": [{"vm": idle, "cordon": "drained"}]}
    world.run(5)
    assert world.rollout.epoch == 1


@pytest.mark.parametrize("after_s", [1, 30])
def test_a_source_moves_without_reading_a_row_twice_however_long_it_ran(after_s: int) -> None:
    """(The time that a leaving source gets to run empty began with the plan before.)"""
    world = running().run(after_s)
    source = next(t.slot.vm for t in world.rollout.threads if t.task == "source")
    world.ask("drain", vms=[source])
    drained(world, source)
    assert not [record for record in world.journal if isinstance(record, HandedOver)]
    _, (successor, position) = world.started
    left = world.loop.knowledge.counts.source("source", 0)
    assert position == left.below[0] and successor in {t.thread for t in world.rollout.threads}


def test_it_is_not_drained_while_rows_are_open_there() -> None:
    world = running()
    source = next(t.slot.vm for t in world.rollout.threads if t.task == "source")
    world.hold_acks = True
    world.run(0.3)
    world.ask("drain", vms=[source])
    world.run(12)
    assert cordons(world)[source] == "draining" and held_by(world, source)
    world.hold_acks = False
    drained(world, source)


def test_it_is_not_drained_while_the_plan_may_be_taken_back() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    seen = []
    for _ in range(600):
        world.run(0.05)
        seen.append((world.phase, cordons(world)[busy]))
        if seen[-1][1] == "drained":
            break
    assert seen[-1] == ("committed", "drained")
    assert {word for phase, word in seen if phase != "committed"} == {"draining"}


def test_a_drain_outlives_the_controller() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    world.restart_controller()
    world.run(8)
    drained(world, busy)
    assert world.durable.cordoned == {busy: True}


def test_too_little_without_it_is_refused_and_changes_nothing() -> None:
    world = running(rate_tps=1400.0)
    before = world.durable
    reply = world.ask("drain", vms=["vm1"])
    assert exit_code(reply) == 6 and "too little can be carried" in str(reply.error), reply
    assert world.durable == before
    world.run(5)
    assert "vm1" in used(world)


def test_the_last_vm_is_not_drained_even_by_force_into_nothing() -> None:
    world = running(vms=1)
    assert exit_code(world.ask("drain", vms=["vm1"])) == 6
    world.ask("drain", vms=["vm1"], force=True)
    world.run(10)
    assert used(world) == {"vm1"} and cordons(world)["vm1"] == "draining"
    assert any("no plan" in text for text in world.loop.knowledge.alarms.values())
    world.ask("uncordon", vms=["vm1"])
    world.run(3)
    assert not any("no plan" in text for text in world.loop.knowledge.alarms.values())


def test_more_vms_are_asked_for_where_they_may_be_had() -> None:
    world = running(rate_tps=1400.0, max_vms=4, spare=vm("x"))
    assert exit_code(world.ask("drain", vms=["vm1"])) == 0
    drained(world, "vm1")
    assert "vm4" in used(world) and "vm1" not in used(world)


def test_approval_is_not_asked_for_what_an_operator_ordered() -> None:
    world = running(mode="approve")
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)


@pytest.mark.parametrize("mode", ["advise"])
def test_nobody_waits_for_what_is_never_done(mode: str) -> None:
    world = running(mode=mode)
    busy = min(used(world))
    assert exit_code(world.ask("drain", vms=[busy])) == 6 and not world.durable.cordoned
    assert exit_code(world.ask("cordon", vms=[busy])) == 0


# ── cordon, uncordon ────────────────────────────────────────────────────────────────────────────


def test_what_runs_on_a_cordoned_vm_stays_until_the_next_plan() -> None:
    world = running()
    busy = min(used(world))
    world.ask("cordon", vms=[busy])
    world.run(10)
    assert busy in used(world) and world.rollout.epoch == 1 and cordons(world)[busy] == "cordoned"
    world.ask("rate_set", rate_tps=500.0)
    world.run(30)
    assert busy not in used(world) and world.rollout.epoch > 1


def test_an_uncordoned_vm_is_planned_with_when_it_is_needed() -> None:
    world = running()
    busy = min(used(world))
    world.ask("drain", vms=[busy])
    drained(world, busy)
    epoch = world.rollout.epoch
    assert world.ask("uncordon", vms=[busy]).data == {"vms": [{"vm": busy, "cordon": ""}]}
    world.run(10)
    assert world.rollout.epoch == epoch, "nothing moves back by itself"
    world.ask("rate_set", rate_tps=1400.0)
    world.run(30)
    assert busy in used(world)


def test_an_uncordoned_vm_is_planned_with_at_once_where_the_others_carry_too_little() -> None:
    world = running(rate_tps=1400.0)
    world.ask("drain", vms=["vm2"], force=True)
    drained(world, "vm2")
    world.ask("uncordon", vms=["vm2"])
    world.run(40)
    assert world.rollout.reason in ("vm_joined", "rate_changed", "overloaded") and "vm2" in used(world)


def test_a_drain_that_is_taken_back_leaves_things_as_they_are() -> None:
    world = running()
    busy = min(used(world))
    world.ask("cordon", vms=[busy])
    world.ask("cordon", vms=[busy])
    world.ask("uncordon", vms=[busy, busy])
    world.run(10)
    assert world.rollout.epoch == 1
    assert sum(isinstance(record, Cordoned) for record in world.journal) == 2, (
        "what is so already is not said again"
    )


@pytest.mark.parametrize("vms", [[], None, "vm1", ["vm9"], [3], [["vm1"]], ["x" * 5000]])
@pytest.mark.parametrize("command", ["drain", "cordon", "uncordon"])
def test_what_is_no_vm_is_refused(command: str, vms: Any) -> None:
    world = running()
    before = world.durable
    assert exit_code(world.ask(command, vms=vms)) == 3
    assert world.durable == before


def test_a_vm_whose_workers_have_just_died_is_not_drained_for_that() -> None:
    world = running()
    busy = min(used(world))
    for worker in world.vms[busy].workers.values():
        worker.state = "exited"
    world.report(world.vms[busy])
    assert world.ask("drain", vms=[busy]).data == {"vms": [{"vm": busy, "cordon": "draining"}]}
