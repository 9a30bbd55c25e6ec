"""A VM that the controller does not reach and its peers do: it rests before its work begins elsewhere, and goes on when
nobody hears the controller. (That nothing runs side by side is checked whenever a thread takes rows: Checks.beside.)"""

from __future__ import annotations

import pytest

from headgate.lab.simulation.simulated_agent import SimAgent
from headgate.lab.simulation.simulated_worker import SimWorker
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S

AWAY_S = 20
SEEDS = (3, 5, 11)  # keyed, feeds, two sources


def running(seed: int) -> SimWorld:
    """A world of several VMs with a plan in force and rows on their way, without faults of its own."""
    world = SimWorld(seed, Options(faults=0, vms_least=2))
    world.begin()
    world.clock.run_until(6 * S)
    return world


def used(world: SimWorld) -> list[SimAgent]:
    """VMs with threads that have links to others."""
    return [
        agent
        for agent in world.agents.values()
        if agent.workers and any(slot.heard for slot in agent.state.slots.values())
    ]


def rests(agent: SimAgent) -> bool:
    return all(worker.rests for worker in agent.workers.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_it_rests_before_the_controller_holds_it_dead(seed: int) -> None:
    world = running(seed)
    agent = used(world)[0]
    agent.cut_until_ns = world.now_ns + AWAY_S * S
    while agent.name not in world.checks.durable.held_dead:
        assert world.now_ns < agent.cut_until_ns, "it was never held dead"
        world.clock.run_until(world.now_ns + 10 * MS)
    assert rests(agent)
    world.clock.run_until(agent.cut_until_ns + 10 * S)


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_rests_while_the_controller_is_away(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(seed)
    monkeypatch.setattr(world.controller, "start", lambda: None)
    world.controller.kill("for long")
    began_ns = world.now_ns
    while world.now_ns < began_ns + AWAY_S * S:
        world.clock.run_until(world.now_ns + 50 * MS)
        assert used(world) and not any(rests(agent) for agent in used(world))


def test_who_never_rests_works_beside_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimWorker, "rests", False)
    with pytest.raises(AssertionError, match="side by side"):
        for seed in SEEDS:
            world = running(seed)
            used(world)[0].cut_until_ns = world.now_ns + AWAY_S * S
            world.clock.run_until(world.now_ns + AWAY_S * S)
