"""A controller that begins anew knows which holders of exclusive tasks had said that they ended."""

from __future__ import annotations

from enactment_world import World
from msgspec.structs import replace

from headgate.controller.core.recovery import rested
from headgate.controller.knowledge.records import Durable, Holds
from headgate.topology_runtime.cluster import Slot


def test_who_is_gone_had_said_so_unless_its_vm_is_held_dead() -> None:
    d = World().start().until("committed").durable
    assert d.rollout is not None
    running = next(thread for thread in d.rollout.threads if thread.task == "work")
    holds = (
        Holds("a", running.thread, running.slot),
        Holds("b", 1000, Slot("vm1", 0)),
        Holds("c", 1001, Slot("vm9", 0)),
    )
    assert rested(replace(d, holders=holds, held_dead=("vm9",))) == {1000}
    assert rested(Durable()) == set()
