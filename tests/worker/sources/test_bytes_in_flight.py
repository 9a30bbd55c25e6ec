"""What of a source is in flight is bounded in bytes too: rows that are large, or that a task makes large, are fewer."""

from __future__ import annotations

import random
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from silent_post import SLOT, SilentPost

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import (
    Ack,
    DesiredState,
    Frame,
    RootKey,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.rows.acks import Addressed
from headgate.topology_runtime.worker.rows.columns import columns_in
from headgate.topology_runtime.worker.rows.row_runs import single
from headgate.topology_runtime.worker.rows.row_values import RowSizes
from headgate.topology_runtime.worker.sources.source_ledger import (
    AT_FIRST_ROWS,
    FRAME_BYTES,
    IN_FLIGHT_BYTES,
    Ledger,
)
from headgate.topology_runtime.worker.sources.source_task import ROOT_BYTES, ROOT_BYTES_MOST, SourceTask

S = 1_000_000_000
TOPOLOGY = Topology(
    "line", (Task("source", kind="source", static=Static()), Task("work")), (Edge("source", "work"),)
)
RowOf = Callable[[int], Any]


class Stopped(SilentPost):
    """A source at full speed before a task that takes nothing but the first root."""

    def __init__(self, row_of: RowOf, receivers: int = 1, modelled_tps: float = 10_000.0) -> None:
        self.row_of, self.sent = row_of, list[Any]()
        self.core = ThreadCore(ThreadSpec(0, "source", SLOT), TOPOLOGY, self.ports())
        self.core.behaviour = self.source = SourceTask(self.core)
        work = [ThreadSpec(number, "work", SLOT) for number in range(1, receivers + 1)]
        routes = (Route(0, tuple((thread.thread, 1.0) for thread in work)),)
        desired = DesiredState(
            Token(1, 1, 1), "committed", "run", TOPOLOGY, (), (ThreadSpec(0, "source", SLOT), *work), 1, routes,
            schedule=Schedule(0, ((0.0, 1e9),)), modelled_tps={0: modelled_tps},
        )  # fmt: skip
        self.core.obey(orders_of(desired, SLOT, 1), 0)
        self.source.begin(0)
        self.roots: list[Sequence[Any]] = []

    def read(self, position: int, most: int) -> list[Any]:
        rows = [self.row_of(at) for at in range(position, position + most)]
        self.roots.append(rows)
        return rows

    def turn(self, number: int) -> None:
        self.source.turn(number * S // 100, S + number * S // 100, self.read)
        self.core.flush(0, everything=True)

    def run(self, turns: int = 500) -> list[Any]:
        """All that was read but for the first root, when no more is."""
        ledger = self.source.ledger
        assert ledger is not None
        for turn in range(turns):
            self.turn(turn)
            if not turn and 0 in ledger.open:
                ledger.ack(Ack(RootKey(0, 1, 0, 0), ledger.open_root(0).open[0]), S)
        return [row for root in self.roots[1:] for row in root]

    @property
    def in_flight(self) -> list[Any]:
        ledger = self.source.ledger
        assert ledger is not None
        return [row for root in ledger.open_roots() for row in root.rows]


def test_of_large_rows_no_more_is_in_flight_than_the_bound() -> None:
    run = Stopped(lambda at: (at, bytes(200_000)))
    rows = run.run()
    assert IN_FLIGHT_BYTES / 2 < sum(len(data) for _, data in rows) <= IN_FLIGHT_BYTES
    later = run.roots[1:]
    assert max(sum(len(data) for _, data in root) for root in later) <= ROOT_BYTES


def test_before_the_first_is_done_few_are_in_flight() -> None:
    run = Stopped(lambda at: at)
    for turn in range(500):
        run.turn(turn)
    assert sum(map(len, run.roots)) == AT_FIRST_ROWS


def test_of_small_rows_all_that_the_rate_allows_is_in_flight() -> None:
    assert len(Stopped(lambda at: (at, 0.5, "0123456789")).run()) == 20_000, "two seconds of 10,000 a second"


def test_each_thread_has_its_rows_however_large_they_are() -> None:
    """A task that waits 64 times over at once is not made to wait for its rows."""
    assert len(Stopped(lambda at: bytes(700_000), receivers=64).run()) >= 2 * 64


def test_rows_that_become_large_are_seen_to_be() -> None:
    run = Stopped(lambda at: (at, bytes(300_000 if at > 3_000 else 100)), modelled_tps=1e6)
    run.run()
    in_flight = [len(data) for _, data in run.in_flight]
    roots = run.source.ledger.open_roots()  # type: ignore[union-attr]
    assert max(sum(len(data) for _, data in root.rows) for root in roots) <= ROOT_BYTES_MOST
    assert 100 in in_flight and IN_FLIGHT_BYTES / 2 < sum(in_flight) <= 1.2 * IN_FLIGHT_BYTES


def test_of_rows_that_come_one_by_one_few_enough_are_in_flight_for_their_frames() -> None:
    """Each is a frame of its own, which takes room besides its row."""
    ledger = Ledger(0, 1 << 40)
    ledger.window_bytes = 1 << 20
    ledger.reads(30.0)
    ledger.sent(ledger.begin([0], 0, 0, 30), 0, 0)
    while ledger.room():
        ledger.begin([0], 0, 0, 30)
    assert 0.9 <= ledger.in_flight * (FRAME_BYTES + 30) / ledger.window_bytes <= 1.01


@searching(60)
@given(st.integers(0, 2**32))
def test_of_mixed_rows_about_the_bound_is_in_flight(seed: int) -> None:
    choose = random.Random(seed)
    sizes = [choose.choice((10, 1_000, 50_000, 300_000)) for _ in range(4)]
    data = {size: bytes(size) for size in sizes}
    run = Stopped(lambda at: data[choose.choice(sizes)])
    run.run()
    rows = run.in_flight
    held = sum(len(row) + 33 for row in rows)
    assert held <= 1.2 * IN_FLIGHT_BYTES, f"sizes {sizes}"
    assert held >= 0.3 * IN_FLIGHT_BYTES or len(rows) >= 20_000, f"sizes {sizes}"


def test_rows_that_are_done_or_kept_make_room_for_others() -> None:
    run = Stopped(lambda at: (at, bytes(200_000)))
    ledger = run.source.ledger
    assert ledger is not None
    before = len(run.run())
    roots = ledger.open_roots()
    half = len(roots) // 2
    keys = [RootKey(0, 1, root.sequence, root.attempt) for root in roots]
    for root, key in zip(roots[:half], keys[:half], strict=True):
        ledger.ack(Ack(key, root.open[0]), S)
    for key in keys[half:]:
        ledger.ack(Ack(key, 1, held=1), S)
    assert len(run.run()) >= 1.8 * before, "what is kept is bounded elsewhere"
    for key in keys[half:]:
        ledger.ack(Ack(key, 1, held=-1), S)
    again = len(run.run())
    assert len(run.run()) == again, "what is kept no more counts again"


# ── rows that are kept ──────────────────────────────────────────────────────────────────────────────


class Keeping(Stopped):
    """A source before a task that keeps all; `cut`: a read gives no more rows at once, `silent`: none."""

    cut, silent = 1 << 30, False

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.sent.append(frame)
            self.source.on_word([Ack(root.key, 0, 1) for root in frame.roots], 0)

    def read(self, position: int, most: int) -> list[Any]:
        return [] if self.silent else super().read(position, min(most, self.cut))

    @property
    def held(self) -> int:
        ledger = self.source.ledger
        assert ledger is not None
        return sum(len(row[1]) for root in ledger.open_roots() for row in root.rows)


SIXTY_KB = bytes(60_000)  # the same object in each row: they are told apart by their positions


def kept(turns: int = 400) -> Keeping:
    run = Keeping(lambda at: (at, SIXTY_KB))
    for turn in range(turns):
        run.turn(turn)
    return run


def test_of_rows_that_are_kept_no_more_than_the_bound_are_held() -> None:
    run = kept()
    rows = sum(len(frame.rows) for frame in run.sent)
    assert rows > 3 * IN_FLIGHT_BYTES / 60_000, "more than that are kept somewhere"
    assert IN_FLIGHT_BYTES / 2 < run.held <= 1.2 * IN_FLIGHT_BYTES


@pytest.mark.parametrize("cut", [1, 7, 1 << 30])
def test_rows_that_were_let_go_are_read_and_sent_again_as_they_were(cut: int) -> None:
    run = kept()
    ledger, before = run.source.ledger, positions(run.sent)
    assert ledger is not None
    run.cut, run.silent = cut, True
    run.sent.clear()
    ledger.fault()
    run.turn(1_000)
    assert ledger.again and 0 < len(positions(run.sent)) < len(before), "sent again were those that are here"
    run.silent = False
    for turn in range(1_001, 1_400):
        run.turn(turn)
    again = positions(run.sent)
    assert all(again[position] == row for position, row in before.items())
    assert ledger.replayed == len(before)
    assert run.held <= 1.2 * IN_FLIGHT_BYTES


def positions(frames: Iterable[Frame]) -> dict[int, Any]:
    """What was sent as the row of which position."""
    return {
        frame.roots[number].position + offset: row
        for frame in frames
        for row, (number, offset, _) in zip(frame.rows, single(frame.runs), strict=True)
    }


def test_rows_that_are_done_are_held_no_more() -> None:
    run = kept()
    ledger = run.source.ledger
    assert ledger is not None
    for root in ledger.open_roots():
        ledger.ack(Ack(RootKey(0, 1, root.sequence, root.attempt), root.open[root.attempt], -root.kept), S)
    assert (ledger.held_bytes, ledger.in_flight, ledger.in_flight_bytes) == (0, 0, 0)


# ── rows that a task makes large ────────────────────────────────────────────────────────────────────

LONG = Topology(
    "long",
    (Task("source", kind="source", static=Static()), Task("grow"), Task("same"), Task("sink")),
    (Edge("source", "grow"), Edge("grow", "same"), Edge("same", "sink")),
)


class Growing(SilentPost):
    """A source at full speed, a task that makes large rows of its small ones, two threads that give them on, and a sink
    that stands still. Threads take so many frames a turn."""

    def __init__(
        self, grow: Callable[[Any], Any], frames_a_turn: int, modelled_tps: float = 10_000.0
    ) -> None:
        ports = self.ports()
        threads = [ThreadSpec(n, t, SLOT) for n, t in enumerate(("source", "grow", "same", "same", "sink"))]
        routes = (Route(0, ((1, 1.0),)), Route(1, ((2, 0.5), (3, 0.5))), Route(2, ((4, 1.0),)))
        desired = DesiredState(
            Token(1, 1, 1), "committed", "run", LONG, (), tuple(threads), 1, routes,
            schedule=Schedule(0, ((0.0, 1e9),)), modelled_tps={0: modelled_tps},
        )  # fmt: skip
        self.cores = [ThreadCore(thread, LONG, ports) for thread in threads]
        self.inboxes: list[deque[Frame]] = [deque() for _ in threads]
        self.frames_a_turn = frames_a_turn
        for core in self.cores:
            core.obey(orders_of(desired, SLOT, 1), 0)
        self.source = self.cores[0].behaviour = SourceTask(self.cores[0])
        self.source.begin(0)
        for core, logic in zip(self.cores[1:4], (grow, tuple, tuple), strict=True):
            core.behaviour = behaviour_of(core, logic, lambda _: None)

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.inboxes[frame.target].append(frame)

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        self.source.on_word([ack for _, ack in acks], 0)

    def run(self, turns: int = 600) -> int:
        """Bytes that wait somewhere in the end."""
        for turn in range(turns):
            self.source.turn(
                turn * S // 100, S + turn * S // 100, lambda at, most: [(at + n,) for n in range(most)]
            )
            self.cores[0].flush(turn * S // 100, everything=True)
            for core, inbox in zip(self.cores[1:4], self.inboxes[1:4], strict=True):
                for _ in range(min(self.frames_a_turn, len(inbox))):
                    core.take(inbox.popleft(), 0)
                    core.flush(0, everything=True)
        return sum(len(row[-1]) for inbox in self.inboxes for f in inbox for row in f.rows if len(row) > 1)


@pytest.mark.parametrize("frames_a_turn", [1, 100])
@pytest.mark.parametrize("size", [3_000, 30_000, 300_000])
def test_of_rows_that_a_task_makes_large_no_more_is_in_flight_than_about_the_bound(
    size: int, frames_a_turn: int
) -> None:
    run = Growing(lambda row: (*row, bytes(size)), frames_a_turn)
    assert IN_FLIGHT_BYTES / 3 < run.run() < 1.5 * IN_FLIGHT_BYTES


def test_large_rows_that_are_done_make_room_for_others() -> None:
    run = Growing(lambda row: (*row, bytes(100_000)), 100)
    before = run.run()
    sink = run.inboxes[4]
    for _ in range(20):
        rows = 0
        while sink:
            frame = sink.popleft()
            rows += len(frame.rows)
            run.send_acks([(SLOT, Ack(root.key, root.id)) for root in frame.roots])
        assert rows >= 0.7 * IN_FLIGHT_BYTES / 100_000
        assert run.run() <= 1.2 * before
    assert not run.source.ledger.replayed  # type: ignore[union-attr]


def test_a_few_large_rows_do_not_make_the_others_few() -> None:
    """One of a hundred is large: the mean counts."""
    run = Growing(lambda row: (*row, bytes(1_000_000 if row[0] % 100 == 0 else 100)), 100)
    sink, most = run.inboxes[4], 0
    for _ in range(15):
        run.run(20)
        most = max(most, sum(len(frame.rows) for frame in sink))
        while sink:
            run.send_acks([(SLOT, Ack(root.key, root.id)) for root in sink.popleft().roots])
    assert most >= IN_FLIGHT_BYTES / 10_000 / 4


@searching(200)
@given(st.integers(0, 2**32))
def test_what_is_counted_is_what_is_open_and_not_kept(seed: int) -> None:
    choose = random.Random(seed)
    ledger, kept = Ledger(0, 1 << 40), dict[int, int]()
    ledger.window_bytes = 1_000
    ledger.reads(10.0)
    for step in range(60):
        act, now_ns = choose.randrange(6), step * S
        open_roots = ledger.open_roots()
        if act == 0 or not open_roots:
            root = ledger.begin([0] * choose.randint(1, 5), 0, now_ns, choose.randint(1, 100))
            ledger.sent(root, 1, now_ns)
            continue
        root = choose.choice(open_roots)
        key = RootKey(0, 0, root.sequence, root.attempt)
        held = kept.get(root.sequence, 0)
        if act == 1:
            ledger.ack(Ack(key, root.open[root.attempt], -held), now_ns)
        elif act == 2:
            kept[root.sequence] = held + 1
            ledger.ack(Ack(key, 2, 1), now_ns)
        elif act == 3 and held:
            kept[root.sequence] = held - 1
            ledger.ack(Ack(key, 2, -1), now_ns)
        elif act == 4:
            ledger.ack(
                Ack(key, 2, 0, choose.randrange(3), choose.choice((-5, 0, 50, 5_000, 1 << 60))), now_ns
            )
        elif act == 5:
            ledger.fault()
            while (again := ledger.next_replay(now_ns)) is not None:
                kept.pop(again.sequence, None)
                ledger.sent(again, 1, now_ns)
                assert again.sequence in ledger.open
        moving = [root for root in ledger.open_roots() if not root.kept]
        assert ledger.in_flight_bytes == sum(root.size_bytes for root in moving)
        here = [root for root in ledger.open_roots() if root.kept and root.rows]
        assert ledger.held_bytes == sum(root.read_bytes for root in here) <= 1_000
    assert all(root.size_bytes >= root.largest_bytes for root in ledger.open_roots())
    for root in ledger.open_roots():
        ledger.give_up(root.sequence)
    assert (ledger.in_flight_bytes, ledger.in_flight) == (0, 0)


# ── how large rows are thought to be ────────────────────────────────────────────────────────────────

MADE: dict[str, RowOf] = {
    "texts": lambda at: f"{at:010}" * 30,
    "tuples": lambda at: (at, at + 0.5, f"{at:010}"),
    "dicts": lambda at: {"id": at, "name": f"name {at}", "of": [at + n * 0.5 for n in range(20)]},
    "lists": lambda at: [at * 1000.0 + n for n in range(500)],
    "nested": lambda at: {"a": {"b": [{"c": f"{at:020}", "d": at + 0.25} for _ in range(3)]}},
}


@pytest.mark.parametrize("made", MADE)
def test_rows_are_thought_to_be_about_as_large_as_they_are_in_memory(made: str) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        rows = [MADE[made](at + 1_000) for at in range(500)]
        real = (tracemalloc.get_traced_memory()[0] - before) / len(rows)
    finally:
        tracemalloc.stop()
    sizes = RowSizes()
    for at in range(0, len(rows), 50):
        sizes.saw(rows[at : at + 50])
    assert real / 2.5 < sizes.mean_bytes < real * 2.5


def test_columns_are_as_large_as_their_bytes() -> None:
    sizes = RowSizes()
    np = pytest.importorskip("numpy")
    sizes.saw(columns_in({"x": np.zeros((100, 64)), "n": np.arange(100)}))
    assert sizes.mean_bytes == 64 * 8 + 8


def test_rows_that_hold_themselves_or_nothing_have_a_size() -> None:
    knot: list[Any] = []
    knot.append(knot)
    sizes = RowSizes()
    for rows in ([knot], [()], [None], [], [object()], ["ä" * 1000]):
        sizes.saw(rows)
    assert 0 < sizes.mean_bytes < 2_000
