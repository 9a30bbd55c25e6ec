"""A live source moves to another VM and dies before it has run empty: what its spool still holds is read there
before it goes, for nobody else can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from source_stories import finish, knowledge, proposed, source_of_proposal, sources, until

from headgate.lab.simulation.simulated_agent import SimAgent
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import S

SEED = 2  # two VMs of one size
CALM = Options(shape="live", faults=0, rate_tps=8.0, vms_least=2)
WAITS = replace(CALM, queue_ms=1500)


def moving(phase: str) -> tuple[SimWorld, SimAgent]:
    """A world in this phase of a plan that moves its source, which has rows open; the agent it leaves."""
    world = SimWorld(SEED, CALM)
    world.begin()
    world.clock.run_until(4 * S)
    world.options = WAITS
    world.clock.run_until(5 * S)
    old = sources(world)[0]
    proposed(world)
    if source_of_proposal(world) == old.worker.slot.vm:
        world.swap()
    assert source_of_proposal(world) != old.worker.slot.vm, "it goes to another VM"
    world.controller.ask("apply")
    until(world, lambda: world.phase == phase, 5)
    assert old.alive and old.source.ledger is not None and not old.source.ledger.empty
    return world, old.worker.agent


@pytest.mark.parametrize("phase", ["prepared", "switched"])
def test_its_worker_dies(phase: str) -> None:
    world, agent = moving(phase)
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    source.worker.kill("kill -9")
    finish(world, CALM)


@pytest.mark.parametrize("phase", ["prepared", "switched"])
def test_its_agent_dies(phase: str) -> None:
    world, agent = moving(phase)
    agent.kill("kill -9")
    world.later(S, agent.start)
    finish(world, CALM)


def test_the_journal_does_not_take_the_hand_over_at_once() -> None:
    world, agent = moving("switched")
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    world.disk.fails = True
    source.worker.kill("kill -9")
    world.clock.run_until(world.now_ns + S)
    assert not world.checks.durable.apart
    world.disk.fails = False
    finish(world, CALM)


def test_its_agent_and_the_controller_die() -> None:
    world, agent = moving("prepared")
    agent.kill("kill -9")
    world.later(S // 2, agent.start)
    world.clock.run_until(world.now_ns + S // 4)
    world.controller.kill("kill -9")
    finish(world, CALM)


def test_the_journal_does_not_take_the_end_of_the_hand_over_at_once() -> None:
    """What the leaver had done by then was open again, as it was when it was handed over."""
    world, agent = moving("switched")
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    source.worker.kill("kill -9")
    until(world, lambda: knowledge(world).durable.apart)
    world.disk.fails = True
    world.options = CALM
    world.clock.run_until(world.now_ns + 3 * S)
    world.disk.fails = False
    finish(world, CALM)
