"""Which thread of an exclusive task may work: never two, even when machines lose sight of each other. Pure.

 1. The holder of a task is journaled before anybody is told. It may work while it is desired and its VM has a
    lease (topology_runtime/lease.py).
 2. A VM is granted a lease with the answer to a report if it obeys a desired state with the present holders and
    is not held dead (`Knowledge.may_lease`).
 3. Once the holder is no longer desired, the next one is appointed: the oldest thread of the task, when the holder
    is over. It is over when its VM obeys a state without it and it had reported its end before, or its worker is
    no more; or when the last lease of its VM has run out, wherever that VM is.

A call that is under way when its thread is no longer desired is not seen: so a thread that did not report its end
counts as working until its lease is over.
"""

from __future__ import annotations

from headgate.controller.execute.desired import holders, wire_threads
from headgate.controller.execute.steps import ObservedState, said_ended
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.records import Holds
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.lease import is_over
from headgate.topology_runtime.messages import ThreadSpec, Token


def vacant(k: Knowledge) -> bool:
    """Has a task no holder? Then time alone may bring one."""
    return k.desired is not None and len(k.desired.holders) < len(k.desired.topology.exclusive)


def appoint(turn: Turn, sight: ObservedState) -> bool:
    """Journal the next holder of the first task that may have one; True when there was one."""
    k = turn.knowledge
    if k.desired is None or not k.desired.topology.exclusive:
        return False
    threads = wire_threads(k.durable)
    there = holders(k.durable, threads)
    k.rested.update(t.thread for t in threads if t.thread in k.desired.holders and said_ended(sight, t))
    last = {holder.task: holder for holder in k.durable.holders}
    for task in sorted(set(k.desired.topology.exclusive) - {holder.task for holder in there}):
        mine = [t for t in threads if t.task == task]
        if mine and (task not in last or _over(turn, sight, last[task])):
            _hold(turn, min(mine, key=lambda t: t.thread), last.get(task))
            return True
    return False


def _over(turn: Turn, sight: ObservedState, holder: Holds) -> bool:
    """Rule 3."""
    k, vm = turn.knowledge, holder.slot.vm
    assert k.desired is not None
    if is_over(turn.now.mono_ns, k.leases.get(vm, k.started_ns)):
        return True
    if sight.reported.get(vm, Token()) < k.desired.token:
        return False
    worker = sight.workers.get(holder.slot)
    return holder.thread in k.rested or worker is None or worker.state != "running"


def _hold(turn: Turn, thread: ThreadSpec, before: Holds | None) -> None:
    turn.record(Holds(thread.task, thread.thread, thread.slot))
    if before is not None:
        text = f"{thread.task} works in {thread.slot} from now on, no more in {before.slot}"
        turn.event("exclusive", text, task=thread.task, slot=str(thread.slot))
