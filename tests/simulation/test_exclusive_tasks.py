"""Tasks that must never run twice at once, whatever happens to machines and to the lines between them.

That never two may work at once is checked whenever one takes a frame (Checks.works)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples import first_quickly
from partitioned import partitioned
from source_stories import until

from headgate.controller.execute import handover as exclusive
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.lab.simulation.simulated_agent import SimAgent
from headgate.lab.simulation.simulated_thread import SimThread
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore

AWAY_S = 30
AGAIN_S = 15  # an exclusive task works again so long after its VM was lost (docs/explanation/guarantees.md)


def running(seed: int = 1) -> SimWorld:
    """A world with a plan in force for a while, rows on their way and no faults of its own."""
    world = SimWorld(seed, Options(shape="exclusive", faults=0, vms_least=2))
    world.begin()
    world.clock.run_until(5 * S)
    calm_ns = world.now_ns
    while world.now_ns < calm_ns + 2 * S:  # nobody who is to leave has leases
        world.clock.run_until(world.now_ns + 10 * MS)
        if world.controller.loop.knowledge.durable.phase != "committed":
            calm_ns = world.now_ns
    assert holder(world) is not None
    return world


def holder(world: SimWorld) -> SimThread | None:
    """The thread of the exclusive task that may work now."""
    threads = [t for worker in world.workers() for t in worker.threads.values()]
    found = [t for t in threads if t.desired.task == "alone" and t.could_work]
    return found[0] if found else None


def vm_of(world: SimWorld) -> SimAgent:
    thread = holder(world)
    assert thread is not None
    return world.agents[thread.worker.slot.vm]


def test_without_faults_an_exclusive_task_changes_its_place_and_never_runs_twice() -> None:
    assert SimWorld(0, Options(shape="exclusive", faults=0)).run().account.read > 0


@pytest.mark.parametrize("seed", first_quickly(*range(4)))
def test_cuts_beyond_the_lease_deaths_and_new_plans_in_any_order(seed: int) -> None:
    partitioned(seed)


def planted_always_leased(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadCore, "leased", lambda *_: True)


def planted_nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exclusive, "is_over", lambda *_: True)


def planted_old_holders_keep_their_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Knowledge, "may_lease", lambda *_: True)


@pytest.mark.parametrize(
    "plant,seed",
    [(planted_always_leased, 1), (planted_nobody_waits, 1), (planted_old_holders_keep_their_lease, 701)],
)
def test_without_a_rule_of_the_lease_two_work_at_once(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"two at once|side by side"):
        for each in range(seed, seed + 12):
            partitioned(each)


@pytest.mark.parametrize("seed", first_quickly(*range(2)))
def test_cut_off_for_long_it_stops_itself_and_works_elsewhere_soon(seed: int) -> None:
    world = running(seed)
    agent = vm_of(world)
    agent.cut_until_ns = world.now_ns + AWAY_S * S
    alone_s = until(world, lambda: holder(world) is None, 11)
    assert 2.5 < alone_s < 10, "it goes on until its VM rests, or its lease ends"
    again_s = alone_s + until(world, lambda: holder(world) is not None, AGAIN_S)
    assert again_s < AGAIN_S and vm_of(world) is not agent
    world.clock.run_until(world.now_ns + 2 * AWAY_S * S)
    assert vm_of(world) is not agent, "it does not come back by itself"


@pytest.mark.parametrize("seed", first_quickly(*range(2)))
def test_on_a_vm_that_is_gone_it_works_elsewhere_soon(seed: int) -> None:
    world = running(seed)
    vm_of(world).lose()
    until(world, lambda: holder(world) is not None, AGAIN_S)


def test_while_the_controller_is_away_it_pauses_and_then_goes_on_in_its_place() -> None:
    world = running()
    thread = holder(world)
    start, world.controller.start = world.controller.start, lambda: None  # type: ignore[method-assign]
    world.controller.kill("kill -9")
    until(world, lambda: holder(world) is None, 11)
    world.clock.run_until(world.now_ns + 20 * S)
    world.controller.start = start  # type: ignore[method-assign]
    world.controller.start()
    until(world, lambda: holder(world) is thread, 5)


def test_a_short_absence_of_the_controller_is_not_noticed() -> None:
    world = running()
    thread = holder(world)
    world.controller.kill("kill -9")
    for _ in range(100):
        world.clock.run_until(world.now_ns + 100 * MS)
        assert holder(world) is thread


def test_a_new_controller_waits_for_leases_that_the_old_one_granted() -> None:
    """The VM is cut off, and the controller that knew since when is killed: the next one counts from its start."""
    world = running()
    agent = vm_of(world)
    agent.cut_until_ns = world.now_ns + AWAY_S * S
    world.clock.run_until(world.now_ns + 6 * S)
    world.controller.kill("kill -9")
    until(world, lambda: holder(world) is None, 5)
    again_s = until(world, lambda: holder(world) is not None, 20)
    assert again_s > 5 and vm_of(world) is not agent


def test_after_being_cut_off_shortly_it_goes_on() -> None:
    """Too short to be lost: the same thread, its lease renewed."""
    world = running()
    agent, thread = vm_of(world), holder(world)
    agent.cut_until_ns = world.now_ns + int(3.5 * S)
    for _ in range(60):
        world.clock.run_until(world.now_ns + 100 * MS)
        assert holder(world) is thread
