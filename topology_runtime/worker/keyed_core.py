"""What a thread of a keyed task decides about its key ranges: which it owns, which come and go. Pure but
for the user's code and the store of snapshots, which the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from topology_runtime.instances import key_function
from topology_runtime.messages import Mark, StateMove, StateTaken, ThreadNow
from topology_runtime.worker.flow import Around, Flow
from topology_runtime.worker.keyed import KeyedFlow
from topology_runtime.worker.orders import Orders
from topology_runtime.worker.router import owners
from topology_runtime.worker.task_core import TaskCore

NS = 1_000_000_000
SNAPSHOT_EVERY_NS = NS
RESEND_NS = NS // 2
ALONE_AFTER_NS = 5 * NS  # waiting this long for state whose owner is gone

Snapshot = list[Any]  # as KeyedFlow.snapshot


class Store(Protocol):
    """Durable snapshots of one thread (snapshots.py)."""

    def load(self) -> Snapshot | None: ...
    def save(self, snapshot: Snapshot) -> None: ...
    def of_threads_gone(self, living: set[int]) -> list[Snapshot]: ...


class KeyedCore(TaskCore):
    """One thread of a task with `state: keyed`."""

    store: Store
    lost_ranges = 0  # ranges whose state was lost with their owner
    _snapshot_ns = 0
    _resend_ns = 0
    _waits_since_ns = 0
    _before = 0  # the routes it sent by before it began to wait for state
    _table: tuple[int, ...] = ()

    @property
    def keyed(self) -> KeyedFlow:
        assert isinstance(self.flow, KeyedFlow)
        return self.flow

    def adopt(self, logic: Any, pause: Callable[[float], None]) -> Flow:
        flow = super().adopt(logic, pause)
        saved = self.store.load()
        if saved is not None:
            self.keyed.restore(saved)
        return flow

    def make_flow(self, around: Around, logic: Any, pause: Callable[[float], None]) -> Flow:
        keys = {
            number: key_function(edge.key)
            for number, edge in self.topology.in_edges(self.task.name)
            if edge.key is not None
        }
        return KeyedFlow(
            around,
            "keyed",
            logic,
            self.outputs,
            pause,
            random64=self.random64,
            key=lambda edge, row: keys[edge](row),
            owner=lambda key_range: self._table[key_range] if self._table else None,
        )

    def now(self, idle: bool, failed: str = "") -> ThreadNow:
        """It has switched only when its ranges have: what left is taken, what is to come has come."""
        now = super().now(idle, failed)
        if self.flow is None or (not self.keyed.leaving and not self.missing):
            return now
        return ThreadNow(now.thread, min(now.switched, self._before), now.marked, now.empty, False, failed)

    @property
    def missing(self) -> set[int]:
        """Ranges that are this thread's by the routes but have not come yet."""
        mine = {i for i, thread in enumerate(self._table) if thread == self.wanted.thread}
        return mine - self.keyed.owned

    def obey(self, orders: Orders, now_ns: int) -> bool:
        before = self.switched
        changed = super().obey(orders, now_ns)
        if orders.number != before:
            self._before, self._waits_since_ns = before, now_ns
        routes = [
            orders.route_of[n] for n, _ in self.topology.in_edges(self.task.name) if n in orders.route_of
        ]
        self._table = tuple(owners(routes[0])) if routes else ()
        if orders.number == 1 and orders.switched and self.missing:
            self.settle(self.keyed.claim(sorted(self.missing), now_ns))
            self.save(now_ns)
        return changed

    def on_word(self, word: Mark | StateMove | StateTaken, now_ns: int) -> bool:
        if isinstance(word, Mark):
            return super().on_word(word, now_ns)
        if isinstance(word, StateTaken):
            self.keyed.on_taken(word)
            return True
        self.settle(self.keyed.on_move(word, now_ns))
        self.save(now_ns)
        self.post.send_word(StateTaken(self.wanted.thread, word.sender, word.ranges))
        return True

    @property
    def by_the_clock(self) -> bool:
        return True  # snapshots, state that is on its way

    def on_time(self, now_ns: int) -> None:
        flow, orders = self.keyed, self.orders
        if flow.dirty and (now_ns - self._snapshot_ns >= SNAPSHOT_EVERY_NS or self.going):
            self.save(now_ns)
        if orders is not None and orders.switched and self.marked >= orders.number:
            flow.let_ranges_go(orders.number)
        if flow.leaving and now_ns - self._resend_ns >= RESEND_NS:
            self._resend_ns = now_ns
            for move in flow.moves():
                self.post.send_word(move)
        if self.missing and now_ns - self._waits_since_ns > ALONE_AFTER_NS and orders and orders.switched:
            self._take_over(orders, now_ns)

    def save(self, now_ns: int) -> None:
        """A durable snapshot; the rows it covers are let go."""
        self._snapshot_ns = now_ns
        self.store.save(self.keyed.snapshot())
        self.settle(self.keyed.covered())

    def _take_over(self, orders: Orders, now_ns: int) -> None:
        """Nobody sends the state: its owner is gone. Its last snapshot on this VM, else a fresh start."""
        living = set(orders.threads_of.get(self.task.name, ()))
        for ranges, states in self.store.of_threads_gone(living):
            found = self.missing & set(ranges)
            self.keyed.restore([sorted(found), [state for state in states if state[0] in found]])
            self.settle(self.keyed.claim(sorted(found), now_ns))
        self.lost_ranges += len(self.missing)
        self.settle(self.keyed.claim(sorted(self.missing), now_ns))
        self.save(now_ns)
