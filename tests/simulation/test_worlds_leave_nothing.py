"""The folder of a simulated world goes with it: also where a test goes through a world by itself."""

from __future__ import annotations

import gc
import os

from headgate.controller.simulation.clock import S
from headgate.controller.simulation.world import Options, SimWorld


def test_a_world_that_nobody_has_any_more_leaves_no_folder() -> None:
    world = SimWorld(2, Options(shape="live", faults=0))
    world.begin()
    world.clock.run_until(2 * S)
    folder = world.directory()
    assert os.path.isdir(folder)
    del world
    gc.collect()
    assert not os.path.exists(folder)


def test_one_that_was_run_leaves_none_either() -> None:
    world = SimWorld(2, Options(shape="live")).run()
    assert not os.path.exists(world.directory())
