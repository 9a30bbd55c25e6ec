"""A worker with keyed state crashes too often: its slot is given up, its VM lives, and so does the state."""

from __future__ import annotations

import pytest

from headgate.controller.simulation.world import Options, SimWorld


@pytest.mark.parametrize(("shape", "number"), [("keyed", 3), ("keyed", 8), ("skewed", 2), ("keyed twice", 1)])
def test_nothing_of_it_is_lost_where_its_vm_has_no_other_worker(shape: str, number: int) -> None:
    world = SimWorld(number, Options(shape=shape, kinds=("wear_out",), faults=3)).run()
    assert world.met["answers for others"] > 0
