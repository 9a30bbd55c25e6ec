"""Other code takes the place of what runs: no row is read twice for it, and no worker hears of two codes."""

from __future__ import annotations

import pytest

from headgate.controller.simulation.world import Options, SimWorld

DIE = (
    "replace_code",
    "replace_code",
    "drain_vm",
    "kill_controller",
    "kill_agent",
    "kill_worker",
    "cut_vm",
    "lose_vm",
)


@pytest.mark.parametrize("seeds", [range(0, 8), range(8, 16)], ids=str)
def test_without_a_fault_no_row_is_read_twice(seeds: range) -> None:
    worlds = [SimWorld(seed, Options(kinds=("replace_code",), faults=3)).run() for seed in seeds]
    assert sum(world.met["code replaced"] for world in worlds) >= 8
    assert sum(world.met["sources read again"] for world in worlds) == 0


@pytest.mark.parametrize("seed", [1068, 1071, 1072, 1073])
def test_also_when_everybody_dies_meanwhile(seed: int) -> None:
    """1068, 1071: a worker that was cut off was told nothing any more when nobody ran its code."""
    kinds = ("replace_code", *DIE[2:], "fail_journal") if seed < 1072 else DIE
    SimWorld(seed, Options(kinds=kinds, faults=4)).run()
