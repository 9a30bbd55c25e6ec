"""Which positions of sources are believed. Pure.

 1. Only from the VM on which the desired state has that thread, and not from a VM held dead: what goes on there
    concerns the run no more. (Reports of an agent's earlier boots are out of date before they come here.)
 2. acked ≤ emitted ≤ what is offered. A VM that was cut off may read by an older, higher rate, and its clock may
    be ahead: so `LEAD_S` at the highest rate of this offer and those before it are allowed for, and what is known
    already. (A thread that was not told yet from where to read has emitted nothing, and says what its predecessor
    had acked.)
    Of a source that cannot be read twice: also what it has accepted, and of that no more waits than a spool
    holds. (Where rows are taken as they come: only that.)
 3. What a spool says is believed of the thread that reads, from its VM.

What rules 1 and 3 leave out is out of date, what rule 2 forbids is impossible: whoever says it is blamed.
"""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.spools import is_of
from headgate.topology_runtime.messages import SourceStatus, SpoolLeft
from headgate.topology_runtime.schedule import Schedule

LEAD_S = 60.0
BEHIND_MOST = 64 * 1024 * 1024  # rows: a spool holds so many bytes


def owns(k: Knowledge, vm: str, now: SourceStatus) -> bool:
    """Rule 1."""
    rollout = k.durable.rollout
    thread = rollout.by_number.get(now.thread) if rollout is not None else None
    if thread is None or vm in k.durable.held_dead:
        return False
    return (thread.slot.vm, thread.task, thread.partition) == (vm, now.task, now.partition)


def fault(k: Knowledge, now: SourceStatus, wall_ns: int) -> str:
    """Why these positions cannot be (rule 2); empty when they can."""
    if now.emitted and now.acked + now.acked_above > now.emitted:
        return f"acked {now.acked} and {now.acked_above} above, emitted {now.emitted}"
    place = now.task, now.partition
    task = k.topology.by_name[now.task] if k.topology is not None else None
    accepted = now.arrived if task is not None and task.spooled else 0
    if accepted > now.emitted + BEHIND_MOST:
        return f"{now.arrived} came, {now.emitted} emitted"
    known = k.counts.sources.get(place)
    before = max(known.emitted, known.acked) if known is not None else 0
    offered = 0 if task is not None and task.arriving else _offered(k.durable.schedule, wall_ns)
    most = max(before, accepted, offered)
    highest = max(now.emitted, now.acked + now.acked_above)
    return f"{highest} emitted or acked, offered at most {most}" if highest > most else ""


def spool_counts(k: Knowledge, vm: str, spool: SpoolLeft) -> bool:
    """Rule 3."""
    rollout = k.durable.rollout
    thread = rollout.by_number.get(spool.thread) if rollout is not None else None
    return thread is not None and not thread.leaving and thread.slot.vm == vm and is_of(k, spool, thread)


def _offered(schedule: Schedule | None, wall_ns: int) -> int:
    """Positions that can have been due, of the whole source: so of each of its partitions at most."""
    if schedule is None:
        return 0
    return schedule.due(wall_ns) + int(LEAD_S * schedule.highest_tps) + 1
