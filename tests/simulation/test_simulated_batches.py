"""Batched tasks in the simulated house: frames of columns, re-plans, workers and VMs that die; nothing is lost."""

from __future__ import annotations

import pytest
from examples import first_quickly

from headgate.controller.simulation.runs import run
from headgate.controller.simulation.world import Options


@pytest.mark.parametrize("seed", first_quickly(*range(20)))
def test_batched_tasks_hold_every_invariant(seed: int) -> None:
    assert not run(seed, Options(shape="batched")).error
