"""Tasks that must never run twice at once, whatever happens to machines and to the lines between them."""

from __future__ import annotations

import pytest

from controller.simulation.world import Options, World


@pytest.mark.parametrize("seed", range(3))
def test_without_faults_an_exclusive_task_changes_its_place_and_never_runs_twice(seed: int) -> None:
    world = World(seed, Options(shape="exclusive", faults=0)).run()
    assert world.account.read > 0
