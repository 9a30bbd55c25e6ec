"""Threads of sources with a `max_drift` wait for those whose event time is far behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.builder import Builder
from headgate.topology_runtime.api.task_functions import key_function
from headgate.topology_runtime.api.timed import IDLE_US
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Timestamps, Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import (
    Ack,
    DesiredState,
    Frame,
    Route,
    SourceStart,
    ThreadSpec,
    Token,
    WorkerAt,
)
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.wire.state_moves import ReadTo, Watermark
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.sources.source_task import SourceTask
from headgate.topology_runtime.worker.sources.source_watermark import watermark_of

S, US = 1_000_000_000, 1_000_000
TIMED = 9
IDLE_S = 5.0


def topology_of(drifts: Sequence[float | None], idle_s: float = IDLE_S) -> Topology:
    """A source `s0`, `s1`, … for each, all before one task with event time."""
    names = [f"s{n}" for n in range(len(drifts))]
    times = [Timestamps(0, idle=idle_s, max_drift=drift) for drift in drifts]
    sources = (
        Task(name, kind="source", run="x:y", static=Static(), timestamps=one)
        for name, one in zip(names, times, strict=True)
    )
    timed = Task("timed", kind="keyed", state="keyed", run="x:y", timed=True)
    edges = tuple(Edge(name, "timed", grouping="fields", key=0) for name in names)
    return Topology("drifts", (*sources, timed), edges)


class Partition(SilentPost):
    """A thread of a source whose rows have these times, s; None: it has no more for now."""

    def __init__(self, family: Family, number: int, topology: Topology, times: list[int]) -> None:
        self.family, self.number, self.times = family, number, times
        self.read: list[int] = []
        self.frames: list[Frame] = []
        self.core = ThreadCore(ThreadSpec(number, f"s{number}", SLOT), topology, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        self.source.times = watermark_of(topology.tasks[number], key_function)
        self.watermarks: list[int] = []

    def deliver(self, frames: Any) -> None:
        self.frames += frames

    def send_word(self, word: Any) -> None:
        if isinstance(word, ReadTo):
            self.family.told.append(word)
            assert word.target != word.sender
            if word.target in self.family.hearing:
                self.family.partitions[word.target].source.on_word(word, self.family.now_ns)
        elif isinstance(word, Watermark):
            self.watermarks.append(word.at_us)

    def rows(self, position: int, limit: int) -> Sequence[Any]:
        found = [(at,) for at in self.times[position : position + 1]]
        self.read += [at for (at,) in found][: limit if position >= len(self.read) else 0]
        return found[:limit]

    def ack(self) -> None:
        """All that it sent is done."""
        acks = [Ack(root.key, root.id) for frame in self.frames for root in frame.roots]
        self.frames.clear()
        self.source.on_word(acks, self.family.now_ns)


class Family:
    """hearing: numbers of those that hear words."""

    def __init__(
        self,
        drifts: Sequence[float | None],
        times: Sequence[list[int]],
        idle_s: float = IDLE_S,
        until: int = 0,
    ) -> None:
        self.now_ns, self.told = S, list[ReadTo]()
        self.topology = topology_of(drifts, idle_s)
        self.partitions = [Partition(self, n, self.topology, of) for n, of in enumerate(times)]
        self.hearing = set(range(len(times)))
        self.obey(until=until)

    def obey(self, draining: bool = False, until: int = 0) -> None:
        """until: positions below were read by an earlier worker."""
        specs = tuple(ThreadSpec(n, f"s{n}", SLOT) for n in range(len(self.partitions)))
        routes = tuple(Route(n, ((TIMED, 1.0),), ((TIMED, KEY_RANGES),)) for n in range(len(specs)))
        state = DesiredState(
            *(Token(1, 1, 1), "committed", "run", self.topology, ()),
            (*specs, ThreadSpec(TIMED, "timed", SLOT)),
            *(1, routes),
            schedule=Schedule(0, ((0.0, 1e6),)),
            starts=tuple(SourceStart(f"s{n}", 0, 0, until=until) for n in range(len(specs))),
            draining=draining,
            workers=(WorkerAt(SLOT, 1, "tcp://x:1"),),
            settings=DataPlaneSettings(frame_rows=1),
        )
        for one in self.partitions:
            one.core.obey(orders_of(state, SLOT, 1), self.now_ns)
            if one.source.ledger is None:
                one.source.begin(one.source.start_position() or 0)

    def turn(self, *numbers: int, times: int = 20, done: bool = True) -> list[list[int]]:
        """Some turns of these threads (none: of all); what all have read."""
        for _ in range(times):
            self.now_ns += S // 10
            for number in numbers or range(len(self.partitions)):
                one = self.partitions[number]
                one.source.turn(self.now_ns, self.now_ns, one.rows)
                one.core.flush(self.now_ns, everything=True)
                if done:
                    one.ack()
        return [one.read for one in self.partitions]


def test_who_is_so_far_ahead_waits_and_goes_on_as_the_other_does() -> None:
    family = Family([10, 10], [[0, 3], [8, 10, 13, 14, 15, 40]])
    assert family.turn() == [[0, 3], [8, 10, 13, 14]], "14 is more than 10 ahead of 3, and nothing behind it"
    family.partitions[0].times += [4]
    assert family.turn() == [[0, 3, 4], [8, 10, 13, 14, 15]]
    assert family.partitions[1].source.times.held_by == 0 and family.partitions[0].source.times.held_by == -1
    family.partitions[0].times += [100]
    assert family.turn()[1][-1] == 40
    family.turn()
    assert family.partitions[1].source.times.held_by == -1
    assert family.partitions[0].source.times.held_by == 1, "now it is the one ahead"


def test_how_far_is_read_counts_and_not_how_far_rows_are_done() -> None:
    """A task may keep rows until others come: nobody waits for what is done."""
    family = Family([10, 10], [list(range(0, 60, 5)), list(range(0, 60, 5))])
    assert family.turn(done=False) == [list(range(0, 60, 5))] * 2


def test_who_was_never_heard_is_waited_for_until_it_is_idle() -> None:
    family = Family([10, 10], [[], [0, 50, 90]])
    assert family.turn(times=40) == [[], [0]]
    assert family.turn(times=40) == [[], [0, 50, 90]]


def test_who_has_ended_is_not_waited_for() -> None:
    family = Family([10, 10], [[0], [5, 50, 90]])
    family.partitions[0].source.exhausted = True
    assert family.turn(times=4)[1] == [5, 50, 90]


def test_who_waits_is_not_idle() -> None:
    """Its rows would be late, were event time to go on without it."""
    family = Family([10, 10], [[0], [5, 50]])
    slow, fast = family.partitions
    for n in range(1, 12):  # a row each 2 s
        family.turn()
        slow.times.append(n)
    assert fast.read == [5, 50] and slow.read == list(range(11))
    assert (
        fast.source.times.held_by == 0 and IDLE_US not in fast.watermarks and fast.watermarks[-1] == 50 * US
    )


def test_a_source_without_a_drift_is_never_held_but_waited_for() -> None:
    family = Family([None, 10], [[0], [0, 50, 90]])
    assert family.turn()[1] == [0, 50]
    assert {(word.sender, word.target) for word in family.told} == {(0, 1)}
    family = Family([None, 10], [[0, 50, 90], [0]])
    assert family.turn()[0] == [0, 50, 90]


def test_without_a_drift_nobody_is_told() -> None:
    family = Family([None, None], [[0, 50, 90], [0]])
    assert family.turn()[0] == [0, 50, 90] and not family.told


def test_words_may_be_lost() -> None:
    family = Family([10, 10], [[0, 8], [0, 12, 18, 19]])
    family.hearing = {0}
    assert family.turn() == [[0, 8], [0]]
    family.hearing = {0, 1}
    assert family.turn() == [[0, 8], [0, 12, 18, 19]]


def test_what_was_read_before_is_read_again_without_a_wait_when_the_run_stops() -> None:
    family = Family([10, 10], [[0], [5, 50, 90, 120]], until=3)
    assert family.turn()[1] == [5, 50], "while it goes on, it waits as before"
    family.obey(draining=True, until=3)
    assert family.turn()[1] == [5, 50, 90] and family.partitions[1].source.stopped


@pytest.mark.parametrize("seed", range(60))
def test_all_is_read_in_the_end_and_none_was_further_ahead(seed: int) -> None:
    """By the rule alone: before a row is read, what this thread read last is at most so far ahead of the others that
    have not ended."""
    chance = random.Random(seed)
    rows = [sorted(chance.choices(range(300), k=chance.randrange(12))) for _ in range(chance.randrange(2, 5))]
    drift = chance.randrange(1, 80)
    family = Family([drift] * len(rows), rows, idle_s=1e6)
    order = [chance.randrange(len(rows)) for _ in range(40)] + [*range(len(rows))] * 60
    for number in order:
        one, others = family.partitions[number], [n for n in range(len(rows)) if n != number]
        before = list(one.read)
        family.turn(number, times=1)
        if len(one.read) > len(before) > 0:
            going = [family.partitions[n] for n in others if not family.partitions[n].source.exhausted]
            assert all(before[-1] - drift <= max(other.read, default=-1) for other in going)
        for other in family.partitions:
            other.source.exhausted = len(other.read) == len(other.times)
    assert [one.read for one in family.partitions] == rows


@pytest.mark.parametrize("drift", [0.0, -1.0, float("nan"), float("inf"), 1e12])
def test_drifts_that_are_none_are_refused(drift: float) -> None:
    flow = Builder("drifts")
    flow.source("requests").timestamps("at", max_drift=drift) >> flow.task("work")
    with pytest.raises(InvalidInput) as refused:
        flow.build()
    assert any("timestamps.max_drift" in fault for fault in refused.value.faults)
