"""What of a source is in flight is bounded in bytes too: large rows are fewer."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from topology_runtime.cluster import Slot
from topology_runtime.instances import key_function
from topology_runtime.messages import Ack, DesiredState, Frame, RootKey, Route, ThreadSpec, Token
from topology_runtime.schedule import Schedule
from topology_runtime.topology import Edge, Static, Task, Topology
from topology_runtime.worker.acks import Addressed
from topology_runtime.worker.columns import columns_in
from topology_runtime.worker.orders import orders_of
from topology_runtime.worker.row_sizes import RowSizes
from topology_runtime.worker.snapshots import SnapshotFiles
from topology_runtime.worker.source import IN_FLIGHT_BYTES, ROOT_BYTES, SourceTask
from topology_runtime.worker.thread_core import Ports, ThreadCore
from topology_runtime.worker.user_code import ToRecord

S = 1_000_000_000
SLOT = Slot("vm1", 0)
TOPOLOGY = Topology(
    "line", (Task("source", kind="source", static=Static()), Task("work")), (Edge("source", "work"),)
)
RowOf = Callable[[int], Any]


class Stopped:
    """A source at full speed before a task that takes nothing."""

    slot, incarnation = SLOT, 1

    def __init__(self, row_of: RowOf, receivers: int = 1, modelled_tps: float = 10_000.0) -> None:
        self.row_of, self.sent = row_of, list[Any]()
        numbers = iter(range(1, 1_000_000))
        ports = Ports(self, self, partial(SnapshotFiles, ""), lambda: next(numbers), key_function)
        self.core = ThreadCore(ThreadSpec(0, "source", SLOT), TOPOLOGY, ports)
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

    def deliver(self, frames: Iterable[Frame]) -> None: ...
    def send_word(self, word: Any) -> None: ...
    def send_acks(self, acks: Iterable[Addressed]) -> None: ...
    def write(self, done: ToRecord, holding: int) -> None: ...

    def read(self, position: int, most: int) -> list[Any]:
        rows = [self.row_of(at) for at in range(position, position + most)]
        self.roots.append(rows)
        return rows

    def run(self, turns: int = 500) -> list[Any]:
        """What is in flight when no more is read."""
        for turn in range(turns):
            self.source.turn(turn * S // 100, S + turn * S // 100, self.read)
            self.core.outputs.flush(0, everything=True)
        return [row for root in self.roots for row in root]


def test_of_large_rows_no_more_is_in_flight_than_the_bound() -> None:
    run = Stopped(lambda at: (at, bytes(200_000)))
    rows = run.run()
    assert IN_FLIGHT_BYTES / 2 < sum(len(data) for _, data in rows) <= IN_FLIGHT_BYTES
    later = run.roots[1:]
    assert max(sum(len(data) for _, data in root) for root in later) <= ROOT_BYTES


def test_of_small_rows_all_that_the_rate_allows_is_in_flight() -> None:
    assert len(Stopped(lambda at: (at, 0.5, "0123456789")).run()) == 20_000, "two seconds of 10,000 a second"


def test_each_thread_has_its_rows_however_large_they_are() -> None:
    """A task that waits 64 times over at once is not made to wait for its rows."""
    assert len(Stopped(lambda at: bytes(700_000), receivers=64).run()) >= 2 * 64


def test_rows_that_become_large_are_seen_to_be() -> None:
    run = Stopped(lambda at: (at, bytes(100_000 if at > 3_000 else 100)), modelled_tps=1e6)
    small = sum(len(data) for _, data in run.run() if len(data) == 100)
    large = sum(len(data) for _, data in (row for root in run.roots for row in root) if len(data) > 100)
    assert small and large <= 3 * IN_FLIGHT_BYTES, "those of some roots were read before it was seen"


@searching(60)
@given(st.integers(0, 2**32))
def test_of_mixed_rows_about_the_bound_is_in_flight(seed: int) -> None:
    choose = random.Random(seed)
    sizes = [choose.choice((10, 1_000, 50_000, 300_000)) for _ in range(4)]
    data = {size: bytes(size) for size in sizes}
    rows = Stopped(lambda at: data[choose.choice(sizes)]).run()
    held = sum(map(len, rows))
    assert held <= 2.5 * IN_FLIGHT_BYTES, f"sizes {sizes}"
    assert len(rows) >= min(20_000, IN_FLIGHT_BYTES / 2.5 / (sum(sizes) / 4 + 33)), f"sizes {sizes}"


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
        rows = [MADE[made](at + 1_000) for at in range(2_000)]
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
