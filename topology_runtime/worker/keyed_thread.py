"""The thread round a keyed task: snapshots on disk, ranges that come and go (see keyed.py)."""

from __future__ import annotations

import os
from typing import Any

from topology_runtime.clock import monotonic_ns
from topology_runtime.loading import key_function
from topology_runtime.messages import StateMove, StateTaken, ThreadNow
from topology_runtime.worker import snapshots
from topology_runtime.worker.flow import Around, Flow
from topology_runtime.worker.keyed import KeyedFlow
from topology_runtime.worker.router import owners
from topology_runtime.worker.threads import TaskThread

RESEND_NS = 500_000_000
ALONE_AFTER_NS = 5_000_000_000  # waiting this long for state whose owner is gone


class KeyedThread(TaskThread):
    """A thread of a task with `state: keyed`."""

    _snapshot_ns = 0
    _resend_ns = 0
    _waits_since_ns = 0
    _table: tuple[int, ...] = ()

    def make_flow(self, around: Around, logic: Any) -> Flow:
        keys = {
            number: key_function(edge.key)
            for number, edge in self.topology.in_edges(self.task.name)
            if edge.key is not None
        }
        return KeyedFlow(
            around,
            "keyed",
            logic,
            self._outputs,
            self.pause,
            random64=self._random64,
            key=lambda edge, row: keys[edge](row),
            owner=lambda key_range: self._table[key_range] if self._table else None,
        )

    @property
    def keyed(self) -> KeyedFlow:
        assert isinstance(self.flow, KeyedFlow)
        return self.flow

    def startup(self) -> None:
        super().startup()
        saved = snapshots.load(self._path())
        if saved is not None:
            self.keyed.restore(saved)

    def now(self) -> ThreadNow:
        now = super().now()
        flow = self.flow
        settled = isinstance(flow, KeyedFlow) and not flow.leaving and not self._missing()
        if settled or monotonic_ns() - self._waits_since_ns > ALONE_AFTER_NS:
            return now
        return ThreadNow(
            now.thread, min(now.switched, self._before), now.marked, now.empty, False, now.failed
        )

    _before = 0

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def _obey(self) -> None:
        before = self._switched
        super()._obey()
        orders = self._obeyed
        assert orders is not None
        if orders.number != before:
            self._before, self._waits_since_ns = before, monotonic_ns()
        routes = [
            orders.route_of[n] for n, _ in self.topology.in_edges(self.task.name) if n in orders.route_of
        ]
        self._table = tuple(owners(routes[0])) if routes else ()
        if orders.number == 1 and orders.switched:
            self._tell(self.keyed.claim(sorted(self._missing()), monotonic_ns()))
            self._save()

    def _missing(self) -> set[int]:
        """Ranges that are this thread's by the routes but have not come yet."""
        mine = {i for i, thread in enumerate(self._table) if thread == self.wanted.thread}
        return mine - self.keyed.owned if isinstance(self.flow, KeyedFlow) else mine

    def _on_word(self, word: StateMove | StateTaken) -> None:
        flow = self.keyed
        if isinstance(word, StateTaken):
            flow.on_taken(word)
            self.host.changed()
            return
        self._tell(flow.on_move(word, monotonic_ns()))
        self._save()
        self.host.board.send_word(StateTaken(self.wanted.thread, word.sender, word.ranges))
        self.host.changed()

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def _on_time(self) -> None:
        now_ns = monotonic_ns()
        flow, orders = self.keyed, self._obeyed
        if flow.dirty and (now_ns - self._snapshot_ns >= snapshots.EVERY_NS or self._going()):
            self._save()
        if orders is not None and orders.switched and self._marked() >= orders.number:
            flow.let_ranges_go(orders.number)
        if flow.leaving and now_ns - self._resend_ns >= RESEND_NS:
            self._resend_ns = now_ns
            for move in flow.moves():
                self.host.board.send_word(move)
        if flow.waiting and now_ns - self._waits_since_ns > ALONE_AFTER_NS:
            self._take_over()

    def _save(self) -> None:
        self._snapshot_ns = monotonic_ns()
        snapshots.save(self._path(), self.keyed.snapshot())
        self._tell(self.keyed.covered())

    def _take_over(self) -> None:
        """Nobody sends the state: its owner is gone. Its last snapshot on this VM, else a fresh start."""
        orders = self._obeyed
        assert orders is not None
        missing = self._missing()
        living = set(orders.threads_of.get(self.task.name, ()))
        for path in snapshots.of_threads_gone(self.host.directory, self.task.name, living):
            ranges, states = snapshots.load(path) or ([], [])
            found = missing & set(ranges)
            self.keyed.restore([sorted(found), [s for s in states if s[0] in found]])
            missing -= found
        print(
            f"headgate: thread {self.wanted.thread} of {self.task.name}: the state of {len(missing)} key "
            "ranges was lost with their owner; they start anew",
            flush=True,
        )
        self._tell(self.keyed.claim(sorted(self._missing() | self.keyed.waiting), monotonic_ns()))
        self._save()

    def shutdown(self) -> None:
        super().shutdown()
        if not self.keyed.owned and os.path.exists(self._path()):
            os.unlink(self._path())

    def _path(self) -> str:
        return snapshots.path_of(self.host.directory, self.task.name, self.wanted.thread)
