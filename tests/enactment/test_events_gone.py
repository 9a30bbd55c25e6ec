"""Events that a source had accepted on a VM that is lost: told, about, until they are accepted anew."""

from __future__ import annotations

from typing import Any

import pytest
from arriving_world import ArrivingWorld
from msgspec.structs import replace

from headgate.controller.views.summary import summary
from headgate.dashboards.up.run_summary import check_lost, lines_of
from headgate.topology_runtime.errors import CheckFailed
from headgate.topology_runtime.messages import SpoolLeft


def behind() -> ArrivingWorld:
    """More comes than is read: rows wait on the source's VM."""
    world = ArrivingWorld(200.0, 200.0)
    world.start().until("committed")
    world.carries_tps = 20.0
    world.run(3)
    return world


def told(world: ArrivingWorld) -> dict[str, Any]:
    return summary(world.loop.view(world.now))


def kinds(world: ArrivingWorld) -> list[str]:
    return [event["kind"] for event in world.loop.knowledge.events if event["kind"].startswith("events_")]


def test_they_are_told_and_the_run_does_not_end_well() -> None:
    world = behind()
    assert told(world)["tuples"]["left_on_vms"] == 0
    check_lost(told(world))
    source, waited = world.source_thread(), world.arrived - world.loop.knowledge.counts.acked
    world.vms[source.slot.vm].cut = True
    world.run(8)
    left = told(world)["tuples"]["left_on_vms"]
    assert waited > 100 and left == pytest.approx(waited, abs=0.6 * 200), "as its last report had it"
    assert world.ask("status").data["tuples"]["left_on_vms"] == left and kinds(world) == ["events_gone"]
    ended = {**told(world), "tuples": {**told(world)["tuples"], "lost": 0}}
    assert any(f"about {left:,} events on VMs" in line for line in lines_of(ended))
    with pytest.raises(CheckFailed, match=f"about {left:,} events were left") as failed:
        check_lost(ended)
    assert failed.value.exit_code == 8
    world.restart_controller()
    assert told(world)["tuples"]["left_on_vms"] == left, "journaled"


@pytest.mark.parametrize("kept", [True, False])
def test_they_are_back_with_a_vm_whose_disk_still_has_them(kept: bool) -> None:
    world = behind()
    vm = world.source_thread().slot.vm
    fake = world.vms[vm]
    fake.cut = True
    world.run(8)
    left = told(world)["tuples"]["left_on_vms"]
    assert left and vm in world.durable.held_dead
    report = fake.report
    spools = (SpoolLeft("source", 0, 0, left, "test", 0),) if kept else ()
    fake.report = lambda: replace(report(), spools=spools)  # type: ignore[method-assign]
    fake.cut = False
    world.run(3)
    assert vm not in world.durable.held_dead
    assert (vm in world.durable.events_gone) is not kept
    assert ("events_back" in kinds(world)) is kept


def test_of_a_vm_that_this_controller_never_heard_it_is_said_that_nobody_knows() -> None:
    world = behind()
    world.vms[world.source_thread().slot.vm].cut = True
    world.restart_controller()
    world.run(12)
    gone = [event for event in world.loop.knowledge.events if event["kind"] == "events_gone"]
    assert [event["events"] for event in gone] == [None] and "was not told" in gone[0]["text"]
