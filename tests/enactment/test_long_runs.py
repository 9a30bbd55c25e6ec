"""A run of months: what is journaled stays as small as what is known, and what is known stays bounded."""

from __future__ import annotations

import msgspec
from enactment_world import World
from msgspec.structs import replace

from headgate.controller.knowledge import folding
from headgate.controller.knowledge.folding import fold, fold_all
from headgate.controller.knowledge.records import Durable, Record, RolloutStarted, SoFar
from headgate.controller.views.metrics import replans_of
from headgate.controller.views.summary import summary

S = 1_000_000_000


def busy() -> World:
    """Two plans were in force, and a third is on its way."""
    world = World(rate_tps=100.0).start().until("committed")
    assert world.ask("rate_set", rate_tps=500.0).error is None
    world.run(30)
    assert world.durable.next_epoch > 2
    assert world.ask("rate_set", rate_tps=50.0).error is None
    return world.run(1)


def test_what_records_add_up_to_is_written_and_read_without_a_change() -> None:
    known = Durable()
    for record in busy().journal:
        known = fold(known, record)
        written = msgspec.msgpack.encode((SoFar(known),))
        assert fold_all(msgspec.msgpack.decode(written, type=tuple[Record, ...])) == known


def test_a_controller_goes_on_from_a_shortened_journal() -> None:
    world = busy()
    world.journal[:] = [SoFar(fold_all(tuple(world.journal)))]
    world.restart_controller()
    world.run(60)
    assert world.durable.phase == "committed"
    assert world.durable.boot == 2


def test_of_many_plans_the_first_and_the_newest_are_known_and_the_others_counted() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    (planned,) = (record for record in world.journal if isinstance(record, RolloutStarted))
    known, more = world.durable, folding.REIGNS_KEPT + 200
    for epoch in range(2, more):
        reason = "rate_changed" if epoch % 3 else "operator"
        known = fold(known, replace(planned, epoch=epoch, reason=reason))
    assert len(known.rollouts) == folding.REIGNS_KEPT
    assert known.rollouts[0].reason == "start"
    assert known.rollouts[-1].epoch == more - 1
    world.loop.knowledge.durable = known
    told = replans_of(world.loop.view(world.now))
    assert told["rate_changed"] == sum(1 for epoch in range(2, more) if epoch % 3)
    assert told["operator"] == sum(1 for epoch in range(2, more) if not epoch % 3)
    found = summary(world.loop.view(world.now))
    assert len(found["plans"]) + found["plans_dropped"] == more - 1
