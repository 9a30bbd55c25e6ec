"""What one thread is to do, read out of a desired state. Pure.

Barriers (protocol: Plans): a thread that sends by routes n sends a barrier to every thread whose last rows by older
routes it has now sent: all leaving threads of the tasks below it, and all threads of tasks that keep rows by key. A
barrier is a state: it is sent again with every desired state while the plan is SWITCHED.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.latency.path_managers import Channels
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import DesiredState, Route, SourceStart
from headgate.topology_runtime.wire.run_options import cap_at


@dataclass(frozen=True)
class Orders:
    """One desired state as all threads of a worker see it; lookups made once."""

    desired: DesiredState
    started: bool  # this state names this worker's incarnation: source positions in it are fresh
    slot_of: dict[int, Slot] = field(default_factory=dict)
    task_of: dict[int, str] = field(default_factory=dict)
    threads_of: dict[str, tuple[int, ...]] = field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    route_of: dict[int, Route] = field(default_factory=dict)
    _upstream: dict[str, tuple[int, ...]] = field(default_factory=dict, compare=False)
    _caps: dict[int, int] = field(default_factory=dict, compare=False)

    @property
    def topology(self) -> Topology:
        return self.desired.topology

    @property
    def number(self) -> int:
        return self.desired.routes_number

    @property
    def switched(self) -> bool:
        return self.desired.phase != "prepared"

    @property
    def schedule(self) -> Schedule | None:
        return self.desired.schedule

    def upstream(self, task: str) -> tuple[int, ...]:
        """Threads whose barriers a thread of `task` waits for: those of the tasks above, on VMs that live."""
        if task not in self._upstream:
            dead = set(self.desired.held_dead)
            self._upstream[task] = tuple(
                thread
                for _, edge in self.topology.in_edges(task)
                for thread in self.threads_of.get(edge.source, ())
                if self.slot_of[thread].vm not in dead
            )
        return self._upstream[task]

    def cap_of(self, target: int) -> int:
        """Rows in a frame for this thread at most."""
        cap = self._caps.get(target)
        if cap is None:
            settings, modelled = self.desired.settings, self.desired.modelled_tps.get(target)
            cap = self._caps[target] = cap_at(settings.frame_rows, modelled, settings.gap_s)
        return cap

    def barriers_to(self, task: str) -> tuple[int, ...]:
        """Threads that a thread of `task` sends barriers to once it sends by these routes."""
        found: list[int] = []
        for _, edge in self.topology.out_edges(task):
            for thread in self.threads_of.get(edge.target, ()):
                if (thread in self.leaving or edge.grouping == "fields") and thread not in found:
                    found.append(thread)
        return tuple(found)

    def start_of(self, task: str, partition: int, thread: int = -1) -> SourceStart | None:
        """Where a source thread that starts now reads from; None: not known, wait."""
        if not self.started:
            return None
        if thread in self.leaving:
            return self.gap_of(thread)
        for start in self.desired.starts:
            if (start.task, start.partition, start.thread) == (task, partition, -1):
                return start
        return None

    def gap_of(self, thread: int) -> SourceStart | None:
        """What this leaving thread is to read again if it was started again."""
        return next((start for start in self.desired.starts if start.thread == thread >= 0), None)

    def may_run(self, thread: int) -> bool:
        """An exclusive thread works only while the controller says that it is the one."""
        return not self.topology.by_name[self.task_of[thread]].exclusive or thread in self.desired.holders


def orders_of(desired: DesiredState, slot: Slot, incarnation: int) -> Orders:
    """The lookups of one desired state."""
    threads_of: dict[str, list[int]] = {}
    for thread in desired.threads:
        if not thread.answers:
            threads_of.setdefault(thread.task, []).append(thread.thread)
    return Orders(
        desired,
        any(at.slot == slot and at.incarnation == incarnation for at in desired.workers),
        {t.thread: t.slot for t in desired.threads},
        {t.thread: t.task for t in desired.threads},
        {task: tuple(threads) for task, threads in threads_of.items()},
        frozenset(t.thread for t in desired.threads if t.leaving and not t.answers),
        {route.edge: route for route in desired.routes},
    )


# ── Which threads of a worker are chained: run by the thread before them, by direct calls. Pure ───
#
# Between two threads of one process a frame costs a wake of the other thread, and its rows have left the
# cache when it comes to them. Where all rows of an edge go from its only sender to its only receiver, in one
# slot, the sender may as well run the receiver's code itself, frame after frame (paper 4: dynamic task
# chaining). The receiver stays what it is: a thread with its own object, orders, outputs, acks, counters and
# samples, which also does by itself whatever is not a frame of that sender. So chains come and go between two
# frames, and q threads of a task remain q threads of its model.
#
# A task is chained only if the controller says that it computes rather than waits (`DesiredState.chained`),
# as the threads of one slot cannot compute at the same time anyway, but wait together very well; or if a
# latency constraint is violated and its threads together leave a part of a core (latency/countermeasures.py).


def chained_to(orders: Orders, thread: int, task: str, asked: frozenset[int] = frozenset()) -> frozenset[int]:
    """The threads that this thread of `task` may run, by these orders; `asked`: those that it is to run for a latency
    constraint, whether they compute or wait. None, where the topology says that its task is unchained."""
    found: list[int] = []
    if orders.topology.by_name[task].unchained:
        return frozenset()
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
    """May the one thread that it gets rows from run it, if that is in this slot? Not if it gets rows by two edges."""
    alone = len(orders.topology.in_edges(orders.task_of[thread])) <= 1
    return alone and may_be_chained(orders, thread, slot)


def may_be_chained(orders: Orders, thread: int, slot: Slot) -> bool:
    """May it be in a chain of this slot, for a latency constraint also as the first? Not if it is exclusive, keyed or
    unchained, or is to go, nor while every row is looked at."""
    task = orders.topology.by_name[orders.task_of[thread]]
    plain = not (task.exclusive or task.unchained or task.state == "keyed" or orders.desired.settings.strict)
    return plain and orders.slot_of[thread] == slot and thread not in orders.leaving
