"""Rows that workers did not survive on one VM: all others are told, as long as the run lasts."""

from __future__ import annotations

import pytest
from enactment_world import World, replace

from headgate.controller.knowledge import turns as t
from headgate.controller.monitor import border
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.struck import Struck, VmStrikes

STRUCK = Struck("work", "source", 0, 5, 0, "row", 2, "why", "")
TOLD = VmStrikes((STRUCK,), 1)


def test_what_a_vm_counted_is_in_the_desired_state_of_all() -> None:
    world = World().start().until("committed")
    name = world.rollout.threads[0].slot.vm
    before = world.loop.knowledge.desired
    assert before is not None and before.strikes == ()
    world.do(t.FromVm(replace(world.vms[name].report(), strikes=TOLD)))
    now = world.loop.knowledge.desired
    assert now is not None and now.strikes == ((name, TOLD),) and now.token > before.token


@pytest.mark.parametrize(
    "strikes",
    [
        VmStrikes((STRUCK,) * 21),
        VmStrikes((), -1),
        VmStrikes((replace(STRUCK, position=-1),)),
        VmStrikes((replace(STRUCK, times=1 << 63),)),
        VmStrikes((replace(STRUCK, error="x" * 20_000),)),
    ],
)
def test_strikes_that_cannot_be_are_refused(strikes: VmStrikes) -> None:
    world = World().start().until("committed")
    report = world.vms[world.rollout.threads[0].slot.vm].report()
    border.check(replace(report, strikes=TOLD))
    with pytest.raises(BadMessage):
        border.check(replace(report, strikes=strikes))
