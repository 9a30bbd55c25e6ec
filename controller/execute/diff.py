"""Plan now → plan next, thread by thread: what stays, what starts, what leaves. Pure.

Of each (task, slot) as many threads stay as both have. Sources and tasks of fixed size have numbered
partitions: a thread that stays keeps its partition, one that moves is a new thread of the same partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from headgate.controller.knowledge.plans import Placement, ThreadAt
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology


class ThreadChanges(msgspec.Struct, frozen=True):
    """Threads that stay, start and leave; `next_thread` is the first number not used yet."""

    keep: tuple[ThreadAt, ...]
    start: tuple[ThreadAt, ...]
    leave: tuple[ThreadAt, ...]
    next_thread: int


def diff(
    threads: tuple[ThreadAt, ...], placement: Placement, topology: Topology, next_thread: int
) -> ThreadChanges:
    """The least change that makes `threads` into `placement`. New threads are numbered from
    `next_thread` on in the placement's order."""
    partitions = _partitions(placement, topology)
    kept = _kept(threads, placement, partitions)
    staying = {thread.thread for thread in kept}
    have: defaultdict[tuple[str, Slot], int] = defaultdict(int)
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for thread in kept:
        have[thread.task, thread.slot] += 1
        taken[thread.task].add(thread.partition)
    free = {task: iter(sorted(set(range(count)) - taken[task])) for task, count in partitions.items()}
    started = []
    for bundle in placement.bundles:
        for _ in range(bundle.threads - have[bundle.task, bundle.slot]):
            partition = next(free[bundle.task]) if bundle.task in free else 0
            started.append(ThreadAt(next_thread, bundle.task, bundle.slot, partition))
            next_thread += 1
    leaving = tuple(thread for thread in threads if thread.thread not in staying)
    return ThreadChanges(tuple(kept), tuple(started), leaving, next_thread)


def _partitions(placement: Placement, topology: Topology) -> dict[str, int]:
    """Task → number of its partitions, for sources and tasks of fixed size."""
    numbered = {task.name for task in topology.sources}
    numbered |= {task.name for task in topology.tasks if task.static is not None}
    counts: dict[str, int] = {}
    for bundle in placement.bundles:
        if bundle.task in numbered:
            counts[bundle.task] = counts.get(bundle.task, 0) + bundle.threads
    return counts


def _kept(threads: Sequence[ThreadAt], placement: Placement, partitions: dict[str, int]) -> list[ThreadAt]:
    """The threads that stay, by number. Of several in one slot the lowest numbers stay; a partition
    stays in one place only."""
    room = {(bundle.task, bundle.slot): bundle.threads for bundle in placement.bundles}
    taken: set[tuple[str, int]] = set()
    kept = []
    for thread in sorted(threads, key=lambda thread: thread.thread):
        place = thread.task, thread.slot
        if room.get(place, 0) == 0:
            continue
        if thread.task in partitions:
            partition = thread.task, thread.partition
            if thread.partition >= partitions[thread.task] or partition in taken:
                continue
            taken.add(partition)
        room[place] -= 1
        kept.append(thread)
    return kept
