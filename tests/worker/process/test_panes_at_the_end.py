"""Panes at the end of the input: each fires whole, or not at all, and its rows stay kept until all is over."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import reduce
from operator import xor
from typing import Any

from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.logic import Window
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire.messages import (
    Ack,
    DesiredState,
    EndOfInput,
    Frame,
    RootKey,
    RootPart,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.acks import FIRED, STAYS, Addressed

SOURCE, PANES, SINK = 1, 2, 3
TASK = 1  # number of `panes` in the topology
S = 1_000_000_000
STATIC = Static(1, 0.1, 0.1)
TOPOLOGY = Topology(
    "panes",
    (
        Task("source", kind="source", static=STATIC),
        Task("panes", kind="hold"),
        Task("sink", static=STATIC),
    ),
    (Edge("source", "panes"), Edge("panes", "sink")),
)


class Pairs(Window):
    """Rows by their first value; `full` of them make a pane."""

    def __init__(self, max_age_s: float | None) -> None:
        self.max_age_s = max_age_s

    def key(self, row: Any, source: str) -> Hashable:
        return row[0]

    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        return len(rows) == 4

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        return [(key, [row[1] for row in rows])]


class Bench(SilentPost):
    """A thread that keeps rows in panes, and the ledger of its source: what is open of each root, and who keeps it."""

    def __init__(self, max_age_s: float | None = None) -> None:
        self.frames: list[Frame] = []
        self.open: dict[RootKey, int] = {}
        self.kept: dict[tuple[RootKey, int], int] = {}
        self.now_ns = S
        self.core = ThreadCore(ThreadSpec(PANES, "panes", SLOT), TOPOLOGY, self.ports())
        self.core.behaviour = behaviour_of(self.core, Pairs(max_age_s), lambda _: None)
        self.obey(None)

    def deliver(self, frames: Iterable[Frame]) -> None:
        self.frames += frames

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        for _, ack in acks:
            self.hear(ack)

    def hear(self, ack: Ack) -> None:
        self.open[ack.key] = self.open.get(ack.key, 0) ^ ack.value
        if ack.kept:
            place = ack.key, ack.kept_by
            self.kept[place] = self.kept.get(place, 0) ^ ack.kept

    def obey(self, end: EndOfInput | None, draining: bool = True) -> None:
        specs = (
            ThreadSpec(SOURCE, "source", SLOT),
            ThreadSpec(PANES, "panes", SLOT),
            ThreadSpec(SINK, "sink", SLOT),
        )
        routes = Route(0, ((PANES, 1.0),)), Route(1, ((SINK, 1.0),))
        state = DesiredState(
            *(Token(1, 1, 1), "committed", "run", TOPOLOGY, (), specs, 1, routes), draining=draining, end=end
        )
        self.core.obey(orders_of(state, SLOT, 1), self.now_ns)

    def take(self, position: int, *rows: tuple[str, int], attempt: int = 0) -> RootKey:
        key = RootKey(SOURCE, 1, position, attempt)
        root = RootPart(key, SLOT, 0, 0, position, 0, 0, 1000 + position)
        self.open[key] = self.open.get(key, 0) ^ root.id
        self.core.take(Frame(0, SOURCE, SLOT, 1, PANES, [root], [(0, 0, len(rows), 0)], list(rows), 0, 0), 0)
        return key

    def look(self, seconds: float = 1.0) -> list[Any]:
        """What has fired meanwhile; a sink acks it at once."""
        self.now_ns += int(seconds * S)
        self.core.on_time(self.now_ns)
        self.core.flush(self.now_ns, everything=True)
        frames, self.frames = self.frames, []
        for frame in frames:
            for root in frame.roots:
                self.hear(Ack(root.key, root.id))
        return [row for frame in frames for row in frame.rows]

    def keepers(self, key: RootKey) -> set[int]:
        return {keeper for (one, keeper), shares in self.kept.items() if one == key and shares}

    def at_rest(self, key: RootKey) -> bool:
        """Does all that is open of it wait in panes?"""
        shares = [shares for (one, _), shares in self.kept.items() if one == key]
        return bool(self.open[key]) and self.open[key] == reduce(xor, shares, 0)


def step(number: int, name: Any, whole: bool = True, incarnation: int = 1, **more: Any) -> EndOfInput:
    return EndOfInput(number, name, "panes", whole, workers=((SLOT, incarnation),), **more)


def test_a_pane_fires_when_it_is_told_and_its_rows_stay_kept_until_all_is_over() -> None:
    bench = Bench()
    keys = [bench.take(0, ("a", 1), ("b", 2)), bench.take(2, ("a", 3))]
    assert [bench.keepers(key) for key in keys] == [{TASK}, {TASK}] and all(map(bench.at_rest, keys))
    bench.obey(step(1, "hold"))
    assert not bench.look()
    bench.obey(step(2, "fire"))
    assert sorted(bench.look()) == [("a", [1, 3]), ("b", [2])]
    assert [bench.keepers(key) for key in keys] == [{FIRED + 2}] * 2 and all(map(bench.at_rest, keys))
    bench.obey(step(3, "over", over=("panes",)))
    assert not bench.look() and not any(bench.open.values())


def test_one_step_fires_once_however_often_it_is_told() -> None:
    bench = Bench()
    bench.take(0, ("a", 1))
    for expected in ([("a", [1])], []):
        bench.obey(step(2, "fire"))
        assert bench.look() == expected
    bench.obey(step(5, "fire"))
    assert bench.look() == [("a", [1])], "the step that is done again gives the same"


def test_a_worker_that_was_not_there_when_sources_held_still_fires_nothing() -> None:
    bench = Bench()
    bench.take(0, ("a", 1))
    bench.obey(step(2, "fire", incarnation=2))
    assert not bench.look(), "a part of the pane may be on its way"


def test_no_pane_fires_by_its_age_while_the_end_goes_on() -> None:
    bench = Bench(max_age_s=1.0)
    key = bench.take(0, ("a", 1))
    bench.obey(step(1, "hold"))
    assert not bench.look(60) and bench.at_rest(key)
    bench.obey(step(2, "fire"))
    assert bench.look() == [("a", [1])]


def test_half_a_join_stays_open_when_a_run_is_stopped_before_its_input_ends() -> None:
    bench = Bench()
    key = bench.take(0, ("a", 1))
    assert not bench.look(60), "a run that drains fires nothing by itself"
    bench.obey(step(2, "fire", whole=False))
    assert not bench.look(60)
    assert bench.keepers(key) == {STAYS} and bench.at_rest(key)
    bench.obey(step(3, "over", whole=False, over=("panes",)))
    assert not bench.look(60) and bench.at_rest(key), "a run that is resumed reads it again"


def test_panes_with_an_age_limit_fire_when_a_run_is_stopped() -> None:
    bench = Bench(max_age_s=600.0)
    key = bench.take(0, ("a", 1))
    bench.obey(step(2, "fire", whole=False))
    assert bench.look() == [("a", [1])]
    bench.obey(step(3, "over", whole=False, over=("panes",)))
    assert not bench.look() and not bench.open[key]


def test_what_comes_after_all_is_over_is_a_copy_and_done() -> None:
    bench = Bench()
    bench.take(0, ("a", 1))
    bench.obey(step(2, "fire"))
    bench.look()
    bench.obey(step(3, "over", over=("panes",)))
    key = bench.take(0, ("a", 1), attempt=1)
    assert not bench.look() and not bench.open[key]


def test_a_row_that_is_sent_again_fires_with_its_pane_anew() -> None:
    """Of the step that was lost nothing is left in the pane but what comes again."""
    bench = Bench()
    bench.take(0, ("a", 1), ("b", 2))
    bench.obey(step(2, "fire"))
    bench.look()
    bench.obey(step(3, "again"))
    key = bench.take(0, ("a", 1), ("b", 2), attempt=1)
    assert bench.at_rest(key)
    bench.obey(step(5, "fire"))
    assert sorted(bench.look()) == [("a", [1]), ("b", [2])] and bench.keepers(key) == {FIRED + 5}
