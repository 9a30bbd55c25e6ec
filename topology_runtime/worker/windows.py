"""A task that keeps rows in window panes (`logic.Hold`) until one is ready or old enough to fire. Pure but for the
user's code. Which rows a pane has is in panes.py, what kept rows do to acks in acks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from headgate.topology_runtime.messages import Frame
from headgate.topology_runtime.worker import attempts
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.acks import AckSums, Addressed, BufferedRow, single_rows, together
from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.panes import Pane, Panes
from headgate.topology_runtime.worker.router import owners, range_of
from headgate.topology_runtime.worker.thread_core import Behaviour, ThreadCore
from headgate.topology_runtime.worker.user_code import UserCode

DRAINED_AFTER_NS = 500_000_000  # without a row while the run drains: what is kept is all there is

_identity = attrgetter("identity")

Keeper = Callable[[int, Any], int | None]  # (in-edge, row) → the other thread that keeps such a row now


class WindowRows:
    """The rows that one thread keeps."""

    def __init__(self, code: UserCode, random64: Callable[[], int]) -> None:
        self.code, self.results, self.random64 = code, code.results, random64
        self.panes, self._feeders = Panes(), self.results.around.feeders
        self._taken_ns = 0

    @property
    def holding(self) -> int:
        return self.panes.rows

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """Rows into their panes; a pane that is complete fires before the next row is looked at, so that what
        a task sees does not depend on how rows came in frames."""
        self._taken_ns = now_ns
        self.panes.see(frame.roots)
        acks = AckSums(frame.roots)
        for row in single_rows(frame, frame.edge, self.random64, self.panes.all_stale):
            self._keep(row, now_ns, acks)
        return self._all(acks)

    def _all(self, acks: AckSums) -> list[Addressed]:
        """These acks, and that rows are kept no more though they were not finished."""
        given_up, self.panes.given_up = self.panes.given_up, []
        for row in given_up:
            acks.give_up(row)
        return acks.all()

    def _keep(self, row: BufferedRow, now_ns: int, acks: AckSums) -> None:
        logic, source = self.code.logic, self._feeders[row.edge]
        key, failed = self.code.one(lambda: _hashable(logic.key(row.row, source)), row)
        if failed is not None:
            self.results.bury_one(row, failed)
            return
        pane = self.panes.keep(key, row, now_ns)
        if pane is None:
            acks.refuse(row)
            return
        acks.keep(row)
        ready, failed = self.code.one(lambda: bool(logic.ready(key, pane.rows())), row)
        if failed is not None:
            self._bury(self._released(pane, acks), failed)
        elif ready:
            self._fire(pane, now_ns, acks)

    def _released(self, pane: Pane, acks: AckSums) -> list[BufferedRow]:
        """The rows of a pane, kept no more."""
        rows = self.panes.release(pane)
        for row in rows:
            acks.let_go(row)
        return rows

    def _fire(self, pane: Pane, now_ns: int, acks: AckSums) -> None:
        """Finish a pane: let its rows go and emit its output. The task gets the rows in the order of their
        sources, so that its output and the names of that are the same whatever order they came in."""
        rows = sorted(self._released(pane, acks), key=_identity)
        bare = [row.row for row in rows]
        if self.results.pieces is not None:
            self.results.pieces.begin(len(rows))
        out, failed = self.code.one(lambda: list(self.code.logic.finish(pane.key, bare)), rows[0], "bucket")
        if failed is not None:
            self._bury(rows, failed)
            return
        if self.results.around.sink:
            self._finish(rows)
        self._emit_for_all(out, rows, now_ns, acks)

    def _bury(self, rows: Iterable[BufferedRow], failed: attempts.Failure) -> None:
        """The failure of a call about these rows is the failure of each of them."""
        for row in rows:
            self.results.bury_one(row, failed)

    def _finish(self, rows: Sequence[BufferedRow]) -> None:
        roots = {row.root.key: row.root for row in rows}
        numbers = {key: number for number, key in enumerate(roots)}
        runs = r.joined((numbers[row.root.key], row.offset, row.variant) for row in rows)
        self.results.finish(r.Batch(rows, runs, list(roots.values())))

    def _emit_for_all(
        self, out: Sequence[Any], rows: Sequence[BufferedRow], now_ns: int, acks: AckSums
    ) -> None:
        """What comes of a pane keeps *every* root of its rows open until it is done. It is named after the first
        row, and a replay that fills the pane with the same rows gives the same names."""
        if not out or not self.results.outputs.edges:
            return
        variant, roots = r.over_pane(map(_identity, rows)), together(rows)
        named = [(0, rows[0].offset, 1, r.over_index(variant, i)) for i in range(len(out))]
        acks.give(roots, self.results.emit(r.Batch(out, named, roots), now_ns))

    # ── time and moves ──────────────────────────────────────────────────────────────────────────

    def fire_old(self, now_ns: int, draining: bool) -> list[Addressed]:
        """Fire panes that are old enough. While the run drains, those with an age limit as soon as nothing has
        come for half a second: a join's other half may still be on its way."""
        limit_s = self.code.logic.max_age_s
        if limit_s is None:
            return []
        last = draining and now_ns - self._taken_ns >= DRAINED_AFTER_NS
        return self._fire_all(self.panes.older_than(now_ns if last else now_ns - int(limit_s * 1e9)), now_ns)

    def fire_all(self, now_ns: int) -> list[Addressed]:
        """Fire every pane now (a leaver whose rows no other thread can take over)."""
        return self._fire_all(list(self.panes.by_key.values()), now_ns)

    def _fire_all(self, panes: Iterable[Pane], now_ns: int) -> list[Addressed]:
        acks = AckSums()
        for pane in panes:
            self._fire(pane, now_ns, acks)
        return self._all(acks)

    def hand_over(self, keeper: Keeper, now_ns: int) -> list[Addressed]:
        """Rows of panes whose key another thread keeps now go there, by the edge they came by."""
        acks = AckSums()
        for pane in list(self.panes.by_key.values()):
            targets = [keeper(row.edge, row.row) for row in pane.kept()]
            other = next((target for target in targets if target is not None), None)
            if other is None:
                continue
            for row, target in zip(self._released(pane, acks), targets, strict=True):
                to = other if target is None else target
                acks.give(row.roots, self.results.outputs.forward(row, to, now_ns))
        return self._all(acks)


class WindowTask(Behaviour):
    def __init__(self, core: ThreadCore, windows: WindowRows) -> None:
        self.core, self.windows = core, windows

    @property
    def holding(self) -> int:
        return self.windows.holding

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        return self.windows.take(frame, now_ns)

    def on_time(self, now_ns: int) -> None:
        orders = self.core.orders
        if orders is not None and self.holding:
            self.core.settle(self.windows.fire_old(now_ns, orders.desired.draining))

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        self.windows.panes.forget(gone)
        self.on_barriers(now_ns)

    def on_barriers(self, now_ns: int) -> None:
        """Kept rows whose keeper is another thread now go there, once all barriers are in."""
        core, orders = self.core, self.core.orders
        if orders is None or not self.holding or not orders.switched or core.marked < orders.number:
            return
        if any(edge.grouping == "fields" for _, edge in core.topology.in_edges(core.task.name)):
            core.settle(self.windows.hand_over(self._keeper(orders), now_ns))
        elif core.leaving:
            core.settle(self.windows.fire_all(now_ns))

    def _keeper(self, orders: Orders) -> Keeper:
        tables = {
            number: (owners(orders.route_of[number]), self.core.ports.key_of(edge.key))
            for number, edge in self.core.topology.in_edges(self.core.task.name)
            if edge.grouping == "fields" and edge.key is not None and number in orders.route_of
        }
        here = self.core.desired.thread

        def keeper(edge: int, row: Any) -> int | None:
            if edge not in tables:
                return None
            table, key = tables[edge]
            owner = table[range_of(key(row))]
            return None if owner == here else owner

        return keeper


def _hashable(key: Any) -> Hashable:
    hash(key)
    found: Hashable = key
    return found
