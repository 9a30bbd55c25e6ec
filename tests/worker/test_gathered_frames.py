"""Frames that wait for a batched task, in one call: the same rows, letters and open roots as one after the other."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
from examples import searching
from hypothesis import given
from hypothesis import strategies as st
from plane_tasks import S
from test_task_logic import HOME, flow, root

from headgate.topology_runtime.logic import batched
from headgate.topology_runtime.messages import Frame, RootPart, WireFrame
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.columns import Columns, grouped
from headgate.topology_runtime.worker.gathering import edge_of, gathered, rows_in


def frames_of(seed: int, by_columns: bool = False) -> list[Frame]:
    """Frames by one edge, of some of four roots each, which may go along with others; ids are their own."""
    choose = random.Random(seed)
    made = []
    for _ in range(choose.randint(1, 5)):
        numbers = choose.sample(range(4), choose.randint(1, 4))
        roots = [root(n, 100 * n, choose.getrandbits(64), choose.randint(0, 9)) for n in numbers]
        for number, part in enumerate(roots):
            part.along = [other for other in range(len(roots)) if other != number and choose.random() < 0.3]
        runs = [(choose.randrange(len(roots)), choose.randint(0, 20), choose.randint(1, 4), choose.randint(0, 3))
                for _ in range(choose.randint(1, 4))]  # fmt: skip
        rows: Any = [choose.randint(0, 20) for _ in range(sum(run[2] for run in runs))]
        rows = grouped(rows)[0][1] if by_columns else rows
        made.append(Frame(3, choose.randint(1, 3), HOME, 1, 5, roots, runs, rows, 0, 0))
    return made


def whose(one: Frame) -> list[tuple[Any, ...]]:
    """Of each row: itself, its root, its offset, its way, and all roots that it is of."""

    def all_of(part: RootPart) -> Any:
        return part.key.sequence, sorted(one.roots[other].key.sequence for other in part.along)

    singles = r.single(one.runs)
    return [
        (row, all_of(one.roots[n])[0], at, way) for row, (n, at, way) in zip(one.rows, singles, strict=True)
    ]


@searching(150)
@given(st.integers(0, 2**32), st.booleans())
def test_a_gathered_frame_has_all_rows_with_their_names_and_roots(seed: int, by_columns: bool) -> None:
    frames = frames_of(seed, by_columns)
    whole = gathered(frames)
    assert r.fits(whole) and len({part.key for part in whole.roots}) == len(whole.roots)
    assert whose(whole) == [row for one in frames for row in whose(one)]
    assert (type(whole.rows) is Columns) == by_columns
    ids: dict[int, int] = {}
    along: dict[int, set[int]] = {}
    for one in frames:
        for part in one.roots:
            sequence = part.key.sequence
            ids[sequence] = ids.get(sequence, 0) ^ part.id
            along.setdefault(sequence, set()).update(one.roots[other].key.sequence for other in part.along)
    assert {part.key.sequence: part.id for part in whole.roots} == ids
    assert {
        part.key.sequence: {whole.roots[other].key.sequence for other in part.along} for part in whole.roots
    } == along


@searching(100)
@given(st.integers(0, 2**32))
def test_taken_together_or_one_after_the_other_the_same_comes_of_them(seed: int) -> None:
    def call(rows: list[int]) -> list[int]:
        if bad := [row for row in rows if row % 7 == 0]:
            raise ValueError(f"{bad[0]} is bad")
        return rows

    def outcome(frames: list[Frame]) -> tuple[Any, ...]:
        task, left = flow(batched(call)), dict.fromkeys(range(4), 0)
        for one in frames:
            for part in one.roots:
                left[part.key.sequence] ^= part.id
            for _, ack in task.take(one, S):
                left[ack.key.sequence] ^= ack.value
        out = task.results.outputs.flush(S, everything=True)
        for one in out:
            for part in one.roots:
                left[part.key.sequence] ^= part.id
        letters = Counter((letter.position, letter.variant, letter.row) for letter in task.results.letters)
        return [row for one in out for row in whose(one)], letters, left

    whole = outcome([gathered(frames_of(seed))])
    assert whole == outcome(frames_of(seed))
    assert set(whole[2].values()) == {0}


def test_what_a_frame_holds_is_known_before_it_is_read() -> None:
    for one, other in pairwise([*frames_of(1), *frames_of(2)]):
        body = msgspec.Raw(wire.write(one.rows, wire.shape_of(one.rows)))
        sent = WireFrame(msgspec.structs.replace(one, rows=[]), wire.PLAIN, body)
        assert rows_in(sent) == rows_in(one) == len(one.rows) and edge_of(sent) == edge_of(one) == other.edge
