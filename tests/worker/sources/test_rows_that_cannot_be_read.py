"""A source that gives an exception in place of a row: a dead letter for that position, and the rows around it go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import (
    DeadLetter,
    DesiredState,
    Frame,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.sources.source_task import SourceTask

S = 1_000_000_000
ROWS: list[Any] = ["a", BadRow("byte 0xff is no UTF-8"), "c", BadRow("too long"), BadRow("no JSON")]


class Post(SilentPost):
    def __init__(self) -> None:
        self.frames, self.letters = list[Frame](), list[DeadLetter]()

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def write(self, done: ToRecord, holding: int) -> None:
        self.letters += done.letters


def read(position: int, limit: int) -> list[Any]:
    return ROWS[position : position + limit]


def test_they_are_dead_letters_and_no_other_row_is_lost() -> None:
    post = Post()
    made = Topology(
        "line", (Task("in", kind="source", static=Static(1, 0.1, 0.1)), Task("out")), (Edge("in", "out"),)
    )
    threads = (ThreadSpec(1, "in", SLOT), ThreadSpec(2, "out", SLOT))
    core = ThreadCore(threads[0], made, replace(post.ports(), records=post))
    core.behaviour = source = SourceTask(core)
    source.gives_errors = True
    routes, schedule = (Route(0, ((2, 1.0),)),), Schedule(0, ((0.0, 5.0),))
    desired = DesiredState(
        Token(1, 1, 1), "committed", "run", made, (), threads, 1, routes, schedule=schedule
    )
    core.obey(orders_of(desired, SLOT, 1), 0)
    source.begin(0)
    source.turn(2 * S, 2 * S, read)
    core.flush(2 * S, everything=True)
    assert [row for frame in post.frames for row in frame.rows] == ["a", "c"]
    assert [(letter.position, letter.task, letter.error) for letter in post.letters] == [
        (1, "in", "BadRow: byte 0xff is no UTF-8"),
        (3, "in", "BadRow: too long"),
        (4, "in", "BadRow: no JSON"),
    ]
    assert source.counts[:2] == (5, 0) and source.counts[3] == 5, "read, and open until the others are acked"
