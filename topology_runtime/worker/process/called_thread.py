"""Threads of tasks without a worker: whoever opens one, hands it rows and closes it does so in one thread of his own.
How user code is called, what its failures are and where its rows go is a worker's own: only sockets, disk and the
looking on of others are left out. Tests of flows and the collection of sample rows run on these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.references import resolve
from headgate.topology_runtime.api.task_functions import build, is_async, key_function
from headgate.topology_runtime.api.topology import KEY_RANGES, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Pauses
from headgate.topology_runtime.worker.keyed_state import state_snapshots
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of, kind_in
from headgate.topology_runtime.worker.operators.thread_core import Ports, Post, Records, ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of
from headgate.topology_runtime.worker.rows import row_runs as r

if TYPE_CHECKING:  # with asyncio: few need it
    from headgate.topology_runtime.worker.process.async_calls import AsyncCalls

SLOT, INCARNATION = Slot("here", 0), 1


class NoDisk:
    """Snapshots are written, as a worker's are, and go nowhere."""

    stands, whole_due, under_way, late = True, False, False, False

    def look(self) -> None: ...
    def close(self) -> None: ...
    def remove(self) -> None: ...
    def load(self) -> None: ...
    def save(self, part: state_snapshots.SavedPart) -> None:
        if part.change is not None:
            state_snapshots.added(part.change)

    def of(self, thread: int, ranges: Collection[int] = ()) -> None: ...


class World(Post, Records, Protocol):
    """What called threads reach."""

    def wall_ns(self) -> int: ...


def ports_in(world: World, find: Callable[[str], Any] = resolve) -> Ports:
    """find: the object of a reference."""
    keys = partial(key_function, find=find)
    return Ports(world, world, lambda task, thread: NoDisk(), count(1).__next__, keys, world.wall_ns)


def orders_for(topology: Topology) -> Orders:
    """One thread for each task, in their order from 1 on."""
    threads = {task.name: number for number, task in enumerate(topology.tasks, 1)}
    routes = [
        m.Route(n, ((threads[edge.target], 1.0),), ((threads[edge.target], KEY_RANGES),))
        for n, edge in enumerate(topology.edges)
    ]
    desired = m.DesiredState(
        token=m.Token(1, 1, 1),
        phase="committed",
        run="here",
        topology=topology,
        user_paths=(),
        threads=tuple(m.ThreadSpec(number, task, SLOT) for task, number in threads.items()),
        routes_number=1,
        routes=tuple(routes),
        workers=(m.WorkerAt(SLOT, INCARNATION, ""),),
        settings=m.DataPlaneSettings(strict=True),
        holders=tuple(threads.values()),
    )
    return orders_of(desired, SLOT, INCARNATION)


class CalledThread:
    """Of one task. pause: what is done between two tries of a call, in place of waiting."""

    def __init__(
        self, task: Task, topology: Topology, ports: Ports, pause: Callable[[float], None] | None = None
    ) -> None:
        self.task = task
        self.logic: Any = None
        self._pause = pause
        self._calls: AsyncCalls | None = None
        number = topology.tasks.index(task) + 1
        self.core = ThreadCore(m.ThreadSpec(number, task.name, SLOT), topology, ports)

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def build(self, find: Callable[[str], Any] = resolve) -> None:
        """Its task's object. Raises HeadgateError."""
        self.logic = build(self.task, find)
        if is_async(self.logic):
            from headgate.topology_runtime.worker.process.async_calls import AsyncCalls

            self._calls = AsyncCalls(self.task.max_call_s, pause=self._pause)

    def open(self, directory: str, number: int | None = None) -> None:
        """number: of the thread, as its task is told; raises what user code raises."""
        if hasattr(self.logic, "open"):
            thread = self.core.desired.thread if number is None else number
            self._call(self.logic.open, Context(self.task.name, thread, 0, 1, directory))

    def begin(self, seen: Callable[[Any], Any] = lambda logic: logic) -> None:
        """It takes frames from now on. seen: what is called in place of its object."""
        core, logic = self.core, seen(self.logic)
        if self._calls is None:
            watch = CallWatch()
            core.behaviour = behaviour_of(
                core, logic, self._pause or Pauses(watch, time.sleep, time.monotonic), watch
            )
        else:
            kind = kind_in(self.task, self.logic)
            core.behaviour = self._calls.compose(core.results, kind, logic, at_once=True)

    def close(self) -> None:
        """Raises what user code raises."""
        try:
            if hasattr(self.logic, "close"):
                self._call(self.logic.close)
        finally:
            if self._calls is not None:
                self._calls.close()

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._calls is None:
            function(*arguments)
        else:
            self._calls.run(function(*arguments))

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, edge: int, batch: r.Batch, now_ns: int) -> None:
        """Rows that came by this edge; what comes of them leaves."""
        ends = self.core.desired.thread, list(batch.roots), list(batch.runs), list(batch.rows)
        frame = m.Frame(edge, 0, SLOT, INCARNATION, *ends, now_ns, now_ns)
        self.core.take(frame, now_ns)
        self.core.flush(now_ns, everything=True)


def batch_at(
    thread: int, sequence: int, floor: int, place: tuple[int, int, int], rows: Any, runs: Sequence[r.Run] = ()
) -> r.Batch:
    """Rows under a root of their own: the source thread's, at this (source number, partition, position)."""
    key = m.RootKey(thread, INCARNATION, sequence, 0)
    root = m.RootPart(key, SLOT, *place, 0, floor, 0)
    return r.Batch(rows, list(runs) or [(0, 0, len(rows), 0)], [root])
