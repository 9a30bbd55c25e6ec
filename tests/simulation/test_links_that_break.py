"""Links between workers break, or take everything and give nothing on: what was open over them is sent
again soon, kept rows too, although nothing else of a kept row would be noticed for ten minutes."""

from __future__ import annotations

import pytest

from controller.simulation.world import Options, World
from topology_runtime.worker.state import WorkerState

KINDS = ("break_data", "half_open_data")


@pytest.mark.parametrize("shape", ["join", "batch", "diamond"])
@pytest.mark.parametrize("number", range(3))
def test_links_break_in_every_way_and_everything_settles(shape: str, number: int) -> None:
    world = World(number, Options(shape=shape, kinds=KINDS, faults=6)).run()
    assert world.account.read > 0 and set(world.faults.done) & set(KINDS)


def test_a_break_that_no_worker_notices_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(WorkerState, "on_link", lambda self, slot, up: [])
    caught = 0
    for number in range(12):
        try:
            World(number, Options(shape="join", kinds=KINDS, faults=6)).run()
        except AssertionError:
            caught += 1
            break
    assert caught
