"""A live source moves to another VM and dies before it has run empty: what its spool still holds is read there
before it goes, for nobody else can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.controller.knowledge.spools import unread
from headgate.controller.simulation.agent import SimAgent
from headgate.controller.simulation.clock import MS, S
from headgate.controller.simulation.thread import SimSource
from headgate.controller.simulation.world import Options, SimWorld

SEED = 2  # two VMs of one size
CALM = Options(shape="live", faults=0, rate_tps=8.0, vms_least=2)
WAITS = replace(CALM, queue_ms=1500)


def sources(world: SimWorld) -> list[SimSource]:
    threads = [t for worker in world.workers() for t in worker.threads.values()]
    return [t for t in threads if isinstance(t, SimSource)]


def source_of(world: SimWorld) -> str:
    """The VM that is to have the source."""
    proposal = world.controller.loop.knowledge.proposal
    assert proposal is not None
    return next(b.slot.vm for b in proposal.plan.placement.bundles if b.task == "source")


def moving(phase: str) -> tuple[SimWorld, SimAgent]:
    """A world in this phase of a plan that moves its source, which has rows open; the agent it leaves."""
    world = SimWorld(SEED, CALM)
    world.begin()
    world.clock.run_until(4 * S)
    world.options = WAITS
    world.clock.run_until(5 * S)
    old = sources(world)[0]
    reply = world.controller.ask("plan", rate_tps=20.0, propose=True)
    assert reply is not None and reply.error is None
    if source_of(world) == old.worker.slot.vm:
        world.swap()
    assert source_of(world) != old.worker.slot.vm, "it goes to another VM"
    world.controller.ask("apply")
    while world.phase != phase:
        world.clock.run_until(world.now_ns + MS)
        assert world.now_ns < 10 * S, f"never {phase}"
    assert old.alive and old.source.ledger is not None and not old.source.ledger.empty
    return world, old.worker.agent


def finish(world: SimWorld) -> None:
    world.options = CALM
    world.wait("the plan is in force", lambda: world.unsettled, 30)
    known = world.controller.loop.knowledge.counts.source("source", 0)
    assert not known.apart and not unread(world.controller.loop.knowledge)
    world.end()


@pytest.mark.parametrize("phase", ["prepared", "switched"])
def test_its_worker_dies(phase: str) -> None:
    world, agent = moving(phase)
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    source.worker.kill("kill -9")
    finish(world)


@pytest.mark.parametrize("phase", ["prepared", "switched"])
def test_its_agent_dies(phase: str) -> None:
    world, agent = moving(phase)
    agent.kill("kill -9")
    world.later(S, agent.start)
    finish(world)


def test_the_journal_does_not_take_the_hand_over_at_once() -> None:
    world, agent = moving("switched")
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    world.disk.fails = True
    source.worker.kill("kill -9")
    world.clock.run_until(world.now_ns + S)
    assert not world.checks.durable.apart
    world.disk.fails = False
    finish(world)


def test_its_agent_and_the_controller_die() -> None:
    world, agent = moving("prepared")
    agent.kill("kill -9")
    world.later(S // 2, agent.start)
    world.clock.run_until(world.now_ns + S // 4)
    world.controller.kill("kill -9")
    finish(world)


def test_the_journal_does_not_take_the_end_of_the_hand_over_at_once() -> None:
    """What the leaver had done by then was open again, as it was when it was handed over."""
    world, agent = moving("switched")
    source = next(t for t in sources(world) if t.worker.agent is agent and t.source.ledger is not None)
    source.worker.kill("kill -9")
    while not world.controller.loop.knowledge.durable.apart:
        world.clock.run_until(world.now_ns + MS)
        assert world.now_ns < 12 * S, "nothing was handed over"
    world.disk.fails = True
    world.options = CALM
    world.clock.run_until(world.now_ns + 3 * S)
    world.disk.fails = False
    finish(world)
