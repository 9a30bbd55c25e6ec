"""A task with state per key, and what its thread does about key ranges: it answers for those of others, waits for
its own, saves what it has. Pure but for the user's code and the store of snapshots, which the caller gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.messages import ELSEWHERE, Frame, OffsetsKept, ThreadStatus
from headgate.topology_runtime.wire.report_messages import HeldState
from headgate.topology_runtime.wire.state_moves import RangeWatermarks, StateAsked, StateMove, StateTaken
from headgate.topology_runtime.wire.state_questions import StateAnswer, StateQuestion
from headgate.topology_runtime.worker.calls.attempts import StartAgain
from headgate.topology_runtime.worker.calls.router import owners, unrolled
from headgate.topology_runtime.worker.keyed_state.kept_states import Overflow
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Standing, runs_of
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.range_answers import Moves
from headgate.topology_runtime.worker.keyed_state.snapshot_parts import (
    OF_AWAITED,
    OF_CHANGES,
    OF_WHOLES,
    SnapshotParts,
    StepPace,
)
from headgate.topology_runtime.worker.keyed_state.state_looks import looked_up
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    NotRead,
    SavedPart,
    SavedWhole,
    SnapshotStore,
)
from headgate.topology_runtime.worker.operators.state_sizes import StateSizes
from headgate.topology_runtime.worker.operators.thread_core import Behaviour, Heard, ThreadCore
from headgate.topology_runtime.worker.operators.watermarks import done_places
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows.acks import Addressed

NS = 1_000_000_000
SNAPSHOT_EVERY_NS = NS
SNAPSHOT_SOON_NS = NS // 10  # when somebody waits for it: ranges have moved, the thread is to end, or …
SLOW_NS = 10 * NS  # a snapshot that is under way for longer is an alarm
SNAPSHOT_ROWS = 100_000  # … all threads of the task keep so many, of the 200,000 that a ledger may have kept
SNAPSHOT_BYTES = 48 << 20  # … or so much of what came of rows waits for it (rows of 2 KB never do)
PATIENT_TRIES = 6  # to build a thread, before keys whose state `restore` does not take are set aside
THREADS_NOT_KNOWN = 4  # with state in a slot, before there are orders
ASK_EVERY_NS = NS  # for the snapshot of a thread that is gone

Early = tuple[int, int, int]  # sender, routes number, first range of a message


class SaveUnderWay(NamedTuple):
    """A part of a snapshot, under way: versions and changes of ranges by then; does it cover all rows?"""

    versions: dict[int, int]
    changes: int
    covers: bool


class KeyedTask(Behaviour):
    """A task with `state: keyed`. unsaved: why the last snapshot could not be written. unread: what stands in the way
    of reading those of threads that are gone. snapshot_every_ns: between two, where nobody waits for one."""

    snapshot_every_ns = SNAPSHOT_EVERY_NS

    def __init__(self, core: ThreadCore, rows: KeyedRows) -> None:
        self.core, self.rows = core, rows
        self.parts, self._pace = SnapshotParts(rows), StepPace()
        self.store: SnapshotStore = core.ports.snapshots(core.task.name, rows.thread)
        self.unsaved, self.saves_failed, self.unread = "", 0, ""
        self._rows_soon = SNAPSHOT_ROWS
        self._retried_ns = 0
        self.bound_memory()
        self._state_sizes = StateSizes()
        self._held_state: HeldState | None = None
        self._moves = Moves(rows.thread)
        self._settled = 0  # the newest routes by which everything has come and gone, durably
        self._snapshot_ns = self._given_ns = self._saved_changes = 0
        self._saved: dict[int, int] = {}  # versions in the last snapshot
        self.unsure = False  # was it a former life's, and may be less the next time it is read?
        self._given: SaveUnderWay | None = None  # under way
        self._asked_ns: dict[int, int] = {}  # thread that is gone → when its snapshot was asked for
        self._asked = 0
        self._early: dict[Early, StateMove] = {}
        self._owed: dict[int, set[int]] = {}  # sender → ranges it is to be told of once they are durable
        self.started_again = 0  # times that all since the last snapshot was forgotten
        self.said = ""  # why it was the last time
        self.answers: deque[StateAnswer] = deque()  # taken by another thread
        self._take_up()

    def _take_up(self) -> None:
        """What the former life of this thread saved. Where a life between the two may have begun from less, and its
        snapshot come late, nothing is told of what was read before one of this life is durable. Raises what `restore`
        does, unless that is of some keys alone and for long: what it needs may be there soon, and the thread is built
        again."""
        saved = self.store.load()
        self.unsure = saved is not None and self.store.late
        if saved is not None:
            self.rows.restore(saved)
        if self.unsure:
            self.rows.dirty, self._saved_changes = True, self.rows.ranges.changes
        elif saved is not None:
            self.rows.restored()
            self._note_saved()
        aside, of, why = self.rows.states.asides()
        if why is not None and (aside == of or self.core.tries < PATIENT_TRIES):
            raise why

    def _start_again(self, why: StartAgain, now_ns: int) -> None:
        """As if the worker had been killed and started again, but for this thread alone: what is not in the last
        snapshot is forgotten, and its rows, which are still kept at their sources, come again. Then states are kept row
        by row, so that the row which spoils one is found."""
        self.said, self.started_again = str(why), self.started_again + 1
        results = self.rows.results
        results.letters, results.finished, results.edge = [], [], None
        if results.pieces is not None:
            results.log()
        before = self.rows.states.overflow
        self.rows = self._without_state()
        if before is not None:
            before.store.clear()
            self.rows.states.overflow = Overflow(before.store, before.most_bytes)
        self.parts = SnapshotParts(self.rows, self.parts.most)
        self.rows.states.be_careful(self.started_again)
        self._moves, self._settled, self._snapshot_ns = Moves(self.rows.thread), 0, now_ns
        self._given = None
        self._saved, self._saved_changes, self._owed, self._asked_ns = {}, 0, {}, {}
        self._take_up()
        if self.core.orders is not None:
            self.on_orders((), True, now_ns)

    def _without_state(self) -> KeyedRows:
        rows = self.rows
        return KeyedRows(rows.code, rows.random64, rows.key_of, rows.exactly_once)

    @property
    def holding(self) -> int:
        return self.rows.holding

    # ── memory ──────────────────────────────────────────────────────────────────────────────────

    def bound_memory(self) -> None:
        """What the slot has for states is shared by its keyed threads."""
        ports, orders = self.core.ports, self.core.orders
        if ports.overflow is None or not ports.state_bytes:
            return
        many = THREADS_NOT_KNOWN
        if orders is not None:
            keyed = {task.name for task in orders.topology.tasks if task.state == "keyed"}
            here = [thread for thread, slot in orders.slot_of.items() if slot == self.core.post.slot]
            many = max(1, sum(orders.task_of[thread] in keyed for thread in here))
        most_bytes = ports.state_bytes // many
        if self.rows.states.overflow is None:
            store = ports.overflow(self.core.task.name, self.rows.thread)
            self.rows.states.overflow = Overflow(store, most_bytes)
        self.rows.states.overflow.most_bytes = most_bytes

    def _keep_memory(self, now_ns: int) -> None:
        """Once a second: the store is tried again, and states that came since go."""
        overflow = self.rows.states.overflow
        if overflow is not None and now_ns - self._retried_ns >= NS:
            self._retried_ns, overflow.rests = now_ns, False
            self.rows.states.keep_bound()

    @property
    def cannot_overflow(self) -> str:
        """Why states that memory has no room for stay there."""
        overflow = self.rows.states.overflow
        return overflow.trouble if overflow is not None else ""

    def forget_overflow(self) -> None:
        """The thread ends."""
        if (overflow := self.rows.states.overflow) is not None:
            overflow.store.clear()
            self.rows.states.overflow = None

    @property
    def by_the_clock(self) -> bool:
        return True  # snapshots, state that is on its way

    def status(self, status: ThreadStatus) -> ThreadStatus:
        """It has switched only when its ranges have: what left is taken, what is to come has come."""
        ranges, again = self.rows.ranges, self.rows.applied.again_at_most
        lost = runs_of(tuple(ranges.lost)) if ranges.lost else ()
        failed = status.failed or next(iter(self.rows.troubles.values()), "")
        return replace(
            status,
            switched=self._settled,
            lost=lost,
            applied_again=again,
            unsaved=self.unsaved or self.unread,
            failed=failed,
            held=self._held_state,
        )

    @property
    def _keys(self) -> int:
        return self.rows.states.many + self.rows.states.stored

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        try:
            return self.rows.take(frame, now_ns)
        except StartAgain as why:
            self._start_again(why, now_ns)
            return []

    # ── orders and words ────────────────────────────────────────────────────────────────────────

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        assert self.core.orders is not None
        if rerouted:
            self.rows.refuse_offers()
            self._owed.clear()
        self.rows.ranges.stand(standing(self.core.task.name, self.core.orders))
        threads = self.core.orders.threads_of.get(self.core.task.name, ())
        self._rows_soon = SNAPSHOT_ROWS // max(1, len(threads))
        self.bound_memory()
        self.core.settle(self.rows.pass_on(now_ns))
        early, self._early = self._early, {}
        for move in early.values():
            self._on_move(move)
        self.on_time(now_ns)

    def on_word(self, word: Heard, now_ns: int) -> bool:
        if isinstance(word, StateQuestion):
            home = self.core.post.slot, self.core.post.incarnation
            self.answers.append(looked_up(self.rows, word, home, self.core.ports.wall_ns()))
            return True
        if isinstance(word, StateMove):
            self._on_move(word)
        elif isinstance(word, StateTaken) and word.number == self.core.switched:
            self.rows.taken(word.ranges)
        elif isinstance(word, OffsetsKept):
            self.rows.applied.done_below(word.positions)
            return False
        elif isinstance(word, RangeWatermarks):
            self.rows.applied.done_below(done_places(word))
            return False
        self.on_time(now_ns)
        return True

    def _on_move(self, move: StateMove) -> None:
        """What a keeper says by the routes in force here counts; by later ones it has to wait."""
        if move.number > self.core.switched and move.copies:
            self._early[move.sender, move.number, move.copies[0].key_range] = move
        if move.number != self.core.switched:
            return
        if move.gone is not None:
            self._on_snapshot(move.gone, move)
            return
        self.rows.offered(move.sender, move.copies)
        self._owed.setdefault(move.sender, set()).update(copy.key_range for copy in move.copies)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def on_time(self, now_ns: int) -> None:
        """Everything that may be due: answers, claims, a snapshot and what depends on it."""
        try:
            self._on_time(now_ns)
        except StartAgain as why:
            self._start_again(why, now_ns)

    def _on_time(self, now_ns: int) -> None:
        core, rows = self.core, self.rows
        self._keep_memory(now_ns)
        self._look_at_snapshot(now_ns)
        if rows.ranges.missing:
            self._look_for_snapshots(now_ns)
            core.settle(rows.claim(now_ns))
        if rows.ranges.pending and core.orders is not None and core.marked >= core.orders.number:
            rows.ranges.let_go()
            for move in self._moves.due(core.switched, rows, now_ns):
                core.post.send_word(move)
        if self._snapshot_due(now_ns):
            self._snapshot_ns = now_ns
            self._begin_part()
        self._make_parts(now_ns)
        self._acknowledge()
        if rows.ranges.settled and not (self._moved or self.unsure):
            self._settled = core.switched

    def _snapshot_due(self, now_ns: int) -> bool:
        if not (self.rows.dirty and self._given is None and self.parts.may_begin(self.store)):
            return False
        return now_ns - self._snapshot_ns >= self._pause_ns

    @property
    def _pause_ns(self) -> int:
        """From one snapshot to the next."""
        if self.unsaved:
            return self.snapshot_every_ns
        awaited = not (self.store.stands or self.store.whole_due)
        return SNAPSHOT_SOON_NS if awaited or self._waited else self.snapshot_every_ns

    @property
    def _waited(self) -> bool:
        """Does anybody wait for a snapshot?"""
        rows = self.rows
        many = rows.uncovered_rows >= self._rows_soon or rows.uncovered_bytes >= SNAPSHOT_BYTES
        return self._moved or self.core.going or many

    @property
    def _moved(self) -> bool:
        """Have ranges come or gone since the last snapshot?"""
        return self.rows.ranges.changes != self._saved_changes

    def _begin_part(self) -> None:
        """A durable snapshot of all until now."""
        try:
            self.parts.begin(self.store)
        except BadRow as error:
            self._note_unsaved(str(error))

    def save_all(self, now_ns: int) -> None:
        """All until now, at once, where a store is never under way and something stands."""
        self._finish_part(now_ns)
        self._begin_part()
        self._finish_part(now_ns)

    def _finish_part(self, now_ns: int) -> None:
        while self.parts.making:
            self._step(now_ns)

    def _step(self, now_ns: int) -> bool:
        """Of the part that is being made, or of a whole snapshot; is no part made by it?"""
        if (part := self.parts.step(self._pace.states)) is None:
            return True
        self._save(part, now_ns)
        return False

    def _make_parts(self, now_ns: int) -> None:
        """Some steps of it and of a whole one. At once, when somebody waits for it: ranges have moved, the thread is to
        end, or as many rows have come since it was begun as should be in one."""
        parts, pace, wall_ns = self.parts, self._pace, self.core.ports.wall_ns
        pace.look(now_ns)
        while self._given is None and parts.busy(self.store):
            needed = parts.making or not self.store.stands
            if not (needed and self._waited) and not pace.may(self._share):
                break
            begun_ns = wall_ns()
            looked = self._step(now_ns)
            pace.did(wall_ns() - begun_ns, looked)
            if parts.most:
                break

    @property
    def _share(self) -> float:
        """Of its time, for the next step."""
        if not self.store.stands:
            return OF_AWAITED
        return OF_CHANGES if self.parts.making or self.parts.is_late else OF_WHOLES

    def _save(self, part: SavedPart, now_ns: int) -> None:
        """Begin to make it durable; the rows it covers are released once it is. When it cannot be written, nothing
        is."""
        self._given_ns = now_ns
        try:
            self.store.save(part)
        except OSError as error:
            self._not_saved(str(error))
            return
        self._state_sizes.saw(part, self._keys)
        if part.covers:
            self._held_state = self._state_sizes.held(self.rows.ranges.owned, self._keys)
        self._given = SaveUnderWay(self.parts.told, self.parts.told_changes, part.covers)
        self._look_at_snapshot(now_ns)

    def _look_at_snapshot(self, now_ns: int) -> None:
        """Is the one that was under way durable by now?"""
        if self._given is None:
            return
        if self.store.under_way:
            if now_ns - self._given_ns >= SLOW_NS:
                self.unsaved = f"not written yet, after {SLOW_NS // NS} s"
            return
        given, self._given = self._given, None
        try:
            self.store.look()
        except OSError as error:
            self._not_saved(str(error))
            return
        if given.covers:
            self.unsaved, self.unsure = "", False
            self._saved, self._saved_changes = given.versions, given.changes
            self.core.settle(self.rows.released(now_ns))

    def _note_unsaved(self, why: str) -> None:
        self.unsaved = why
        self.saves_failed += 1

    def _not_saved(self, why: str) -> None:
        self._note_unsaved(why)
        self.rows.dirty = True
        self.parts.give_up()

    def _note_saved(self) -> None:
        ranges = self.rows.ranges
        self._saved, self._saved_changes = dict(ranges.versions), ranges.changes
        self.parts.told, self.parts.told_changes = self._saved, ranges.changes

    def _acknowledge(self) -> None:
        """Tell keepers which of the ranges they answered for are here durably."""
        ranges = self.rows.ranges
        for sender, owed in list(self._owed.items()):
            done = {r for r in owed if r in ranges.owned and self._saved.get(r) == ranges.versions[r]}
            if done:
                taken = StateTaken(self.rows.thread, sender, self.core.switched, tuple(sorted(done)))
                self.core.post.send_word(taken)
                owed -= done
            if not owed:
                del self._owed[sender]

    def _look_for_snapshots(self, now_ns: int) -> None:
        """Keepers that are gone answer by their last snapshots: those elsewhere or on this VM are read, on another VM
        any thread there is asked to. Where none is, nobody can answer."""
        ranges, self.unread = self.rows.ranges, ""
        for thread, vm in ranges.snapshots_desired().items():
            if vm not in (ELSEWHERE, self.core.post.slot.vm):
                self._ask_for_snapshot(thread, vm, now_ns)
                continue
            try:
                found = self.store.of(thread, self._to_have)
            except NotRead as why:
                self.unread = str(why)
            except (OSError, msgspec.DecodeError):
                ranges.cannot_read(thread)
            else:
                self._take_over(thread, found)

    def _ask_for_snapshot(self, thread: int, vm: str, now_ns: int) -> None:
        """Each time another thread of that VM: one may be in a long call."""
        if now_ns - self._asked_ns.get(thread, -ASK_EVERY_NS) < ASK_EVERY_NS:
            return
        self._asked_ns[thread] = now_ns
        assert self.core.orders is not None
        there = sorted(number for number, slot in self.core.orders.slot_of.items() if slot.vm == vm)
        if not there:
            self.rows.ranges.cannot_read(thread)
            return
        self._asked += 1
        target = there[self._asked % len(there)]
        self.core.post.send_word(
            StateAsked(self.rows.thread, target, self.core.switched, self.core.task.name, thread)
        )

    def _on_snapshot(self, thread: int, move: StateMove) -> None:
        """What another says that a thread which is gone had; not of one that can speak for itself."""
        if thread in self.rows.ranges.now.living:
            return
        if not move.copies:
            self.rows.ranges.cannot_read(thread)
        self.rows.offered(thread, move.copies)

    @property
    def _to_have(self) -> frozenset[int]:
        """Ranges with which this thread may go on from another's snapshots: it has nothing yet."""
        ranges, parts = self.rows.ranges, self.parts
        begun = self._given is not None or parts.making or self.rows.states.sweeping
        return frozenset() if ranges.versions or begun else frozenset(ranges.missing)

    def _take_over(self, thread: int, saved: KeyedSnapshot | SavedWhole | None) -> None:
        """What a thread that is gone had of the ranges that are missing."""
        ranges = self.rows.ranges
        missing = frozenset(ranges.missing)
        if isinstance(saved, SavedWhole):
            self.parts.told = self.rows.go_on_from(thread, saved)
        else:
            self.rows.offered(thread, saved.copies if saved is not None else ())
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
