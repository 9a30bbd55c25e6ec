"""What a thread of a keyed task does about its key ranges: it answers for those of others, waits for its own,
saves what it has. Pure but for the user's code and the store of snapshots, which the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from topology_runtime.instances import key_function
from topology_runtime.messages import ThreadStatus
from topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from topology_runtime.worker.burial import Around
from topology_runtime.worker.flow import Flow
from topology_runtime.worker.keyed import KeyedFlow, KeyedSnapshot
from topology_runtime.worker.moves import Moves
from topology_runtime.worker.orders import Orders
from topology_runtime.worker.ranges import Layer, Standing, runs_of
from topology_runtime.worker.router import owners, unrolled
from topology_runtime.worker.task_core import TaskCore

NS = 1_000_000_000
SNAPSHOT_EVERY_NS = NS
SNAPSHOT_SOON_NS = NS // 10  # when somebody waits for it: ranges have moved, or the thread is to end
ASK_EVERY_NS = NS  # for the snapshot of a thread that is gone

Early = tuple[int, int, int]  # sender, routes number, first range of a message


class SnapshotStore(Protocol):
    """Durable snapshots of one thread (snapshots.py). All raise OSError."""

    def load(self) -> KeyedSnapshot | None: ...
    def save(self, snapshot: KeyedSnapshot) -> None: ...
    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of this task on this VM."""


class KeyedCore(TaskCore):
    """One thread of a task with `state: keyed`. unsaved: why the last snapshot could not be written."""

    store: SnapshotStore
    unsaved = ""
    saves_failed = 0
    _snapshot_ns = 0
    _settled = 0  # the newest routes by which everything has come and gone, durably
    _saved_changes = 0
    _saved: dict[int, int]  # versions in the last snapshot

    @property
    def keyed(self) -> KeyedFlow:
        assert isinstance(self.flow, KeyedFlow)
        return self.flow

    def adopt(self, logic: Any, pause: Callable[[float], None]) -> Flow:
        self.moves = Moves(self.desired.thread)
        self._saved = {}
        self._asked_ns: dict[int, int] = {}  # thread that is gone → when its snapshot was asked for
        self._asked = 0
        self._early: dict[Early, StateMove] = {}
        self._owed: dict[int, set[int]] = {}  # sender → ranges it is to be told of once they are durable
        flow = super().adopt(logic, pause)
        saved = self.store.load()
        if saved is not None:
            self.keyed.restore(saved)
            self._note_saved()
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
        )

    def now(self, idle: bool, failed: str = "") -> ThreadStatus:
        """It has switched only when its ranges have: what left is taken, what is to come has come."""
        now = super().now(idle, failed)
        if self.flow is None:
            return now
        flow = self.keyed
        lost = runs_of(tuple(flow.ranges.lost)) if flow.ranges.lost else ()
        return replace(
            now,
            switched=self._settled,
            lost=lost,
            applied_again=flow.applied.again_at_most,
            unsaved=self.unsaved,
        )

    # ── orders and words ────────────────────────────────────────────────────────────────────────

    def obey(self, orders: Orders, now_ns: int) -> bool:
        before = self.switched
        changed = super().obey(orders, now_ns)
        flow = self.keyed
        if orders.number != before:
            flow.refuse_offers()
            self._owed.clear()
        flow.ranges.stand(standing(self.task.name, orders))
        self.settle(flow.pass_on(now_ns))
        early, self._early = self._early, {}
        for move in early.values():
            self._on_move(move)
        self._go_on(now_ns)
        return changed

    def on_word(self, word: Barrier | StateMove | StateTaken | StateAsked, now_ns: int) -> bool:
        if isinstance(word, Barrier):
            return super().on_word(word, now_ns)
        if isinstance(word, StateMove):
            self._on_move(word)
        elif isinstance(word, StateTaken) and word.number == self.switched:
            self.keyed.taken(word.ranges)
        self._go_on(now_ns)
        return True

    def _on_move(self, move: StateMove) -> None:
        """What a keeper says by the routes in force here counts; by later ones it has to wait."""
        if move.number > self.switched and move.copies:
            self._early[move.sender, move.number, move.copies[0].key_range] = move
        if move.number != self.switched:
            return
        if move.gone is not None:
            self._on_snapshot(move.gone, move)
            return
        self.keyed.offered(move.sender, move.copies)
        self._owed.setdefault(move.sender, set()).update(copy.key_range for copy in move.copies)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    @property
    def by_the_clock(self) -> bool:
        return True  # snapshots, state that is on its way

    def on_time(self, now_ns: int) -> None:
        self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        """Everything that may be due: answers, claims, a snapshot and what depends on it."""
        flow = self.keyed
        if flow.ranges.missing:
            self._look_for_snapshots(now_ns)
            self.settle(flow.claim(now_ns))
        if flow.ranges.pending and self.orders is not None and self.marked >= self.orders.number:
            flow.ranges.let_go()
            for move in self.moves.due(self.switched, flow, now_ns):
                self.post.send_word(move)
        if flow.dirty and now_ns - self._snapshot_ns >= self._snapshot_every_ns:
            self.save(now_ns)
        self._acknowledge()
        if flow.ranges.settled and not self._moved:
            self._settled = self.switched

    @property
    def _moved(self) -> bool:
        """Have ranges come or gone since the last snapshot?"""
        return self.keyed.ranges.changes != self._saved_changes

    @property
    def _snapshot_every_ns(self) -> int:
        waited = (self._moved or self.going) and not self.unsaved
        return SNAPSHOT_SOON_NS if waited else SNAPSHOT_EVERY_NS

    def save(self, now_ns: int) -> None:
        """A durable snapshot; the rows it covers are let go. When it cannot be written, nothing is."""
        self._snapshot_ns = now_ns
        try:
            self.store.save(self.keyed.snapshot())
        except OSError as error:
            self.unsaved = str(error)
            self.saves_failed += 1
            return
        self.unsaved = ""
        self._note_saved()
        self.settle(self.keyed.covered())

    def _note_saved(self) -> None:
        ranges = self.keyed.ranges
        self._saved, self._saved_changes = dict(ranges.versions), ranges.changes

    def _acknowledge(self) -> None:
        """Tell keepers which of the ranges they answered for are here durably."""
        ranges = self.keyed.ranges
        for sender, owed in list(self._owed.items()):
            done = {r for r in owed if r in ranges.owned and self._saved.get(r) == ranges.versions[r]}
            if done:
                taken = StateTaken(self.desired.thread, sender, self.switched, tuple(sorted(done)))
                self.post.send_word(taken)
                owed -= done
            if not owed:
                del self._owed[sender]

    def _look_for_snapshots(self, now_ns: int) -> None:
        """Keepers that are gone answer by their last snapshots: those on this VM are read, on another VM any
        thread there is asked to. Where none is, nobody can answer."""
        ranges = self.keyed.ranges
        for thread, vm in ranges.snapshots_desired().items():
            if vm != self.post.slot.vm:
                self._ask_for_snapshot(thread, vm, now_ns)
                continue
            try:
                self._take_over(thread, self.store.of(thread))
            except (OSError, msgspec.DecodeError):
                ranges.cannot_read(thread)

    def _ask_for_snapshot(self, thread: int, vm: str, now_ns: int) -> None:
        """Each time another thread of that VM: one may be in a long call."""
        if now_ns - self._asked_ns.get(thread, -ASK_EVERY_NS) < ASK_EVERY_NS:
            return
        self._asked_ns[thread] = now_ns
        assert self.orders is not None
        there = sorted(number for number, slot in self.orders.slot_of.items() if slot.vm == vm)
        if not there:
            self.keyed.ranges.cannot_read(thread)
            return
        self._asked += 1
        target = there[self._asked % len(there)]
        self.post.send_word(StateAsked(self.desired.thread, target, self.switched, self.task.name, thread))

    def _on_snapshot(self, thread: int, move: StateMove) -> None:
        """What another says that a thread which is gone had; not of one that can speak for itself."""
        if thread in self.keyed.ranges.now.living:
            return
        if not move.copies:
            self.keyed.ranges.cannot_read(thread)
        self.keyed.offered(thread, move.copies)

    def _take_over(self, thread: int, saved: KeyedSnapshot | None) -> None:
        """What a thread that is gone had of the ranges that are missing."""
        ranges = self.keyed.ranges
        missing = frozenset(ranges.missing)
        self.keyed.offered(thread, saved.copies if saved is not None else ())
        ranges.hear(thread, missing)


def standing(task: str, orders: Orders) -> Standing:
    """Whose the ranges of a task are by these orders, and who may hold them."""
    routes = [orders.route_of[n] for n, _ in orders.topology.in_edges(task) if n in orders.route_of]
    mine = [keepers for keepers in orders.desired.keepers if keepers.task == task]
    dead = set(orders.desired.held_dead)
    return Standing(
        orders.number,
        tuple(owners(routes[0])) if routes else (),
        tuple(Layer(h.number, unrolled(h.ranges), h.sure) for h in mine),
        frozenset(t for t in orders.threads_of.get(task, ()) if orders.slot_of[t].vm not in dead),
        {thread: vm for h in mine for thread, vm in h.homes},
    )
