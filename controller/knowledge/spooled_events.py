"""Events that source threads accepted and that are not done, as their VMs report them. Pure.

A thread that is desired reads its own, also when it was started again. What threads that are no more left (their slot
or VM was given up, or they are of an earlier run) is read by whoever reads that partition on the same VM.
"""

from __future__ import annotations

from headgate.controller.knowledge.journal_records import EventsGone
from headgate.controller.knowledge.knowledge import Knowledge, Partition, Turn
from headgate.controller.knowledge.membership import MembershipChange
from headgate.topology_runtime.wire.messages import Report, SpoolLeft, ThreadSpec
from headgate.topology_runtime.wording import counted

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


# ── Events that a source had accepted on a VM that is lost: they are on its disk and nowhere else. Pure ───
#
# They are counted from what the VM said last, so what came and went in its last half second may be more or
# less. They are gone no more when its threads go on, or when it is taken back and its disk still has them:
# they are accepted again then (protocol: Sources).


def left_on_vms(k: Knowledge) -> int:
    """Events that were accepted and lie on VMs that are lost, or where nothing can read them."""
    gone = k.durable.events_gone
    return sum(gone.values()) + sum(rows for (_, vm), rows in unread(k).items() if vm not in gone)


def held_on(k: Knowledge, vm: str) -> int:
    """Events that were accepted and are on this VM's disk, of threads that are no more and of others."""
    member = k.members.members.get(vm)
    return k.durable.events_gone.get(vm, 0) or _accepted(k, member.report if member is not None else None, vm)


def watch_lost_events(turn: Turn, changes: tuple[MembershipChange, ...]) -> None:
    """VMs were lost, left, or are heard again. Of one that was lost there is "back", "restarted" or both."""
    k = turn.knowledge
    anew = {change.vm for change in changes if change.kind in ("joined", "restarted")}
    for change in changes:
        if change.kind == "lost":
            _gone(turn, change.vm)
        elif change.kind == "left":
            events = _unread(k, change.vm)
            how = f"left with {counted(events, 'event')} that its sources had accepted and nobody could read"
            _add(turn, change.vm, events, how)
        elif change.vm not in k.durable.held_dead:  # what is planned there goes on, if it has what it had
            has_them = bool(k.spools.get(change.vm)) if change.vm in anew else change.kind == "back"
            if has_them:
                _are_back(turn, change.vm)


def events_taken_back(turn: Turn, vm: str) -> None:
    """A VM that was held dead may be planned with again."""
    report = turn.members.members[vm].report
    if report is not None and report.spools:
        _are_back(turn, vm)


def _gone(turn: Turn, vm: str) -> None:
    k, report = turn.knowledge, turn.members.members[vm].report
    if report is None and _took_events(k, vm):
        text = f"{vm} is gone with what its sources had accepted; how much, no report said"
        turn.event("events_gone", text, level="error", vm=vm, events=None)
    events = _accepted(k, report, vm)
    _add(
        turn,
        vm,
        events,
        f"is gone with {counted(events, 'event')} that its sources had accepted, as it last said",
    )


def _add(turn: Turn, vm: str, events: int, how: str) -> None:
    if events:
        turn.record(EventsGone(vm, turn.knowledge.durable.events_gone.get(vm, 0) + events, turn.now.wall_ns))
        turn.event("events_gone", f"{vm} {how}", level="error", vm=vm, events=events)


def _are_back(turn: Turn, vm: str) -> None:
    events = turn.knowledge.durable.events_gone.get(vm, 0)
    if events:
        turn.record(EventsGone(vm, 0, turn.now.wall_ns))
        text = f"{vm} is back with the {counted(events, 'event')} that were gone with it"
        turn.event("events_back", text, vm=vm, events=events)


def _took_events(k: Knowledge, vm: str) -> bool:
    rollout, topology = k.durable.rollout, k.topology
    if rollout is None or topology is None:
        return False
    return any(t.slot.vm == vm and topology.by_name[t.task].spooled for t in rollout.threads)


def _accepted(k: Knowledge, report: Report | None, vm: str) -> int:
    """And not done, by its last report."""
    sources = report.sources if report is not None else ()
    own = sum(max(0, s.arrived - s.acked - s.acked_above) for s in sources if s.seen_ns)
    return own + _unread(k, vm)


def _unread(k: Knowledge, vm: str) -> int:
    return sum(rows for (_, where), rows in unread(k).items() if where == vm)
