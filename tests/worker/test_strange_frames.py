"""Frames that name what this topology does not have are refused before a task thread sees them."""

from __future__ import annotations

import pytest

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import Frame, RootKey, RootPart
from headgate.topology_runtime.worker.switchboard import Switchboard

SLOT = Slot("vm1", 0)


def frame(edge: int, source: int) -> Frame:
    root = RootPart(RootKey(1, 1, 0, 0), SLOT, source, 0, 0, 0, 0, 7)
    return Frame(edge, 1, SLOT, 1, 2, [root], [(0, 0, 1, 0)], ["row"], 0, 0)


@pytest.mark.parametrize(
    ("edge", "source", "known"), [(0, 0, True), (1, 0, True), (2, 0, False), (-1, 0, False), (0, 1, False)]
)
def test_edges_and_sources_are_checked(edge: int, source: int, known: bool) -> None:
    board = Switchboard(SLOT, 1)
    assert board.knows(frame(edge, source)), "before the topology is known, frames wait for their threads"
    board.topology_size = (2, 1)
    assert board.knows(frame(edge, source)) is known
