"""A source: what its thread sends, and when; bounded by its ledger, replaying what was lost. Pure but for `read`,
which the caller gives (source_thread.py).

A *paced* source reads by the schedule: position p of partition k of n threads is the global position p·n + k of
the schedule, so every row has an intended emit time. Of an *arriving* one the caller takes the rows as they come
(`takes`, `arrivals`); they are read at once, or, where a cap is set, at most so many a second, and each is due
when it came.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.rates.schedule import NS
from headgate.topology_runtime.wire.dead_letter_messages import (
    AGAIN_PARTITION,
    END_PARTITION,
    DeadLetter,
    LetterRow,
    SendAgain,
    SentAgain,
)
from headgate.topology_runtime.wire.messages import Ack, EndOfInput, RootKey, RootPart, ThreadStatus
from headgate.topology_runtime.wire.state_moves import ReadTo, Watermark
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.batches import joined
from headgate.topology_runtime.worker.calls.router import Router, owners
from headgate.topology_runtime.worker.operators.thread_core import (
    LATEST_BARRIER,
    Behaviour,
    Heard,
    KeyOf,
    ThreadCore,
)
from headgate.topology_runtime.worker.operators.watermarks import Telling, targets_of
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import FIRED, STAYS, BufferedRow
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.rows.row_values import RowSizes, fitting
from headgate.topology_runtime.worker.sources.end_words import END_SEQUENCES, EndWords
from headgate.topology_runtime.worker.sources.source_alignment import Alignment
from headgate.topology_runtime.worker.sources.source_ledger import (
    IN_FLIGHT_BYTES,
    ROWS_A_THREAD,
    WINDOW_LEAST_ROWS,
    Ledger,
    Root,
)
from headgate.topology_runtime.worker.sources.source_watermark import SourceWatermark

# ── Dead letters that a source thread sends again, because an operator says that the cause is fixed. Pure
# but for the keys of user code.
#
# Each row is a root of its own in a ledger beside the source's (named in dead_letter_messages.py), sent straight
# to the dead letter's task, by the routes of the edge that it once came by. What is said of it is a state: the
# serials of what is to be sent again; whose rows are here; which of those are done. A root whose row dies
# again is never acked (dead_lettering.py): it stays open until the controller, which hears of that from the task,
# asks for it no more.

SHARE, LEAST_TPS = 0.1, 20.0  # of the rate that the source thread is modelled for; so many rows/s at least
BURST_NS = 100_000_000  # rows that are late by more than that are not made up for
SEQUENCES = 1 << 61  # roots of dead letters are numbered from here on, far from those of positions


@dataclass(slots=True)
class DeadLetterReplays:
    """Of one source thread."""

    ledger: Ledger = field(default_factory=lambda: Ledger(first=SEQUENCES))
    _boot: int = 0
    _rows: dict[int, LetterRow] = field(default_factory=dict)  # not done, by serial
    _waiting: deque[int] = field(default_factory=deque)  # not sent yet
    _sequences: dict[int, int] = field(default_factory=dict)  # serial → of its root
    _serials: dict[int, int] = field(default_factory=dict)  # the other way round
    _done: set[int] = field(default_factory=set)
    _next_ns: int = 0  # the next one for the first time

    def now(self, thread: int) -> SentAgain | None:
        """What has become of them, if there are any."""
        if not (self._rows or self._done):
            return None
        return SentAgain(thread, self._boot, tuple(self._rows), tuple(self._done))

    @property
    def any(self) -> bool:
        return bool(self._rows)

    def want(self, said: SendAgain) -> None:
        """What is to be sent again from now on."""
        if said.boot < self._boot:
            return
        if said.boot > self._boot:
            self.clear()
            self._boot = said.boot
        desired = set(said.serials)
        self._done &= desired
        for serial in self._rows.keys() - desired:
            self._forget(serial)
        for row in said.rows:
            if row.serial in desired and row.serial not in self._done and row.serial not in self._rows:
                self._rows[row.serial] = row
                self._waiting.append(row.serial)

    def clear(self) -> None:
        """This thread sends nothing any more; another one will be asked."""
        self._done.clear()
        for serial in list(self._rows):
            self._forget(serial)

    def _forget(self, serial: int) -> None:
        del self._rows[serial]
        sequence = self._sequences.pop(serial, None)
        if sequence is not None:
            del self._serials[sequence]
            self.ledger.give_up(sequence)

    def ack(self, ack: Ack, now_ns: int) -> None:
        if self.ledger.ack(ack, now_ns):
            self._is_done(ack.key.sequence)

    def sent(self, root: Root, value: int, now_ns: int) -> None:
        """The id of its frame; 0: it went nowhere, so it is not done."""
        if value and self.ledger.sent(root, value, now_ns):
            self._is_done(root.sequence)

    def _is_done(self, sequence: int) -> None:
        serial = self._serials.pop(sequence)
        del self._sequences[serial], self._rows[serial]
        self._done.add(serial)

    def due(self, now_ns: int, tps: float) -> tuple[Root, LetterRow] | None:
        """What is to be sent now, one after the other; `tps`: for the first time, so many rows/s."""
        root = self.ledger.next_replay(now_ns)
        while root is None and tps and self._waiting and self._next_ns <= now_ns and self.ledger.room():
            serial = self._waiting.popleft()
            if serial in self._rows and serial not in self._sequences:
                self._next_ns = max(self._next_ns, now_ns - BURST_NS) + int(1e9 / tps)
                root = self.ledger.begin([serial], now_ns, now_ns)
                self._sequences[serial], self._serials[root.sequence] = root.sequence, serial
        return None if root is None else (root, self._rows[self._serials[root.sequence]])


@dataclass(frozen=True)
class Way:
    """Where a dead letter's row goes: by this edge to this thread, and the row."""

    edge: int
    target: int
    row: Any


class Ways:
    """The ways of dead letters by some orders; routers are made when they are needed."""

    def __init__(self, orders: Orders, thread: int, key_of: KeyOf) -> None:
        self.orders, self._thread, self._key_of = orders, thread, key_of
        self._routers: dict[int, Router] = {}

    def of(self, letter: LetterRow) -> Way | str:
        """Why its row cannot be sent, when it cannot."""
        topology = self.orders.topology
        edges = [] if letter.task not in topology.by_name else topology.in_edges(letter.task)
        edge = next((number for number, edge in edges if edge.source == letter.feeder), None)
        if edge is None or edge not in self.orders.route_of:
            return f"no rows of {letter.feeder} go to {letter.task}"
        try:
            (row,) = wire.read(letter.data, letter.shape)
        except (msgspec.DecodeError, ValueError) as error:
            return f"the row cannot be read back: {error}"
        threads = sorted(thread for thread, _ in self.orders.route_of[edge].targets)
        if topology.edges[edge].grouping in ("all", "direct"):  # the one that failed, or who is in its place
            there = letter.thread in threads
            return Way(edge, letter.thread if there else threads[letter.thread % len(threads)], row)
        parts = list(self._router(edge).split([row]))
        if parts:
            return Way(edge, parts[0][0], row)
        (_, why), self._routers[edge].unroutable = self._routers[edge].unroutable[-1], []
        return f"no key can be made of the row: {attempts.failure(0, why).error}"

    def _router(self, number: int) -> Router:
        if number not in self._routers:
            edge = self.orders.topology.edges[number]
            key = self._key_of(edge.key) if edge.key is not None else None
            route = self.orders.route_of[number]
            self._routers[number] = Router(edge, route, frozenset(), key, lambda _: 1, self._thread, ())
        return self._routers[number]


def partition_of(task: int) -> int:
    """The partition that dead letters of this task (its number in the topology) have when they are sent again."""
    return AGAIN_PARTITION + task


EXPIRE_EVERY_NS = NS // 10
FAULT_PAUSE_NS = NS // 10  # after a fault, before replaying: let every worker learn of the new peer
FRAMES_DOWNSTREAM = 2  # the window holds at least this many frames for each receiving thread
ROOT_BYTES = IN_FLIGHT_BYTES // 16
ROOT_BYTES_MOST = 2 * ROOT_BYTES  # where rows are larger than was thought
SMALL_SHARE, LOOK_RARELY = 0.25, 4  # of rows that fill so little of it only every fourth root is looked at
ROWS_AT_FIRST = 16  # of the first root: it is not known yet how large they are
TOGETHER_NS = NS // 1000  # rows that came within so short a time are one root …
TOGETHER_SHARE = 0.025  # … or within that part of their age
EARLIEST_NS = NS // 2000  # a source looks for due rows at most this often
LOOK_NS = NS // 20  # and at least this often

CAP_BURST_S = 0.1  # a source below its cap may read so much of it at once

Read = Callable[[int, int], Sequence[Any]]  # (position, most) → rows, which are the caller's


class Accepted(Protocol):
    """Rows that were accepted, of a source that cannot be read twice: up to position `end`, and when each came; all
    below `acked` are done."""

    @property
    def end(self) -> int: ...
    @property
    def acked(self) -> int: ...
    def arrived_ns(self, position: int) -> int: ...


class SourceTask(Behaviour):
    """A thread of a task without in-edges. `quiet_until_ns`: nothing can be read, or taken, before (monotonic).
    `spool`: of a source that cannot be read twice, once it has begun. `more_left`: threads before it left rows that are
    not in its spool yet."""

    def __init__(self, core: ThreadCore) -> None:
        self.core, self.task = core, core.task
        self.ledger: Ledger | None = None
        self.letters = DeadLetterReplays()  # that are sent again
        self.ends = EndWords()
        self.rests = 0  # as SourceStatus says
        self.times: SourceWatermark | None = None  # where tasks with event time wait for it
        self.aligned = Alignment(core.topology, core.task)
        self._telling = Telling()
        self._faulted = 0  # the step by which all was sent again
        self.partitions = core.task.partitions
        self.stopped_reading = self.exhausted = False
        self.quiet_until_ns = 0
        self.spool: Accepted | None = None
        self.more_left = False
        self.goes_on_from = 0, 0  # of a source with offsets: from which, and rows from there to pass over
        self.behind = 0  # rows that came and are still where they are kept
        self.gives_errors = False  # may one stand in place of a row?
        self._number = [task.name for task in core.topology.sources].index(core.task.name)
        self._allowed = 0.0  # rows that the cap lets through now
        self._allowed_ns = 0
        self._until = 0  # positions below were read before this thread was restarted
        self._gap_end = 0  # a leaving thread that was restarted reads again up to here
        self._faults = self._fault_due_ns = self._expire_due_ns = 0
        self._ways: Ways | None = None
        self.sizes = RowSizes()
        self._unlooked = 0  # roots that may pass before rows are looked at again
        self._root_most = 0  # rows of a root, however small they are
        self._root_rows = 0  # of a root at most

    # ── what others see ─────────────────────────────────────────────────────────────────────────

    def status(self, status: ThreadStatus) -> ThreadStatus:
        """A source has no upstream: it has its barriers once it reads no more."""
        return replace(status, marked=LATEST_BARRIER if self.leaving and self.stopped_reading else 0)

    @property
    def empty(self) -> bool:
        return self.ledger is None or (self.ledger.empty and self.ends.ledger.empty)

    @property
    def stopped(self) -> bool:
        """Reads no more, and nothing is open."""
        return self.stopped_reading and self.empty

    @property
    def leaving(self) -> bool:
        return self.core.leaving

    @property
    def reading(self) -> bool:
        if self.core.orders is None or self.exhausted:
            return False
        end = self._end
        return end is None or (self.ledger is not None and self.ledger.position < end)

    @property
    def arrivals(self) -> Accepted | None:
        """Of an arriving source: what came."""
        return self.spool if self.task.arriving else None

    @property
    def _end(self) -> int | None:
        """It reads up to here only: what was read before, or was accepted; where every source has ended, to its end."""
        orders = self.core.orders
        draining = orders is not None and orders.desired.draining
        if not (self.leaving or draining):
            return None
        before = self._gap_end if self.leaving else self._until
        if self.arrivals is not None and not self.task.offsets:
            return self.arrivals.end
        if self._to_its_end:
            return None
        if self.task.offsets:  # what is read ahead its successor reads again
            return max(before, self.ledger.position if self.ledger is not None else 0)
        return before if self.spool is None else max(before, self.spool.end)

    @property
    def _to_its_end(self) -> bool:
        """Is it to read to the end of the input, though the run drains?"""
        end = self.core.orders.desired.end if self.core.orders is not None else None
        return end is not None and end.whole and not self.leaving and not self.task.spooled

    @property
    def _drained(self) -> bool:
        """Is all read that it is to read yet?"""
        ledger, end = self.ledger, self._end
        assert ledger is not None
        return end is not None and ledger.position >= end and not (self.more_left and self.takes_over)

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Once it has started, of positions: read, acked, acked above that, in flight, sent again."""
        ledger = self.ledger
        assert ledger is not None
        return ledger.position, ledger.acked, ledger.acked_above, ledger.in_flight, ledger.replayed

    def came(self, wall_ns: int) -> tuple[int, int, int] | None:
        """Of rows that are accepted, once it has started: how many were, when the oldest came that is not read (0: all
        are), and when this was asked."""
        if self.spool is None or self.ledger is None:
            return None
        end, position = self.spool.end, self.ledger.position
        if self.task.offsets and self._end is not None:  # what is not read stays where it is kept
            return position, 0, wall_ns
        return end + self.behind, self.spool.arrived_ns(position) if position < end else 0, wall_ns

    @property
    def again_until(self) -> int | None:
        """A leaving thread that was started again reads again up to here only."""
        return self._gap_end if self.leaving else None

    @property
    def takes_over(self) -> bool:
        """Is it the one that accepts again what earlier threads of its partition left on this VM?"""
        return self.ledger is not None and not (self.leaving or self.stopped_reading)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def on_word(self, word: Heard, now_ns: int) -> bool:
        """Acks, and dead letters that are to be sent again from now on; those of a source that leaves are another's."""
        if isinstance(word, list) and self.ledger is not None:
            for ack in word:
                if ack.key.sequence < SEQUENCES:
                    self.ledger.ack(ack, now_ns)
                elif ack.key.sequence < END_SEQUENCES:
                    self.letters.ack(ack, now_ns)
                else:
                    self.ends.ledger.ack(ack, now_ns)
        elif isinstance(word, SendAgain) and not self.leaving:
            self.letters.want(word)
        elif isinstance(word, ReadTo):
            self.aligned.hear(word)
        return False

    def on_faults(self, count: int, now_ns: int) -> None:
        """So many peers were replaced in all: after another one what is open is sent again, a moment later."""
        if count != self._faults:
            self._faults, self._fault_due_ns = count, now_ns + FAULT_PAUSE_NS

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        assert self.core.orders is not None
        self.aligned.obey(self.core.orders, self.core.desired.thread)
        self._resize()

    # ── begin ───────────────────────────────────────────────────────────────────────────────────

    def start_position(self) -> int | None:
        """Where to read from, once the controller has said so; None: not yet, or nothing to read."""
        if self.core.orders is None or self.ledger is not None:
            return None
        thread, leaving = self.core.desired.thread, self.leaving
        start = self.core.orders.start_of(
            self.task.name, self.core.desired.partition, thread if leaving else -1
        )
        over = start is not None and start.position >= start.until
        over = over and not (self.task.spooled or self._to_its_end)  # what it took may be in the spool still
        if leaving and self.core.orders.gap_of(thread) is None:
            self.stopped_reading = True
            return None
        if not leaving and self.core.orders.desired.draining and over:
            self.stopped_reading = True
            return (
                start.position if start is not None else None
            )  # it may have to say that the input has ended
        self.stopped_reading = False
        if start is None:
            return None
        self._until = start.until
        self.goes_on_from = start.offset, start.passing
        self._gap_end = start.until if leaving else 0
        return start.position

    def begin(self, position: int, spool: Accepted | None = None) -> None:
        """Read from here on. spool: of a source that cannot be read twice."""
        self.spool = spool
        self.ledger = Ledger(position if spool is None else max(position, spool.acked))
        self._resize()

    def _resize(self) -> None:
        """The window: rows in flight at most (protocol: Backpressure). And a root: a frame for each receiver by an edge
        at most, so that what goes to one receiver is not cut. Both are fewer rows where these are large."""
        orders, ledger = self.core.orders, self.ledger
        if orders is None or ledger is None:
            return
        modelled = orders.desired.modelled_tps.get(self.core.desired.thread, 0.0)
        edges = [
            number for number, _ in self.core.topology.out_edges(self.task.name) if number in orders.route_of
        ]
        caps = [sum(orders.cap_of(target) for target, _ in orders.route_of[edge].targets) for edge in edges]
        settings = orders.desired.settings
        frames = FRAMES_DOWNSTREAM * sum(caps)
        ledger.window_rows = max(WINDOW_LEAST_ROWS, frames, int(modelled * settings.window_s))
        ledger.window_bytes, ledger.least_rows = IN_FLIGHT_BYTES, ROWS_A_THREAD * len(orders.task_of)
        self._root_most = min(settings.frame_rows, max(caps, default=0) or settings.frame_rows)
        self._fit()

    def _fitting(self, rows: Sequence[Any]) -> tuple[Sequence[Any], int]:
        """Those of them that make a root which is not too large, and their bytes; the others are read again."""
        count, size_bytes = fitting(rows, ROOT_BYTES_MOST)
        rows = rows[:count] if count < len(rows) else rows
        if self._unlooked and size_bytes < ROOT_BYTES:
            self._unlooked -= 1
        else:
            self._look_at(rows)
        return rows, size_bytes

    def _look_at(self, rows: Sequence[Any]) -> None:
        self.sizes.saw([row for row in rows if not isinstance(row, Exception)] if self.gives_errors else rows)
        self._fit()
        assert self.ledger is not None
        window_bytes = self.ledger.window_rows * self.sizes.mean_bytes
        if self.sizes.sure and window_bytes < SMALL_SHARE * IN_FLIGHT_BYTES:
            self._unlooked = LOOK_RARELY - 1

    def _fit(self) -> None:
        ledger = self.ledger
        assert ledger is not None
        ledger.reads(self.sizes.mean_bytes)
        fit = max(1, int(ROOT_BYTES / ledger.row_bytes)) if ledger.row_bytes else ROWS_AT_FIRST
        self._root_rows = min(self._root_most, fit)

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────

    def turn(self, now_ns: int, wall_ns: int, read: Read) -> None:
        """Replay what is lost, emit what is due."""
        if self.times is not None:
            self._tell_time(self.times, now_ns)
        if self.ledger is None:
            return
        end = self.core.orders.desired.end if self.core.orders is not None else None
        if end is None:
            self._send_due(now_ns, wall_ns, read)
            return
        if end.step == "again" and self._faulted < end.number:
            self._faulted = end.number
            self._fault()
        if not self._still(end):
            self._send_due(now_ns, wall_ns, read)
            self._send_ends(end, now_ns, wall_ns)
        elif self._fault_due_ns:
            self.rests = -end.number
        if self.rests < end.number and self._done(end):
            self.rests = end.number

    def _tell_time(self, times: SourceWatermark, now_ns: int) -> None:
        """Threads of tasks with event time hear how far this one's rows are done."""
        orders, ledger = self.core.orders, self.ledger
        if orders is None or (ledger is None and not self.stopped_reading):
            return
        if ledger is not None:
            times.done_below(ledger.floor)
        over = self.stopped_reading or (self.exhausted and ledger is not None and ledger.empty)
        if self.aligned.any:
            self.aligned.tell(self.core, times, self.stopped_reading or self.exhausted, now_ns)
        if not self._telling.due(now_ns):
            return
        told_us = times.told_us(now_ns, over)
        if told_us is not None and self._telling.is_told((orders.number, told_us), now_ns):
            for target in targets_of(orders, self.task.name):
                self.core.post.send_word(Watermark(self.core.desired.thread, target, told_us))

    def _send_due(self, now_ns: int, wall_ns: int, read: Read) -> None:
        self._replay(now_ns, read)
        self._emit_due(now_ns, wall_ns, read)
        if self.letters.any:
            self._send_letters(now_ns, wall_ns)

    # ── the end of the input (controller/execute/end_of_input.py) ───────────────────────────────

    def _still(self, end: EndOfInput) -> bool:
        """Is nothing to be sent, so that panes stay whole? While they fire, and once nothing is under way before."""
        return end.step in ("fire", "over") or (end.step == "hold" and abs(self.rests) == end.number)

    def _done(self, end: EndOfInput) -> bool:
        """Is this step done, as far as this thread's rows are concerned?"""
        if not self.stopped_reading or self._fault_due_ns:
            return False
        if end.step == "again":
            return True
        if end.step == "finish" and self._says_ends and not self.ends.told(end.finish):
            return False
        task = self.core.topology.tasks.index(self.core.topology.by_name[end.task]) if end.task else -1
        fired = FIRED + end.number

        def over(keeper: int) -> bool:
            earlier = FIRED <= keeper < STAYS and (end.step == "over" or keeper != fired)
            return end.step in ("fire", "over") and (keeper == task or earlier)

        return all(one.at_rest(over) for one in self._ledgers)

    @property
    def _ledgers(self) -> tuple[Ledger, ...]:
        assert self.ledger is not None
        return self.ledger, self.letters.ledger, self.ends.ledger

    def _fault(self) -> None:
        for ledger in self._ledgers:
            ledger.fault()

    @property
    def _says_ends(self) -> bool:
        """One thread says to keyed tasks that the input has ended: the oldest that stays."""
        orders = self.core.orders
        assert orders is not None
        threads = (
            number
            for source in self.core.topology.sources
            for number in orders.threads_of.get(source.name, ())
            if number not in orders.leaving
        )
        return min(threads, default=-1) == self.core.desired.thread

    def _send_ends(self, end: EndOfInput, now_ns: int, wall_ns: int) -> None:
        """Of one thread of all; what it said before it left is another's."""
        if end.finish and not self._says_ends:
            self.ends.clear()
        elif end.finish and self.stopped_reading:
            self._send_words(end.finish, now_ns, wall_ns)

    def _send_words(self, finish: Collection[str], now_ns: int, wall_ns: int) -> None:
        """Each straight to the thread that has the key range."""
        orders, topology = self.core.orders, self.core.topology
        assert orders is not None
        owners_of: dict[str, tuple[int, Sequence[int]]] = {}
        for root, task, key_range in self.ends.due(finish, now_ns):
            if task not in owners_of:
                edge = next(n for n, _ in topology.in_edges(task) if n in orders.route_of)
                owners_of[task] = edge, owners(orders.route_of[edge])
            edge, owner_of = owners_of[task]
            number = topology.tasks.index(topology.by_name[task])
            part = self._part(self._key(root), END_PARTITION + number, key_range, wall_ns)
            row = BufferedRow(key_range, edge, part, offset=0, variant=0, share=0)
            given = self.core.outputs.forward(row, owner_of[key_range], now_ns)
            self.ends.ledger.sent(root, given[part.key], now_ns)
        self.core.settle([])

    def wake_ns(self, now_ns: int, wall_ns: int) -> int:
        """When the next turn has something to do (monotonic)."""
        wake = now_ns + LOOK_NS
        flush_ns = self.core.outputs.next_flush_ns()
        if flush_ns is not None:
            wake = min(wake, flush_ns)
        schedule = self.core.orders.schedule if self.core.orders else None
        ledger = self.ledger
        if self.times is not None and self.times.held_by >= 0:
            return wake
        if self.arrivals is not None and self.takes(wall_ns):
            wake = min(wake, max(now_ns + EARLIEST_NS, self.quiet_until_ns))
        if ledger is None or schedule is None or not self.reading or not ledger.room():
            return wake
        if self.arrivals is not None:
            return min(wake, now_ns + EARLIEST_NS) if ledger.position < self.arrivals.end else wake
        if now_ns < self.quiet_until_ns:
            return min(wake, self.quiet_until_ns)
        if ledger.position < self._accepted_early:
            return min(wake, now_ns + EARLIEST_NS)
        place = ledger.position * self.partitions + self.core.desired.partition
        due_ns = schedule.intended_ns(place)
        if due_ns is None:
            return wake
        calm_ns = self.core.outputs.calm_until_ns()
        if self._end is None and calm_ns > now_ns:
            full_ns = schedule.intended_ns(place + self._root_rows * self.partitions)
            due_then_ns = calm_ns - now_ns + wall_ns
            due_ns = max(due_ns, due_then_ns if full_ns is None else min(due_then_ns, full_ns))
        return min(wake, now_ns + max(EARLIEST_NS, due_ns - wall_ns))

    def takes(self, wall_ns: int) -> bool:
        """Are new rows to be taken, if there are any?"""
        orders = self.core.orders
        if self.ledger is None or orders is None or orders.schedule is None or self.exhausted:
            return False
        end = self._end
        if end is not None and not (self.task.offsets and self.spool is not None and self.spool.end < end):
            return False
        if end is None and not self._to_its_end and 0 < orders.schedule.end_ns <= wall_ns:
            return False  # no more is offered; what was taken before is taken again all the same
        return self.core.routed

    def _replay(self, now_ns: int, read: Read) -> None:
        ledger = self.ledger
        assert ledger is not None
        if self._fault_due_ns and now_ns >= self._fault_due_ns:
            self._fault_due_ns = 0
            self._fault()
        if now_ns >= self._expire_due_ns:
            self._expire_due_ns = now_ns + EXPIRE_EVERY_NS
            for one in self._ledgers:
                one.expire(now_ns)
        while (root := ledger.next_replay(now_ns, lambda root: self._whole(root, now_ns, read))) is not None:
            self._send(root, now_ns)

    def _whole(self, root: Root, now_ns: int, read: Read) -> bool:
        """Rows that were released are read again. False: not now. What is in a spool can be read at any time."""
        if len(root.rows) == root.count:
            return True
        parts: list[Sequence[Any]] = []
        at, end = root.position, root.position + root.count
        while at < end:
            quiet = self.spool is None and now_ns < self.quiet_until_ns
            if quiet or not len(some := read(at, end - at)):
                return False
            parts.append(some)
            at += len(some)
        root.rows = joined(parts)
        return True

    def _emit_due(self, now_ns: int, wall_ns: int, read: Read) -> None:
        ledger, orders = self.ledger, self.core.orders
        assert ledger is not None and orders is not None
        end = self._end
        if self.exhausted or self._drained:
            self.stopped_reading = True
            return
        schedule = orders.schedule
        if schedule is None or not self.core.routed or self._is_held(now_ns):
            return
        if self.arrivals is not None:
            self._emit_arrived(now_ns, wall_ns, schedule.cap_at(wall_ns) / self.partitions, read)
            return
        if now_ns < self.quiet_until_ns:
            return
        due = (schedule.due(wall_ns) - self.core.desired.partition + self.partitions - 1) // self.partitions
        due = max(due, self._accepted_early)
        if due <= ledger.position:
            return
        limit = min(due - ledger.position, ledger.room(), self._root_rows)
        if end is not None:
            limit = min(limit, end - ledger.position)
        elif limit < self._root_rows and now_ns < self.core.outputs.calm_until_ns():
            return  # one root of all that leaves together
        rows = read(ledger.position, limit) if limit > 0 else []
        if rows:
            rows, written_bytes = self._fitting(rows)
            place = ledger.position * self.partitions + self.core.desired.partition
            self._begin_root(rows, written_bytes, schedule.intended_ns(place) or wall_ns, now_ns)

    def _is_held(self, now_ns: int) -> bool:
        """Is it to wait for others that come to the same tasks with event time? What must be read is."""
        if self.times is None or not self.aligned.any:
            return False
        if self._end is None and self.aligned.holds(self.times, now_ns):
            return True
        self.times.go_on(now_ns)
        return False

    def _begin_root(self, rows: Sequence[Any], written_bytes: int, intended_ns: int, now_ns: int) -> None:
        assert self.ledger is not None
        size_bytes = max(written_bytes, int(self.sizes.mean_bytes * len(rows)))
        root = self.ledger.begin(rows, intended_ns, now_ns, size_bytes)
        if self.times is not None:
            self.times.begin(root.sequence, rows, now_ns)
        self._send(root, now_ns)

    @property
    def _accepted_early(self) -> int:
        """What was accepted below here is read before it is due: more than the schedule has, and a run that ends is not
        to leave it."""
        return self.spool.end if self.spool is not None and self._end is not None else 0

    def _emit_arrived(self, now_ns: int, wall_ns: int, cap_tps: float, read: Read) -> None:
        """What came and is not read yet, each row due when it came: rows that came together make one root."""
        ledger, orders, arrivals = self.ledger, self.core.orders, self.arrivals
        assert ledger is not None and orders is not None and arrivals is not None
        end = arrivals.end if self._end is None else min(arrivals.end, self._end)
        limit = min(end - ledger.position, ledger.room(), self._root_rows)
        if math.isfinite(cap_tps):
            passed_s, self._allowed_ns = (now_ns - self._allowed_ns) / NS, now_ns
            most = max(1.0, CAP_BURST_S * cap_tps)
            self._allowed = min(most, self._allowed + passed_s * cap_tps)
            limit = min(limit, int(self._allowed))
        rows = read(ledger.position, limit) if limit > 0 else []
        rows, written_bytes = self._fitting(rows)
        self._allowed -= len(rows)
        while rows:
            came_ns = arrivals.arrived_ns(ledger.position) or wall_ns
            together = _together(arrivals, ledger.position, len(rows), came_ns, wall_ns)
            here = written_bytes if together == len(rows) else fitting(rows[:together], ROOT_BYTES_MOST)[1]
            self._begin_root(rows[:together], here, came_ns, now_ns)
            rows, written_bytes = rows[together:], written_bytes - here

    def _send(self, root: Root, now_ns: int) -> None:
        """An attempt of a root into the output buffers; the ledger learns the XOR of its ids."""
        ledger = self.ledger
        assert ledger is not None
        core = self.core
        key = self._key(root)
        part = self._part(key, core.desired.partition, root.position, root.intended_ns)
        batch = Batch(root.rows, [(0, 0, root.count, 0)], [part])
        if self.gives_errors:
            bad = [attempts.failure(n, row) for n, row in enumerate(root.rows) if isinstance(row, Exception)]
            batch = core.results.bury(batch, bad) if bad else batch
        given = core.results.emit(batch, now_ns)
        ledger.sent(root, given.get(key, 0), now_ns)
        core.settle([])

    def _key(self, root: Root) -> RootKey:
        return RootKey(self.core.desired.thread, self.core.post.incarnation, root.sequence, root.attempt)

    def _part(self, key: RootKey, partition: int, position: int, intended_ns: int) -> RootPart:
        assert self.ledger is not None
        home, floor = self.core.post.slot, self.ledger.floor
        return RootPart(key, home, self._number, partition, position, intended_ns, floor, 0)

    def _send_letters(self, now_ns: int, wall_ns: int) -> None:
        """Rows of dead letters, each straight to its task. One that cannot go there has died again."""
        orders = self.core.orders
        assert orders is not None
        if self.leaving:
            self.letters.clear()
            return
        if self._ways is None or self._ways.orders is not orders:
            self._ways = Ways(orders, self.core.desired.thread, self.core.ports.key_of)
        modelled = orders.desired.modelled_tps.get(self.core.desired.thread, 0.0)
        tps = 0.0 if orders.desired.draining else max(LEAST_TPS, SHARE * modelled)
        while (found := self.letters.due(now_ns, tps)) is not None:
            root, letter = found
            way = self._ways.of(letter)
            if isinstance(way, str):
                self.core.results.letters.append(self._dead(letter, way))
                continue
            key = self._key(root)
            task = self.core.topology.tasks.index(self.core.topology.by_name[letter.task])
            part = self._part(key, partition_of(task), letter.number, wall_ns)
            row = BufferedRow(way.row, way.edge, part, offset=0, variant=0, share=0)
            given = self.core.outputs.forward(row, way.target, now_ns)
            self.letters.sent(root, given[part.key], now_ns)
        self.core.settle([])

    def _dead(self, letter: LetterRow, why: str) -> DeadLetter:
        thread, number = self.core.desired.thread, letter.number
        return DeadLetter(
            letter.task, thread, self.task.name, AGAIN_PARTITION, number, "", why, "", again=number
        )


def _together(arrivals: Accepted, position: int, most: int, came_ns: int, wall_ns: int) -> int:
    """How many rows from here on may be told to have come at `came_ns`: what the last is younger than the first is what
    its latency is told too high."""
    until_ns = came_ns + max(TOGETHER_NS, int(TOGETHER_SHARE * (wall_ns - came_ns)))
    while most > 1 and arrivals.arrived_ns(position + most - 1) > until_ns:
        most = (most + 1) // 2
    return most
