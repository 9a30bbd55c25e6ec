"""Events that source threads accepted and that are not done, as their VMs tell of them. Pure.

A thread that is desired reads its own, also when it was started anew. What threads that are no more left (their slot
or VM was given up, or they are of an earlier run) is read by whoever reads that partition on the same VM.
"""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge, Partition
from headgate.topology_runtime.messages import SpoolLeft, ThreadSpec

Unread = dict[tuple[Partition, str], int]  # (partition, VM) → events


def end_of(k: Knowledge, thread: ThreadSpec) -> int:
    """The position behind the last event in this thread's spool that is not done; 0: there is none."""
    left = (one for one in k.spools.get(thread.slot.vm, ()) if is_of(k, one, thread))
    return next((one.end for one in left), 0)


def is_of(k: Knowledge, spool: SpoolLeft, thread: ThreadSpec) -> bool:
    """Is it this thread's spool?"""
    mine = k.settings.run, thread.thread, thread.task, thread.partition
    return (spool.run, spool.thread, spool.task, spool.partition) == mine


def unread(k: Knowledge) -> Unread:
    """Of threads that are no more."""
    found: Unread = {}
    topology, rollout = k.topology, k.durable.rollout
    if topology is None or not k.spools:
        return found
    threads = rollout.by_number if rollout is not None else {}
    partitions = {task.name: task.static.threads if task.static else 1 for task in topology.sources}
    for vm, spools in sorted(k.spools.items()):
        for one in spools:
            thread = threads.get(one.thread)
            own = thread is not None and thread.slot.vm == vm and is_of(k, one, thread)
            rows = one.end - max(one.acked, _done_below(k, one))
            if rows > 0 and not own and one.partition < partitions.get(one.task, 0):
                place = (one.task, one.partition), vm
                found[place] = found.get(place, 0) + rows
    return found


def _done_below(k: Knowledge, spool: SpoolLeft) -> int:
    """What its thread said itself, which its disk may not know."""
    known = k.counts.sources.get((spool.task, spool.partition))
    return known.below.get(spool.thread, 0) if known is not None and spool.run == k.settings.run else 0


def without_reader(k: Knowledge) -> Unread:
    """Those of `unread` on VMs where nobody reads their partition now."""
    rollout = k.durable.rollout
    threads = rollout.threads if rollout is not None else ()
    readers = {((t.task, t.partition), t.slot.vm) for t in threads if not t.leaving}
    return {place: rows for place, rows in unread(k).items() if place not in readers}
