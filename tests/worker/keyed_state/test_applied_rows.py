"""Which rows are known to have been applied, beside a plain dict of each row that says the same."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from keyed_rows_made import HERE, keyed_rows, sent
from silent_post import SilentPost

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed, To
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart, ThreadSpec
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied, Identity, grouped, twice_in
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.sources.source_ledger import Ledger, Root

RANGES = 8
SLOT = Slot("vm", 0)


def batch_of_rows(identities: list[Identity]) -> Batch:
    """A frame of these rows, one root for each source thread."""
    roots: dict[tuple[int, int], RootPart] = {}
    runs: list[tuple[int, int, int, int]] = []
    for source, partition, position, variant in identities:
        key = RootKey(partition + 1, 1, 0, 0)
        roots.setdefault((source, partition), RootPart(key, SLOT, source, partition, 0, 0, 0, 0))
        number = list(roots).index((source, partition))
        if runs and runs[-1][0] == number and runs[-1][3] == variant and sum(runs[-1][1:3]) == position:
            runs[-1] = (number, runs[-1][1], runs[-1][2] + 1, variant)
        else:
            runs.append((number, position, 1, variant))
    return Batch(list(identities), runs, list(roots.values()))


def add(applied: Applied, rows: list[Identity], ranges: list[int], outs: list[list[object]]) -> None:
    counts = [len(out) for out in outs]
    came = [row for out in outs for row in out]
    applied.add(grouped(batch_of_rows(rows)), ranges, came, [] if set(counts) == {1} else counts)


def range_of_row(identity: Identity) -> int:
    return hash(identity) % RANGES


@dataclass
class Model:
    """Every row by itself."""

    known: dict[Identity, list[object]] = field(default_factory=dict)

    def drop(self, key_range: int) -> None:
        self.known = {i: out for i, out in self.known.items() if range_of_row(i) != key_range}


@pytest.mark.parametrize("seed", range(60))
def test_what_is_known_is_what_was_applied(seed: int) -> None:
    choose = random.Random(seed)
    applied, model = Applied(most=10_000), Model()
    moved: dict[int, tuple[bytes, dict[Identity, list[object]]]] = {}
    next_position = [0, 0]
    for _ in range(120):
        what = choose.random()
        key_range = choose.randrange(RANGES)
        if what < 0.7:
            partition = choose.randrange(2)
            first = next_position[partition] if choose.random() < 0.6 else choose.randrange(400)
            variants = choose.choice(([7], [7, 9]))
            rows = [(0, partition, first + n, v) for n in range(choose.randint(1, 12)) for v in variants]
            if choose.random() < 0.2:
                choose.shuffle(rows)
            next_position[partition] = max(next_position[partition], rows[-1][2] + 1)
            batch = batch_of_rows(rows)
            ranges = [range_of_row(row) for row in rows]
            assert not twice_in(grouped(batch))
            found = applied.outputs(grouped(batch), ranges)
            assert {rows[at]: list(out) for at, out in found.items()} == {
                row: model.known[row] for row in rows if row in model.known
            }
            fresh = [row for row in rows if row not in model.known]
            outs: list[list[object]] = [
                [(*row, n) for n in range(choose.choice((0, 1, 1, 2)))] for row in fresh
            ]
            if fresh:
                add(applied, fresh, [range_of_row(row) for row in fresh], outs)
            model.known.update(zip(fresh, outs, strict=True))
        elif what < 0.8:  # a range leaves …
            moved[key_range] = (
                applied.pack(key_range),
                {i: o for i, o in model.known.items() if range_of_row(i) == key_range},
            )
            applied.drop(key_range)
            model.drop(key_range)
        else:  # … or comes back
            if key_range in moved:
                data, rows_of_it = moved.pop(key_range)
                applied.unpack(key_range, data)
                model.drop(key_range)
                model.known.update(rows_of_it)
    assert applied.again_at_most == 0
    every = Applied()
    every.unpack_new(applied.pack_all())
    for key_range in range(RANGES):
        copy = Applied()
        copy.unpack(key_range, applied.pack(key_range))
        theirs = {i: o for i, o in model.known.items() if range_of_row(i) == key_range}
        assert copy.of(key_range) == every.of(key_range) == applied.of(key_range) == len(theirs)
        for one in (copy, every) if theirs else ():
            batch = batch_of_rows(list(theirs))
            found = one.outputs(grouped(batch), [key_range] * len(theirs))
            assert {list(theirs)[at]: list(out) for at, out in found.items()} == theirs


def test_what_was_applied_since_the_last_snapshot_is_all_there_is_between_two() -> None:
    applied, copy = Applied(), Applied()
    for step in range(20):
        for frame in range(3):
            first = step * 100 + frame * 10
            rows = [(0, 0, first + n, 3) for n in range(10)]
            outs: list[list[object]] = [[To(n, ("to", n))] if n == 4 else [(n,)] * (n % 3) for n in range(10)]
            add(applied, rows, [n % RANGES for n in range(10)], outs)
        copy.unpack_new(applied.pack_new())
        applied.saved()
        for key_range in range(RANGES):
            assert copy.pack(key_range) == applied.pack(key_range)
    assert Applied().pack_new() == applied.pack_new()


def test_the_oldest_are_forgotten_and_counted_from_above() -> None:
    applied = Applied(most=100)
    frames = [[(0, 0, first + n, 1) for n in range(7)] for first in range(0, 7 * 60, 7)]
    for rows in frames:
        add(applied, rows, [0] * 7, [[]] * 7)
        assert applied.of(0) <= 100 + 25 + 7
    assert applied.of(0) >= 100 and applied.again_at_most == 0
    forgotten = 7 * 60 - applied.of(0)
    assert applied.floors() == ((0, 0, forgotten),)
    for rows in frames:
        known = applied.outputs(grouped(batch_of_rows(rows)), [0] * 7)
        assert len(known) == sum(row[2] >= forgotten for row in rows)
    add(applied, frames[0], [0] * 7, [[]] * 7)
    assert applied.again_at_most == 7


def test_only_rows_below_what_was_forgotten_may_count_again() -> None:
    applied = Applied()
    applied.take_floors([(0, 0, 10)])
    add(applied, [(0, 0, 8 + n, 1) for n in range(4)], [0] * 4, [[]] * 4)
    assert applied.again_at_most == 2


def test_a_row_that_stays_behind_since_its_output_cannot_travel_counts_as_forgotten() -> None:
    applied, copy = Applied(), Applied()
    add(applied, [(0, 0, n, 1) for n in range(5)], [0] * 5, [[object()] if n == 3 else [n] for n in range(5)])
    copy.unpack(0, applied.pack(0))
    assert copy.of(0) == 4 and applied.floors() == ((0, 0, 4),)


def test_two_attempts_of_a_row_in_one_frame_are_seen() -> None:
    roots = [RootPart(RootKey(1, 1, 0, attempt), SLOT, 0, 0, 40, 0, 0, 0) for attempt in range(2)]
    apart = Batch(list("abcd"), [(0, 0, 2, 5), (1, 2, 2, 5)], roots)
    again = Batch(list("abcd"), [(0, 0, 2, 5), (1, 1, 2, 5)], roots)
    other_way = Batch(list("abcd"), [(0, 0, 2, 5), (1, 1, 2, 6)], roots)
    assert [twice_in(grouped(batch)) for batch in (apart, again, other_way)] == [False, True, False]


# ── What came of rows of a keyed task is kept as long as it may have to go again, and no longer: it may be
# large

S, MS = 1_000_000_000, 1_000_000
ROW_BYTES, IN_FLIGHT, SOURCE = 100_000, 10, 1


class Enlarged(Keyed):
    """Makes rows large."""

    def __init__(self, row_bytes: int = ROW_BYTES) -> None:
        self._text = "x" * (row_bytes - 6)

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        return state + 1, [(row[0], f"{row[0]:06d}{self._text}")]


def task() -> KeyedRows:
    return keyed_rows(Enlarged(), lambda row: row[0] % 7)


def frame(position: int, floor: int, attempt: int = 0, incarnation: int = 1) -> Frame:
    """One row, of the root with that number."""
    key = RootKey(SOURCE, incarnation, position, attempt)
    root = RootPart(key, HERE, 0, 0, position, 0, floor, 1)
    return Frame(3, 1, HERE, 1, 5, [root], [(0, 0, 1, 11)], [(position,)], 0, 0)


def given(keyed: KeyedRows, one: Frame) -> list[Any]:
    """What comes of a frame, in texts that are the receivers' alone."""
    keyed.take(one, 0)
    return [row[0] for row in sent(keyed)]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_what_came_of_rows_that_are_done_is_let_go(traced: None) -> None:
    keyed, rows = task(), 1500
    for position in range(rows):
        assert given(keyed, frame(position, max(0, position - IN_FLIGHT))) == [position]
    assert tracemalloc.get_traced_memory()[0] < 6 * IN_FLIGHT * ROW_BYTES < rows * ROW_BYTES / 10
    assert keyed.states.of(0) is not None
    again = [given(keyed, frame(position, 0, attempt=1)) for position in range(rows)]
    done = rows - 1 - IN_FLIGHT
    assert again[done:] == [[position] for position in range(done, rows)], "they may never have arrived"
    assert again[: done - 40] == [[]] * (done - 40), "known, and not counted a second time"
    assert keyed.applied.again_at_most == 0


def test_a_source_that_is_started_anew_has_its_open_rows_go_again() -> None:
    """Its sequence begins anew too: what is done by it says nothing of roots that it had before."""
    keyed = task()
    for position in range(100):
        given(keyed, frame(position, 0))
    for position in range(100):
        key = RootKey(SOURCE, 2, 0, 0)
        late = frame(position, 0, incarnation=2)
        late.roots[0].key = key
        assert given(keyed, late) == [position]
    for position in range(100, 200):
        given(keyed, frame(position, 90, incarnation=2))
    assert [given(keyed, frame(position, 90, 1, 2)) for position in range(100)] == [[p] for p in range(100)]


def test_acks_say_what_came_of_rows() -> None:
    keyed = task()
    ((_, ack),) = keyed.take(frame(0, 0), 0)
    assert ack.made_by == 2 and ack.made_bytes == pytest.approx(ROW_BYTES, rel=0.05) and ack.held == 1


# ── snapshots ───────────────────────────────────────────────────────────────────────────────────

TOPOLOGY = Topology(
    "large",
    (Task("s", kind="source", static=Static()), Task("t", kind="keyed", state="keyed"), Task("u")),
    (Edge("s", "t", grouping="fields", key="x:y"), Edge("t", "u")),
)


def first_saved_ms(folder: Path, rows_of_a_frame: int, logic: Keyed) -> int:
    """When the second snapshot is on disk, after the first; a frame each 5 ms."""
    ports = replace(SilentPost().ports(folder), key_of=lambda _: itemgetter(0))
    core = ThreadCore(ThreadSpec(5, "t", HERE), TOPOLOGY, ports)
    keyed = core.behaviour = behaviour_of(core, logic, lambda _: None)
    assert isinstance(keyed, KeyedTask)
    keyed.rows.ranges.stand(Standing(1, (5,) * KEY_RANGES, (), frozenset({5}), {}))
    keyed.rows.claim(0)
    keyed.on_time(10 * S)
    for step in range(300):
        first = step * rows_of_a_frame
        one = frame(first, 0)
        one.edge, one.runs = 0, [(0, 0, rows_of_a_frame, 11)]
        one.rows = [(position % 50,) for position in range(first, first + rows_of_a_frame)]
        keyed.take(one, 0)
        keyed.on_time(10 * S + step * 5 * MS)
        if not keyed.rows.uncovered_rows:
            return step * 5
    raise AssertionError("never")


def test_snapshots_are_taken_sooner_the_more_they_have_to_hold(tmp_path: Path) -> None:
    """Until then what came of rows is kept, though they are done but for that."""
    assert first_saved_ms(tmp_path / "few", 10, Enlarged(5_000)) == 1000
    assert first_saved_ms(tmp_path / "small", 400, CountByKey()) == 1000
    assert first_saved_ms(tmp_path / "many", 10, Enlarged()) == 250


# ── whatever happens ────────────────────────────────────────────────────────────────────────────


class Sender:
    """A source thread with a real ledger: its rows, each with what came of it the first time."""

    def __init__(self, thread: int, choose: random.Random) -> None:
        self.thread, self.choose, self.incarnation = thread, choose, 1
        self.ledger, self.first = Ledger(window_rows=1000), 0
        self.done: set[int] = set()

    def parts(self) -> list[tuple[Root, RootPart]]:
        """Of a new root, or of one or two that are open."""
        ledger, choose = self.ledger, self.choose
        opened = ledger.open_roots()
        if not opened or choose.random() < 0.7:
            root = ledger.begin(range(ledger.position, ledger.position + choose.randint(1, 4)), 0, 0)
            ledger.sent(root, 1, 0)
            return [(root, self._part(root))]
        again = choose.sample(opened, min(len(opened), choose.choice((1, 1, 2))))
        for root in again:
            root.attempt += 1
        return [(root, self._part(root)) for root in again]

    def _part(self, root: Root) -> RootPart:
        key = RootKey(self.thread, self.incarnation, root.sequence, root.attempt)
        return RootPart(key, HERE, 0, self.thread, root.position, 0, self.ledger.floor, 1)

    def finish_some(self) -> None:
        for root in self.ledger.open_roots():
            if self.choose.random() < 0.4:
                self.ledger.give_up(root.sequence)
                self.done.update(range(root.position, root.position + root.count))

    def start_anew(self) -> None:
        """From a position that is not newer than what is done."""
        self.incarnation += 1
        self.first = max(self.first, self.ledger.acked - self.choose.randrange(200))  # as was told of it last
        self.ledger = Ledger(self.first, window_rows=1000)


def batch_of(parts: Sequence[tuple[Root, RootPart]]) -> Batch:
    """All rows of these roots: (partition, position)."""
    rows = [(part.partition, part.position + n) for root, part in parts for n in range(root.count)]
    runs = [(number, 0, root.count, 11) for number, (root, _) in enumerate(parts)]
    return Batch(rows, runs, [part for _, part in parts])


@pytest.mark.parametrize("seed", range(60))
def test_what_came_of_open_rows_goes_again_whatever_happens(seed: int) -> None:
    choose = random.Random(seed)
    applied, senders = Applied(), [Sender(1, choose), Sender(2, choose)]
    came_of: dict[tuple[int, int], Any] = {}
    for _ in range(400):
        some = choose.sample(senders, choose.choice((1, 1, 2)))
        batch = batch_of([part for sender in some for part in sender.parts()])
        applied.hear(batch.roots)
        rows: Sequence[tuple[int, int]] = batch.rows
        known = applied.outputs(grouped(batch), [0] * len(rows))
        for at, row in enumerate(rows):
            if row not in came_of:
                assert at not in known
            elif list(known[at]) != came_of[row]:
                assert list(known[at]) == [] and row[1] in senders[row[0] - 1].done, f"seed {seed}: {row}"
        fresh = batch.where([at not in known for at in range(len(rows))])
        if fresh.rows:
            outs = [[(*row, n) for n in range(choose.choice((1, 1, 2)))] for row in fresh.rows]
            came_of.update(zip(fresh.rows, outs, strict=True))
            flat = [one for out in outs for one in out]
            applied.add(grouped(fresh), [0] * len(fresh.rows), flat, [len(out) for out in outs], fresh.roots)
        sender = choose.choice(senders)
        if choose.random() < 0.5:
            sender.finish_some()
        elif choose.random() < 0.05:
            sender.start_anew()
    assert applied.again_at_most == 0
