"""A worker's part in latency constraints, in virtual time: a manager says again what it wants, and what nobody wants
any more ends. source (slot 0) → work (slots 1 and 2, so each manages a part) → sink (slot 0)."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, LatencyConstraint, Task, Topology
from headgate.topology_runtime.latency.latency_messages import (
    ChannelSeen,
    LatencyReport,
    Pace,
    Paces,
    ThreadSeen,
)
from headgate.topology_runtime.wire.messages import DataPlaneSettings, DesiredState, Route, ThreadSpec, Token
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.process.latency_watch import LatencyWatch

S, MS = 1_000_000_000, 1_000_000
SLOTS = [Slot("vm", number) for number in range(3)]
SOURCE, HERE, THERE, SINK = 1, 2, 3, 4
TOPOLOGY = Topology(
    "t",
    (Task("source", kind="source"), Task("work"), Task("sink")),
    (Edge("source", "work"), Edge("work", "sink")),
    (LatencyConstraint(("source", "work", "sink"), 300.0, 5.0),),
)


def line_in_one_slot(unchained: tuple[str, ...] = (), **more: Any) -> Orders:
    """source → parse → score → sink, threads 1 to 4, all in slot 0; `other`, thread 5, also feeds parse. more: of the
    task parse."""
    names = "source", "parse", "score", "sink"
    kinds = {"source": "source", "other": "source"}
    tasks = [Task(name, kinds.get(name, "map"), unchained=name in unchained) for name in (*names, "other")]
    tasks[1] = replace(tasks[1], **more)
    edges = (*map(Edge, names, names[1:]), Edge("other", "parse"))
    topology = Topology("line", tuple(tasks), edges, (LatencyConstraint(names, 300.0, 5.0),))
    desired = DesiredState(
        token=Token(1, 1, 1), phase="committed", run="r", topology=topology, user_paths=(), routes_number=1,
        threads=tuple(ThreadSpec(thread, task.name, SLOTS[0]) for thread, task in enumerate(tasks, 1)),
        routes=tuple(Route(n, ((to, 1.0),)) for n, to in enumerate((2, 3, 4, 2))),
        settings=DataPlaneSettings(gap_s=0.001),
    )  # fmt: skip
    return orders_of(desired, SLOTS[0], 7)


def orders(slot: Slot, number: int = 1) -> Orders:
    places = {SOURCE: ("source", 0), HERE: ("work", 1), THERE: ("work", 2), SINK: ("sink", 0)}
    desired = DesiredState(
        token=Token(1, 1, 1), phase="committed", run="r", topology=TOPOLOGY, user_paths=(), routes_number=number,
        threads=tuple(ThreadSpec(thread, task, SLOTS[at]) for thread, (task, at) in places.items()),
        routes=(Route(0, ((HERE, 0.5), (THERE, 0.5))), Route(1, ((SINK, 1.0),))),
        settings=DataPlaneSettings(gap_s=2.0), modelled_tps={HERE: 100.0},
    )  # fmt: skip
    return orders_of(desired, slot, 7)


class One:
    """A worker's watch, and what comes out of it."""

    def __init__(self, slot: Slot, obeyed: Orders | None = None) -> None:
        self.board = Switchboard(slot, 7, set())
        self.watch = LatencyWatch(self.board, mt.Meter(mt.create()), lambda most: 0)
        self.watch.obey(obeyed or orders(slot), 0)
        self.now_s = 0

    def run(self, seconds: int, *words: LatencyReport | Paces) -> None:
        """Each second these are heard again."""
        for _ in range(seconds):
            self.now_s += 1
            for word in words:
                self.board.latency.put(word)
            self.watch.look({}, self.now_s * S)

    def said(self) -> list[Paces]:
        with self.board.out.taken(100) as waiting:
            return [what for _, what in waiting if isinstance(what, Paces)]

    def told(self, thread: int) -> list[Pace]:
        return [word for word in self._all(self.board.inbox(thread)) if isinstance(word, Pace)]

    @staticmethod
    def _all(queue) -> Iterator[object]:  # type: ignore[no-untyped-def]
        while True:
            try:
                yield queue.get_nowait()
            except Empty:
                return


def late(buffer_ms: int) -> LatencyReport:
    """Buffers on both channels through HERE live so long."""
    channels = [ChannelSeen(SOURCE, HERE, 5, buffer_ms * MS, 0), ChannelSeen(HERE, SINK, 5, MS, 0)]
    return LatencyReport(SLOTS[0], 7, 1, tuple(channels), ())


def wanted(slot: Slot, gap_ms: int, target: int = HERE, number: int = 1) -> Paces:
    return Paces(slot, 7, number, (Pace(0, SOURCE, 0, target, gap_ms * MS, 64),))


def test_a_manager_says_again_what_it_wants() -> None:
    """A word may be lost, and a worker that was started anew has not heard it."""
    one = One(SLOTS[1])
    one.run(4, late(2000))
    (first,) = one.said()
    assert [(pace.sender, pace.target) for pace in first.paces] == [(SOURCE, HERE)]
    one.run(11)
    again = one.said()
    assert len(again) >= 2 and all(word.paces == first.paces for word in again)


def test_what_nobody_wants_any_more_ends() -> None:
    one = One(SLOTS[0])
    one.run(1, wanted(SLOTS[1], 40))
    assert [(pace.gap_ns, pace.rows) for pace in one.told(SOURCE)] == [(40 * MS, 64)]
    one.run(19)
    assert one.told(SOURCE) == [], "it is said every few seconds, not every second"
    one.run(10)
    assert [(pace.gap_ns, pace.rows) for pace in one.told(SOURCE)] == [(2 * S, 200)], "as by default"


def test_the_shortest_that_is_wanted_holds_while_it_is() -> None:
    one = One(SLOTS[0])
    one.run(1, wanted(SLOTS[1], 40), wanted(SLOTS[2], 10))
    assert one.told(SOURCE)[-1].gap_ns == 10 * MS
    one.run(30, wanted(SLOTS[1], 40))
    assert [pace.gap_ns for pace in one.told(SOURCE)] == [40 * MS], "told once"


def test_a_buffer_is_sized_from_what_it_can_hold() -> None:
    """HERE does 100 rows/s by its model: a gap of 2 s fills 200, whatever a frame may hold at most."""
    one = One(SLOTS[1])
    one.run(4, late(2000))
    (word,) = one.said()
    assert {pace.rows for pace in word.paces} == {200}


@pytest.mark.parametrize(
    ("unchained", "expected"),
    [
        ((), {2: {3}, 3: {4}}),
        (("parse",), {3: {4}}),
        (("score",), {}),
    ],
)
def test_what_is_unchained_stays_so_whatever_a_limit_wants(
    unchained: tuple[str, ...], expected: dict[int, set[int]]
) -> None:
    assert chained_for_a_limit(line_in_one_slot(unchained)) == expected


@pytest.mark.parametrize("kind", [{"state": "keyed"}, {"exclusive": True}])
def test_only_the_first_of_a_chain_may_have_several_inputs_and_none_is_keyed_or_exclusive(
    kind: dict[str, Any],
) -> None:
    """parse gets rows by two edges, so it is the first, as paper 4 has it."""
    assert chained_for_a_limit(line_in_one_slot()) == {2: {3}, 3: {4}}
    assert chained_for_a_limit(line_in_one_slot(**kind)) == {3: {4}}


def chained_for_a_limit(line: Orders) -> dict[int, frozenset[int]]:
    """By its manager, when the way between threads takes too long, which only chains would help."""
    one = One(SLOTS[0], line)
    channels = tuple(ChannelSeen(n, n + 1, 5, 0, 200 * MS) for n in (1, 2, 3))
    busy = tuple(ThreadSeen(n, MS, 0.1) for n in (1, 2, 3, 4))
    one.run(30, LatencyReport(SLOTS[0], 7, 1, channels, busy))
    (now,) = one.watch.now()
    assert (now.standing, now.chained) == ("helpless", sum(map(len, one.watch.chained.values())))
    return one.watch.chained


@pytest.mark.parametrize(
    "word",
    [
        wanted(SLOTS[1], 40, target=99),
        Paces(SLOTS[1], 7, 1, (Pace(0, SOURCE, 9, HERE, MS, 1),)),
        wanted(SLOTS[1], 1, number=0),
    ],
)  # fmt: skip
def test_what_is_about_no_channel_of_ours_is_passed_over(word: Paces) -> None:
    one = One(SLOTS[0])
    one.run(3, word)
    assert one.told(SOURCE) == []


def test_what_is_about_later_routes_waits_for_them() -> None:
    one = One(SLOTS[0])
    one.run(1, wanted(SLOTS[1], 40, number=2))
    assert one.told(SOURCE) == []
    one.watch.obey(orders(SLOTS[0], 2), 2 * S)
    assert [pace.number for pace in one.told(SOURCE)] == [2]
