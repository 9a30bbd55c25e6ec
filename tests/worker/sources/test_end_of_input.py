"""A source thread at the end of the input: when it holds still, what it says to keyed tasks, what it reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION
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
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.acks import FIRED, STAYS
from headgate.topology_runtime.worker.sources.source_task import FAULT_PAUSE_NS, SourceTask

S, MS = 1_000_000_000, 1_000_000
SOURCE, PANES, SUMS, NEXT = 1, 2, 3, 4
STATIC = Static(1, 0.1, 0.1)
TOPOLOGY = Topology(
    "ends",
    (
        Task("source", kind="source", static=STATIC),
        Task("panes", kind="hold"),
        Task("sums", kind="keyed", state="keyed"),
    ),
    (Edge("source", "panes"), Edge("panes", "sums", grouping="fields", key=0)),
)
ROUTES = (Route(0, ((PANES, 1.0),)), Route(1, ((SUMS, 1.0),), ((SUMS, KEY_RANGES),)))
PANES_NUMBER, SUMS_NUMBER = 1, 2  # of the tasks in the topology


class Bench(SilentPost):
    """A source thread that has read three rows of three, each a frame, and has ended."""

    def __init__(self, exhausted: bool = True) -> None:
        self.frames: list[Frame] = []
        self.now_ns = S
        self.core = ThreadCore(ThreadSpec(SOURCE, "source", SLOT), TOPOLOGY, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        self.obey(None, draining=False)
        position = self.source.start_position()
        assert position == 0
        self.source.begin(position)
        self.turns(3)
        self.source.exhausted = exhausted
        self.turn()

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def obey(
        self, end: EndOfInput | None, draining: bool = True, leaving: bool = False, until: int = 0
    ) -> None:
        specs = [
            ThreadSpec(SOURCE, "source", SLOT, leaving=leaving),
            ThreadSpec(PANES, "panes", SLOT),
            ThreadSpec(SUMS, "sums", SLOT),
        ]
        specs += [ThreadSpec(NEXT, "source", SLOT)] if leaving else []
        state = DesiredState(
            *(Token(1, 1, 1), "committed", "run", TOPOLOGY, (), tuple(specs), 1, ROUTES),
            schedule=Schedule(0, ((0.0, 1e6),)),
            starts=(SourceStart("source", 0, 0, until),),
            workers=(WorkerAt(SLOT, 1, "tcp://x:1"),),
            draining=draining,
            end=end,
            settings=DataPlaneSettings(frame_rows=1),
        )
        self.core.obey(orders_of(state, SLOT, 1), self.now_ns)

    def read(self, position: int, limit: int) -> Sequence[Any]:
        return [position] if position < 3 else []

    def turn(self) -> list[Frame]:
        self.frames = []
        self.source.turn(self.now_ns, self.now_ns, self.read)
        self.core.flush(self.now_ns, everything=True)
        return self.frames

    def turns(self, number: int) -> None:
        for _ in range(number):
            self.sent = [*getattr(self, "sent", []), *self.turn()]
            self.now_ns += MS

    def wait_in(self, frame: Frame, keeper: int, before: int = 0) -> None:
        """All that is open of a frame's rows waits in panes of this keeper."""
        root = frame.roots[0]
        if before:
            self.hear(Ack(root.key, 0, 0, kept=7, kept_by=before))
            self.hear(Ack(root.key, 0, 0, kept=7, kept_by=keeper))
        else:
            self.hear(Ack(root.key, root.id ^ 7, 1, kept=7, kept_by=keeper))

    def hear(self, *acks: Ack) -> None:
        self.source.on_word(list(acks), self.now_ns)


def step(number: int, name: Any, task: str = "", **more: Any) -> EndOfInput:
    return EndOfInput(number, name, task, whole=True, **more)


def test_it_holds_still_only_when_all_that_is_open_waits_in_panes() -> None:
    bench = Bench()
    bench.obey(step(1, "hold"))
    for frame in bench.sent:
        bench.turn()
        assert bench.source.rests == 0, "rows are under way"
        bench.wait_in(frame, PANES_NUMBER)
    bench.turn()
    assert bench.source.rests == 1


def test_it_does_not_hold_still_while_of_a_frame_some_rows_wait_and_others_are_under_way() -> None:
    bench = Bench()
    bench.obey(step(1, "hold"))
    for frame in bench.sent:
        bench.hear(Ack(frame.roots[0].key, 7, 1, kept=7, kept_by=PANES_NUMBER))
    bench.turn()
    assert bench.source.rests == 0


def test_a_step_is_done_once_no_row_waits_where_it_should_be_over() -> None:
    bench = Bench()
    for frame in bench.sent:
        bench.wait_in(frame, PANES_NUMBER)
    bench.obey(step(1, "hold"))
    bench.turn()
    bench.obey(step(2, "fire", "panes"))
    bench.turn()
    assert bench.source.rests == 1, "no pane has fired"
    for frame in bench.sent:
        bench.wait_in(frame, FIRED + 2, PANES_NUMBER)
    bench.turn()
    assert bench.source.rests == 2, "what came of them is done, and their rows stay kept"
    bench.obey(step(3, "over", "panes", over=("panes",)))
    bench.turn()
    assert bench.source.rests == 2
    for frame in bench.sent:
        bench.hear(Ack(frame.roots[0].key, 7, -1, kept=7, kept_by=FIRED + 2))
    bench.turn()
    assert bench.source.rests == 3 and bench.source.stopped


def test_rows_that_stay_for_a_run_that_is_resumed_do_not_hold_up_a_step() -> None:
    bench = Bench()
    for frame in bench.sent:
        bench.wait_in(frame, STAYS)
    bench.obey(step(1, "fire", "panes"))
    bench.turn()
    assert bench.source.rests == 1 and not bench.source.stopped


@pytest.mark.parametrize("name", ["hold", "fire", "over"])
def test_rows_that_are_lost_while_it_holds_still_are_not_sent_again_but_told_of(name: str) -> None:
    bench = Bench()
    for frame in bench.sent:
        bench.wait_in(frame, PANES_NUMBER)
    bench.obey(step(1, "hold"))
    bench.turn()
    bench.obey(step(1 if name == "hold" else 2, name, "" if name == "hold" else "panes"))
    bench.source.on_faults(1, bench.now_ns)
    bench.now_ns += 2 * FAULT_PAUSE_NS
    assert not bench.turn() and bench.source.rests < 0
    bench.obey(step(3, "again"))
    assert [frame.roots[0].key.attempt for frame in bench.turn()] == [1, 1, 1], (
        "the next step sends all again"
    )
    assert bench.source.rests == 3


def test_one_word_for_each_key_range_goes_to_its_thread_once_all_is_read() -> None:
    bench = Bench(exhausted=False)
    bench.obey(step(4, "finish", "sums", finish=("sums",)))
    assert not any(frame.target == SUMS for frame in bench.turn()), "there may be more rows"
    bench.source.exhausted = True
    words = [row for frame in bench.turn() if frame.target == SUMS for row in frame.rows]
    assert sorted(words) == list(range(KEY_RANGES))


def test_words_are_named_by_task_and_range_and_sent_again_until_they_are_done() -> None:
    bench = Bench()
    bench.obey(step(4, "finish", "sums", finish=("sums",)))
    frames = bench.turn()
    roots = [root for frame in frames for root in frame.roots]
    assert {(root.partition, root.position) for root in roots} == {
        (END_PARTITION + SUMS_NUMBER, n) for n in range(KEY_RANGES)
    }
    assert not bench.turn(), "once"
    assert bench.source.rests == 0, "not done"
    bench.hear(*(Ack(root.key, root.id) for root in roots[1:]))
    bench.source.on_faults(1, bench.now_ns)
    bench.now_ns += 2 * FAULT_PAUSE_NS
    (again,) = [root for frame in bench.turn() for root in frame.roots if root.partition >= END_PARTITION]
    assert (again.position, again.key.attempt) == (roots[0].position, 1)


def test_a_source_that_leaves_forgets_its_words_another_says_them() -> None:
    bench = Bench()
    for frame in bench.sent:
        bench.hear(Ack(frame.roots[0].key, frame.roots[0].id))
    bench.obey(step(4, "finish", "sums", finish=("sums",)))
    bench.turn()
    assert not bench.source.stopped
    bench.obey(step(4, "finish", "sums", finish=("sums",)), leaving=True)
    bench.turn()
    assert bench.source.stopped


@pytest.mark.parametrize(("whole", "read"), [(True, 3), (False, 1)])
def test_started_anew_it_reads_to_the_end_of_the_input_or_what_was_read_before(
    whole: bool, read: int
) -> None:
    bench = Bench(exhausted=False)
    bench.source.ledger, bench.source.stopped_reading = None, False
    bench.obey(EndOfInput(0, "again", whole=whole), until=1)
    position = bench.source.start_position()
    assert position == 0
    bench.source.begin(position)
    bench.turns(5)
    assert bench.source.counts[0] == read
