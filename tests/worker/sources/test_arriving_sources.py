"""A source whose rows are taken as they come: when they are read, what they are due, where it stops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.logic import LiveSource
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import (
    Ack,
    DesiredState,
    EndOfInput,
    Frame,
    Route,
    SourceStart,
    ThreadSpec,
    Token,
    WorkerAt,
)
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process.source_thread import times_of
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.sources.source_task import SourceTask

S, MS = 1_000_000_000, 1_000_000
TOPOLOGY = Topology(
    "line",
    (Task("source", kind="source", static=Static(), arriving=True), Task("work")),
    (Edge("source", "work"),),
)


class Came:
    """Rows and when they came."""

    acked = 0

    def __init__(self) -> None:
        self.times: list[int] = []

    @property
    def end(self) -> int:
        return len(self.times)

    def arrived_ns(self, position: int) -> int:
        return self.times[position]


class Bench(SilentPost):
    """A source thread at virtual time; it reads what came."""

    def __init__(self, cap_tps: float | None = None, arriving: bool = True) -> None:
        topology = replace(TOPOLOGY, tasks=(replace(TOPOLOGY.tasks[0], arriving=arriving), TOPOLOGY.tasks[1]))
        self.frames: list[Frame] = []
        self.did: list[str] = []
        self.core = ThreadCore(ThreadSpec(1, "source", SLOT), topology, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        self.source.sizes.saw([0])  # so its first root is as the others
        schedule = Schedule(0, ((0.0, 5.0 if cap_tps is None else cap_tps),), uncapped=cap_tps is None)
        threads = (ThreadSpec(1, "source", SLOT), ThreadSpec(2, "work", SLOT))
        self.desired = DesiredState(
            Token(1, 1, 1), "committed", "run", topology, (), threads, 1, (Route(0, ((2, 1.0),)),),
            schedule=schedule, modelled_tps={1: 1000.0},
        )  # fmt: skip
        self.obey()
        self.came = Came()
        self.source.begin(0, self.came)
        self.now_ns = S

    def obey(self, **changes: Any) -> None:
        token = Token(1, 1, self.desired.token.counter + 1)
        self.desired = replace(self.desired, token=token, **changes)
        self.core.obey(orders_of(self.desired, SLOT, 1), 0)

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        self.did.append("acked")

    def write(self, done: ToRecord, holding: int) -> None:
        self.did.append("recorded")

    def turn(self, after_ns: int = 10 * MS) -> list[Frame]:
        """What is sent now."""
        self.now_ns += after_ns
        self.frames.clear()
        self.source.turn(
            self.now_ns, self.now_ns, lambda position, most: list(range(position, position + most))
        )
        self.core.flush(self.now_ns, everything=True)
        return list(self.frames)

    def rows(self, after_ns: int = 10 * MS) -> int:
        return sum(len(frame.rows) for frame in self.turn(after_ns))


def test_rows_are_read_when_they_come_whatever_the_schedule_says() -> None:
    bench = Bench()
    assert bench.rows() == 0
    bench.came.times += [bench.now_ns] * 100
    assert bench.rows() == 100, "5 rows/s is what the first plan is made for, and no cap"
    assert bench.rows(3 * S) == 0


def test_a_row_is_due_when_it_came() -> None:
    bench = Bench()
    bench.came.times += [7 * MS, 9 * MS]
    (frame,) = bench.turn()
    assert frame.roots[0].intended_ns == 7 * MS


@pytest.mark.parametrize("age_s", [0.0, 0.05, 1.0, 40.0])
def test_no_row_is_told_to_be_much_older_than_it_is(age_s: float) -> None:
    """One that came every 2.5 ms, read late: by a millisecond or a fortieth of its age."""
    bench = Bench()
    came = [bench.now_ns + n * 5 * MS // 2 for n in range(300)]
    bench.came.times += came
    bench.now_ns = came[-1] + int(age_s * S)
    seen, roots = 0, 0
    while seen < 300:
        for frame in bench.turn():
            assert [place for place in frame.rows] == list(range(seen, seen + len(frame.rows)))
            for root, count in ((frame.roots[number], count) for number, _, count, _ in frame.runs):
                assert root.intended_ns == came[root.position] and root.position == seen
                spread_ns = came[seen + count - 1] - root.intended_ns
                assert spread_ns <= max(MS, (bench.now_ns - root.intended_ns) / 40)
                seen, roots = seen + count, roots + 1
    assert roots <= 300 and (age_s < 40 or roots < 5), "what is old goes in large roots"


def test_a_cap_holds_and_is_not_saved_up() -> None:
    bench = Bench(cap_tps=50.0)
    bench.turn(10 * S)  # nothing came for long
    bench.came.times += [bench.now_ns] * 1000
    read = [bench.rows() for _ in range(200)]
    assert 95 <= sum(read) <= 106 and max(read) <= 6, "2 s at 50 rows/s"


def test_nothing_is_taken_before_the_run_begins_nor_after_its_end_nor_by_a_leaver() -> None:
    bench = Bench()
    assert bench.source.takes(bench.now_ns)
    bench.obey(schedule=Schedule(0, ((0.0, 5.0),), end_ns=bench.now_ns, uncapped=True))
    assert not bench.source.takes(bench.now_ns)
    bench.obey(schedule=None)
    assert not bench.source.takes(bench.now_ns)
    bench = Bench()
    bench.obey(threads=(ThreadSpec(1, "source", SLOT, leaving=True), ThreadSpec(2, "work", SLOT)))
    assert not bench.source.takes(bench.now_ns)


def test_a_source_with_offsets_is_read_to_its_end_though_no_more_is_offered() -> None:
    """It keeps nothing on disk: it was killed while the run ended, and its rows were left."""
    bench = Bench()
    source = replace(bench.core.topology.tasks[0], offsets=True)
    topology = replace(bench.core.topology, tasks=(source, bench.core.topology.tasks[1]))
    bench.core = ThreadCore(ThreadSpec(1, "source", SLOT), topology, bench.ports())
    bench.core.behaviour = bench.source = SourceTask(bench.core)
    ended = Schedule(0, ((0.0, 5.0),), end_ns=bench.now_ns - MS, uncapped=True)
    bench.obey(topology=topology, schedule=ended)
    bench.source.begin(0, bench.came)
    assert not bench.source.takes(bench.now_ns), "the run has not said yet that it is to"
    bench.obey(draining=True, end=EndOfInput(0, "again", whole=True))
    assert bench.source.takes(bench.now_ns)


def test_a_leaver_reads_what_it_took() -> None:
    bench = Bench()
    bench.came.times += [bench.now_ns] * 300
    bench.obey(threads=(ThreadSpec(1, "source", SLOT, leaving=True), ThreadSpec(2, "work", SLOT)))
    assert bench.rows() + bench.rows() == 300 and not bench.source.stopped_reading
    bench.turn()
    assert bench.source.stopped_reading


def test_a_run_that_ends_reads_what_was_taken_also_under_a_cap() -> None:
    bench = Bench(cap_tps=10_000.0)
    bench.turn()
    bench.came.times += [bench.now_ns] * 200
    bench.obey(draining=True, schedule=Schedule(0, ((0.0, 10_000.0),), end_ns=bench.now_ns))
    assert sum(bench.rows() for _ in range(5)) == 200
    bench.turn()
    assert bench.source.stopped_reading


def test_a_thread_that_is_restarted_while_the_run_drains_still_looks_into_its_spool() -> None:
    bench = Bench()
    bench.source.ledger = None
    bench.obey(
        draining=True,
        workers=(WorkerAt(SLOT, 1, "tcp://here"),),
        starts=(SourceStart("source", 0, 40, 40),),
    )
    assert bench.source.start_position() == 40


def test_it_wakes_for_rows_and_to_take_more() -> None:
    bench = Bench()
    bench.source.quiet_until_ns = bench.now_ns + 4 * MS
    assert bench.source.wake_ns(bench.now_ns, bench.now_ns) == bench.now_ns + 4 * MS
    bench.came.times.append(bench.now_ns)
    assert bench.source.wake_ns(bench.now_ns, bench.now_ns) < bench.now_ns + MS


def test_acks_of_what_came_move_its_ledger_on() -> None:
    bench = Bench()
    bench.came.times += [bench.now_ns] * 3
    (frame,) = bench.turn()
    bench.core.hear([Ack(frame.roots[0].key, frame.roots[0].id)], bench.now_ns)
    assert bench.source.ledger is not None and bench.source.ledger.acked == 3


def test_what_was_finished_is_recorded_before_it_is_acked() -> None:
    """A worker that is killed between the two has rows that come again, never acked rows that are nowhere."""
    bench = Bench()
    bench.core.settle([])
    assert bench.did == ["recorded", "acked"]


# ── paced, though it cannot be read twice ───────────────────────────────────────────────────────


def paced(accepted: int) -> Bench:
    """5 rows/s, and so many were accepted though they are not due."""
    bench = Bench(cap_tps=5.0, arriving=False)
    bench.came.times += [0] * accepted
    return bench


def test_what_was_accepted_early_waits_until_it_is_due() -> None:
    bench = paced(100)
    assert bench.rows() == 6, "the first is due at 0, the sixth at 1 s"
    assert bench.rows(S) == 5


def test_a_run_that_ends_reads_it_before_it_is_due() -> None:
    bench = paced(300)
    bench.obey(draining=True, schedule=Schedule(0, ((0.0, 5.0),), end_ns=bench.now_ns))
    assert bench.source.wake_ns(bench.now_ns, bench.now_ns) < bench.now_ns + MS
    assert bench.rows() + bench.rows() == 300 and not bench.source.stopped_reading
    bench.turn()
    assert bench.source.stopped_reading and bench.came.end == 300


def test_so_does_one_that_leaves_or_is_restarted_meanwhile() -> None:
    bench = paced(30)
    bench.obey(threads=(ThreadSpec(1, "source", SLOT, leaving=True), ThreadSpec(2, "work", SLOT)))
    assert bench.rows() == 30
    bench = paced(30)
    bench.source.ledger = None
    bench.obey(
        draining=True,
        workers=(WorkerAt(SLOT, 1, "tcp://here"),),
        starts=(SourceStart("source", 0, 4, 4),),
    )
    assert bench.source.start_position() == 4


def test_it_reads_no_further_than_was_accepted_once_the_run_ends() -> None:
    bench = paced(2)
    bench.obey(draining=True)
    assert bench.rows(10 * S) == 2 and bench.rows(10 * S) == 0


@pytest.mark.parametrize("arriving", [False, True])
def test_a_run_that_ends_waits_for_what_earlier_threads_left(arriving: bool) -> None:
    bench = Bench(cap_tps=None if arriving else 5.0, arriving=arriving)
    bench.obey(draining=True)
    bench.source.more_left = True
    bench.turn()
    assert not bench.source.stopped_reading
    bench.came.times += [0] * 9
    bench.source.more_left = False
    assert bench.rows() + bench.rows() == 9
    bench.turn()
    assert bench.source.stopped_reading


def test_what_earlier_threads_left_is_not_for_one_that_leaves() -> None:
    bench = Bench(arriving=False)
    bench.source.more_left = True
    bench.obey(threads=(ThreadSpec(1, "source", SLOT, leaving=True), ThreadSpec(2, "work", SLOT)))
    bench.turn()
    assert bench.source.stopped_reading


def test_rows_that_were_let_go_are_sent_again_however_soon_the_next_are_looked_for() -> None:
    """What is in the spool can be read whenever it must be; only new rows wait until the next look."""
    bench = Bench()
    ledger = bench.source.ledger
    assert ledger is not None
    ledger.window_bytes = 100  # of rows that are kept so few are held
    bench.came.times += [bench.now_ns] * 100
    sent: set[int] = set()
    for _ in range(60):
        for frame in bench.turn():
            sent.update(frame.rows)
            bench.core.hear([Ack(root.key, 0, 1) for root in frame.roots], bench.now_ns)
    assert sent == set(range(100)) and not all(root.rows for root in ledger.open_roots())
    ledger.fault()
    again: set[int] = set()
    for _ in range(60):
        bench.source.quiet_until_ns = bench.now_ns + S
        for frame in bench.turn():
            again.update(frame.rows)
            bench.core.hear([Ack(root.key, 0, 1) for root in frame.roots], bench.now_ns)
    assert again == sent


# ── When rows of a live source came: as they say, within bounds, and never at the price of a row ────────

SECOND_NS = 1_000_000_000
NOW = 1_700_000_000 * SECOND_NS


class Silent(LiveSource):
    def poll(self, limit: int) -> Sequence[Any]:
        return ()


class Told(Silent):
    """A row is how many seconds ago it came, or what is wrong with that."""

    def came(self, row: Any) -> float | None:
        return None if row is None else NOW / SECOND_NS - row


def test_rows_that_say_nothing_came_now() -> None:
    assert times_of(Silent(), [1, 2], NOW) == ([NOW, NOW], "")
    assert times_of(Told(), [None], NOW) == ([NOW], "")
    assert times_of(Told(), [], NOW) == ([], "")


def test_a_row_came_when_it_says() -> None:
    times, wrong = times_of(Told(), [0.25, 59.0, 0.0], NOW)
    assert wrong == ""
    assert times == pytest.approx([NOW - SECOND_NS // 4, NOW - 59 * SECOND_NS, NOW], abs=1000)


def test_a_clock_that_is_ahead_makes_no_latency_below_nothing() -> None:
    assert times_of(Told(), [-5.0], NOW) == ([NOW], "")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (3600.0, "it came 3,600 s ago"),
        (float("nan"), "it came nan s ago"),
        (float("-inf"), "it came -inf s ago"),
        ("a", "came() raised TypeError"),
        (10**400, "came() raised OverflowError"),
    ],
)
def test_what_cannot_be_is_said_and_counts_from_now(row: Any, says: str) -> None:
    times, wrong = times_of(Told(), [0.5, row, 0.5], NOW)
    assert (
        times == pytest.approx([NOW - SECOND_NS // 2, NOW, NOW - SECOND_NS // 2], abs=1000) and says in wrong
    )
