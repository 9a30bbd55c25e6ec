"""The least change from the threads there are to a placement."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import checked, requests

from headgate.controller.execute.diff import diff
from headgate.controller.knowledge.plans import Bundle, Placement, ThreadAt
from headgate.controller.plan.planner import make_plan
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

TOPOLOGY = Topology("t", (Task("in", static=Static(3)), Task("a")), (Edge("in", "a"),))
S0, S1, S2 = (Slot("vm1", number) for number in range(3))


def placement(*bundles: tuple[Slot, str, int]) -> Placement:
    return Placement(tuple(Bundle(*bundle) for bundle in bundles))


def test_a_first_placement_starts_everything_in_order():
    change = diff((), placement((S0, "in", 2), (S0, "a", 1), (S1, "in", 1)), TOPOLOGY, 5)
    assert change.start == (
        ThreadAt(5, "in", S0, 0), ThreadAt(6, "in", S0, 1), ThreadAt(7, "a", S0), ThreadAt(8, "in", S1, 2),
    )  # fmt: skip
    assert (change.keep, change.leave, change.next_thread) == ((), (), 9)


def test_only_what_differs_starts_and_leaves():
    now = tuple(ThreadAt(number, "a", slot) for number, slot in ((1, S0), (2, S0), (3, S1)))
    change = diff(now, placement((S0, "a", 1), (S1, "a", 1), (S2, "a", 2)), TOPOLOGY, 4)
    assert [thread.thread for thread in change.keep] == [1, 3]
    assert [(thread.thread, thread.slot) for thread in change.start] == [(4, S2), (5, S2)]
    assert [thread.thread for thread in change.leave] == [2]


def test_a_moved_partition_is_a_new_thread_of_the_same_partition():
    now = (ThreadAt(1, "in", S0, 0), ThreadAt(2, "in", S1, 1), ThreadAt(3, "in", S1, 2))
    change = diff(now, placement((S0, "in", 1), (S1, "in", 1), (S2, "in", 1)), TOPOLOGY, 4)
    assert change.keep == now[:2]
    assert change.start == (ThreadAt(4, "in", S2, 2),)
    assert change.leave == (now[2],)


def test_a_partition_that_exists_twice_stays_once():
    """In mid re-plan the old and the new thread of a partition both run."""
    now = (
        ThreadAt(1, "in", S0, 0),
        ThreadAt(2, "in", S1, 0),
        ThreadAt(3, "in", S1, 1),
        ThreadAt(4, "in", S1, 2),
    )
    change = diff(now, placement((S0, "in", 1), (S1, "in", 2)), TOPOLOGY, 5)
    assert [thread.thread for thread in change.keep] == [1, 3, 4]
    assert change.start == ()


def test_partitions_beyond_the_number_of_threads_leave():
    now = tuple(ThreadAt(number, "in", S0, 3 - number) for number in (1, 2, 3))
    change = diff(now, placement((S0, "in", 2)), TOPOLOGY, 4)
    assert [thread.partition for thread in change.keep] == [1, 0]


@checked
@given(requests(), st.floats(0.0, 1.0), st.randoms(use_true_random=False))
def test_every_change_is_minimal_and_complete(request, part, random):
    try:
        before, after = make_plan(request), make_plan(replace(request, rate_tps=request.rate_tps * part))
    except Infeasible:
        return
    threads = diff((), before.placement, request.topology, 1).start
    slots = [slot for vm in before.vms for slot in vm.all_slots()]
    names = dict(zip(slots, random.sample(slots, len(slots)), strict=True))
    threads = tuple(replace(thread, slot=names[thread.slot]) for thread in threads)
    change = diff(threads, after.placement, request.topology, len(threads) + 1)
    have = Counter((thread.task, thread.slot) for thread in threads)
    desired = {(bundle.task, bundle.slot): bundle.threads for bundle in after.placement.bundles}
    assert len(change.keep) == sum(min(count, have[place]) for place, count in desired.items())
    assert Counter((t.task, t.slot) for t in (*change.keep, *change.start)) == desired
    assert sorted([*change.keep, *change.leave], key=lambda t: t.thread) == list(threads)
    numbers = [thread.thread for thread in change.start]
    assert numbers == list(range(len(threads) + 1, change.next_thread))
    partitions = defaultdict(list)
    for thread in (*change.keep, *change.start):
        partitions[thread.task].append(thread.partition)
    for task in request.topology.tasks:
        found = sorted(partitions[task.name])
        assert found == (list(range(len(found))) if task.static else [0] * len(found))
