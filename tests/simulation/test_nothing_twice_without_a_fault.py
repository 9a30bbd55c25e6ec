"""Without a fault no row is sent again, however often it is planned anew: what leaves in order was not lost."""

from __future__ import annotations

import pytest

from headgate.controller.simulation.world import Options, SimWorld

SEEDS = (5, 11, 24, 37, 41, 52)  # of all shapes; in two of them a slot is left in order and used again


@pytest.mark.parametrize("seed", SEEDS)
def test_re_plans_send_nothing_again(seed: int) -> None:
    world = SimWorld(seed, Options(faults=0))
    world.faults.loss = 0.0
    world.run()
    counts = world.controller.loop.knowledge.counts
    assert counts.emitted > 0 and world.checks.durable.next_epoch > 3
    assert counts.replayed == 0
