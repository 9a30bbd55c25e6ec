"""Operators drain VMs, start their agents again and let them be used again: no source reads a row twice for it."""

from __future__ import annotations

import pytest

from headgate.controller.simulation.world import Options, SimWorld

DIE = ("drain_vm", "drain_vm", "kill_controller", "kill_agent", "kill_worker", "fail_journal")


@pytest.mark.parametrize("seeds", [range(0, 8), range(8, 16)], ids=str)
def test_what_is_said_to_be_drained_is_empty_and_may_be_stopped(seeds: range) -> None:
    worlds = [SimWorld(seed, Options(kinds=("drain_vm",), faults=4)).run() for seed in seeds]
    assert sum(world.met["drained"] for world in worlds) >= 4
    assert sum(world.met["sources read again"] for world in worlds) == 0


@pytest.mark.parametrize("seed", range(4))
def test_also_when_controllers_agents_and_workers_die_meanwhile(seed: int) -> None:
    SimWorld(seed, Options(kinds=DIE, faults=6)).run()
