"""Threads that rows wait for ask their senders for larger frames, in virtual time. source (slot 0) → work (slot 1), and
a slot whose frames cost it so much, with so many senders, each of which sends a frame in each gap."""

from __future__ import annotations

import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, LatencyConstraint, Task, Topology
from headgate.topology_runtime.latency.latency_messages import Pace, Paces
from headgate.topology_runtime.wire.messages import DataPlaneSettings, DesiredState, Route, ThreadSpec, Token
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.process.busy_threads import LOOK_NS, BusyThreads
from headgate.topology_runtime.worker.process.latency_watch import LatencyWatch

MS, S = 1_000_000, 1_000_000_000
FAR, NEAR = Slot("vm", 0), Slot("vm", 1)
WORK = 100


def orders(senders: int = 1, near: bool = False, limits: tuple[LatencyConstraint, ...] = ()) -> Orders:
    topology = Topology("t", (Task("source", kind="source"), Task("work")), (Edge("source", "work"),), limits)
    threads = [ThreadSpec(n, "source", NEAR if near else FAR) for n in range(1, senders + 1)]
    desired = DesiredState(
        token=Token(1, 1, 1), phase="committed", run="r", topology=topology, user_paths=(), routes_number=3,
        threads=(*threads, ThreadSpec(WORK, "work", NEAR)), routes=(Route(0, ((WORK, 1.0),)),),
        settings=DataPlaneSettings(gap_s=0.001), modelled_tps={WORK: 1000.0},
    )  # fmt: skip
    return orders_of(desired, NEAR, 7)


class Work:
    """A thread that is read once a look: frames, ns of calls, rows, ns until they were done."""

    def __init__(self, obeyed: Orders) -> None:
        self.busy, self.now_ns, self.counts = BusyThreads(obeyed, NEAR), 0, (0, 0, 0, 0)
        self.told: list[tuple[Pace, ...]] = []

    def look(self, frames: int, rows: int, waits_ns: int) -> tuple[Pace, ...]:
        """In the last look's time so many came, and waited so long."""
        self.now_ns += LOOK_NS
        added = frames, frames * MS, rows, rows * (waits_ns + MS)
        first, second, third, fourth = (a + b for a, b in zip(self.counts, added, strict=True))
        self.counts = first, second, third, fourth
        self.told.append(tuple(self.busy.look({WORK: self.counts}, self.now_ns)))
        return self.told[-1]


def test_who_lets_nothing_wait_says_nothing() -> None:
    work = Work(orders())
    assert not any(work.look(200, 400, MS) for _ in range(50))


def test_each_sender_is_told_a_fourth_of_what_its_frames_wait() -> None:
    work = Work(orders(senders=3))
    for _ in range(2):
        assert work.look(200, 400, 40 * MS) == (), "one look tells nothing: it may be a hiccup"
    said = work.look(200, 400, 40 * MS)
    assert [(pace.sender, pace.target, pace.gap_ns, pace.rows, pace.number) for pace in said] == [
        (sender, WORK, 10 * MS, 100, 3) for sender in (1, 2, 3)
    ]


def test_what_is_still_so_is_said_again_now_and_then_and_what_is_over_once() -> None:
    work = Work(orders())
    for _ in range(60):
        work.look(200, 400, 40 * MS)
    assert 2 <= sum(map(bool, work.told)) <= 4, "in twelve seconds"
    for _ in range(60):
        work.look(200, 400, 0)
    assert work.told[-1] == () and [p.gap_ns for said in work.told for p in said][-1] == MS, "as usual"


def test_a_sender_of_its_own_slot_is_left_alone() -> None:
    work = Work(orders(near=True))
    assert not any(work.look(200, 400, 80 * MS) for _ in range(20))


def test_a_hiccup_changes_nothing() -> None:
    work = Work(orders())
    for n in range(40):
        assert work.look(200, 400, 500 * MS if n % 2 else 0) == ()


@pytest.mark.parametrize(("senders", "offered_tps"), [(1, 2_000), (8, 2_000), (8, 20_000), (8, 40_000)])
def test_a_small_slot_carries_with_many_senders_what_its_rows_allow(senders: int, offered_tps: int) -> None:
    """0.12 cores, 140 µs a frame, 2.3 µs a row: 52,000 rows/s in large frames, 850 in single ones. For as many rows as
    that leaves room for the gap settles, and nothing waits any longer than it has to."""
    cores, frame_s, row_s = 0.12, 140e-6, 2.3e-6
    work, gap_s, waiting_s, worst_s = Work(orders(senders)), 0.001, 0.0, 0.0
    look_s = LOOK_NS / S
    for n in range(300):
        frames = min(offered_tps, senders / gap_s) * look_s
        rows = offered_tps * look_s
        spent_s = (frames * frame_s + rows * row_s) / cores
        waiting_s = max(0.0, waiting_s + spent_s - look_s)
        for pace in work.look(max(1, round(frames)), round(rows), round((waiting_s + 0.002) * S))[:1]:
            gap_s = pace.gap_ns / S
        if n > 200:
            worst_s = max(worst_s, waiting_s)
    assert worst_s < 0.3, "it keeps up"


LIMITS = (LatencyConstraint(("source", "work"), 300.0, 5.0),)


def test_neither_where_latency_is_limited_nor_of_calls_side_by_side() -> None:
    """There its managers alone say when rows leave; and what is under way in an async task waits for nothing."""
    for limits, in_turn, expected in (((), {WORK}, {10 * MS}), (LIMITS, {WORK}, set()), ((), set(), set())):
        board, meter = Switchboard(NEAR, 7, set()), mt.Meter(mt.create())
        watch = LatencyWatch(board, meter, lambda most: 0)
        watch.obey(orders(limits=limits), 0)
        at = meter.thread_record()
        for n in range(1, 5):
            for field, each in ((mt.FRAMES_IN, 200), (mt.BUSY_NS, 0), (mt.TUPLES_IN, 400)):
                meter.words[at + field] += each
            meter.words[at + mt.LATENCY_SUM_NS] += 400 * 40 * MS
            watch.look({WORK: at}, n * LOOK_NS, in_turn.__contains__)
        with board.out.taken(100) as waiting:
            said = [pace for _, what in waiting if isinstance(what, Paces) for pace in what.paces]
        assert {pace.gap_ns for pace in said if pace.sender == 1} == expected
