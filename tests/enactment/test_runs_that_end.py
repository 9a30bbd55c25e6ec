"""A run ends by itself once its sources have, whatever happens meanwhile."""

from __future__ import annotations

import pytest
from enactment_world import World, vm

from headgate.controller.execute.end_of_input import EVERY_SOURCE
from headgate.topology_runtime.wire.messages import EndOfInput, SpoolLeft


def ending(rows: int = 1500) -> World:
    """Its source has so many rows: fifteen seconds of them."""
    world = World()
    world.rows = rows
    return world.start().until("committed")


def until_stage(world: World, stage: str) -> None:
    for _ in range(400):
        if world.loop.knowledge.ending.stage == stage:
            return
        world.run(0.05)
    raise AssertionError(f"still {world.loop.knowledge.ending.stage}")


def ended_well(world: World) -> None:
    assert world.finish is not None and world.finish.summary is not None, world.loop.knowledge.ending
    assert world.finish.error is None and world.finish.summary["ended"] == EVERY_SOURCE
    tuples = world.finish.summary["tuples"]
    assert (tuples["left"], tuples["lost"], tuples["acked"]) == (0, 0, world.rows)


def steps(world: World) -> list[EndOfInput]:
    return [record.end for record in world.journal if hasattr(record, "end")]


def test_a_run_ends_once_every_source_has_and_a_replay_decides_the_same() -> None:
    world = ending()
    world.run(40)
    ended_well(world)
    world.check_decisions()


@pytest.mark.parametrize("stage", ["running", "ending", "draining", "settling"])
def test_a_journal_that_takes_nothing_for_a_while_delays_the_end_and_no_more(stage: str) -> None:
    world = ending()
    until_stage(world, stage)
    world.journal_fails = True
    world.run(8)
    world.journal_fails = False
    world.run(40)
    ended_well(world)


def test_a_stop_that_could_not_be_journaled_is_refused_and_nothing_ends() -> None:
    world = ending(rows=1 << 60)
    world.journal_fails = True
    assert world.ask("stop").error is not None
    world.journal_fails = False
    world.run(5)
    assert world.finish is None and world.loop.knowledge.ending.stage == "running"
    assert world.durable.schedule is not None and not world.durable.schedule.end_ns


def test_the_end_is_asked_for_again_by_a_controller_that_was_killed() -> None:
    world = ending()
    until_stage(world, "ending")
    world.restart_controller()
    world.run(40)
    ended_well(world)


def test_a_vm_that_is_lost_while_the_run_ends_is_planned_for() -> None:
    world = ending()
    world.hold_acks = world.hold_steps = True
    until_stage(world, "draining")
    used = {thread.slot.vm for thread in world.durable.rollout.threads}  # type: ignore[union-attr]
    lost = min(used)
    world.vms[lost].down = True
    world.run(12)
    assert [one.reason for one in world.durable.rollouts][-1] == "vm_lost"
    assert world.durable.rollout is not None
    assert lost not in {thread.slot.vm for thread in world.durable.rollout.threads if not thread.leaving}
    world.hold_acks = world.hold_steps = False
    world.run(40)
    ended_well(world)


def test_nothing_else_is_planned_for_while_the_run_ends() -> None:
    world = ending()
    world.hold_acks = world.hold_steps = True
    until_stage(world, "draining")
    plans = len(world.durable.rollouts)
    world.run(8)
    assert len(world.durable.rollouts) == plans


@pytest.mark.parametrize("what", ["a worker is replaced", "rows are lost"])
def test_a_step_in_which_something_is_lost_is_done_again(what: str) -> None:
    world = ending()
    world.hold_acks = world.hold_steps = True
    until_stage(world, "draining")
    world.run(1)
    assert [end.step for end in steps(world)] == ["hold"]
    if what == "rows are lost":
        world.hold_acks = world.hold_steps = False
        world.lose_rows = True
        world.run(0.6)
        world.lose_rows = False
    else:
        slot = world.durable.rollout.threads[0].slot  # type: ignore[union-attr]
        world.vms[slot.vm].kill_worker(slot.number)
        world.run(1)
    assert [end.step for end in steps(world)][:2] == ["hold", "again"]
    world.hold_acks = world.hold_steps = False
    world.run(40)
    ended_well(world)


@pytest.mark.parametrize("events", [0, 50])
def test_a_machine_with_events_that_nobody_read_is_not_given_back(events: int) -> None:
    world = World((vm("vm1"),), rate_tps=900.0, spare=vm("spare"), max_vms=3).start().until("committed")
    (had,) = {one.vm for one in world.durable.machines}
    world.vms[had].spools = (SpoolLeft("source", 0, 40, 40 + events, "earlier", 3),)
    world.ask("stop")
    world.run(20)
    assert world.finish is not None and (had in world.asked) == bool(events)


def test_sources_know_before_the_first_step_that_they_are_to_read_to_their_end() -> None:
    """One that is started again then reads on beyond what the controller knew of it."""
    world = ending()
    until_stage(world, "draining")
    said = [one for _, one in world.sent if getattr(one, "draining", False)]
    assert said and all(one.end is not None and one.end.whole for one in said)  # type: ignore[union-attr]


def test_a_plan_under_which_nothing_was_processed_is_not_committed_because_the_input_ends() -> None:
    world = World()
    world.rows = 200
    world.hold_acks = True
    world.start().until("probation").run(5)
    world.hold_acks = True
    until_stage(world, "draining")
    world.run(60)
    assert world.finish is not None
    assert not world.texts("committed") and not world.durable.rollouts[-1].committed_ns
    (said,) = world.texts("uncommitted")
    assert (
        said == "plan 1 was not committed: the run ended while it was on probation, and nothing was processed"
    )


def test_a_plan_that_the_end_of_the_input_finds_on_probation_is_not_committed_for_it() -> None:
    world = World()
    world.rows = 200
    world.start().until("probation").run(40)
    ended_well(world)
    assert not world.texts("committed")
    assert world.texts("uncommitted") == ["plan 1 was not committed: the run ended while it was on probation"]


def test_who_leaves_under_a_plan_on_probation_ends_with_the_input() -> None:
    world = World(rate_tps=100.0)
    world.rows = 3000
    world.start().until("committed")
    world.ask("rate_set", rate_tps=900.0)
    world.until("switched").until("probation")
    assert world.rollout.leaving or world.rollout.fresh
    world.run(60)
    ended_well(world)
    assert world.rollout.epoch == 2 and not world.rollout.leaving
    assert world.texts("committed") == ["plan 1 is committed"]
    world.check_decisions()


def test_a_stop_goes_on_after_a_controller_that_was_killed_at_once() -> None:
    """It offered no rows any more, and ran for ever."""
    world = ending(rows=1 << 60)
    world.run(5)
    assert world.ask("stop").error is None and world.loop.knowledge.ending.stage == "ending"
    world.restart_controller()
    world.run(40)
    assert world.finish is not None and world.finish.summary is not None
    assert world.finish.summary["ended"] == "stop was asked for"


def test_a_bounded_run_that_is_resumed_from_the_moment_it_began_to_end_reads_to_its_end() -> None:
    world = ending()
    until_stage(world, "ending")
    world.run_again(after_s=5.0)
    assert world.loop.knowledge.ending.stage == "ending"
    world.run(40)
    ended_well(world)
