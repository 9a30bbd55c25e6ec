"""A worker with keyed state crashes too often: its slot is given up, its VM lives, and so does the state."""

from __future__ import annotations

import pytest

from controller.simulation.world import Options, SimWorld


@pytest.mark.parametrize(("shape", "number"), [(None, 4), ("keyed", 12), ("skewed", 16), ("keyed twice", 24)])
def test_nothing_of_it_is_lost_where_its_vm_has_no_other_worker(shape: str | None, number: int) -> None:
    world = SimWorld(number, Options(shape=shape, kinds=("kill_worker_somewhere",), parted=True)).run()
    assert world.met["answers for others"] > 0
