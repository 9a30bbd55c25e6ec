"""Which threads of a worker are chained: run by the thread before them, by direct calls. Pure.

Between two threads of one process a frame costs a wake of the other thread, and its rows have left the cache when it
comes to them. Where all rows of an edge go from its only sender to its only receiver, in one slot, the sender may as
well run the receiver's code itself, frame after frame (paper 4: dynamic task chaining). The receiver stays what it
is: a thread with its own object, orders, outputs, acks, counters and samples, which also does by itself whatever is
not a frame of that sender. So chains come and go between two frames, and q threads of a task remain q threads of its
model.

A task is chained only if the controller says that it computes rather than waits (`DesiredState.chained`), as the
threads of one slot cannot compute at the same time anyway, but wait together very well.
"""

from __future__ import annotations

from topology_runtime.worker.orders import Orders


def chained_to(orders: Orders, thread: int, task: str) -> frozenset[int]:
    """The threads that this thread of `task` may run, by these orders."""
    desired, found = orders.desired, []
    if desired.settings.strict or orders.threads_of.get(task) != (thread,):
        return frozenset()
    for number, edge in orders.topology.out_edges(task):
        route, receiver = orders.route_of.get(number), orders.topology.by_name[edge.target]
        if edge.target not in desired.chained or receiver.exclusive or receiver.state == "keyed":
            continue
        alone = orders.threads_of.get(edge.target, ())
        if len(orders.topology.in_edges(edge.target)) > 1 or len(alone) != 1 or alone[0] in orders.leaving:
            continue
        if route is None or [target for target, _ in route.targets] != list(alone):
            continue
        if orders.slot_of[alone[0]] == orders.slot_of[thread]:
            found.append(alone[0])
    return frozenset(found)
