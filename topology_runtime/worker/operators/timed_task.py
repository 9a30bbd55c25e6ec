"""A task with event time: a keyed task whose thread has a watermark, fires timers, and sends what they give from a
ledger of its own, as a source does. Pure but for the user's code and the store of snapshots, which the caller gives.

What a timer gives is pending until all that came of it is done (timed_rows.py). It is sent once a snapshot has it, as
roots named after the key range, again after a fault, and by whoever has the range next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.timed import END_US, IDLE_US, SECONDS, US, wrong_unit
from headgate.topology_runtime.wire.messages import Ack, EndOfInput, RootKey, RootPart, ThreadStatus
from headgate.topology_runtime.wire.state_moves import RangeWatermarks, Watermark
from headgate.topology_runtime.worker.keyed_state.timed_rows import PendingRows, TimedRows
from headgate.topology_runtime.worker.keyed_state.timed_states import TimedLogic
from headgate.topology_runtime.worker.operators.keyed_task import NS, SNAPSHOT_EVERY_NS, KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Heard, ThreadCore
from headgate.topology_runtime.worker.operators.watermarks import (
    UNHEARD,
    InputTimes,
    Telling,
    done_places,
    keyed_below,
    runs,
    targets_of,
)
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows.acks import FIRED, STAYS
from headgate.topology_runtime.worker.rows.row_runs import Batch, Run
from headgate.topology_runtime.worker.rows.row_values import RowSizes
from headgate.topology_runtime.worker.sources.source_ledger import IN_FLIGHT_BYTES, Ledger, Root

FIRE_MOST = 2048  # timers at once: then frames and orders are looked at again
FIRE_NS = NS // 20  # and for so long
SNAPSHOT_TIMED_NS = NS // 4  # between two, but not while more timers are due: what is upstream waits for them
WINDOW_ROWS = 8192  # that timers gave, in flight
UNSENT_MOST = (
    8192  # rows that wait to be sent: with more, no timer fires, for each snapshot writes them all again
)
LOOK_EVERY_ROOTS = 16  # at how large rows are, once it is known well
EXPIRE_EVERY_NS, FAULT_PAUSE_NS = NS // 10, NS // 10
COUNT_EVERY_NS, COUNT_KEY_NS = (
    NS // 2,
    2_000,
)  # keys that are open: so often, and less often by so much for each key
FIRST_ROWS = 100  # whose times are looked at: are they in another unit?


class FirstTimes:
    """In place of a task's `time_of` for its first rows: the greatest of their times, in µs."""

    def __init__(self, logic: TimedLogic) -> None:
        self._logic, self._time_of, self._left = logic, logic.time_of, FIRST_ROWS
        self._greatest_us: int | None = None
        logic.time_of = self

    def __call__(self, row: Any) -> int:
        at_us = self._time_of(row)
        if self._greatest_us is None or at_us > self._greatest_us:
            self._greatest_us = at_us
        self._left -= 1
        if not self._left:
            self._logic.time_of = self._time_of
        return at_us

    @property
    def wrong(self) -> str:
        """That they are in another unit, in words; "": they are not."""
        unit = self._logic.logic.unit
        return (
            wrong_unit(self._greatest_us / US / SECONDS[unit], unit) if self._greatest_us is not None else ""
        )


class TimedTask(KeyedTask):
    """Of a `Timed`. rests: as `SourceStatus` says. open_keys: as `ThreadStatus` says."""

    rows: TimedRows
    snapshot_every_ns = SNAPSHOT_TIMED_NS

    def __init__(self, core: ThreadCore, rows: TimedRows) -> None:
        self.ledger = _ledger(0)
        self.inputs = InputTimes(core.topology, core.task.name)
        self.rests = 0
        self._entries: dict[int, PendingRows] = {}  # sequence → what is on its way
        self._number = core.topology.tasks.index(core.task)
        self._sizes = RowSizes()
        self._telling = Telling()
        self._targets: list[int] = []
        self._targets_by: Orders | None = None
        self._idle = False  # no input is waited for
        self._held_by = -1  # for whoever asks, in another thread
        self._faults = self._fault_due_ns = self._expire_due_ns = self._faulted = 0
        self.open_keys, self._count_due_ns = -1, 0
        self._first_times = FirstTimes(rows.logic)
        super().__init__(core, rows)

    def _without_state(self) -> TimedRows:
        """What was on its way is sent again, as far as it is in the last snapshot."""
        rows = self.rows
        self.ledger, self._entries = _ledger(self.ledger.sequence), {}
        return TimedRows(rows.code, rows.random64, rows.key_of, rows.home, rows.exactly_once)

    @property
    def _end(self) -> EndOfInput | None:
        return self.core.orders.desired.end if self.core.orders is not None else None

    @property
    def late(self) -> int:
        """Rows from before the watermark, so far."""
        return self.rows.logic.late

    def status(self, status: ThreadStatus) -> ThreadStatus:
        told = super().status(status)
        watermark_us, late = self.rows.logic.watermark_us, self.late
        return replace(
            told,
            rests=self.rests,
            watermark_us=watermark_us,
            held_by=self._held_by,
            late=late,
            open_keys=self.open_keys,
            times_wrong=self._first_times.wrong,
        )

    # ── words ───────────────────────────────────────────────────────────────────────────────────

    def on_faults(self, count: int, now_ns: int) -> None:
        if count != self._faults:
            self._faults, self._fault_due_ns = count, now_ns + FAULT_PAUSE_NS

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        assert self.core.orders is not None
        self.inputs.obey(self.core.orders)
        super().on_orders(gone, rerouted, now_ns)

    def on_word(self, word: Heard, now_ns: int) -> bool:
        if isinstance(word, Watermark | RangeWatermarks):
            self.inputs.hear(word)
            if isinstance(word, RangeWatermarks):
                self.rows.applied.done_below(done_places(word))
        elif isinstance(word, list):
            for ack in word:
                self._on_ack(ack, now_ns)
        else:
            return super().on_word(word, now_ns)
        self.on_time(now_ns)
        return False

    def _on_ack(self, ack: Ack, now_ns: int) -> None:
        if self.ledger.ack(ack, now_ns):
            self._is_done(ack.key.sequence)

    def _is_done(self, sequence: int) -> None:
        if (entry := self._entries.pop(sequence, None)) is not None:
            self.rows.done(entry)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def _on_time(self, now_ns: int) -> None:
        if self.core.orders is None or not self.core.routed:
            super()._on_time(now_ns)
            return
        self.take_time()
        self.fire(now_ns)
        super()._on_time(now_ns)
        self._let_go()
        end = self._end
        if end is not None:
            self._look_at_end(end, now_ns)
        if end is None or not self._still(end):
            self._send_timed(now_ns)
        if end is not None and self.rests < end.number and self._done(end):
            self.rests = end.number
        self._count_open(now_ns)
        self.tell(now_ns)

    def _count_open(self, now_ns: int) -> None:
        """Once the run is to end."""
        if (
            self.core.orders is not None
            and self.core.orders.desired.draining
            and now_ns >= self._count_due_ns
        ):
            end = self._end
            ended = end is not None and end.whole and self.core.task.name in end.finish
            self.open_keys = self.rows.states.open_keys(ended)
            self._count_due_ns = now_ns + COUNT_EVERY_NS + self.open_keys * COUNT_KEY_NS

    def take_time(self) -> None:
        """The watermark, from what was heard; at the end of the input, when all rows before this task are done, the
        end of time."""
        end, lowest_us = self._end, self.inputs.lowest_us
        self._idle, self._held_by = lowest_us >= IDLE_US, self.inputs.held_by
        if end is not None and end.whole and self.core.task.name in end.finish:
            lowest_us, self._idle = END_US, False
        if UNHEARD < lowest_us < IDLE_US:
            self.rows.rise(lowest_us)

    def fire(self, now_ns: int) -> None:
        """Timers that are due; soon again, when there are more of them. Not while much of what they gave waits."""
        if self._many_wait:
            self.soon, self.snapshot_every_ns = False, SNAPSHOT_TIMED_NS
            return
        wall_ns, rows = self.core.ports.wall_ns, self.rows
        now_us, until_ns = (begun_ns := wall_ns()) // 1000, begun_ns + FIRE_NS
        self.soon = rows.is_due(now_us) and rows.code.watch.timers(
            lambda: rows.fire(now_us, FIRE_MOST, lambda: wall_ns() >= until_ns)
        )
        self.snapshot_every_ns = SNAPSHOT_EVERY_NS if self.soon else SNAPSHOT_TIMED_NS

    @property
    def _many_wait(self) -> bool:
        """Is so much not sent that no timer fires?"""
        return self.rows.pending_rows - self.ledger.in_flight >= UNSENT_MOST

    @property
    def _waited(self) -> bool:
        """Timers do, too, when what they gave may be sent with the next one."""
        return super()._waited or (self._many_wait and not self.rows.unsent)

    def tell(self, now_ns: int) -> None:
        """Tasks with event time below hear how far this one is; where rows are counted exactly once, all with state
        per key hear what comes to them no more."""
        orders, exact = self.core.orders, self.rows.exactly_once
        if orders is None or self.unsure or not self._telling.due(now_ns):
            return
        if orders is not self._targets_by:
            self._targets_by = orders
            self._targets = (keyed_below if exact else targets_of)(orders, self.core.task.name)
        told = tuple(runs(self.rows.told(self._idle))) if self._targets else ()
        kept = tuple(self.rows.kept.items()) if exact else ()
        if told and self._telling.is_told((orders.number, told, kept), now_ns):
            for target in self._targets:
                self.core.post.send_word(
                    RangeWatermarks(self.core.desired.thread, target, self._number, told, kept)
                )

    # ── what timers gave ────────────────────────────────────────────────────────────────────────

    def _let_go(self) -> None:
        """What went away with its range, or was taken up anew, is nobody's here."""
        if not self.rows.left:
            return
        for entry in self.rows.left:
            if entry.sequence in self._entries:
                del self._entries[entry.sequence]
                self.ledger.give_up(entry.sequence)
        self.rows.left = []

    def _send_timed(self, now_ns: int) -> None:
        if not self.rows.unsent:
            self._send(now_ns)
            return
        with self.rows.code.watch.for_timers():
            self._send(now_ns)

    def _send(self, now_ns: int) -> None:
        """What is durable and was not sent, and again what was lost."""
        ledger, unsent = self.ledger, self.rows.unsent
        if self._fault_due_ns and now_ns >= self._fault_due_ns:
            self._fault_due_ns = 0
            ledger.fault()
        if now_ns >= self._expire_due_ns:
            self._expire_due_ns = now_ns + EXPIRE_EVERY_NS
            ledger.expire(now_ns)
        while (root := ledger.next_replay(now_ns)) is not None:
            self._emit([root], now_ns)
        roots: list[Root] = []
        away: list[PendingRows] = []  # of ranges that are on their way to others, and may come back
        while unsent and ledger.room():
            entry = unsent.popleft()
            if entry.key_range in self.rows.ranges.owned:
                roots.append(self._begin(entry, now_ns))
            else:
                away.append(entry)
        unsent.extendleft(reversed(away))
        self._emit(roots, now_ns)

    def _begin(self, entry: PendingRows, now_ns: int) -> Root:
        if not self._sizes.sure or self.ledger.sequence % LOOK_EVERY_ROOTS == 0:
            self._sizes.saw(entry.rows)
        self.ledger.reads(self._sizes.mean_bytes)
        size_bytes = int(self._sizes.mean_bytes * len(entry.rows))
        root = self.ledger.begin(entry.rows, self.core.ports.wall_ns(), now_ns, size_bytes)
        entry.sequence = root.sequence
        self._entries[root.sequence] = entry
        return root

    def _emit(self, roots: Sequence[Root], now_ns: int) -> None:
        """Together: what timers of a range gave is few rows, mostly. Routers cut them into frames."""
        if not roots:
            return
        rows, runs, parts = list[Any](), list[Run](), list[RootPart]()
        thread, incarnation, floor = self.core.desired.thread, self.core.post.incarnation, self.ledger.floor
        for number, root in enumerate(roots):
            entry = self._entries[root.sequence]
            key = RootKey(thread, incarnation, root.sequence, root.attempt)
            parts.append(self.rows.root(entry.key_range, entry.first, key, root.intended_ns, floor))
            runs.append((number, 0, root.count, 0))
            rows += root.rows
        given = self.core.results.emit(Batch(rows, runs, parts), now_ns)
        for root, part in zip(roots, parts, strict=True):
            if self.ledger.sent(root, given.get(part.key, 0), now_ns):
                self._is_done(root.sequence)
        self.core.settle([])

    # ── the end of the input (controller/execute/end_of_input.py) ───────────────────────────────

    def _still(self, end: EndOfInput) -> bool:
        """As of a source: is nothing to be sent, so that panes stay whole?"""
        return end.step in ("fire", "over") or (end.step == "hold" and abs(self.rests) == end.number)

    def _look_at_end(self, end: EndOfInput, now_ns: int) -> None:
        if end.step == "again" and self._faulted < end.number:
            self._faulted = end.number
            self.ledger.fault()
        if self._still(end) and self._fault_due_ns:
            self.rests = -end.number
        self.rows.may_finish = self._at_rest(end)
        self.core.settle(self.rows.finish(now_ns))

    def _done(self, end: EndOfInput) -> bool:
        """Is this step done, as far as what timers gave is concerned?"""
        return end.step == "again" or (not self._fault_due_ns and self._at_rest(end))

    def _at_rest(self, end: EndOfInput) -> bool:
        """Has every timer that is due fired, and is what it gave done, or waits in panes that are to stay?"""
        rows = self.rows
        if self.unsure or rows.unfired_us is not None:
            return False
        if rows.unsent or any(e.sequence < 0 for g in rows.given.values() for e in g.pending):
            return False
        task = self.core.topology.tasks.index(self.core.topology.by_name[end.task]) if end.task else -1
        fired = FIRED + end.number

        def over(keeper: int) -> bool:
            earlier = FIRED <= keeper < STAYS and (end.step == "over" or keeper != fired)
            return end.step in ("fire", "over") and (keeper == task or earlier)

        return self.ledger.at_rest(over)

    # ── where nothing can be lost ───────────────────────────────────────────────────────────────

    def at_once(self, watermark_us: int | None, now_ns: int) -> bool:
        """In one process: timers that are due fire, and what they give is sent and done; True when any has fired."""
        rows = self.rows
        rows.rise(watermark_us)
        fired = False
        while True:
            self.fire(now_ns)
            if not rows.dirty_timers:
                return fired
            fired = True
            self.save_all(now_ns)
            sent = list(rows.unsent)
            rows.unsent.clear()
            self._emit([self._begin(entry, now_ns) for entry in sent], now_ns)
            for entry in sent:
                self._entries.pop(entry.sequence, None)
                self.ledger.give_up(entry.sequence)
                rows.done(entry)


def _ledger(first: int) -> Ledger:
    ledger = Ledger(window_rows=WINDOW_ROWS, first=first)
    ledger.window_bytes, ledger.least_rows = IN_FLIGHT_BYTES // 4, 1
    return ledger
