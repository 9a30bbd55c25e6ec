"""What the trace keeps of a second's tuples adds up to what the run says in the end."""

from __future__ import annotations

from typing import Any

import pytest
from enactment_world import World

from headgate.controller.knowledge import loop_events as t

COUNTS = ("offered", "emitted", "acked")


class Recorded(World):
    """With the rows of `rates` that it would record."""

    def perform(self, instruction: t.Instruction) -> None:
        if isinstance(instruction, t.Trace) and instruction.kind == "rates":
            self.recorded.append(instruction.data)
        if isinstance(instruction, t.Block):
            used = [cpu for cpu, _ in instruction.predicted.values()]
            self.predicted.append(max(used, default=0.0))
        super().perform(instruction)

    def begin(self) -> Recorded:
        self.recorded: list[dict[str, Any]] = []
        self.predicted: list[float] = []
        self.start()
        return self


def test_counts_add_up_and_follow_the_rate_at_once() -> None:
    world = Recorded(rate_tps=100.0).begin()
    world.until("committed").run(20)
    world.ask("rate_set", rate_tps=300.0)
    world.run(6)
    counts = world.loop.knowledge.counts
    assert sum(row["emitted"] for row in world.recorded) == pytest.approx(counts.emitted, abs=310)
    last = world.recorded[-1]
    assert last["emitted"] == pytest.approx(300, rel=0.2) and last["emitted_tps"] < 280, (
        "a mean over some seconds"
    )
    assert {type(row[name]) for row in world.recorded for name in COUNTS} == {int}


def test_all_of_a_run_is_in_its_rows() -> None:
    world = Recorded(rate_tps=70.0).begin()
    world.until("committed").run(7.3)
    world.ask("stop")
    world.run(20)
    assert world.finish is not None and world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert {name: sum(row[name] for row in world.recorded) for name in COUNTS} == {
        name: tuples[name] for name in COUNTS
    }


def test_the_first_row_of_a_later_life_has_none() -> None:
    world = Recorded().begin()
    world.until("committed").run(10)
    world.recorded.clear()
    world.restart_controller()
    world.run(12)
    assert world.recorded[0]["emitted"] is None
    assert all(row["emitted"] is not None for row in world.recorded[1:])
    assert sum(row["emitted"] for row in world.recorded[1:]) <= 12 * 101


def test_what_is_predicted_of_slots_is_for_the_rate_of_that_second() -> None:
    """(The window that is decided by has ten seconds: it would say 100 to 180 rows/s for the first four.)"""
    world = Recorded(rate_tps=100.0).begin()
    world.until("committed").run(20)
    before = world.predicted[-1]
    world.ask("rate_set", rate_tps=40.0)
    world.run(4)
    fixed = 0.2  # what source and sink reserve, at whatever rate
    assert before > 2 * fixed
    assert world.predicted[-1] - fixed == pytest.approx(0.4 * (before - fixed), rel=0.05)
