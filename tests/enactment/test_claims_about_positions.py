"""Whose word about a source's positions counts, and what nobody can claim."""

from __future__ import annotations

import pytest
from enactment_world import World
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.knowledge import SourceKnown
from headgate.topology_runtime import messages as m


def running() -> World:
    return World().start().until("committed").run(1)


def known(world: World) -> SourceKnown:
    return world.loop.knowledge.counts.source("source", 0)


def claim(world: World, vm: str, **changes: object) -> list[t.Instruction]:
    """The VM's report says this of the source's thread, besides what is so."""
    source = world.source_thread()
    said = m.SourceStatus("source", 0, source.thread, known(world).emitted, known(world).acked, 0, 0, 0)
    report = replace(world.vms[vm].report(), sources=(replace(said, **changes),))
    return world.do(t.FromVm(report))


def owner(world: World) -> str:
    return world.source_thread().slot.vm


def other(world: World) -> str:
    return next(name for name in world.vms if name != owner(world))


def distrusted(out: list[t.Instruction]) -> list[str]:
    return [one.why for one in out if isinstance(one, t.Distrust)]


def test_another_vm_has_no_say() -> None:
    world = running()
    before = known(world).acked
    out = claim(world, other(world), emitted=before + 5, acked=before + 5)
    assert known(world).acked == before and not distrusted(out), "it may be out of date only"


def test_nor_has_a_thread_that_the_plan_does_not_have() -> None:
    world = running()
    before = known(world).acked
    claim(world, owner(world), thread=4711, emitted=before + 5, acked=before + 5)
    claim(world, owner(world), task="other", emitted=before + 5, acked=before + 5)
    assert known(world).acked == before and ("other", 0) not in world.loop.knowledge.counts.sources


def test_the_owner_is_believed() -> None:
    world = running()
    before = known(world).acked
    assert not distrusted(claim(world, owner(world), emitted=before + 5, acked=before + 5))
    assert known(world).acked == before + 5


def test_a_vm_held_dead_is_not_believed_any_more() -> None:
    """It reads on while it is cut off; its positions are not of the run."""
    world = running()
    lost = owner(world)
    world.vms[lost].cut = True
    world.run(12)
    assert lost in world.loop.knowledge.durable.held_dead and owner(world) != lost
    old = world.loop.knowledge.counts.source("source", 0)
    before = old.emitted, old.acked
    claim(world, lost, emitted=before[0] + 50, acked=before[0] + 50)
    assert (old.emitted, old.acked) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"emitted": 10, "acked": 11},
        {"emitted": 10, "acked": 8, "acked_above": 3},
        {"emitted": 1 << 61, "acked": 3},
    ],
)
def test_what_cannot_be_is_blamed_and_changes_nothing(changes: dict[str, int]) -> None:
    world = running()
    before = replace_known(known(world))
    out = claim(world, owner(world), **changes)
    assert len(distrusted(out)) == 1 and replace_known(known(world)) == before
    world.run(1)
    assert known(world).acked > before[1], "the run goes on"


def replace_known(source: SourceKnown) -> tuple[int, int, int]:
    return source.emitted, source.acked, source.done


def test_a_clock_ahead_and_an_older_rate_are_allowed_for() -> None:
    world = running()
    ahead = known(world).emitted + 30 * 100
    assert not distrusted(claim(world, owner(world), emitted=ahead))
    assert known(world).emitted == ahead


def test_a_stranger_with_a_left_over_spool_moves_no_position() -> None:
    world = running()
    before = known(world).acked
    hello = replace(world.vms[other(world)].hello(), spools=(m.SpoolLeft("source", 0, 1 << 40, 1 << 41),))
    world.do(t.FromVm(hello))
    assert known(world).acked == before


@pytest.mark.parametrize("spooled", [False, True])
def test_what_a_source_accepted_early_may_be_read_before_it_is_due(spooled: bool) -> None:
    """Of one that cannot be read twice, and of no other."""
    world = World()
    task, *others = world.submitted.topology.tasks
    topology = replace(
        world.submitted.topology, tasks=(replace(task, arriving=False if spooled else None), *others)
    )
    world.submitted = replace(world.submitted, topology=topology)
    world.loop = Loop(world.settings, world.submitted)
    world.start().until("committed").run(1)
    early = 1_000_000
    out = claim(world, owner(world), emitted=early, acked=early, arrived=early, seen_ns=world.now.wall_ns)
    assert (known(world).acked == early) is spooled and bool(distrusted(out)) is not spooled
