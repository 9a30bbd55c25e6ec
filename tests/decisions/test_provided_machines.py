"""VMs of the provider: never above the limit of cost, not given back too early, waited for as long as is said."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import World, vm
from msgspec.structs import replace

from headgate.controller.knowledge import loop_events as t
from headgate.controller.replay.ideal_machines import Delays
from headgate.topology_runtime.api.cluster import Vm

HIGH_TPS, LOW_TPS = 1400.0, 100.0
PRICE = 0.4


def priced(name: str) -> Vm:
    return replace(vm(name), usd_per_hour=PRICE)


def world_of(**settings: Any) -> World:
    """Two VMs that are paid for, and room for more."""
    given = {"max_vms": 8, "spare": priced("x"), **settings}
    return World((priced("vm1"), priced("vm2")), **given).start().until("committed").run(10)


def at_rate(world: World, rate_tps: float) -> World:
    assert world.ask("rate_set", rate_tps=rate_tps).error is None
    return world.run(30)


def cost(world: World) -> float:
    """USD/h of all that runs or is asked for."""
    return PRICE * len({*world.vms, *world.asked})


@pytest.mark.parametrize(
    ("cap", "vms"), [(None, 4), (4 * PRICE, 4), (1.59, 3), (3 * PRICE, 3), (1.0, 2), (0.0, 2)]
)
def test_all_vms_together_cost_no_more_than_they_may(cap: float | None, vms: int) -> None:
    """2,500 rows/s need a fourth VM."""
    world = at_rate(world_of(max_usd_per_hour=cap), 2500.0)
    assert len(world.vms) == vms and cost(world) == pytest.approx(vms * PRICE)
    assert cap is None or vms == 2 or cost(world) <= cap + 1e-9
    world.acks_at_once = int(world.rollout.plan.prediction.rate_tps * 0.05)  # no more than the plan carries
    alarm = world.run(30).loop.knowledge.alarms.get("short", "")
    assert bool(alarm) is (vms < 4) and ("--set max-usd-per-hour" in alarm) is (vms < 4)


def test_what_agents_tell_of_their_price_counts() -> None:
    world = World((vm("vm1"), vm("vm2")), max_vms=8, spare=priced("x"), max_usd_per_hour=3 * PRICE)
    for one in world.vms.values():
        one.hello = lambda said=one.hello: replace(said(), usd_per_hour=PRICE)
    at_rate(world.start().until("committed").run(10), 2500.0)
    assert len(world.vms) == 3, "without their prices a fourth could be had"


def test_a_vm_without_threads_is_kept_for_as_long_as_it_is_to_live() -> None:
    world = at_rate(world_of(machine_life_s=300.0), HIGH_TPS)
    [machine] = world.durable.machines
    asked_s = world.durable.asked_ns[machine.vm] / 1e9
    at_rate(world, LOW_TPS)
    while world.now.wall_ns / 1e9 < asked_s + 298:
        world.run(1)
        assert world.durable.machines and machine.vm in world.vms
    world.run(5)
    assert world.durable.machines == () and machine.vm not in world.vms


def test_one_that_is_used_again_in_its_life_is_not_given_back() -> None:
    world = at_rate(world_of(machine_life_s=120.0), HIGH_TPS)
    at_rate(world, LOW_TPS)
    at_rate(world, HIGH_TPS)
    world.run(120)
    assert [machine.vm for machine in world.durable.machines] == ["vm3"] and "vm3" in world.vms


def test_a_plan_waits_for_a_machine_as_long_as_is_said() -> None:
    world = world_of(machines_wait_s=300.0, max_vms=3)
    world.delays = Delays(machine_s=250.0)
    at_rate(world, HIGH_TPS).run(200)
    assert world.durable.waiting is not None
    world.run(40)
    assert world.durable.waiting is None and "vm3" in {slot.vm for slot in world.rollout.slots}


def test_trouble_of_the_provider_is_one_alarm_until_it_is_over() -> None:
    world = world_of()
    for tries in ("quota exceeded", "quota exceeded (2 times)"):
        world.do(t.MachinesSeen((), (), tries))
    [alarm] = [alarm for alarm in world.ask("status").data["alarms"] if alarm["what"] == "machines"]
    assert alarm["text"] == "quota exceeded (2 times)"
    events = [event for event in world.ask("events").data["events"] if event.get("what") == "machines"]
    assert [event["kind"] for event in events] == ["alarm"]
    world.do(t.MachinesSeen((), ()))
    assert "machines" not in world.loop.knowledge.alarms


def test_a_killed_controller_knows_since_when_it_has_a_machine() -> None:
    world = at_rate(world_of(machine_life_s=300.0), HIGH_TPS)
    asked = dict(world.durable.asked_ns)
    assert asked.keys() == {"vm3"}
    world.restart_controller()
    world.run(5)
    assert world.durable.asked_ns == asked
