"""The search for the nearest VM, where it once gave a VM into which nothing fits."""

from __future__ import annotations

from headgate.controller.plan.nearest import Nearest
from headgate.controller.plan.room import Weights


def test_a_lone_vm_is_nearest_only_if_it_holds_the_thread():
    nearest = Nearest(["r1"], [2], Weights())
    assert nearest.find(0.5, 0.5, 0) == 0
    nearest.set(0, 1.5, 1.5, 0.4)
    assert nearest.find(0.5, 0.5, 0) is None
    nearest.set(0, 0.4, 1.5, 1.0)
    assert nearest.find(0.5, 0.5, 0) is None
    nearest.close(0)
    assert nearest.find(0.0, 0.0, 0) is None
