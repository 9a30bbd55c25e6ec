"""The thread of a source: paced by the schedule, bounded by its ledger, replaying what was lost.

It alone touches its ledger; acks come through its inbox. Position p of partition k of n threads is the
global position p·n + k of the schedule, so every row has an intended emit time.
"""

from __future__ import annotations

import time
from queue import Empty
from typing import Any

from topology_runtime.clock import monotonic_ns, wall_ns
from topology_runtime.loading import build
from topology_runtime.logic import Context, Exhausted, LiveSource
from topology_runtime.messages import RootKey, RootPart, SourceNow, ThreadNow
from topology_runtime.schedule import NS
from topology_runtime.worker import meter as mt
from topology_runtime.worker.flow import Around, Flow
from topology_runtime.worker.ledger import WINDOW_LEAST_ROWS, Ledger, Root
from topology_runtime.worker.spool import Spool, folder_of
from topology_runtime.worker.threads import LATEST_MARK, TaskThread, row_cap

EXPIRE_EVERY_NS = NS // 10
FAULT_PAUSE_NS = NS // 10  # after a fault, before replaying: let every worker learn of the new peer
LOOK_AGAIN_S = 0.02  # how soon an empty source is asked again
RETRY_S = 1.0  # after a source raised
FRAMES_DOWNSTREAM = 2  # the window holds at least this many frames for each receiving thread
TICK_S = 0.002  # a source wakes at most this often, emitting what has become due


class SourceThread(TaskThread):
    """A thread of a task without in-edges."""

    ledger: Ledger | None = None
    _spool: Spool | None = None
    _source: Any = None
    _exhausted = False
    _stopped_reading = False
    _fault_due_ns = 0
    _expire_due_ns = 0
    _wait_until_ns = 0
    _faults_seen = 0
    faults = 0

    # ── what others see ─────────────────────────────────────────────────────────────────────────

    def now(self) -> ThreadNow:
        stopped = self._obeyed is not None and self._leaving()
        marked = LATEST_MARK if stopped and self._stopped_reading else 0
        empty = self._going() and self._empty()
        return ThreadNow(self.wanted.thread, self._switched, marked, empty, False, self.failed)

    def source_now(self) -> SourceNow:
        ledger = self.ledger
        wanted = self.wanted
        if ledger is None:
            return SourceNow(wanted.task, wanted.partition, wanted.thread, 0, 0, 0, 0, 0, stopped=False)
        words, at = self.host.meter.words, self.record
        return SourceNow(
            wanted.task,
            wanted.partition,
            wanted.thread,
            words[at + mt.SOURCE_EMITTED],
            words[at + mt.SOURCE_ACKED],
            words[at + mt.SOURCE_ACKED_ABOVE],
            words[at + mt.SOURCE_IN_FLIGHT],
            words[at + mt.SOURCE_REPLAYED],
            stopped=bool(words[at + mt.SOURCE_STATE] & 1),
            exhausted=bool(words[at + mt.SOURCE_STATE] & 2),
        )

    def _empty(self) -> bool:
        drained = self.ledger is None or self.ledger.empty
        return not self._busy and drained and self._outputs.empty

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def startup(self) -> None:
        self._source = build(self.task)
        partitions = self.task.static.threads if self.task.static else 1
        self._partitions = partitions
        if hasattr(self._source, "open"):
            self._source.open(
                Context(
                    self.task.name, self.wanted.thread, self.wanted.partition, partitions, self.host.directory
                )
            )
        names = tuple(task.name for task in self.topology.sources)
        self._number = names.index(self.task.name)
        around = Around(self.task.name, self.wanted.thread, names, {}, sink=False)
        self.flow = Flow(around, "source", self._source, self._outputs, time.sleep)
        self.host.meter.words[self.record + mt.SOURCE_PARTITION] = self.wanted.partition + 1
        self.host.meter.words[self.record + mt.STATE] = 1

    def shutdown(self) -> None:
        if self._spool is not None:
            self._spool.close()
        if hasattr(self._source, "close"):
            self._source.close()
        self.host.meter.words[self.record + mt.STATE] = 2
        self.host.changed()

    def turn(self) -> None:
        """One look round: orders, acks, replays, what is due, flush."""
        if self.orders is not self._obeyed:
            self._obey()
        self._hear()
        self._busy = True
        now_ns = monotonic_ns()
        if self.ledger is None:
            self._begin()
        else:
            self._replay(now_ns)
            self._read(now_ns)
            self._count()
        self.host.board.deliver(self._outputs.flush(monotonic_ns()))
        self._busy = False

    def _hear(self) -> None:
        """Acks from the inbox; waits a little when there are none and nothing is due."""
        try:
            item = self.inbox.get(timeout=self._patience_s())
            while True:
                if isinstance(item, list) and self.ledger is not None:
                    now_ns = monotonic_ns()
                    for ack in item:
                        self.ledger.ack(ack, now_ns)
                item = self.inbox.get_nowait()
        except Empty:
            return

    def _patience_s(self) -> float:
        now_ns = monotonic_ns()
        until_s = 0.05
        flush_ns = self._outputs.next_flush_ns()
        if flush_ns is not None:
            until_s = min(until_s, (flush_ns - now_ns) / NS)
        schedule = self._obeyed.schedule if self._obeyed else None
        ledger = self.ledger
        if ledger is not None and schedule is not None and self._reading() and ledger.room():
            if now_ns < self._wait_until_ns:
                until_s = min(until_s, (self._wait_until_ns - now_ns) / NS)
            else:
                due_ns = schedule.intended_ns(ledger.position * self._partitions + self.wanted.partition)
                if due_ns is not None:
                    until_s = min(until_s, max(TICK_S / 4, (due_ns - wall_ns()) / NS))
        return max(0.0, until_s)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def _leaving(self) -> bool:
        orders = self._obeyed
        return orders is not None and orders.switched and self.wanted.thread in orders.leaving

    def _reading(self) -> bool:
        orders = self._obeyed
        if orders is None or self._exhausted or orders.wanted.draining:
            return False
        return not self._leaving()

    def _begin(self) -> None:
        """A ledger, once the controller has said from which position."""
        orders = self._obeyed
        if orders is None:
            return
        if not self._reading():
            self._stopped_reading = True
            self._state()
            return
        position = orders.position_of(self.task.name, self.wanted.partition)
        if position is None:
            return
        if isinstance(self._source, LiveSource):
            folder = folder_of(self.host.directory, self.task.name, self.wanted.partition)
            self._spool = Spool(folder, position)
            position = max(position, self._spool.acked)
        self.ledger = Ledger(position)
        self._resize()
        self._count()
        self.host.changed()

    def _obey(self) -> None:
        super()._obey()
        self._resize()

    def _resize(self) -> None:
        orders, ledger = self._obeyed, self.ledger
        if orders is None or ledger is None:
            return
        modelled = orders.wanted.modelled_tps.get(self.wanted.thread, 0.0)
        frames = sum(
            FRAMES_DOWNSTREAM * row_cap(orders, target)
            for number, _ in self.topology.out_edges(self.task.name)
            for target, _ in (orders.route_of[number].targets if number in orders.route_of else ())
        )
        ledger.window_rows = max(WINDOW_LEAST_ROWS, frames, int(modelled * orders.wanted.settings.window_s))

    def _read(self, now_ns: int) -> None:
        """Emit what is due, as far as the window allows."""
        ledger, orders = self.ledger, self._obeyed
        assert ledger is not None and orders is not None
        if not self._reading():
            if not self._stopped_reading:
                self._stopped_reading = True
                self.host.changed()
            return
        schedule = orders.schedule
        if schedule is None or now_ns < self._wait_until_ns:
            return
        if self._outputs.edges < len(self.topology.out_edges(self.task.name)):
            return
        wall = wall_ns()
        due = (schedule.due(wall) - self.wanted.partition + self._partitions - 1) // self._partitions
        limit = min(due - ledger.position, ledger.room(), orders.wanted.settings.frame_rows)
        if limit <= 0:
            return
        rows = self._rows(ledger.position, limit, now_ns)
        if rows:
            global_position = ledger.position * self._partitions + self.wanted.partition
            intended_ns = schedule.intended_ns(global_position) or wall
            root = ledger.begin(list(rows), intended_ns, now_ns)
            self._send(root, now_ns)

    def _rows(self, position: int, limit: int, now_ns: int) -> list[Any]:
        try:
            if self._spool is not None:
                if position >= self._spool.end:
                    self._spool.append(self._source.poll(limit))
                rows = self._spool.read(position, limit)
            else:
                rows = list(self._source.read(position, limit))[:limit]
            if not rows:
                self._wait_until_ns = now_ns + int(LOOK_AGAIN_S * NS)
            self.failed = ""
            return rows
        except Exhausted:
            self._exhausted = True
            self.host.changed()
        except Exception as error:  # user code: said in the report, tried again
            self.failed = f"source: {type(error).__name__}: {error}"
            self._wait_until_ns = now_ns + int(RETRY_S * NS)
            self.host.changed()
        return []

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def _send(self, root: Root, now_ns: int) -> None:
        """An attempt of a root into the output buffers; the ledger learns the XOR of its ids."""
        ledger = self.ledger
        assert ledger is not None
        board = self.host.board
        key = RootKey(self.wanted.thread, board.incarnation, root.sequence, root.attempt)
        part = RootPart(
            key,
            board.slot,
            self._number,
            self.wanted.partition,
            root.position,
            root.intended_ns,
            ledger.floor,
            0,
        )
        assert self.flow is not None
        given = self.flow.emit(root.rows, [(0, 0, len(root.rows), 0)], [part], now_ns)
        ledger.sent(root, given.get(key, 0), now_ns)
        self._tell([])

    def _replay(self, now_ns: int) -> None:
        ledger = self.ledger
        assert ledger is not None
        if self.faults != self._faults_seen:
            self._faults_seen = self.faults
            self._fault_due_ns = now_ns + FAULT_PAUSE_NS
        if self._fault_due_ns and now_ns >= self._fault_due_ns:
            self._fault_due_ns = 0
            ledger.fault()
        if now_ns >= self._expire_due_ns:
            self._expire_due_ns = now_ns + EXPIRE_EVERY_NS
            ledger.expire(now_ns)
        while (root := ledger.next_replay(now_ns)) is not None:
            self._send(root, now_ns)

    # ── counting ────────────────────────────────────────────────────────────────────────────────

    def _count(self) -> None:
        ledger = self.ledger
        assert ledger is not None
        words, at = self.host.meter.words, self.record
        words[at + mt.SOURCE_EMITTED] = ledger.position
        words[at + mt.SOURCE_ACKED] = ledger.acked
        words[at + mt.SOURCE_ACKED_ABOVE] = ledger.acked_above
        words[at + mt.SOURCE_IN_FLIGHT] = ledger.in_flight
        words[at + mt.SOURCE_REPLAYED] = ledger.replayed
        self._state()
        if self._spool is not None:
            self._spool.done_below(ledger.acked, monotonic_ns())

    def _state(self) -> None:
        words, at = self.host.meter.words, self.record
        drained = self._stopped_reading and (self.ledger is None or self.ledger.empty)
        state = int(drained) | (2 if self._exhausted else 0)
        if state != words[at + mt.SOURCE_STATE]:
            words[at + mt.SOURCE_STATE] = state
            self.host.changed()
