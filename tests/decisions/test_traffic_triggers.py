"""Online triggers of papers 1 and 3 in the one loop, in virtual time: what is said between VMs, and loaded VMs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from enactment_world import vm
from msgspec.structs import replace
from trafficked_world import BYTES, LARGE, MODELS, TraffickedWorld

from headgate.controller.knowledge.controller_config import TrafficTriggers
from headgate.controller.models.task_models import Point

EVERY = TrafficTriggers(every_s=20.0)


def looks(world: TraffickedWorld, what: str) -> list[str]:
    """What was told of plans that were looked at and not made."""
    return [text for d in world.traces for text in d["alternatives"] if what in text]  # type: ignore[attr-defined]


def decided(world: TraffickedWorld, trigger: str) -> dict[str, Any]:
    (found,) = [d for d in world.traces if d["trigger"] == trigger and d["action"] == "plan"]
    return found


def test_large_rows_are_brought_onto_one_vm_once_they_are_measured():
    """The first plan takes all rows for alike and parts b from c, which say most of all bytes."""
    world = TraffickedWorld(triggers=EVERY).start().run(15)
    assert set(world.where()["b"]) != set(world.where()["c"])
    before = world.between_vms()
    world.run(60)
    assert world.where()["b"] == world.where()["c"]
    assert world.reasons() == ["start", "traffic_saved"]
    assert world.between_vms() < 0.1 * before
    found = decided(world, "traffic_saved")
    assert found["evidence"]["traffic"]["before"]["between_vms_bytes_per_s"] == pytest.approx(
        1.15 * before, rel=0.05
    )
    told = found["evidence"]["traffic"]["after"]["between_vms_bytes_per_s"]
    assert 1.15 * world.between_vms() <= told < 0.5 * before, (
        "rows that never left a slot are not taken for small"
    )
    assert found["evidence"]["traffic"]["measured_bytes_per_s"] == pytest.approx(before, rel=0.05)
    sizes = {(flow["source"], flow["target"]): flow["row_bytes"] for flow in found["plan"]["flows"]}
    assert sizes[LARGE] == pytest.approx(2000)


def test_what_is_near_already_is_looked_at_and_left():
    """Every look is told with what it came to, and no plan follows the first."""
    world = TraffickedWorld(sizes=dict.fromkeys(BYTES, 20), triggers=EVERY).start().run(150)
    assert world.reasons() == ["start"]
    assert len(looks(world, "20 s are over since traffic was looked at")) in (6, 7)


def test_after_a_move_nothing_goes_back():
    world = TraffickedWorld(triggers=EVERY).start().run(150)
    assert world.reasons() == ["start", "traffic_saved"]


def test_less_than_the_part_asked_for_is_not_worth_a_move():
    """By rows nothing is nearer than now; by bytes b → c has a tenth more than the others."""
    slightly = dict.fromkeys(BYTES, 20) | {LARGE: 22}
    world = TraffickedWorld(sizes=slightly, triggers=TrafficTriggers(every_s=20.0, saves=0.3)).start().run(60)
    assert world.reasons() == ["start"]
    assert any(
        "less; more than 30% is worth a move" in text for text in looks(world, "another placement rejected")
    )


def test_only_the_online_mapper_is_looked_at():
    for mapper in ("top-down", "dsm", "sam"):
        world = TraffickedWorld(mapper=mapper, triggers=EVERY).start().run(40)
        assert world.reasons() == ["start"] and not looks(world, "another placement")


def test_it_is_looked_at_no_more_often_than_asked_for():
    world = (
        TraffickedWorld(sizes=dict.fromkeys(BYTES, 20), triggers=TrafficTriggers(every_s=60.0))
        .start()
        .run(400)
    )
    assert 5 <= len(looks(world, "60 s are over")) <= 6


def test_while_an_operator_holds_a_plan_nothing_is_moved():
    world = TraffickedWorld(triggers=EVERY)
    world.start().run(15)
    world.loop.knowledge.held = "an operator holds it"
    world.run(60)
    assert world.reasons() == ["start"]


def test_while_vms_vanish_at_once_nothing_is_moved():
    """No plan is made by itself then, though those that are lost had no threads."""
    world = TraffickedWorld(vms=[vm(f"vm{n}", 1) for n in range(1, 9)], triggers=EVERY).start().run(15)
    used = {name for names in world.where().values() for name in names}
    for name, one in world.vms.items():
        one.cut = name not in used
    world.run(90)
    assert world.loop.knowledge.members.mass_loss and world.reasons() == ["start"]
    world.ask("resume")
    world.run(60)
    assert world.reasons() == ["start", "traffic_saved"]


# ── load ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mapper", "cores", "dear", "others"),
    [
        ("traffic", {"a": 0.9, "b": 0.4, "c": 0.1, "d": 0.1}, "a", "bcd"),
        ("greedy-matching", {"a": 0.1, "b": 0.1, "c": 0.5, "d": 0.45}, "c", "d"),
    ],
)
def test_a_vm_that_is_loaded_for_a_while_gets_another_placement(mapper, cores, dear, others):
    """Tasks that use more than their models say fill a slot, and by what was measured one of them gets another."""
    world = TraffickedWorld(mapper=mapper, cores=cores, triggers=TrafficTriggers(every_s=1e6)).start().run(9)
    assert "vm_loaded" not in world.reasons()
    world.run(60)
    found = decided(world, "vm_loaded")
    load = found["evidence"]["load"]
    assert load["after"] < 0.95 * load["before"] and load["before"] > 0.9 and load["seconds"] >= 10
    where = world.where()
    assert all(where[dear] != where[other] for other in others)


def test_a_load_that_no_placement_lightens_is_told_and_looked_at_now_and_then():
    """One thread of a fills a slot by itself."""
    cores = {"a": 1.0, "b": 0.3, "c": 0.1, "d": 0.1}
    world = TraffickedWorld(cores=cores, triggers=TrafficTriggers(every_s=1e6)).start().run(120)
    assert world.reasons().count("vm_loaded") <= 1
    told = looks(world, "of its slots' CPU, above 90%")
    assert 2 <= len(told) <= 4


def test_a_vm_may_have_a_bound_of_its_own():
    """B of each node by itself (paper 1, 3.2.1): nobody is above nine tenths, and one VM is above its tenth."""
    triggers = TrafficTriggers(every_s=1e6, vm_bounds={"vm2": 0.1})
    world = TraffickedWorld(cores=dict.fromkeys("abcde", 0.25), triggers=triggers).start().run(60)
    told = [d["evidence"]["load"] for d in world.traces if d["trigger"] == "vm_loaded"]
    assert looks(world, "VM vm2 uses") or told
    assert all("above 10%" in text for text in looks(world, "of its slots' CPU"))
    assert all(load["load_bound"] == 0.1 for load in told)


def test_plans_of_a_run_have_its_alpha_and_as_printed_its_bounds():
    """Seven threads on two slots: four at most (α = 0), or five (α = 0.5); a third slot where none of the VMs
    may use more than seven tenths."""

    def held(**settings: Any) -> list[int]:
        light = tuple(replace(one, points=(Point(1, 150.0, 0.35, 0.05),)) for one in MODELS)
        world = TraffickedWorld(models=light, **settings).start().run(5)
        found = Counter(vm for names in world.where().values() for vm in names)
        return sorted(found.values(), reverse=True)

    assert held(mapper="topology") == [4, 3]
    assert held(mapper="topology", topology_spread=(0.5, 0.8)) == [5, 2]
    bounded = TrafficTriggers(every_s=20.0, load_bound=0.7)
    assert held(triggers=bounded) == [4, 3]
    assert held(triggers=bounded, as_printed=True, topology_spread=(1.0, 0.5)) == [5, 1, 1]


def test_another_placement_that_lightens_nothing_is_not_worth_its_moves():
    """Three tasks use as much, so one of the three slots has two of them whatever is where."""
    cores = {"a": 0.2, "b": 0.8, "c": 0.8, "d": 0.8}
    world = TraffickedWorld(cores=cores, triggers=TrafficTriggers(every_s=1e6)).start().run(60)
    assert world.reasons() == ["start"]
    assert looks(world, "by the same rows")


def test_a_load_that_comes_and_goes_is_no_load():
    world = TraffickedWorld(triggers=TrafficTriggers(every_s=1e6, load_s=30.0)).start()
    for _ in range(3):
        world.cores = {"a": 0.9, "b": 0.4}
        world.run(15)
        world.cores = {}
        world.run(20)
    assert world.reasons() == ["start"] and not looks(world, "of its slots' CPU")


def test_what_was_recorded_gives_the_same_decisions_again():
    world = TraffickedWorld(triggers=EVERY)
    world.start().run(60)
    world.check_decisions()
    assert world.reasons() == ["start", "traffic_saved"] and len(world.traces) > 40


def test_the_first_plan_may_be_in_turn_as_in_paper_1_and_the_next_is_by_traffic():
    world = TraffickedWorld(triggers=TrafficTriggers(every_s=20.0, first="dsm")).start().run(10)
    assert world.rollout.plan.mapper == "dsm"
    before = world.between_vms()
    world.run(60)
    assert world.reasons() == ["start", "traffic_saved"] and world.rollout.plan.mapper == "traffic"
    assert world.between_vms() < 0.5 * before
