"""Worlds in which a source holds almost no rows that are kept elsewhere, and reads them again when they must be sent
again: no tuple is unaccounted for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.controller.simulation.world import Options, SimWorld
from headgate.topology_runtime.worker import source
from headgate.topology_runtime.worker.source import Read, SourceTask

SEEDS = range(6)
BYTES = 2_000  # some rows of a simulated source


@pytest.mark.parametrize("shape", ["long holds", "keyed"])
def test_rows_that_were_let_go_come_again(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    before = SourceTask.turn

    def turn(task: SourceTask, now_ns: int, wall_ns: int, read: Read) -> None:
        def counted(position: int, most: int) -> Sequence[Any]:
            if task.ledger is not None and position < task.ledger.position:
                again.append(position)
            return read(position, most)

        before(task, now_ns, wall_ns, counted)

    monkeypatch.setattr(source, "IN_FLIGHT_BYTES", BYTES)
    monkeypatch.setattr(SourceTask, "turn", turn)
    for seed in SEEDS:
        assert SimWorld(seed, Options(shape=shape)).run().account.read > 0, f"seed {seed}"
    assert len(again) > 5, "there were such"
