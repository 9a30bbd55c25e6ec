"""Other code takes the place of what runs, slot by slot, while rows flow; when it fails the code before comes back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import MODELS, TOPOLOGY, World, vm
from msgspec.structs import replace

from headgate.controller.knowledge import loop_events as t
from headgate.topology_runtime.api.topology import Edge, Topology
from headgate.topology_runtime.wire import messages as m


def running(rate_tps: float = 100.0, slots: int = 4, vms: int = 2, **settings: Any) -> World:
    shapes = [vm(f"vm{n}", slots) for n in range(1, vms + 1)]
    return World(shapes, rate_tps=rate_tps, **settings).start().until("committed")


def exit_code(reply: m.Reply) -> int:
    return reply.error[1] if reply.error is not None else 0


def other(topology: Topology = TOPOLOGY, **params: Any) -> Topology:
    """With other params of its middle task."""
    tasks = (replace(t, params=params) if t.name == "work" else t for t in topology.tasks)
    return replace(topology, tasks=tuple(tasks))


def give(world: World, topology: Topology | None = None, **more: Any) -> m.Reply:
    return world.ask("replace", topology=msgspec.to_builtins(topology or other(version=2)), **more)


def codes(world: World) -> set[int]:
    """Of what runs on VMs, whatever the controller thinks."""
    return {
        worker.code
        for one in world.vms.values()
        if one.speaks
        for worker in one.workers.values()
        if worker.state == "running"
    }


def until_replaced(world: World, code: int) -> World:
    for _ in range(240):
        world.run(0.5)
        if world.phase == "committed" and not world.rollout.leaving and codes(world) == {code}:
            return world
    raise AssertionError(f"codes {codes(world)}, {world.phase}, {world.loop.knowledge.alarms}")


def ended_whole(world: World) -> None:
    world.ask("stop")
    world.run(20)
    assert world.finish is not None and world.finish.error is None and world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] > 1000
    assert (tuples["lost"], tuples["replayed"]) == (0, 0)


def steps(world: World) -> list[str]:
    return [one.reason for one in world.durable.rollouts[1:]]


def test_other_code_takes_the_place_of_what_runs_and_every_row_is_done() -> None:
    world = running()
    before = {t.thread for t in world.rollout.threads}
    reply = give(world)
    assert reply.error is None and reply.data["code"] == 1
    until_replaced(world, 1)
    assert not before & {t.thread for t in world.rollout.threads}
    assert world.loop.knowledge.topology == other(version=2)
    assert set(steps(world)) == {"code_replaced"}
    assert world.ask("status").data["code"] == {"number": 1, "slots_before": 0}
    ended_whole(world)


def test_where_few_slots_are_free_it_goes_slot_by_slot() -> None:
    world = running(rate_tps=1100.0)
    slots = sum(one.slots for one in (member.vm for member in world.loop.knowledge.members.up()))
    used = len(world.rollout.staying_slots)
    assert slots / 2 < used < slots, "else nothing is tried here"
    give(world)
    until_replaced(world, 1)
    free = slots - used
    assert len(steps(world)) == -(-used // free)
    ended_whole(world)


def test_no_slot_ever_has_two_codes_while_the_rate_and_the_vms_change() -> None:
    """(The made VMs check each desired state.)"""
    world = running(rate_tps=700.0, vms=3)
    give(world)
    world.run(4)
    world.ask("rate_set", rate_tps=900.0)
    world.run(6)
    world.vms["vm2"].down = True
    until_replaced(world, 1)
    assert {"code_replaced", "vm_lost"} <= set(steps(world))


def test_slots_of_the_plan_before_are_waited_for_and_no_reason_to_refuse() -> None:
    """They hold its threads until the plan in force has proved itself."""
    world = running(rate_tps=450.0, slots=1, vms=3)
    world.ask("rate_set", rate_tps=100.0)
    for _ in range(400):
        if world.phase == "probation":
            break
        world.run(0.5)
    staying = world.rollout.staying_slots
    assert len(world.rollout.slots) == 3 > len(staying), "else nothing is tried here"
    assert exit_code(give(world)) == 0
    until_replaced(world, 1)
    ended_whole(world)


def test_without_a_free_slot_it_is_refused_and_nothing_changes() -> None:
    world = running(rate_tps=450.0, slots=1, vms=3)
    used = len(world.rollout.staying_slots)
    assert used == 3, "else nothing is tried here"
    before = world.durable
    reply = give(world)
    assert exit_code(reply) == 6 and "no slot is free" in str(reply.error)
    assert world.durable == before


def test_a_vm_is_asked_for_where_one_may_be_had() -> None:
    world = running(rate_tps=450.0, slots=1, vms=3, max_vms=4, spare=vm("x", 1))
    assert exit_code(give(world)) == 0
    until_replaced(world, 1)
    ended_whole(world)


def test_the_code_before_comes_back_at_an_operators_word() -> None:
    world = running()
    assert exit_code(world.ask("replace", back=True)) == 6, "there is none yet"
    give(world)
    until_replaced(world, 1)
    assert world.ask("replace", back=True).data["code"] == 0
    until_replaced(world, 0)
    assert world.loop.knowledge.topology == TOPOLOGY
    assert world.ask("replace", back=True).data["code"] == 1
    until_replaced(world, 1)
    ended_whole(world)


def test_it_comes_back_half_way_too() -> None:
    world = running(rate_tps=1100.0)
    give(world)
    world.run(3)
    assert exit_code(give(world, other(version=3))) == 6, "one after the other"
    assert world.ask("replace", back=True).error is None
    until_replaced(world, 0)
    ended_whole(world)


def test_code_that_cannot_be_built_never_gets_a_row_and_the_code_before_stays() -> None:
    world = running()
    for one in world.vms.values():
        one.failing_codes = {1}
    give(world)
    until_replaced(world, 0)
    world.run(200)
    assert codes(world) == {0} and world.durable.code == 0
    assert world.loop.knowledge.topology == TOPOLOGY
    texts = [str(event["text"]) for event in world.loop.knowledge.events]
    assert any("the code before comes back" in text for text in texts)
    assert steps(world).count("code_replaced") == 1, "it is not tried again by itself"
    back = world.ask("replace", back=True).data
    assert (back["code"], back["slots"]) == (0, 0), "the last code that worked, not the one that failed"
    world.run(20)
    assert codes(world) == {0} and world.durable.code == 0
    ended_whole(world)


def test_who_goes_back_half_way_does_not_come_to_what_never_worked_by_going_back_again() -> None:
    world = running(rate_tps=1100.0)
    give(world)
    world.run(3)
    assert world.ask("replace", back=True).data["code"] == 0
    assert world.ask("replace", back=True).data["code"] == 0
    until_replaced(world, 0)
    ended_whole(world)


def test_a_replacement_outlives_the_controller() -> None:
    world = running(rate_tps=1100.0)
    give(world)
    world.run(3)
    world.restart_controller()
    until_replaced(world, 1)
    ended_whole(world)


def test_models_may_come_with_it() -> None:
    world = running()
    faster = replace(MODELS[0], points=tuple(replace(p, rate_tps=2 * p.rate_tps) for p in MODELS[0].points))
    give(world, models=[msgspec.to_builtins(faster)])
    assert world.loop.knowledge.models["work"] == faster
    until_replaced(world, 1)


def wrong() -> list[tuple[str, Topology]]:
    source, work, sink = TOPOLOGY.tasks
    return [
        ("named", replace(TOPOLOGY, name="other")),
        ("its tasks are", replace(TOPOLOGY, tasks=(source, replace(work, name="w"), sink))),
        ("of a source", replace(TOPOLOGY, tasks=(replace(source, params={"x": 1}), work, sink))),
        ("its settings", replace(TOPOLOGY, tasks=(source, replace(work, state="keyed"), sink))),
        (
            "task 'work': its states are of version 1, and the other code has version 2: stop, create a checkpoint",
            replace(TOPOLOGY, tasks=(source, replace(work, state_version=2), sink)),
        ),
        ("edges", replace(TOPOLOGY, edges=(Edge("source", "work", 2.0), TOPOLOGY.edges[1]))),
    ]


@pytest.mark.parametrize(("word", "topology"), wrong(), ids=[word for word, _ in wrong()])
def test_another_topology_is_refused_with_what_differs(word: str, topology: Topology) -> None:
    world = running()
    before = world.durable
    reply = give(world, topology)
    assert exit_code(reply) == 3 and word in str(reply.error)
    assert world.durable == before


@pytest.mark.parametrize("arguments", [{}, {"topology": 3}, {"topology": {}}, {"back": "yes"}, {"more": 1}])
def test_senseless_replacements_are_refused(arguments: dict[str, Any]) -> None:
    world = running()
    before = world.durable
    assert exit_code(world.ask("replace", **arguments)) == 3
    assert world.durable == before


def test_nothing_is_replaced_where_nothing_runs_or_is_moved() -> None:
    world = World()
    assert exit_code(give(world.start())) == 6
    assert exit_code(give(running(mode="advise"))) == 6


def test_agents_that_know_of_one_code_only_are_upgraded_first() -> None:
    world = running()
    hello = replace(world.vms["vm2"].hello(), protocol=2)
    world.do(t.FromVm(hello))
    before = world.durable
    reply = give(world)
    assert exit_code(reply) == 6 and "vm2" in str(reply.error) and "cluster upgrade" in str(reply.error)
    assert world.durable == before
