"""To count exactly once: what may come again is remembered, what cannot is forgotten, and nothing of a state is seen
before it is durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from keyed_family import Family, all_of
from keyed_rows_made import keyed_rows, sent
from test_keyed_frames import frame, whole_of

from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import OffsetsKept
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.applied_rows import REMEMBERED
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows

SOURCE, PARTITION = 0, 2  # of `frame`


def task_of(exactly_once: bool = True) -> KeyedRows:
    return keyed_rows(CountByKey(), lambda row: row[0], exactly_once)


def counts(task: KeyedRows) -> dict[Any, Any]:
    return {key: n for at in task.states.filled for key, n in task.states.of(at).items()}


def take(task: KeyedRows, first: int, count: int) -> None:
    for position in range(first, first + count, 1000):
        task.take(frame([("a", 0)] * min(1000, first + count - position), position), 0)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_first_of_many_rows_that_comes_again_counts_once(exactly_once: bool) -> None:
    task, many = task_of(exactly_once), 2 * REMEMBERED
    take(task, 0, many)
    take(task, 0, 1000)
    assert counts(task)["a"] == many + (0 if exactly_once else 1000)
    assert task.applied.again_at_most == (0 if exactly_once else 1000)


def test_what_the_controller_keeps_is_forgotten_and_a_late_copy_of_it_still_counts_once() -> None:
    task, many = task_of(), 3 * REMEMBERED
    take(task, 0, many)
    task.applied.done_below([(SOURCE, PARTITION, many - 500)])
    assert task.applied.rows <= REMEMBERED
    sent(task)
    for first in (0, many - 1000):
        take(task, first, 1000)
    assert counts(task)["a"] == many and task.applied.again_at_most == 0


def test_it_is_remembered_through_snapshots_of_more_rows_than_others_remember() -> None:
    task, many = task_of(), 2 * REMEMBERED
    take(task, 0, 1000)
    data = whole_of(task)
    task.covered()
    take(task, 1000, many)
    change = task.change(task.ranges.versions)
    again = task_of()
    again.restore(form.stream(data + form.added(change)))
    take(again, 0, many)
    assert counts(again)["a"] == many + 1000


def test_where_rows_are_forgotten_goes_into_snapshots() -> None:
    task = task_of()
    take(task, 0, 3000)
    task.applied.done_below([(SOURCE, PARTITION, 3000)])
    again = task_of()
    again.restore(form.stream(whole_of(task)))
    take(again, 0, 1000)
    assert counts(again)["a"] == 3000


def test_nothing_goes_on_before_a_snapshot_has_it() -> None:
    task = task_of()
    task.take(frame([("a", 0)], 1), 0)
    task.take(frame([("a", 0)], 1, attempt=1), 0)
    assert sent(task) == []
    task.cover()
    task.take(frame([("a", 0)], 2), 0)
    assert sent(task) == []
    task.released(0)
    assert set(sent(task)) == {("a", 1)}


def test_a_row_is_not_done_until_what_came_of_it_has_gone_on() -> None:
    task = task_of()
    (begun,) = task.take(frame([("a", 0)], 1, id_=0xF00), 0)
    task.cover()
    (ended,) = task.released(0)
    (out,) = task.results.outputs.flush(0, everything=True)
    left = 0xF00 ^ begun[1].value ^ ended[1].value
    assert left and left == out.roots[0].id


@pytest.fixture
def family() -> Iterator[Family]:
    yield Family({10: "vm1", 11: "vm2", 12: "vm3"}, far=True, exactly_once=True)


def test_the_word_of_the_controller_reaches_the_rows(family: Family) -> None:
    family.plan(all_of(10, 11))
    family.settle()
    family.offer(300)
    family.all_done()
    for member in family.alive:
        member.core.hear(OffsetsKept(1, (), ((0, 0, 300),)), family.now_ns)
        assert member.rows.applied.below == {(0, 0): 300}


def test_vms_that_go_with_their_disks_count_no_row_twice(family: Family) -> None:
    family.plan(all_of(10, 11))
    family.settle()
    for vm, left in (("vm1", [11, 12]), ("vm2", [12])):
        family.offer(200)
        family.run(1.0)
        family.replay()
        family.run(0.3)
        family.lose(vm)
        family.plan(all_of(*left), gone=[thread for thread in (10, 11) if thread not in left])
        family.settle()
    family.all_done()
    assert family.counts() == family.expected() and not family.lost
