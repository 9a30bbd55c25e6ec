"""Events that a thread accepted and that nobody reads any more, for its VM or its slot was given up: whoever reads
the source there later accepts them anew, under positions of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from source_stories import finish, knowledge, proposed, source_of_proposal, sources, until

from headgate.lab.simulation.simulated_agent import SimAgent
from headgate.lab.simulation.simulated_thread import SimSource
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S

SEED, ARRIVING = 2, 8  # two VMs of one size; a source that is read when it is due, or takes rows as they come
CALM = Options(shape="live", faults=0, rate_tps=8.0, vms_least=2)
WAITS = replace(CALM, queue_ms=1500)


def running(options: Options, seed: int = SEED) -> tuple[SimWorld, SimSource]:
    """A world whose source has rows open; that source."""
    world = SimWorld(seed, CALM)
    world.begin()
    world.clock.run_until(4 * S)
    world.options = options
    world.clock.run_until(5 * S)
    (source,) = sources(world)
    assert source.source.ledger is not None and not source.source.ledger.empty
    return world, source


def elsewhere(world: SimWorld, agent: SimAgent) -> bool:
    return any(s.source.ledger is not None and s.worker.agent is not agent for s in sources(world))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("seed", [SEED, ARRIVING])
def test_a_vm_that_was_cut_off_comes_back_with_events_of_its_own(dies: bool, seed: int) -> None:
    """Its source went elsewhere meanwhile, and read other events under the same positions."""
    world, source = running(WAITS, seed)
    agent = source.worker.agent
    agent.cut_until_ns = world.now_ns + 9 * S
    world.clock.run_until(world.now_ns + 3 * S)
    if dies:
        source.worker.kill("kill -9")
    held = [row for row, vm in world.account.accepted.items() if vm == agent.name]
    assert held, "it accepted events that are not done"
    world.clock.run_until(agent.cut_until_ns)
    assert elsewhere(world, agent)
    finish(world, CALM)
    assert world.met["events accepted again"] or not dies


@pytest.mark.parametrize("seed", [SEED, ARRIVING])
def test_events_on_disk_when_a_vm_that_was_held_dead_starts_again(seed: int) -> None:
    world, source = running(WAITS, seed)
    agent = source.worker.agent
    agent.kill("kill -9")
    until(world, lambda: knowledge(world).durable.held_dead)
    until(world, lambda: world.phase == "committed")
    world.clock.run_until(world.now_ns + S)
    agent.start()
    world.clock.run_until(world.now_ns + S)
    finish(world, CALM)
    assert world.met["events accepted again"] >= 1


def wear_out(world: SimWorld, source: SimSource) -> None:
    """Its slot is given up."""
    agent, slot = source.worker.agent, source.worker.slot
    while not agent.state.slots[slot.number].given_up:
        worker = agent.workers.get(slot.number)
        if worker is not None and worker.alive:
            worker.kill("kill -9")
        world.clock.run_until(world.now_ns + MS)


@pytest.mark.parametrize("seed", [SEED, ARRIVING])
def test_the_slot_of_a_source_is_given_up(seed: int) -> None:
    world, source = running(WAITS, seed)
    wear_out(world, source)
    assert world.account.accepted, "it accepted events that are not done"
    finish(world, CALM)
    assert world.met["events accepted again"] >= 1


@pytest.mark.parametrize("seed", [SEED, ARRIVING])
def test_the_vm_of_a_leaver_with_positions_of_its_own_is_lost(seed: int) -> None:
    """What it had accepted is gone with it, the stated exception; its positions hold nothing up."""
    world, source = running(WAITS, seed)
    agent = source.worker.agent
    proposed(world)
    if source_of_proposal(world) == agent.name:
        world.swap()
    world.controller.ask("apply")
    until(world, lambda: world.phase == "switched")
    source.worker.kill("kill -9")
    until(world, lambda: knowledge(world).durable.apart)
    agent.lose()
    finish(world, CALM)
    assert world.met["spools lost"] >= 1


def test_a_given_up_vm_says_that_it_has_events() -> None:
    """All its slots are given up: nobody can read there, and an alarm says so."""
    world, source = running(WAITS)
    agent = source.worker.agent
    while any(not slot.given_up for slot in agent.state.slots.values()):
        mine = [s for s in sources(world) if s.worker.agent is agent]
        if mine:
            wear_out(world, mine[0])
        world.clock.run_until(world.now_ns + S)
        assert world.now_ns < 120 * S, "it is never given up"
    until(world, lambda: "unread" in knowledge(world).alarms, 30)
    assert agent.name in knowledge(world).alarms["unread"]
    world.options = CALM
    world.wait("the plan is in force", lambda: world.unsettled, 30)
    world.end()
    world.clean_up()
    assert world.met["events on unusable VMs"] == 1, agent.name
