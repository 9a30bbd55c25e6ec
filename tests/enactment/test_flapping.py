"""What comes and goes again and again is not followed each time: two plans a minute at most."""

from __future__ import annotations

import pytest
from enactment_world import World, vm

MINUTES = 2
THREE = (vm("vm1"), vm("vm2"), vm("vm3"))


@pytest.mark.parametrize(("gone_s", "there_s"), [(6, 9), (10, 30)])
def test_a_vm_that_comes_and_goes_causes_two_plans_a_minute_at_most(gone_s: int, there_s: int) -> None:
    world = World(THREE, rate_tps=1400.0).start().until("committed").run(5)
    epoch = world.durable.next_epoch
    for _ in range(MINUTES * 60 // (gone_s + there_s)):
        world.vms["vm2"].cut = True
        world.run(gone_s)
        world.vms["vm2"].cut = False
        world.run(there_s)
    assert world.durable.next_epoch - epoch <= 2 * MINUTES
    world.run(75)
    assert "vm2" in {slot.vm for slot in world.rollout.slots}, "one that stays is planned with again"


def test_a_vm_that_was_lost_once_is_planned_with_as_soon_as_it_is_back() -> None:
    world = World(THREE, rate_tps=1400.0).start().until("committed").run(5)
    world.vms["vm2"].cut = True
    world.run(8)
    assert "vm2" not in {slot.vm for slot in world.rollout.slots}
    world.vms["vm2"].cut = False
    world.run(25)  # the plan without it is committed first
    assert "vm2" in {slot.vm for slot in world.rollout.slots}


@pytest.mark.parametrize("period_s", [4, 25])
def test_a_rate_that_rises_and_falls_causes_two_plans_a_minute_at_most(period_s: int) -> None:
    world = World(rate_tps=100.0).start().until("committed")
    epoch = world.durable.next_epoch
    for turn in range(MINUTES * 60 // period_s):
        world.ask("rate_set", rate_tps=(500.0, 100.0)[turn % 2])
        world.run(period_s)
    assert world.durable.next_epoch - epoch <= 2 * MINUTES
