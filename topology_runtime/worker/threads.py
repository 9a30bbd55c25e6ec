"""The threads that run tasks. A task thread takes frames from its inbox, runs the logic, sends and acks;
between two frames it looks for new orders. It touches no socket. What it decides is in task_core.py.

What one thread tells the worker's main thread is in `now()`: written by the thread, read by the other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty

from topology_runtime.clock import monotonic_ns, wall_ns
from topology_runtime.disk import DiskTroubles
from topology_runtime.instances import build
from topology_runtime.latency_buckets import bucket_of
from topology_runtime.logic import Context
from topology_runtime.messages import DeadLetter, Frame, ThreadSpec, ThreadStatus
from topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from topology_runtime.topology import Topology
from topology_runtime.worker import meter as mt
from topology_runtime.worker import moves, snapshots
from topology_runtime.worker.finished import FinishedLog
from topology_runtime.worker.flow import Flow
from topology_runtime.worker.held_lease import HeldLease
from topology_runtime.worker.meter import Meter
from topology_runtime.worker.meter_watch import MeterWatch
from topology_runtime.worker.mirror import Copies
from topology_runtime.worker.orders import Orders
from topology_runtime.worker.pieces import Pieces
from topology_runtime.worker.switchboard import Over, Switchboard
from topology_runtime.worker.task_core import TaskCore

TICK_S = 0.1  # an idle thread that has something to do by the clock looks at it so often
IDLE_S = 1.0  # any other: what concerns it wakes it
WAIT_S = 0.005  # a thread that may not work looks again so often
OPEN_LEAST_NS = 60_000_000_000  # an object may load much when it opens


@dataclass
class Host:
    """What a worker lends its threads."""

    board: Switchboard
    meter: Meter
    directory: str
    letters: Callable[[DeadLetter], None]
    changed: Callable[[], None]  # wake the main thread: something to report
    crashed: Callable[[BaseException], None]  # a thread met what it cannot go on from
    lock: threading.Lock
    disk: DiskTroubles
    lease: HeldLease
    one: threading.Lock  # held by the thread whose call is named in the meter


class TaskThread(threading.Thread):
    """A thread of a task that has in-edges. `at`: the first word of its meter record."""

    def __init__(self, desired: ThreadSpec, topology: Topology, host: Host, at: int) -> None:
        super().__init__(name=f"{desired.task}-{desired.thread}", daemon=True)
        self.desired, self.topology, self.host, self.at = desired, topology, host, at
        self.task = topology.by_name[desired.task]
        self.inbox = host.board.inbox(desired.thread)
        self.orders: Orders | None = None  # set by the main thread
        self.failed = ""
        self.copies: Copies | None = None  # set by the main thread while rows are mirrored
        self.stopping = False
        self.busy = False
        self.working = False  # an exclusive thread does something that must not outlast the lease
        self.watch = MeterWatch(host.meter.words, at, desired.thread, host.one)
        numbers = random.Random()
        self.random64: Callable[[], int] = lambda: numbers.getrandbits(64)
        self.core = self.make_core()
        self._log: FinishedLog | None = None
        self._links: dict[int, int | None] = {}

    def make_core(self) -> TaskCore:
        return TaskCore(self.desired, self.topology, self.host.board, self.random64, self.record)

    @property
    def unlogged(self) -> int:
        """Finished rows of which there is no log."""
        return self._log.dropped if self._log is not None else 0

    def now(self) -> ThreadStatus:
        """How this thread is; called by the main thread."""
        return self.core.now(not self.busy and self.inbox.empty(), self.failed)

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        self.host.meter.words[self.at + mt.TID] = threading.get_native_id()
        self.host.meter.words[self.at + mt.IDENT] = threading.get_ident()
        try:
            with self.watch.calling(mt.OPEN):
                self.startup()
            self.failed = ""
        except Exception as error:  # user code: whatever it is, it is reported as this thread's failure
            self.failed = f"{type(error).__name__}: {error}"
            self.host.changed()
            while not self.stopping:
                self.inbox.get()
            self.over()
            return
        self.host.meter.words[self.at + mt.STATE] = mt.RUNNING
        self.host.changed()
        try:
            while not self.stopping:
                self.turn()
            self.shutdown()
            self.over()
        except BaseException as error:  # the worker dies of it, loudly; its ledgers replay
            self.host.crashed(error)

    def stuck_in(self, kind: int, most_ns: int, now_ns: int) -> str:
        """What to say when it has been in such a call for longer; called by the main thread."""
        words, at = self.host.meter.words, self.at
        begun_ns = words[at + mt.CALL_STARTED_NS]
        if not begun_ns or words[at + mt.CALL_KIND] != kind or now_ns - begun_ns <= most_ns:
            return ""
        whose = f"{mt.KINDS[kind]}() of thread {self.desired.thread} of {self.task.name}"
        return f"{whose} has not returned for {(now_ns - begun_ns) / 1e9:.1f} s"

    def look_at_open(self, now_ns: int) -> None:
        """An object that does not open fails its thread, until it does; called by the main thread."""
        most_ns = max(OPEN_LEAST_NS, int(self.task.max_call_s * 1e9))
        if not self.failed and (late := self.stuck_in(mt.OPEN, most_ns, now_ns)):
            self.failed = late

    def startup(self) -> None:
        """Build the task's object, in this thread."""
        logic = build(self.task)
        desired = self.desired
        partitions = self.task.static.threads if self.task.static else 1
        if hasattr(logic, "open"):
            directory = self.host.directory
            logic.open(Context(self.task.name, desired.thread, desired.partition, partitions, directory))
        flow = self.core.adopt(logic, time.sleep)
        flow.watch = self.watch
        if flow.around.sink:
            number = self.topology.tasks.index(self.task)
            incarnation = self.host.board.incarnation
            self._log = FinishedLog(self.host.directory, number, desired.thread, incarnation, self.host.disk)
            flow.pieces = Pieces(monotonic_ns, self._begun, self._log_finished)

    def shutdown(self) -> None:
        """Nothing is in the inbox, the buffers or kept: let the task's object go."""
        self.core.flush(monotonic_ns(), everything=True)
        logic = self.core.flow.logic if self.core.flow else None
        if logic is not None and hasattr(logic, "close"):
            try:
                with self.watch.calling(mt.CLOSE):
                    logic.close()
            except Exception as error:  # user code: its failure to close is told, not hidden
                self.failed = f"close: {type(error).__name__}: {error}"
        if self._log is not None:
            self._log.close()

    def over(self) -> None:
        """Nothing is counted any more but what the sender has still to send; its records may go to others."""
        with self.host.lock:
            self._forget_links(self._links.keys())
        self.host.board.out.put((None, Over(self.desired.thread)))
        self.host.changed()

    def _forget_links(self, senders: Iterable[int]) -> None:
        """Under the lock: these send here no more."""
        for sender in list(senders):
            link = self._links.pop(sender)
            if link is not None:
                self.host.meter.link_ended(link)

    def turn(self) -> None:
        """One look round: orders, one item, time, flush."""
        self.watch.look()
        self.look_at_orders()
        if not self.core.may_work:
            time.sleep(WAIT_S)
            return
        try:
            item = self.inbox.get(timeout=self._patience_s())
        except Empty:
            item = None
        self.busy = True
        if self.task.exclusive and not self._wait_for_lease(item is None):
            self.busy = False
            return
        if type(item) is tuple:
            self._take(*item)
        elif isinstance(item, StateAsked):
            self.answer_for(item)
        elif isinstance(item, (Barrier, StateMove, StateTaken)) and self.core.on_word(item, monotonic_ns()):
            self.host.changed()
        self.core.on_time(monotonic_ns())
        self.core.flush(monotonic_ns())
        self.busy = self.working = False

    def answer_for(self, asked: StateAsked) -> None:
        """What a thread that is no more has on this VM's disk."""
        if asked.task not in self.topology.by_name:
            return
        for move in moves.answers_for(
            asked, snapshots.SnapshotFiles(self.host.directory, asked.task, asked.thread)
        ):
            self.host.board.send_word(move)

    def may_go_on(self) -> bool:
        """May this exclusive thread work now? The lease is read before the orders, since a newer lease counts
        only with the orders that came before it; the clock last, when `working` is seen."""
        until_ns = self.host.lease.until_ns
        self.look_at_orders()
        self.working = self.core.may_work
        self.working = self.working and self.core.leased(monotonic_ns(), until_ns)
        return self.working

    def _wait_for_lease(self, idle: bool) -> bool:
        """True once it may work; False when it is to end, or has nothing to work on."""
        while not self.may_go_on():
            if idle or self.stopping:
                return False
            time.sleep(WAIT_S)
        return True

    def look_at_orders(self) -> None:
        orders = self.orders
        if orders is None or orders is self.core.orders:
            return
        if self.core.obey(orders, monotonic_ns()):
            self.host.changed()
        gone = [
            sender for sender, link in self._links.items() if link is None or sender not in orders.task_of
        ]
        if gone:
            with self.host.lock:
                self._forget_links(gone)

    def _patience_s(self) -> float:
        due_ns = self.core.outputs.next_flush_ns()
        if due_ns is None:
            return TICK_S if self.core.by_the_clock else IDLE_S
        return max(0.0, (due_ns - monotonic_ns()) / 1e9)

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────

    def _take(self, arrived_ns: int, frame: Frame, wire_bytes: int) -> None:
        words, at = self.host.meter.words, self.at
        if (copies := self.copies) is not None:
            copies.add(self.topology.edges[frame.edge].source, frame.rows)
        start_ns, cpu_ns, rows = monotonic_ns(), time.thread_time_ns(), len(frame.rows)
        words[at + mt.CALL_STARTED_NS] = start_ns
        self.watch.quick = not (self.watch.careful or self.watch.poison)
        self.core.take(frame, start_ns)
        self.watch.quick = False
        end_ns = monotonic_ns()
        words[at + mt.CALL_STARTED_NS] = 0
        words[at + mt.TUPLES_IN] += rows
        words[at + mt.FRAMES_IN] += 1
        words[at + mt.BYTES_IN] += wire_bytes
        words[at + mt.BUSY_NS] += end_ns - start_ns
        words[at + mt.WAIT_NS] += max(0, end_ns - start_ns - (time.thread_time_ns() - cpu_ns))
        words[at + mt.LATENCY_SUM_NS] += (end_ns - arrived_ns) * rows
        words[at + mt.FIELDS + bucket_of(end_ns - arrived_ns)] += rows
        self._measure_link(frame, arrived_ns, wire_bytes)

    def _measure_link(self, frame: Frame, arrived_ns: int, wire_bytes: int) -> None:
        link = self._links.get(frame.sender, -1)
        if link == -1:
            with self.host.lock:
                link = self._links[frame.sender] = self.host.meter.link_record(frame.sender, frame.target)
        if link is not None:
            words = self.host.meter.words
            words[link + mt.L_TUPLES] += len(frame.rows)
            words[link + mt.L_BYTES] += wire_bytes
            words[link + mt.L_FRAMES] += 1
            words[link + mt.L_BUFFER_NS] += frame.flushed_ns - frame.filled_ns
            words[link + mt.L_CHANNEL_NS] += max(0, arrived_ns - frame.flushed_ns)

    def record(self, flow: Flow) -> None:
        """Before acks leave: count, log what was finished, pass on dead letters."""
        words, at = self.host.meter.words, self.at
        words[at + mt.TUPLES_OUT] = flow.tuples_out
        words[at + mt.HELD_ROWS] = flow.holding
        if flow.pieces is not None:
            flow.pieces.logged()
        if flow.letters:
            letters, flow.letters = flow.letters, []
            for letter in letters:
                self.host.letters(letter)

    def _begun(self, rows: int) -> None:
        self.host.meter.words[self.at + mt.UNLOGGED] = rows

    def _log_finished(self) -> None:
        words, at, flow = self.host.meter.words, self.at, self.core.flow
        if self._log is None or flow is None or not flow.finished:
            return
        now_ns = wall_ns()
        for root, _, count, _ in flow.finished:
            words[at + mt.E2E + bucket_of(max(0, now_ns - root.intended_ns))] += count
        self._log.append(flow.finished)
        flow.finished = []
