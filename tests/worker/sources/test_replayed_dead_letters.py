"""A source thread that sends dead letters again: named apart from its positions, straight to their task, done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.dead_letter_messages import (
    AGAIN_PARTITION,
    LetterRow,
    SendAgain,
    SentAgain,
)
from headgate.topology_runtime.wire.messages import Ack, DesiredState, Frame, Route, ThreadSpec, Token
from headgate.topology_runtime.worker.calls.dead_lettering import bytes_of
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.sources.source_task import LEAST_TPS, SEQUENCES, SourceTask, Way, Ways

S, MS = 1_000_000_000, 1_000_000
STATIC = Static(1, 0.1, 0.1)
SOURCE, MIDDLE, WORK, OTHER = 1, 2, 3, 4  # threads


class Worker(SilentPost):
    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.acks: list[Ack] = []

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        self.acks += [ack for _, ack in acks]


def topology(grouping: Any = "shuffle") -> Topology:
    key = 0 if grouping == "fields" else None
    return Topology(
        "line",
        (Task("source", kind="source", static=STATIC), Task("middle"), Task("work")),
        (Edge("source", "middle"), Edge("middle", "work", grouping=grouping, key=key)),
    )


def orders(made: Topology, **more: Any) -> Orders:
    tasks = {SOURCE: "source", MIDDLE: "middle", WORK: "work", OTHER: "work"}
    threads = tuple(ThreadSpec(number, task, SLOT) for number, task in tasks.items())
    routes = (
        Route(0, ((MIDDLE, 1.0),)),
        Route(1, ((WORK, 0.5), (OTHER, 0.5)), ((WORK, 512), (OTHER, 512))),
    )
    schedule = Schedule(0, ((0.0, 0.0),))
    desired = DesiredState(
        Token(1, 1, 1), "committed", "run", made, (), threads, 1, routes, schedule=schedule, **more
    )
    return orders_of(desired, SLOT, 1)


class Bench:
    """A source thread and a thread of the task that the letters are of."""

    def __init__(self, call: Any = lambda row: row, grouping: Any = "shuffle") -> None:
        self.worker, self.letters = Worker(), list[Any]()
        made = topology(grouping)
        ports = replace(self.worker.ports(), records=self)
        self.core = ThreadCore(ThreadSpec(SOURCE, "source", SLOT), made, ports)
        self.core.behaviour = self.source = SourceTask(self.core)
        self.task = ThreadCore(ThreadSpec(WORK, "work", SLOT), made, ports)
        self.task.behaviour = behaviour_of(self.task, call, lambda _: None)
        for core in (self.core, self.task):
            core.obey(orders(made), 0)
        self.source.begin(100)
        self.now_ns = S

    def write(self, done: ToRecord, holding: int) -> None:
        self.letters += done.letters

    def want(self, *rows: LetterRow, serials: Sequence[int] = (), boot: int = 1) -> None:
        desired = tuple(serials) or tuple(row.serial for row in rows)
        self.core.hear(SendAgain(boot, SLOT, 1, SOURCE, desired, rows), self.now_ns)

    def turn(self, after_ns: int = 100 * MS) -> list[Frame]:
        """What the source thread sends now."""
        self.now_ns += after_ns
        self.worker.frames.clear()
        self.source.turn(self.now_ns, self.now_ns, lambda position, most: ())
        self.core.flush(self.now_ns, everything=True)
        return list(self.worker.frames)

    def process(self, frames: Iterable[Frame]) -> None:
        """The task takes these and acks; its acks come back."""
        for frame in frames:
            self.task.take(frame, self.now_ns)
        self.core.hear(list(self.worker.acks), self.now_ns)
        self.worker.acks.clear()

    @property
    def told(self) -> SentAgain | None:
        return self.source.letters.now(SOURCE)


def letter(serial: int, row: Any = ("a", 1), number: int = 0, **more: Any) -> LetterRow:
    shape, data = bytes_of(row)
    fields = {"task": "work", "feeder": "middle", "thread": WORK, "shape": shape, "data": data, **more}
    return LetterRow(serial, number or serial + 40, **fields)


def fails(row: Any) -> Any:
    raise ValueError("still")


def test_a_row_goes_straight_to_its_task_and_touches_no_position() -> None:
    bench = Bench()
    ledger = bench.source.ledger
    assert ledger is not None
    bench.want(letter(1))
    (frame,) = bench.turn()
    (root,) = frame.roots
    assert (frame.edge, frame.rows) == (1, [("a", 1)]) and frame.target in (WORK, OTHER)
    assert (root.partition, root.position) == (AGAIN_PARTITION + 2, 41) and root.key.sequence >= SEQUENCES
    assert (ledger.position, ledger.acked, ledger.in_flight, ledger.floor) == (100, 100, 0, 0)
    assert bench.told == SentAgain(SOURCE, 1, (1,), ())
    bench.process([frame])
    assert bench.told == SentAgain(SOURCE, 1, (), (1,))
    assert (ledger.position, ledger.acked, ledger.replayed) == (100, 100, 0)
    bench.want(letter(1), serials=(1,))
    assert not bench.turn() and bench.told.done == (1,), "said twice, sent once"
    bench.want(serials=(9,))
    assert bench.told is None, "it is asked for no more, so it is forgotten"


def test_a_row_that_dies_again_is_a_letter_and_never_done() -> None:
    bench = Bench(fails)
    bench.want(letter(1))
    bench.process(bench.turn())
    (dead,) = bench.letters
    assert (dead.task, dead.of, dead.again, dead.error) == ("work", 41, 41, "ValueError: still")
    assert bench.told == SentAgain(SOURCE, 1, (1,), ())


def test_what_comes_of_it_and_dies_below_is_another_letter_and_it_is_done() -> None:
    bench = Bench(fails)
    bench.want(letter(1, task="middle", feeder="source", thread=MIDDLE))
    (frame,) = bench.turn()
    assert frame.edge == 0 and frame.target == MIDDLE
    frame.edge = 1  # as if `middle` had passed it on
    bench.process([frame])
    (dead,) = bench.letters
    assert (dead.of, dead.again) == (41, 0) and bench.told.done == (1,)


def test_a_fault_sends_it_again_and_one_copy_suffices() -> None:
    bench = Bench()
    bench.want(letter(1))
    lost = bench.turn()
    bench.source.on_faults(1, bench.now_ns)
    (again,) = bench.turn(300 * MS)
    assert again.roots[0].key.attempt == 1 and again.roots[0].position == lost[0].roots[0].position
    bench.process([again, *lost])
    assert bench.told.done == (1,)


def test_a_new_life_of_the_controller_begins_anew() -> None:
    bench = Bench()
    bench.want(letter(1), letter(2))
    frames = bench.turn()
    bench.want(letter(1, number=77), boot=2)
    bench.process(frames)
    assert bench.told == SentAgain(SOURCE, 2, (1,), ()), (
        "what was done is not taken for what has its serial now"
    )
    bench.want(letter(3), boot=1)
    assert bench.told.open == (1,)


def test_rows_go_at_a_rate_and_a_window_at_a_time() -> None:
    bench = Bench()
    bench.want(*(letter(serial) for serial in range(1, 501)))
    sent = sum(len(frame.rows) for _ in range(20) for frame in bench.turn())
    assert sent == pytest.approx(2 * LEAST_TPS, abs=3)
    for _ in range(100):
        bench.turn()
    assert bench.source.letters.ledger.in_flight == 64


def test_none_is_begun_while_the_run_drains_or_the_source_leaves() -> None:
    bench = Bench()
    bench.core.obey(orders(topology(), draining=True), bench.now_ns)
    bench.want(letter(1))
    assert not bench.turn()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (letter(1, feeder="nobody"), "no rows of nobody go to work"),
        (letter(1, task="nobody"), "no rows of middle go to nobody"),
        (letter(1, data=b"\xc1"), "cannot be read back"),
    ],
)
def test_a_row_that_cannot_go_says_why(row: LetterRow, why: str) -> None:
    way = Ways(orders(topology()), SOURCE, key_function).of(row)
    assert isinstance(way, str) and why in way


def test_a_row_without_a_way_has_died_again() -> None:
    bench = Bench(grouping="fields")
    bench.want(letter(1, row=5))
    assert not bench.turn()
    (dead,) = bench.letters
    assert (dead.task, dead.again) == ("work", 41) and dead.error.startswith("no key can be made of the row")
    assert bench.told.open == (1,)


def test_where_a_row_goes() -> None:
    by_key = Ways(orders(topology("fields")), SOURCE, key_function)
    for row in (("a", 1), ("b", 2), ("c", 3)):
        way = by_key.of(letter(1, row=row))
        assert isinstance(way, Way) and way.target == (WORK if range_of(row[0]) < 512 else OTHER)
    to_all = Ways(orders(topology("all")), SOURCE, key_function)
    for thread, target in ((WORK, WORK), (OTHER, OTHER), (17, OTHER)):
        way = to_all.of(letter(1, thread=thread))
        assert isinstance(way, Way) and way.target == target, "the one that failed, or who is in its place"


class Mute(BaseException):
    def __str__(self) -> str:
        raise SystemExit


def test_a_key_that_raises_what_cannot_even_be_said_ends_nothing() -> None:
    def key(row: object) -> int:
        raise Mute

    way = Ways(orders(topology(grouping="fields")), SOURCE, lambda _: key).of(letter(1))
    assert isinstance(way, str) and way.startswith("no key can be made of the row: Mute")
