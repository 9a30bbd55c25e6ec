"""The thread that runs a task: its life, its orders, its lease. What it does in a turn is its
work: frames.py (rows come in, or questions alone), source_reader.py; what it decides is in thread_core.py.

What one thread tells the worker's main thread is in `now()`: written by the thread, read by the other.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.containment.own_user import explained
from headgate.topology_runtime.disk import DiskTroubles
from headgate.topology_runtime.instances import build, key_function
from headgate.topology_runtime.key_counts import KeysSeen
from headgate.topology_runtime.letters import SentAgain
from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.messages import DeadLetter, Frame, SourceStatus, ThreadSpec, ThreadStatus
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.chained_post import ChainedPost, Ran, Receiving
from headgate.topology_runtime.worker.chains import chained_to
from headgate.topology_runtime.worker.finished import FinishedLog
from headgate.topology_runtime.worker.held_lease import HeldLease
from headgate.topology_runtime.worker.meter import Meter
from headgate.topology_runtime.worker.meter_watch import MeterWatch
from headgate.topology_runtime.worker.mirror import Copies
from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.pieces import Pieces
from headgate.topology_runtime.worker.records import ThreadRecords
from headgate.topology_runtime.worker.snapshots import SnapshotFiles
from headgate.topology_runtime.worker.switchboard import Over, Switchboard
from headgate.topology_runtime.worker.thread_core import Ports, ThreadCore

IDLE_S = 1.0  # a thread with nothing to do by the clock looks round so often: what concerns it wakes it
KEYS_EVERY_NS = 1_000_000_000
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
    threads: Mapping[int, Receiving]  # of this worker, by number


class ThreadWork:
    """What a thread does, turn after turn; made with its thread."""

    again: SentAgain | None = None  # what became of letters that it sends again; read by the main thread

    def __init__(self, thread: TaskThread) -> None:
        self.thread, self.core = thread, thread.core

    def begin(self, logic: Any) -> None:
        """The task's object is there."""

    def turn(self) -> None:
        raise NotImplementedError

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """As `Receiving` says. Here: only by itself."""
        return None

    def on_orders(self, orders: Orders) -> None:
        """New ones are obeyed."""

    def close(self) -> None:
        """It ends, and its task's object was let go."""

    def source_now(self) -> SourceStatus | None:
        """How the source is that it reads, if it is one; called by the main thread."""
        return None


class TaskThread(threading.Thread):
    """A thread of a task, and its work. `at`: the first word of its meter record."""

    def __init__(
        self,
        desired: ThreadSpec,
        topology: Topology,
        host: Host,
        at: int,
        work: Callable[[TaskThread], ThreadWork],
    ) -> None:
        super().__init__(name=f"{desired.task}-{desired.thread}", daemon=True)
        self.desired, self.topology, self.host, self.at = desired, topology, host, at
        self.task = topology.by_name[desired.task]
        self.inbox = host.board.inbox(desired.thread)
        self.orders: Orders | None = None  # set by the main thread
        self.failed = ""
        self.copies: Copies | None = None  # set by the main thread while rows are mirrored
        self.keys_seen: tuple[KeysSeen, ...] = ()  # in its last second
        self._keys_due_ns = 0
        self.faults = 0  # of peers; counted by the main thread
        self.asked: frozenset[int] = (
            frozenset()
        )  # threads to run for a latency constraint; set by the main thread
        self.stopping = False
        self.busy = False
        self.working = False  # an exclusive thread does something that must not outlast the lease
        self.logic: Any = None
        self.lock = (
            threading.Lock()
        )  # held by the thread that runs it: itself, or the one that it is chained to
        self._asked = self.asked  # when it looked last
        self.borrowed_ns = 0  # CPU that others spent on its frames
        self.watch = MeterWatch(host.meter.words, at, desired.thread, host.one)
        number = topology.tasks.index(self.task)
        sink = FinishedLog(host.directory, number, desired.thread, host.board.incarnation, host.disk)
        self.records = ThreadRecords(host.meter.words, at, host.letters, sink)
        numbers = random.Random()
        snapshots = partial(SnapshotFiles, host.directory)
        random64 = partial(numbers.getrandbits, 64)
        self.post = ChainedPost(host.board, host.threads)
        ports = Ports(self.post, self.records, snapshots, random64, key_function)
        self.core = ThreadCore(desired, topology, ports)
        self.core.outputs.at_once = self.post.chained
        self.work = work(self)

    def now(self) -> ThreadStatus:
        """How this thread is; called by the main thread."""
        idle = not self.busy and not self.lock.locked() and self.inbox.empty()
        return self.core.now(idle, self.failed)

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """As `Receiving` says; called by another thread of this worker."""
        return self.work.run_for(frame, before, cpu_ns)

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        self.host.meter.words[self.at + mt.TID] = threading.get_native_id()
        self.host.meter.words[self.at + mt.IDENT] = threading.get_ident()
        try:
            with self.watch.calling(mt.OPEN):
                self.startup()
            self.failed = ""
        except Exception as error:  # user code: whatever it is, it is reported as this thread's failure
            self.failed = explained(error)
            self.host.changed()
            while not self.stopping:
                self.inbox.get()
            self.over()
            return
        self.host.meter.words[self.at + mt.STATE] = mt.RUNNING
        self.host.changed()
        try:
            while not self.stopping:
                self.work.turn()
            with self.lock:
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
        if self.desired.answers:
            return  # for one that is no more: no user code
        logic = build(self.task)
        desired = self.desired
        partitions = self.task.static.threads if self.task.static else 1
        if hasattr(logic, "open"):
            directory = self.host.directory
            logic.open(Context(self.task.name, desired.thread, desired.partition, partitions, directory))
        if self.core.results.around.sink:
            self.core.results.pieces = Pieces(monotonic_ns, self.records)
        self.logic = logic
        self.work.begin(logic)

    def shutdown(self) -> None:
        """Nothing is in the inbox, the buffers or kept: let the task's object go."""
        self.core.flush(monotonic_ns(), everything=True)
        if hasattr(self.logic, "close"):
            try:
                with self.watch.calling(mt.CLOSE):
                    self.logic.close()
            except Exception as error:  # user code: its failure to close is told, not hidden
                self.failed = f"close: {type(error).__name__}: {error}"
        self.records.close()
        self.work.close()

    def over(self) -> None:
        """Nothing is counted any more; its records may go to others once the sender has sent what is there."""
        self.count()
        self.host.board.out.put((None, Over(self.desired.thread)))
        self.host.changed()

    # ── a turn ──────────────────────────────────────────────────────────────────────────────────

    def look_round(self) -> None:
        """Between two frames: what does the agent ask for, what are the orders?"""
        self.watch.look()
        if self.orders is not self.core.orders or self.asked is not self._asked:
            self.look_at_orders()
        if (now_ns := monotonic_ns()) >= self._keys_due_ns and self.orders is not None:
            self._keys_due_ns = now_ns + KEYS_EVERY_NS
            self.keys_seen = self.core.outputs.keys_seen(self.orders.desired.hide_keys)

    def count(self) -> None:
        """What it spent on others, and others on it; what it sent."""
        words, at = self.host.meter.words, self.at
        words[at + mt.BORROWED_NS] = self.borrowed_ns - self.post.lent_ns
        words[at + mt.BYTES_OUT] = self.post.wire_bytes

    def look_at_orders(self) -> None:
        orders, asked = self.orders, self.asked
        if orders is None or (orders is self.core.orders and asked is self._asked):
            return
        if orders is not self.core.orders:
            if self.core.obey(orders, monotonic_ns()):
                self.host.changed()
            self.work.on_orders(orders)
        self._asked = asked
        self.post.targets = chained_to(orders, self.desired.thread, self.task.name, asked)

    def may_go_on(self) -> bool:
        """May this exclusive thread work now? The lease is read before the orders, since a newer lease counts
        only with the orders that came before it; the clock last, when `working` is seen."""
        until_ns = self.host.lease.until_ns
        self.look_at_orders()
        self.working = self.core.may_work
        self.working = self.working and self.core.leased(monotonic_ns(), until_ns)
        return self.working
