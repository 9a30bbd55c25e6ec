"""Rows that a task keeps: one generation of a position at a time, nothing stays for ever."""

from __future__ import annotations

import random

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.worker.acks import BufferedRow, alone
from headgate.topology_runtime.worker.panes import Panes


def root(
    sequence: int = 0,
    attempt: int = 0,
    incarnation: int = 1,
    thread: int = 1,
    position: int = 0,
    floor: int = 0,
) -> RootPart:
    key = RootKey(thread, incarnation, sequence, attempt)
    return RootPart(key, Slot("vm", 0), 0, 0, position, 0, floor, 0)


def kept(
    part: RootPart, row: object = "row", offset: int = 0, along: tuple[RootPart, ...] = ()
) -> BufferedRow:
    return BufferedRow(row, 0, part, offset, 0, share=1, along=along)


def rows_of(panes: Panes) -> list[object]:
    rows = [one.row for pane in panes.by_key.values() for one in pane.kept()]
    assert panes.rows == len(rows)
    assert all(pane.size for pane in panes.by_key.values()), "no pane is empty"
    return rows


def test_rows_of_one_key_come_together_in_order() -> None:
    panes = Panes()
    for n in range(5):
        panes.keep("even" if n % 2 == 0 else "odd", kept(root(n, position=n), n), n)
    pane = panes.by_key["even"]
    view = pane.rows()
    assert (len(view), list(view), view[-1], view[0], view[1:], view[-2]) == (3, [0, 2, 4], 4, 0, [2, 4], 2)
    assert [one.row for one in panes.release(pane)] == [0, 2, 4]
    assert rows_of(panes) == [1, 3]
    with pytest.raises(IndexError):
        panes.by_key["odd"].rows()[2]


@pytest.mark.parametrize(
    "newer",
    [root(attempt=1), root(incarnation=2), root(thread=2), root(sequence=4, incarnation=2, attempt=0)],
    ids=["replay", "restarted", "moved", "restarted with other frames"],
)
def test_the_newest_generation_of_a_position_wins(newer: RootPart) -> None:
    old = root()
    panes = Panes()
    panes.keep("k", kept(old, "left 0"), 0)
    panes.keep("k", kept(newer, "right 1"), 0)
    assert rows_of(panes) == ["right 1"] and [one.row for one in panes.given_up] == ["left 0"]
    assert panes.keep("k", kept(old, "right 0"), 0) is None, "late rows of the older one are refused"
    assert panes.keep("k", kept(newer, "left 1"), 0) is not None
    assert rows_of(panes) == ["right 1", "left 1"]


def test_a_moved_source_wins_though_its_worker_is_older() -> None:
    """Threads are numbered up; a partition that moves to a worker which has long been there is newer."""
    panes = Panes()
    panes.keep("k", kept(root(thread=5, incarnation=900), "old"), 0)
    panes.keep("k", kept(root(thread=9, incarnation=100), "new"), 0)
    assert rows_of(panes) == ["new"]


def test_positions_do_not_disturb_each_other() -> None:
    panes = Panes()
    panes.keep("k", kept(root(0, position=0), "a"), 0)
    panes.keep("k", kept(root(1, attempt=3, position=2), "b"), 0)
    panes.keep("k", kept(root(0, position=0), "c", offset=1), 0)
    assert rows_of(panes) == ["a", "b", "c"]


def test_rows_of_roots_below_the_floor_go() -> None:
    panes = Panes()
    for n in (3, 1, 2):
        panes.keep(n, kept(root(n, position=n), n), 0)
    panes.see([root(7, floor=3)])
    assert rows_of(panes) == [3]
    assert panes.stale(root(2).key) and not panes.stale(root(3).key)
    panes.see([root(7, floor=1)])
    assert rows_of(panes) == [3], "a floor never falls"


def test_rows_of_a_source_that_started_again_go() -> None:
    panes = Panes()
    panes.keep("k", kept(root(5), "old"), 0)
    panes.see([root(0, incarnation=2, floor=0)])
    assert rows_of(panes) == [] and panes.stale(root(6, incarnation=1).key)
    assert not panes.stale(root(0, incarnation=2).key)
    panes.see([root(9, incarnation=1, floor=8)])
    assert not panes.stale(root(0, incarnation=2).key), "what an old incarnation says does not count"


def test_rows_of_source_threads_that_are_desired_no_more_go_and_stay_away() -> None:
    panes = Panes()
    panes.keep("k", kept(root(thread=4), "gone"), 0)
    panes.keep("k", kept(root(thread=5, position=1), "stays"), 0)
    panes.forget([4, 6])
    assert rows_of(panes) == ["stays"]
    panes.see([root(3, thread=4, floor=0)])
    assert panes.stale(root(3, thread=4).key) and panes.stale(root(thread=6).key)


def test_a_row_stays_while_one_of_its_roots_is_open() -> None:
    """The output of a pane is made of many roots; one of them being done does not make it done."""
    panes = Panes()
    panes.keep("k", kept(root(1), "sum", along=(root(4), root(2, thread=2))), 0)
    panes.see([root(9, floor=5)])
    assert rows_of(panes) == ["sum"]
    panes.see([root(9, thread=2, floor=3)])
    assert rows_of(panes) == [] and len(panes.given_up) == 1


def test_released_rows_are_not_given_up_later() -> None:
    panes = Panes()
    panes.release(panes.keep("k", kept(root(1)), 0))  # type: ignore[arg-type]
    again = panes.keep("k", kept(root(6, position=6), "next"), 0)
    assert again is not None
    panes.see([root(9, floor=5)])
    assert rows_of(panes) == ["next"] and panes.given_up == []


def test_panes_grow_old_in_order() -> None:
    panes = Panes()
    for n in range(4):
        panes.keep(n, kept(root(n, position=n)), 10 * n)
    panes.keep(0, kept(root(9, position=9)), 100)
    assert [pane.key for pane in panes.older_than(20)] == [0, 1, 2]
    assert panes.older_than(-1) == []


def test_roots_out_of_their_frame_name_each_other_anew() -> None:
    roots = [root(0), root(1), root(2), root(3)]
    roots[2].along = [3, 0]
    first, along = alone(roots, 2)
    assert first.key == roots[2].key and first.along == [1, 2]
    assert [part.key for part in along] == [roots[3].key, roots[0].key]
    assert alone(roots, 1) == (roots[1], ())


@searching(150)
@given(st.integers(0, 2**32))
def test_in_any_order_only_the_newest_generation_is_left(seed: int) -> None:
    """Rows of three attempts of ten positions, floors between them, some panes released."""
    choose = random.Random(seed)
    panes, floor, newest = Panes(), 0, dict[int, int]()
    events = [(p, attempt, branch) for p in range(10) for attempt in range(3) for branch in "ab"]
    choose.shuffle(events)
    for position, attempt, branch in events:
        if choose.random() < 0.1:
            floor = min(10, floor + 1)
        part = root(position, attempt, position=position, floor=floor)
        panes.see([part])
        if panes.stale(part.key):
            assert position < floor
            continue
        pane = panes.keep(position, kept(part, (position, attempt, branch)), 0)
        assert (pane is None) == (attempt < newest.get(position, -1))
        newest[position] = max(attempt, newest.get(position, -1))
        for row in rows_of(panes):
            assert isinstance(row, tuple) and row[0] >= floor and row[1] == newest[row[0]]
        if pane is not None and pane.size == 2:
            assert {row[2] for row in pane.rows()} == {"a", "b"}
            panes.release(pane)
            del newest[position]
    panes.see([root(99, floor=10)])
    assert rows_of(panes) == []
