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


@pytest.mark.parametrize("seed", FEW)
def test_timers_give_what_a_sequential_run_gives(seed: int) -> None:
    SimWorld(seed, Options(shape="times")).run()


@pytest.mark.parametrize("seed", FOUND, ids=str)
def test_what_seeds_found_is_as_it_must_be(seed: int) -> None:
    SimWorld(seed, Options(shape="times")).run()


def test_without_faults_all_is_at_the_sink_once() -> None:
    world = SimWorld(0, Options(shape="times", faults=0)).run()
    assert sorted(world.account.ended.values()) == sorted(timed_rows(2))
