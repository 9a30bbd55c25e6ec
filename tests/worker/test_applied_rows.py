"""Which rows are known to have been applied, beside a plain dict of each row that says the same."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.logic import To
from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.worker.applied import Applied, Identity, grouped, twice_in
from headgate.topology_runtime.worker.runs import Batch

RANGES = 8
HERE = Slot("vm", 0)


def batch_of(identities: list[Identity]) -> Batch:
    """A frame of these rows, one root for each source thread."""
    roots: dict[tuple[int, int], RootPart] = {}
    runs: list[tuple[int, int, int, int]] = []
    for source, partition, position, variant in identities:
        key = RootKey(partition + 1, 1, 0, 0)
        roots.setdefault((source, partition), RootPart(key, HERE, source, partition, 0, 0, 0, 0))
        number = list(roots).index((source, partition))
        if runs and runs[-1][0] == number and runs[-1][3] == variant and sum(runs[-1][1:3]) == position:
            runs[-1] = (number, runs[-1][1], runs[-1][2] + 1, variant)
        else:
            runs.append((number, position, 1, variant))
    return Batch(list(identities), runs, list(roots.values()))


def add(applied: Applied, rows: list[Identity], ranges: list[int], outs: list[list[object]]) -> None:
    counts = [len(out) for out in outs]
    came = [row for out in outs for row in out]
    applied.add(grouped(batch_of(rows)), ranges, came, [] if set(counts) == {1} else counts)


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
            batch = batch_of(rows)
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
    for key_range in range(RANGES):
        copy = Applied()
        copy.unpack(key_range, applied.pack(key_range))
        theirs = {i: o for i, o in model.known.items() if range_of_row(i) == key_range}
        assert copy.of(key_range) == applied.of(key_range) == len(theirs)
        if theirs:
            batch = batch_of(list(theirs))
            found = copy.outputs(grouped(batch), [key_range] * len(theirs))
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
        known = applied.outputs(grouped(batch_of(rows)), [0] * 7)
        assert len(known) == sum(row[2] >= forgotten for row in rows)
    add(applied, frames[0], [0] * 7, [[]] * 7)
    assert applied.again_at_most == 7


def test_two_attempts_of_a_row_in_one_frame_are_seen() -> None:
    roots = [RootPart(RootKey(1, 1, 0, attempt), HERE, 0, 0, 40, 0, 0, 0) for attempt in range(2)]
    apart = Batch(list("abcd"), [(0, 0, 2, 5), (1, 2, 2, 5)], roots)
    again = Batch(list("abcd"), [(0, 0, 2, 5), (1, 1, 2, 5)], roots)
    other_way = Batch(list("abcd"), [(0, 0, 2, 5), (1, 1, 2, 6)], roots)
    assert [twice_in(grouped(batch)) for batch in (apart, again, other_way)] == [False, True, False]
