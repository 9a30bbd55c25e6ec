"""Source threads that leave and do not run empty in time: their successors begin, and what is open in their
ledgers is counted apart, so that a position counts as done only when both are past it. Pure.

A leaver that dies is started again by its agent and reads again what it had open. One that is lost with its VM
cannot: a stand-in, in the slot of the thread that reads now, reads it again in its place. (Not out of a spool: that was
on the lost VM.) Where nobody reads, whoever reads next begins there.
"""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.execute.desired_state import (
    busy,
    holders,
    left_behind,
    reads,
    routes_now,
    runs,
    wire_threads,
)
from headgate.controller.execute.rollout_steps import said_ended
from headgate.controller.knowledge.journal_records import Durable, HandedOver, Holds, StandIn
from headgate.controller.knowledge.knowledge import Apart, Knowledge, Turn
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.wire.messages import ThreadSpec, Token, is_over


def hand_over(turn: Turn) -> bool:
    """Journal a hand-over that is due, or is over; True when there was one."""
    k = turn.knowledge
    if k.durable.rollout is None:
        return False
    return _settle(turn) or _part(turn)


def keyed_vms(d: Durable) -> frozenset[str]:
    """VMs with threads of keyed tasks, those that leave too: what these have is on the VM's disk."""
    if d.rollout is None or d.run is None:
        return frozenset()
    keyed = {task.name for task in d.run.topology.tasks if task.state == "keyed"}
    return frozenset(t.slot.vm for t in d.rollout.threads if t.task in keyed)


def still_open(k: Knowledge, thread: ThreadSpec) -> bool:
    """Has this leaving thread, on a VM that lives, positions of its own that are not done?"""
    known = k.counts.sources.get((thread.task, thread.partition))
    return known is not None and known.has_open(thread.thread)


def _settle(turn: Turn) -> bool:
    k = turn.knowledge
    assert k.durable.rollout is not None
    there = k.durable.rollout.by_number
    _forget_settled(k)
    for gap in k.durable.apart:
        known = k.counts.source(gap.task, gap.partition)
        one = known.apart.setdefault(gap.thread, Apart(gap.emitted, gap.acked, gap.acked))
        reader = _reader(k, gap)
        orphan = gap.thread not in there and (reader is None or not _may_read(k, reader))
        orphan = orphan and not _taken_as_it_came(k, gap)
        if not one.open or orphan:
            if orphan:
                known.fall_back(gap.thread)
            turn.record(HandedOver(gap.task, gap.partition, gap.thread, gap.emitted, gap.emitted))
            return True
        if gap.thread not in there and _taken_as_it_came(k, gap):
            known.give_up(gap.thread)
            turn.record(HandedOver(gap.task, gap.partition, gap.thread, gap.emitted, gap.emitted, True))
            return True
        if gap.thread not in there and reader is not None and _may_stand_in(k):
            stand_in = replace(reader, thread=k.durable.next_thread, leaving=True)
            known.apart[stand_in.thread] = known.apart.pop(gap.thread)
            turn.record(StandIn(stand_in, gap.thread))
            where = f"{gap.task} {gap.partition}"
            turn.event("source", f"{where}: what a lost VM had open from {gap.acked} on is read again")
            return True
    return False


def _forget_settled(k: Knowledge) -> None:
    """Threads that are no more and have nothing open by the journal either. (Not before: what it does not take is
    not so, and what they had done would be open again.)"""
    assert k.durable.rollout is not None
    kept = {gap.thread for gap in k.durable.apart} | k.durable.rollout.by_number.keys()
    for known in k.counts.sources.values():
        for thread in [n for n, one in known.apart.items() if not one.open and n not in kept]:
            del known.apart[thread]


def _may_read(k: Knowledge, reader: ThreadSpec) -> bool:
    """Does it read, or was it told where to begin, on a VM that is there?"""
    place = reader.task, reader.partition
    starts = k.desired.starts if k.desired is not None and reader.slot.vm not in k.members.gone() else ()
    return runs(k, reader) or any((one.task, one.partition) == place and one.thread < 0 for one in starts)


def _may_stand_in(k: Knowledge) -> bool:
    """Would a leaving thread read now?"""
    return k.durable.phase in ("switched", "probation", "committed") and k.durable.waiting is None


def _taken_as_it_came(k: Knowledge, gap: HandedOver) -> bool:
    """Can it not be read again, since its rows are in a spool, or were?"""
    place = gap.task, gap.partition
    spooled = any((one.task, one.partition) == place for left in k.spools.values() for one in left)
    return spooled or (k.topology is not None and _comes_once(k.topology.by_name[gap.task]))


def _comes_once(task: Task) -> bool:
    return bool(task.arriving) and not task.offsets


def _reader(k: Knowledge, gap: HandedOver | ThreadSpec) -> ThreadSpec | None:
    assert k.durable.rollout is not None
    staying = [t for t in k.durable.rollout.threads if not t.leaving]
    return next((t for t in staying if (t.task, t.partition) == (gap.task, gap.partition)), None)


def _part(turn: Turn) -> bool:
    """A leaver that died and has a spool; or that reads no more and is not empty, while its successor waits."""
    k = turn.knowledge
    assert k.durable.rollout is not None and k.topology is not None
    number, _ = routes_now(k.durable)
    sources = {task.name for task in k.topology.sources}
    apart = {gap.thread for gap in k.durable.apart}
    for thread in wire_threads(k.durable):  # while PREPARED, who is about to leave reads on
        known = k.counts.sources.get((thread.task, thread.partition))
        if not thread.leaving or thread.task not in sources or known is None or thread.thread in apart:
            continue
        if busy(thread, k.members, number):
            due = k.impatient and not reads(thread, k.members, number)
            now = k.members.sources.get(thread.thread)
            if due and now is not None:  # what it took as it came it reads, though it takes no more
                known.emitted = max(known.emitted, now.arrived)
        else:
            reader = None if k.durable.phase == "prepared" else _reader(k, thread)
            end = left_behind(k, thread) if reader is not None else 0
            known.emitted = max(known.emitted, end)
            due = end > 0 or known.has_open(thread.thread)  # what the journal did not take is tried again
        if due:
            one = known.apart.get(thread.thread) or known.part(thread.thread)
            turn.record(HandedOver(thread.task, thread.partition, thread.thread, one.acked, one.emitted))
            return True
    return False


# ── Which thread of an exclusive task may work: never two, even when machines lose sight of each other.
# Pure
#
# 1. The holder of a task is journaled before anybody hears of it. It may work while it is desired and its VM has
# a lease (topology_runtime/wire/messages.py).
# 2. A VM is granted a lease with the answer to a report if it obeys a desired state with the present holders
# and is not held dead (`Knowledge.may_lease`).
# 3. Once the holder is no longer desired, the next one is appointed: the oldest thread of the task, when the
# holder is over. It is over when its VM obeys a state without it and it had reported its end before, or its
# worker is no more; or when the last lease of its VM has run out, wherever that VM is.
#
# A call that is under way when its thread is no longer desired is not seen: so a thread that did not report
# its end counts as working until its lease is over.


def vacant(k: Knowledge) -> bool:
    """Has a task no holder? Then time alone may bring one."""
    return k.desired is not None and len(k.desired.holders) < len(k.desired.topology.exclusive)


def appoint(turn: Turn) -> bool:
    """Journal the next holder of the first task that may have one; True when there was one."""
    k = turn.knowledge
    if k.desired is None or not k.desired.topology.exclusive:
        return False
    threads = wire_threads(k.durable)
    there = holders(k.durable, threads)
    k.rested.update(t.thread for t in threads if t.thread in k.desired.holders and said_ended(k.members, t))
    last = {holder.task: holder for holder in k.durable.holders}
    for task in sorted(set(k.desired.topology.exclusive) - {holder.task for holder in there}):
        mine = [t for t in threads if t.task == task]
        if mine and (task not in last or _over(turn, last[task])):
            _hold(turn, min(mine, key=lambda t: t.thread), last.get(task))
            return True
    return False


def _over(turn: Turn, holder: Holds) -> bool:
    """Rule 3."""
    k, vm = turn.knowledge, holder.slot.vm
    assert k.desired is not None
    if is_over(turn.now.mono_ns, k.leases.get(vm, k.started_ns)):
        return True
    if turn.members.tokens.get(vm, Token()) < k.desired.token:
        return False
    worker = turn.members.workers.get(holder.slot)
    return holder.thread in k.rested or worker is None or worker.state != "running"


def _hold(turn: Turn, thread: ThreadSpec, before: Holds | None) -> None:
    turn.record(Holds(thread.task, thread.thread, thread.slot))
    if before is not None:
        text = f"{thread.task} works in {thread.slot} from now on, no more in {before.slot}"
        turn.event("exclusive", text, task=thread.task, slot=str(thread.slot))
