"""Runs with timers by event time, and faults and re-plans of their own: what timers give is what a sequential run
gives, each row once by its name, and none is late."""

from __future__ import annotations

import pytest

from headgate.lab.simulation.simulated_topologies import timed_rows
from headgate.lab.simulation.simulated_world import Options, SimWorld

FEW = (2, 3, 5, 6)
FOUND = {
    1: "a range whose state was lost began its numbers anew: two rows had one name",
    8: "the same, of another range",
}


FOUND_FAR = {2: "what two lives of a thread wrote came late, the older one's first"}


@pytest.mark.parametrize("seed", FEW)
def test_timers_give_what_a_sequential_run_gives(seed: int) -> None:
    SimWorld(seed, Options(shape="times")).run()


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_what_seeds_found_is_as_it_must_be(seed: int) -> None:
    SimWorld(seed, Options(shape="times")).run()


@pytest.mark.parametrize(("shape", "number"), [("far times", 1), ("far drifts", 4)])
def test_timers_give_the_same_where_vms_are_lost_and_snapshots_are_not(shape: str, number: int) -> None:
    """Odd numbers count exactly once."""
    world = SimWorld(number, Options(shape=shape)).run()
    assert world.exact == bool(number % 2) and not world.tallies.states_lost
    assert world.met["ranges taken over elsewhere"] > 0


@pytest.mark.parametrize("seed", FOUND_FAR, ids=str)
def test_what_seeds_found_of_snapshots_elsewhere_is_as_it_must_be(seed: int) -> None:
    SimWorld(seed, Options(shape="far times")).run()


def test_a_vm_that_is_drained_before_the_first_plan_does_not_end_the_run() -> None:
    SimWorld(981295, Options(shape="times")).run()


def test_without_faults_all_is_at_the_sink_once() -> None:
    world = SimWorld(0, Options(shape="times", faults=0)).run()
    assert sorted(world.account.ended.values()) == sorted(timed_rows(2))
