"""Which threads of a worker are chained: run by the thread before them, by direct calls. Pure.

Between two threads of one process a frame costs a wake of the other thread, and its rows have left the cache when it
comes to them. Where all rows of an edge go from its only sender to its only receiver, in one slot, the sender may as
well run the receiver's code itself, frame after frame (paper 4: dynamic task chaining). The receiver stays what it
is: a thread with its own object, orders, outputs, acks, counters and samples, which also does by itself whatever is
not a frame of that sender. So chains come and go between two frames, and q threads of a task remain q threads of its
model.

A task is chained only if the controller says that it computes rather than waits (`DesiredState.chained`), as the
threads of one slot cannot compute at the same time anyway, but wait together very well; or if a latency constraint
is violated and its threads together leave a part of a core (latency/countermeasures.py).
"""

from __future__ import annotations

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.latency.managers import Channels
from headgate.topology_runtime.worker.orders import Orders


def chained_to(orders: Orders, thread: int, task: str, asked: frozenset[int] = frozenset()) -> frozenset[int]:
    """The threads that this thread of `task` may run, by these orders; `asked`: those that it is to run for a latency
    constraint, whether they compute or wait."""
    found: list[int] = []
    for _, edge in orders.topology.out_edges(task):
        before, after = (frozenset(orders.threads_of.get(name, ())) for name in (task, edge.target))
        channels = Channels(edge.grouping, before, after, orders.slot_of)
        receivers = channels.after(frozenset({thread}))
        if len(receivers) != 1 or channels.before(receivers) != {thread}:
            continue
        (receiver,) = receivers
        if receiver in asked or edge.target in orders.desired.chained:
            found += [receiver] * may_be_run(orders, receiver, orders.slot_of[thread])
    return frozenset(found)


def may_be_run(orders: Orders, thread: int, slot: Slot) -> bool:
    """May the one thread that it gets rows from run it, if that is in this slot? Not if it is exclusive or keyed, gets
    rows by two edges or is to go, nor while every row is looked at."""
    name = orders.task_of[thread]
    task, alone = orders.topology.by_name[name], len(orders.topology.in_edges(name)) <= 1
    plain = not task.exclusive and task.state != "keyed" and not orders.desired.settings.strict
    return alone and plain and orders.slot_of[thread] == slot and thread not in orders.leaving
