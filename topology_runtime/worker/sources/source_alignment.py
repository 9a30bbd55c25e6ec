"""Alignment by event time: a thread of a source with a `max_drift` reads no further than so far ahead of the slowest
thread of all sources that come to the same tasks with event time. Pure.

Threads tell each other how far they have *read*, not how far their rows are done: rows that a task keeps hold nothing
up then, and whoever has read least is never held. Who was never heard holds the others up, until it is idle.
"""

from __future__ import annotations

from headgate.topology_runtime.api.timed import US
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.wire.state_moves import ReadTo
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.operators.watermarks import UNHEARD, Telling
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.sources.source_watermark import SourceWatermark


class Alignment:
    """Of one thread of `task`."""

    def __init__(self, topology: Topology, task: Task) -> None:
        beside = topology.read_beside(task.name)
        self._names = [one.name for one in beside]
        self._hear = [one.name for one in beside if one.timestamps and one.timestamps.max_drift is not None]
        drift_s = task.timestamps.max_drift if task.timestamps is not None else None
        self._drift_us = None if drift_s is None else round(drift_s * US)
        self._read: dict[int, int] = {}  # thread → how far
        self._others: frozenset[int] = frozenset()
        self._slowest, self._lowest_us = -1, UNHEARD  # of the others
        self._telling = Telling()

    @property
    def any(self) -> bool:
        """Has any of these sources a `max_drift`?"""
        return bool(self._hear)

    def obey(self, orders: Orders, thread: int) -> None:
        """Who is waited for: all threads of these sources but this one, also those that are to go."""
        every = frozenset(n for name in self._names for n in orders.threads_of.get(name, ()))
        self._others = every - {thread}
        self._read = {one: at_us for one, at_us in self._read.items() if one in self._others}
        self._find()

    def hear(self, word: ReadTo) -> None:
        self._read[word.sender] = word.at_us
        self._find()

    def _find(self) -> None:
        found = [(self._read.get(one, UNHEARD), one) for one in self._others]
        self._lowest_us, self._slowest = min(found, default=(UNHEARD, -1))

    def holds(self, times: SourceWatermark, now_ns: int) -> bool:
        """Is this thread to read no more now?"""
        if self._drift_us is None or times.read_us is None or self._slowest < 0:
            return False
        if times.read_us - self._drift_us <= self._lowest_us:
            return False
        times.hold(self._slowest, now_ns)
        return True

    def tell(self, core: ThreadCore, times: SourceWatermark, over: bool, now_ns: int) -> None:
        """Those that are not to be far ahead hear how far this thread has read."""
        orders, thread = core.orders, core.desired.thread
        if orders is None or not self._telling.due(now_ns):
            return
        read_us = times.told_read_us(now_ns, over)
        if read_us is not None and self._telling.is_told((orders.number, read_us), now_ns):
            for target in (n for name in self._hear for n in orders.threads_of.get(name, ())):
                if target != thread:
                    core.post.send_word(ReadTo(thread, target, read_us))
