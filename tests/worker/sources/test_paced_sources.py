"""A paced source whose receivers ask for larger frames reads what leaves together as one root, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.latency.latency_messages import Pace
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import Ack, DesiredState, Frame, Route, ThreadSpec, Token
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.sources.source_task import SourceTask

MS, S = 1_000_000, 1_000_000_000
STEP = MS // 2  # a source looks so often at most
TOPOLOGY = Topology(
    "line", (Task("source", kind="source", static=Static()), Task("work")), (Edge("source", "work"),)
)


class PacedSource(SilentPost):
    """Of so many rows/s before so many receivers."""

    def __init__(self, rate_tps: float, receivers: int = 1) -> None:
        self.frames: list[tuple[int, Frame]] = []
        self.now_ns = 0
        self.core = ThreadCore(ThreadSpec(0, "source", SLOT), TOPOLOGY, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        work = [ThreadSpec(number, "work", SLOT) for number in range(1, receivers + 1)]
        desired = DesiredState(
            Token(1, 1, 1), "committed", "run", TOPOLOGY, (), (ThreadSpec(0, "source", SLOT), *work), 1,
            (Route(0, tuple((thread.thread, 1.0) for thread in work)),),
            schedule=Schedule(0, ((0.0, rate_tps),)), modelled_tps={0: 1e6},
            settings=DataPlaneSettings(frame_rows=256),
        )  # fmt: skip
        self.core.obey(orders_of(desired, SLOT, 1), 0)
        self.source.begin(0)
        self.reads: list[int] = []
        self.acked = 0

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += [(self.now_ns, frame) for frame in frames]

    def read(self, position: int, most: int) -> list[Any]:
        self.reads.append(most)
        return list(range(position, position + most))

    def done(self) -> None:
        """All that was sent."""
        assert self.source.ledger is not None
        for _, frame in self.frames[self.acked :]:
            for part in frame.roots:
                self.source.ledger.ack(Ack(part.key, part.id), self.now_ns)
        self.acked = len(self.frames)

    def pace(self, target: int, gap_ms: int) -> None:
        self.core.outputs.pace(Pace(1, 0, 0, target, gap_ms * MS, 256))

    def run(self, seconds: float, woken: bool = False) -> None:
        """Asleep as long as it says; woken: acks wake it all the time."""
        end_ns = self.now_ns + int(seconds * S)
        while self.now_ns < end_ns:
            self.source.turn(self.now_ns, self.now_ns, self.read)
            self.core.flush(self.now_ns)
            self.done()
            wake_ns = self.source.wake_ns(self.now_ns, self.now_ns)
            self.now_ns = self.now_ns + STEP if woken else max(self.now_ns + STEP, wake_ns)

    @property
    def rows(self) -> int:
        return sum(len(frame.rows) for _, frame in self.frames)


@pytest.mark.parametrize("woken", [False, True])
def test_a_gap_s_rows_are_one_root_and_one_frame(woken: bool) -> None:
    run = PacedSource(4000.0)
    run.pace(1, 20)
    run.run(1.0, woken)
    assert run.rows == pytest.approx(4000, abs=90)
    assert 48 <= len(run.frames) <= 52 and len(run.reads) <= 52
    assert sum(len(frame.roots) for _, frame in run.frames) <= len(run.frames) + 2, "but for the first ones"


def test_what_fills_a_frame_does_not_wait_for_the_gap() -> None:
    """100,000 rows/s in frames of 256, whatever the gap."""
    run = PacedSource(100_000.0)
    run.pace(1, 100)
    run.run(1.0)
    assert run.rows == pytest.approx(100_000, rel=0.02)
    assert max(len(frame.rows) for _, frame in run.frames) <= 256


def test_while_one_receiver_waits_for_nothing_rows_are_read_as_ever() -> None:
    run = PacedSource(4000.0, receivers=2)
    run.pace(1, 20)
    run.run(1.0)
    assert len(run.reads) > 900 and run.rows == pytest.approx(4000, abs=90)


def test_what_is_asked_for_no_longer_is_not_done() -> None:
    run = PacedSource(4000.0)
    run.pace(1, 20)
    run.run(0.5)
    run.pace(1, 1)
    before = len(run.reads)
    run.run(0.5)
    assert len(run.reads) - before > 450
