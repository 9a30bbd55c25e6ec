"""The thread that runs a task: its life, its orders, its lease. What it does in a turn is its
work, here (rows come in, or questions alone) or in source_thread.py; what it decides is in thread_core.py.

What one thread tells the worker's main thread is in `now()`: written by the thread, read by the other.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.logic import Context, batched_of, runs_anywhere
from headgate.topology_runtime.api.task_functions import build, gave_none, is_async, key_function
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.latency.latency_buckets import bucket_of
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.platform.containment import explained
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION, SentAgain
from headgate.topology_runtime.wire.messages import (
    NS,
    DeadLetter,
    Frame,
    SourceStatus,
    ThreadSpec,
    ThreadStatus,
    WireFrame,
    may_begin,
)
from headgate.topology_runtime.wire.report_messages import KeysSeen
from headgate.topology_runtime.wire.state_moves import StateAsked
from headgate.topology_runtime.wording import error_text
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import Pauses
from headgate.topology_runtime.worker.calls.batches import edge_of, gathered, rows_in
from headgate.topology_runtime.worker.calls.user_code import Pieces
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.saved_beside import SavedBeside
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SnapshotStore
from headgate.topology_runtime.worker.keyed_state.state_store import OVERFLOW_HINT, SqliteStates
from headgate.topology_runtime.worker.links.frame_encoding import read
from headgate.topology_runtime.worker.links.switchboard import ChainedPost, Over, Ran, Receiving, Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.meter import Meter, MeterWatch
from headgate.topology_runtime.worker.meters.row_copies import Copies
from headgate.topology_runtime.worker.meters.thread_records import FinishedLog, ThreadRecords
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Ports, ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import Orders, chained_to
from headgate.topology_runtime.worker.process.task_output import SpeakingThread, TaskOutput
from headgate.topology_runtime.worker.sources.source_watermark import SourceWatermark

# ── The lease as a worker has it: its exclusive threads begin nothing `MARGIN_NS` before its end, and a
# call that is still under way at its end is ended with the process. And as all its threads have it, who
# begin nothing after `work_until_ns`.
#
# That end is an alarm of the kernel's, renewed with the lease: it comes also when the agent hangs, when a
# call never lets go of the interpreter, and, to a worker that was stopped, before it takes another step.

UNBOUND_NS = 1 << 62  # before the agent says how long all threads may work
REST_S = 0.02  # a thread of a VM without contact looks again so often
FARTHEST_S = 1e6  # an alarm further off than that is as good as none


class HeldLease:
    """Renewed and looked at by the main thread, read by exclusive threads."""

    def __init__(self) -> None:
        self.until_ns = 0
        self.work_until_ns = UNBOUND_NS
        self._armed = False

    def renew(self, until_ns: int, now_ns: int) -> None:
        """A word of the agent. A lease that is over when it comes is none."""
        if until_ns > max(self.until_ns, now_ns):
            self.until_ns = until_ns
            signal.setitimer(signal.ITIMER_REAL, min((until_ns - now_ns) / NS, FARTHEST_S))
            self._armed = True

    def look(self, working: bool, now_ns: int) -> None:
        """Near the end nothing is started any more; if nothing is under way either, there is nothing to end."""
        if self._armed and not working and not may_begin(now_ns, self.until_ns):
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False


IDLE_S = 1.0  # a thread with nothing to do by the clock looks around so often: what concerns it wakes it
KEYS_EVERY_NS = 1_000_000_000
OPEN_LEAST_NS = 60_000_000_000  # an object may load much when it opens
AWAY_FIRST_S, AWAY_MOST_S = 0.1, 2.0  # until a service that is away is asked again: twice as long each time
BUILD_AGAIN_S, BUILD_AGAIN_MOST_S = 0.25, 1.5  # after an object could not be built: twice as long each time
LETTERS_SAID = 3  # of a thread, on the console
SAID_MOST = 500  # characters of an error that are reported


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
    output: TaskOutput = field(default_factory=lambda: TaskOutput(2))  # where what its tasks print goes
    far: FarPlace | None = None  # where snapshots are, if not on this VM's disk
    exactly_once: bool = False  # as the run is to count
    state_bytes: int = 0  # of states in memory, in all its threads


class ThreadWork:
    """What a thread does, turn after turn; made with its thread."""

    again: SentAgain | None = None  # what became of dead letters that it sends again; read by the main thread
    unreadable = ""  # why no rows are had of the source that it reads; read by the main thread
    one_by_one = True  # what waits for it waits for what is under way
    times: SourceWatermark | None = None  # of a source with timestamps; read by the main thread

    def __init__(self, thread: TaskThread) -> None:
        self.thread, self.core = thread, thread.core

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have the task's object open or close."""
        function(*arguments)

    def begin(self, logic: Any) -> None:
        """The task's object is there."""

    def unbuilt(self) -> None:
        """The task's object is let go, and will be built once more."""

    def cancel(self) -> None:
        """It ends, whatever is under way."""

    def turn(self) -> None:
        raise NotImplementedError

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """As `Receiving` says. Here: only by itself."""
        return None

    def on_orders(self, orders: Orders) -> None:
        """New ones are obeyed."""

    def close(self) -> None:
        """It ends, and its task's object was released."""

    def kept(self, offset: int) -> None:
        """An heir goes on from this offset of the source, as the controller keeps it; called by the main thread."""

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
        self.failed = self.away = ""
        self.built = False  # once; or there is nothing to build
        self._away_s = 0.0  # the last pause for a service
        self.dropped = False  # it ended with rows that nobody else has
        self.copies: Copies | None = None  # set by the main thread while rows are mirrored
        self.keys_seen: tuple[KeysSeen, ...] = ()  # in its last second
        self._keys_due_ns = 0
        self.faults = 0  # of peers; counted by the main thread
        self.asked: frozenset[int] = frozenset()  # to run for a latency constraint; set by the main thread
        self.stopping = False
        self.busy = False
        self.working = False  # an exclusive thread does something that must not outlast the lease
        self.logic: Any = None
        self.lock = threading.Lock()  # held by the thread that runs it: itself, or one that it is chained to
        self._asked = self.asked  # when it looked last
        self.borrowed_ns = 0  # CPU that others spent on its frames
        self.watch = MeterWatch(host.meter.words, at, desired.thread, host.one)
        self.watch.tell_away, self.watch.rest = self._away_now, self._rest_for
        number = topology.tasks.index(self.task)
        sink = FinishedLog(host.directory, number, desired.thread, host.board.incarnation, host.disk)
        self.metrics = UserMetrics()
        self.speaker: SpeakingThread | None = None
        self._letters_said = 0
        self._none_said = False
        self.records = ThreadRecords(host.meter.words, at, self._on_letter, sink)
        numbers = random.Random()
        random64 = partial(numbers.getrandbits, 64)
        self.post = ChainedPost(host.board, host.threads)
        ports = Ports(
            self.post,
            self.records,
            self._snapshots,
            random64,
            key_function,
            wall_ns,
            ends=(),
            exactly_once=host.exactly_once,
            overflow=partial(SqliteStates, host.directory),
            state_bytes=host.state_bytes,
        )
        self.core = ThreadCore(desired, topology, ports)
        self.core.outputs.at_once = self.post.chained
        self.work = work(self)

    def _snapshots(self, task: str, thread: int) -> SnapshotStore:
        host = self.host
        store: SnapshotStore = (
            SnapshotFiles(host.directory, task, thread)
            if host.far is None
            else FarSnapshots(host.far, task, thread, self.wake)
        )
        # on the VM's own disk no other takes over while it rests
        counts = (lambda: True) if host.far is None else (lambda: not self.rests)
        return SavedBeside(store, f"{task}-{thread}", counts, self.wake)

    def now(self) -> ThreadStatus:
        """How this thread is; called by the main thread."""
        idle = not self.busy and not self.lock.locked() and self.inbox.empty()
        now = self.core.now(idle, self.failed)
        if self.work.unreadable or self.away:
            now = replace(now, unreadable=self.work.unreadable, away=self.away)
        if not (self.built or self.failed or self.away):
            now = replace(now, building=True)
        if (times := self.work.times) is not None:
            now = replace(now, timeless=times.unknown, times_wrong=times.wrong, held_by=times.held_by)
        return now

    def _away_now(self, error: ServiceAway | None) -> float:
        """A service that a call needs is away (None: it answers again); how many seconds until it is asked again."""
        away = "" if error is None else f"{error_text(error)}; it is tried again"[:SAID_MOST]
        self._away_s = 0.0 if error is None else min(AWAY_MOST_S, max(AWAY_FIRST_S, 2 * self._away_s))
        if away != self.away:
            self.away = away
            self.host.changed()
        return self._away_s * random.uniform(0.5, 1.0)

    def _rest_for(self, seconds: float) -> None:
        """Until it is asked again: no sooner than this thread may work."""
        until_ns = monotonic_ns() + int(seconds * 1e9)
        while monotonic_ns() < until_ns or self.rests or self._lease_is_over:
            time.sleep(WAIT_S)

    @property
    def _lease_is_over(self) -> bool:
        return self.task.exclusive and monotonic_ns() >= self.host.lease.until_ns

    def wake(self) -> None:
        """It looks around; called by the main thread."""
        self.inbox.put(None)
        if (waker := self.host.board.wakers.get(self.desired.thread)) is not None:
            waker()

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """As `Receiving` says; called by another thread of this worker."""
        lent_by = self.host.output.lend(self.speaker)
        ran = self.work.run_for(frame, before, cpu_ns)
        self.host.output.lend(lent_by)
        return ran

    def _on_letter(self, letter: DeadLetter) -> None:
        """The first ones are said, with their tracebacks; all are kept."""
        if self._letters_said < LETTERS_SAID and (speaker := self.speaker) is not None:
            self._letters_said += 1
            of_key = letter.partition >= END_PARTITION
            what = letter.row if of_key else f"row {letter.position} of {letter.source}"
            for line in (f"{what} became a dead letter: {letter.error}", *letter.traceback.splitlines()):
                self.host.output.say(speaker, "error", line)
        self.host.letters(letter)

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        self.host.meter.words[self.at + mt.TID] = threading.get_native_id()
        self.host.meter.words[self.at + mt.IDENT] = threading.get_ident()
        self.speaker = self.host.output.speak_as(self.task.name, self.desired.thread)
        if not self._build():
            self.over()
            return
        self.host.meter.words[self.at + mt.STATE] = mt.RUNNING
        self.built = True
        self.host.changed()
        try:
            while not self.stopping:
                self.work.turn()
            with self.lock:
                self.shutdown()
            self.over()
        except BaseException as error:  # the worker dies of it, loudly; its ledgers replay
            self.host.crashed(error)

    def _build(self) -> bool:
        """Build the task's object, again and again while that fails: what it needs may be there later. Frames wait in
        the inbox meanwhile. False: the thread is to end."""
        pause_s = BUILD_AGAIN_S
        while not self.stopping:
            self.core.tries += 1
            try:
                with self.watch.calling(mt.OPEN):
                    self.startup()
                self.failed = ""
                self.watch.served()
                return True
            except ServiceAway as error:
                self._unbuild()
                self.watch.waits(error)
                continue
            except (
                BaseException
            ) as error:  # user code: whatever it is, it is reported as this thread's failure
                traceback.print_exception(error)  # into the worker's log
                self.failed = f"{explained(error)}{attempts.users_line(error)}; it is tried again"[:SAID_MOST]
                self.host.changed()
            self._unbuild()
            until_ns, pause_s = monotonic_ns() + int(pause_s * 1e9), min(2 * pause_s, BUILD_AGAIN_MOST_S)
            while not self.stopping and monotonic_ns() < until_ns:
                time.sleep(WAIT_S)
        return False

    def _unbuild(self) -> None:
        """What was opened before it failed is closed, so that tries leave nothing behind."""
        logic, self.logic = self.logic, None
        try:
            if hasattr(logic, "close"):
                self.work.call(logic.close)
        except BaseException as error:  # user code, once more
            traceback.print_exception(error)
        self.work.unbuilt()

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
        for _, edge in (*self.topology.in_edges(self.task.name), *self.topology.out_edges(self.task.name)):
            if edge.key is not None:
                key_function(edge.key)  # user code, too: what it cannot be made of fails here, not in a turn
        if is_async(logic):
            from headgate.topology_runtime.worker.process.async_work import (
                work_of,  # and asyncio, which few need
            )

            self.work = work_of(self)
        desired = self.desired
        partitions = self.task.partitions
        if hasattr(logic, "open"):
            directory = self.host.directory
            place = self.task.name, desired.thread, desired.partition, partitions, directory
            self.work.call(logic.open, Context(*place, self.metrics))
        self.logic = logic
        if self.core.results.around.sink:
            self.core.results.pieces = Pieces(monotonic_ns, self.records)
        self.work.begin(logic)

    def shutdown(self) -> None:
        """Nothing is in the inbox, the buffers or kept: let the task's object go."""
        self.work.cancel()
        self.core.flush(monotonic_ns(), everything=True)
        try:
            if hasattr(self.logic, "close"):
                with self.watch.calling(mt.CLOSE):
                    self.work.call(self.logic.close)
        except BaseException as error:  # user code: its failure to close is told, not hidden
            traceback.print_exception(error)
            self.failed = f"close: {explained(error)}{attempts.users_line(error)}"[:SAID_MOST]
        self.records.close()
        self.work.close()

    def over(self) -> None:
        """Nothing is counted any more; its records may go to others once the sender has sent what is there."""
        self.count()
        self.dropped = bool(self.topology.in_edges(self.task.name)) and (self._left() or not self.core.empty)
        self.host.output.over()
        self.host.board.out.put((None, Over(self.desired.thread)))
        self.host.changed()

    def _left(self) -> bool:
        """Are there frames that it has not taken?"""
        while not self.inbox.empty():
            if type(self.inbox.get()) is tuple:
                return True
        return False

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
        if self.core.results.gave_none and not self._none_said and (speaker := self.speaker) is not None:
            self._none_said = True
            self.host.output.say(speaker, "warning", gave_none(self.task.name, self.logic))

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

    @property
    def rests(self) -> bool:
        """Has its VM been without contact for too long?"""
        return monotonic_ns() >= self.host.lease.work_until_ns

    def rested(self) -> bool:
        """Once it may work; False when it is to end."""
        while self.rests:
            if self.stopping:
                return False
            time.sleep(REST_S)
        return True

    def may_go_on(self) -> bool:
        """May this exclusive thread work now? The lease is read before the orders, since a newer lease counts
        only with the orders that came before it; the clock last, when `working` is seen."""
        until_ns = self.host.lease.until_ns
        self.look_at_orders()
        self.working = self.core.may_work
        self.working = self.working and self.core.leased(monotonic_ns(), until_ns)
        return self.working


# ── The work of a thread that takes in rows: a frame at a time through its behaviour, measured. And that of
# one which only answers.

TICK_S = 0.1  # an idle thread that has something to do by the clock looks at it so often
WAIT_S = 0.005  # a thread that may not work looks again so often
DRAIN_S = 1.0  # so long the thread before it waits at most with a frame, until those before that are taken
DRAIN_LOOK_S = 0.001
Arrived = tuple[int, Frame | WireFrame, int]  # when, what, how many bytes of a peer
SPENT_MOST_NS = 3600 * 1_000_000_000  # in a buffer, on a link: sums of what a peer tells stay numbers


class FrameWork(ThreadWork):
    """Of a task with in-edges."""

    def __init__(self, thread: TaskThread) -> None:
        super().__init__(thread)
        self._words, self._at = thread.host.meter.words, thread.at
        self._links: dict[int, int | None] = {}  # sender → its record in the meter, if there was one left
        self._taken: dict[int, int] = {}  # sender → frames
        self._gathers = False  # it takes what waits together
        self._anywhere = False  # its object may be called by any thread
        self.refused = 0
        self._until_ns = 0  # it sleeps so long at most, unless something wakes it
        self._lost = 0  # key ranges of which it was told
        self._unsaved = self._stays = ""

    def begin(self, logic: Any) -> None:
        core, watch = self.core, self.thread.watch
        core.behaviour = behaviour_of(core, logic, Pauses(watch, time.sleep, time.monotonic), watch)
        self._anywhere = runs_anywhere(logic)
        self._gathers = bool(batched_of(logic)) and not self.thread.task.exclusive

    def turn(self) -> None:
        """One look around: orders, one item, time, flush."""
        thread = self.thread
        with thread.lock:
            thread.look_round()
            patience_s = self._patience_s() if self.core.may_work else None
            self._until_ns = monotonic_ns() + int((patience_s or 0.0) * 1e9)
        if patience_s is None:
            time.sleep(WAIT_S)
            return
        try:
            item = thread.inbox.get(timeout=patience_s)
        except Empty:
            item = None
        thread.busy = True
        may_work = thread.rested()
        with thread.lock:
            if may_work and (not thread.task.exclusive or self._wait_for_lease(item is None)):
                more, after = self._gather(item) if self._gathers and type(item) is tuple else ((), ())
                for each, with_it in [(item, more), *((other, ()) for other in after)]:
                    thread.post.begin()
                    self._handle(each, with_it)
                    thread.post.end_and_send()
            thread.count()
        thread.busy = thread.working = False

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        thread, core = self.thread, self.core
        if not self._anywhere:
            return None
        if self._taken.get(frame.sender, 0) != before:
            self._let_drain(frame.sender, before)
        with thread.lock:
            if thread.stopping or self._taken.get(frame.sender, 0) != before:
                return None
            thread.look_round()
            if not core.may_work:
                return None
            words, at_ident, post = self._words, self._at + mt.IDENT, thread.post
            ident, words[at_ident] = words[at_ident], threading.get_ident()
            post.begin(cpu_ns)
            self._handle((frame.flushed_ns, frame, 0))
            words[at_ident] = ident
            waits = core.outputs.buffers or core.behaviour.by_the_clock
            if waits and self._until_ns > monotonic_ns() + int(self._patience_s() * 1e9):
                thread.inbox.put(None)  # there is something to do sooner than it thinks
            ended_ns = post.cpu_ns or time.thread_time_ns()
            thread.borrowed_ns += ended_ns - cpu_ns
            thread.count()
            return Ran(ended_ns, post.end())

    def _let_drain(self, sender: int, before: int) -> None:
        """Wait until what the sender gave before is taken, or DRAIN_S. Called by the sender: both want the CPU of one
        slot, and it would never come to run this one through a queue that it fills as fast as that is emptied."""
        until_ns = monotonic_ns() + int(DRAIN_S * 1e9)
        while self._taken.get(sender, 0) != before and monotonic_ns() < until_ns:
            if self.thread.stopping or not self.core.may_work:
                return
            time.sleep(DRAIN_LOOK_S)

    def _gather(self, item: Arrived) -> tuple[Sequence[Arrived], Sequence[Any]]:
        """Frames that wait behind this one and fit into one call with it; and what else was found in looking for them,
        which is next."""
        inbox, edge = self.thread.inbox, edge_of(item[1])
        room = self.core.outputs.cap_of(self.core.desired.thread) - rows_in(item[1])
        found: list[Arrived] = []
        while room > 0:
            try:
                other = inbox.get_nowait()
            except Empty:
                break
            if (
                type(other) is not tuple
                or edge_of(other[1]) != edge
                or (room := room - rows_in(other[1])) < 0
            ):
                return found, (other,)
            found.append(other)
        return found, ()

    def _handle(self, item: Any, more: Sequence[Arrived] = ()) -> None:
        """A frame (and more of them, together), a word, or nothing but the time."""
        thread, core = self.thread, self.core
        if type(item) is tuple:
            now_ns = self._take(item, *more)
        else:
            now_ns = monotonic_ns()
            if item is not None and core.hear(item, now_ns):
                thread.host.changed()
        behaviour = core.behaviour
        if behaviour.by_the_clock:
            behaviour.on_faults(thread.faults, now_ns)
            core.on_time(now_ns)
            now_ns, thread.post.cpu_ns = monotonic_ns(), 0
        core.flush(now_ns)
        if isinstance(behaviour, KeyedTask):
            self._tell_of_state(behaviour)
            self._tell_of_memory(behaviour)

    def _wait_for_lease(self, idle: bool) -> bool:
        """True once it may work; False when it is to end, or has nothing to work on."""
        while not self.thread.may_go_on():
            if idle or self.thread.stopping:
                return False
            time.sleep(WAIT_S)
        return True

    def _patience_s(self) -> float:
        due_ns = self.core.outputs.next_flush_ns()
        if self.core.behaviour.soon:
            return 0.0
        if due_ns is None:
            return TICK_S if self.core.behaviour.by_the_clock else IDLE_S
        return max(0.0, (due_ns - monotonic_ns()) / 1e9)

    def _take(self, *items: Arrived) -> int:
        """Frames, as one; when that was done."""
        came = self.read(*items)
        if not came:
            return monotonic_ns()
        frame = came[0][1] if len(came) == 1 else gathered([one for _, one, _ in came])
        words, at, watch, post = self._words, self._at, self.thread.watch, self.thread.post
        start_ns, cpu_ns, rows = monotonic_ns(), post.cpu_ns or time.thread_time_ns(), len(frame.rows)
        waited_ns = watch.waited_ns
        words[at + mt.CALL_STARTED_NS] = start_ns
        watch.quick = not (watch.careful or watch.poison.any)
        self.core.take(frame, start_ns)
        watch.quick = False
        end_ns = monotonic_ns()
        busy_ns = end_ns - start_ns - (watch.waited_ns - waited_ns)
        words[at + mt.CALL_STARTED_NS] = 0
        words[at + mt.TUPLES_IN] += rows
        words[at + mt.BUSY_NS] += busy_ns
        post.cpu_ns = now_ns = time.thread_time_ns()
        ran_ns = min(busy_ns, now_ns - cpu_ns)
        if (waited_ns := busy_ns - ran_ns) > 0:
            words[at + mt.WAIT_NS] += waited_ns
            words[at + mt.WAITED_SQUARES] += (waited_ns // 1000) ** 2 // rows
        words[at + mt.RAN_SQUARES] += (ran_ns // 1000) ** 2 // rows
        words[at + mt.CALLS] += 1
        for arrived in came:
            self.count_latency(len(arrived[1].rows), end_ns - arrived[0])
            self.count_frame(arrived)
        return end_ns

    def read(self, *items: Arrived) -> list[tuple[int, Frame, int]]:
        """These frames as they can be taken, but those that are none."""
        thread, came = self.thread, []
        for arrived_ns, sent, wire_bytes in items:
            one = read(sent) if isinstance(sent, WireFrame) else sent
            if one is None:
                self._refuse()
                continue
            came.append((arrived_ns, one, wire_bytes))
            if (copies := thread.copies) is not None:
                copies.add(thread.topology.edges[one.edge].source, one.rows)
        return came

    def count_latency(self, rows: int, latency_ns: int) -> None:
        """So many are done, so long after they came."""
        words, at = self._words, self._at
        words[at + mt.LATENCY_SUM_NS] += latency_ns * rows
        words[at + mt.FIELDS + bucket_of(latency_ns)] += rows

    def count_frame(self, arrived: tuple[int, Frame, int]) -> None:
        """It is done; its rows are released before those that take what came of them take it."""
        arrived_ns, one, wire_bytes = arrived
        rows, one.rows = len(one.rows), []
        self._words[self._at + mt.FRAMES_IN] += 1
        if wire_bytes:
            self._words[self._at + mt.BYTES_IN] += wire_bytes
        self._taken[one.sender] = self._taken.get(one.sender, 0) + 1
        self._measure_link(one, rows, arrived_ns, wire_bytes)

    def _refuse(self) -> None:
        """A peer's frame that is none: it is sent again, or its sender is at fault for good."""
        self.refused += 1
        if self.refused == 1:
            self._say("a frame that cannot be read came, and is left out; more of them are not reported")

    # ── links ───────────────────────────────────────────────────────────────────────────────────

    def _measure_link(self, frame: Frame, rows: int, arrived_ns: int, wire_bytes: int) -> None:
        link = self._links.get(frame.sender, -1)
        if link == -1:
            host = self.thread.host
            with host.lock:
                link = self._links[frame.sender] = host.meter.link_record(frame.sender, frame.target)
        if link is not None:
            words = self._words
            words[link + mt.L_TUPLES] += rows
            words[link + mt.L_FRAMES] += 1
            if wire_bytes:
                words[link + mt.L_BYTES] += wire_bytes
            if frame.filled_ns != arrived_ns:  # it was not handed over as it was made
                words[link + mt.L_BUFFER_NS] += spent_ns(frame.filled_ns, frame.flushed_ns)
                words[link + mt.L_CHANNEL_NS] += spent_ns(frame.flushed_ns, arrived_ns)

    def on_orders(self, orders: Orders) -> None:
        """Senders that are no more, and those without a record, are looked at again."""
        known = orders.task_of
        for sender in self._taken.keys() - known.keys():
            del self._taken[sender]
        if gone := [sender for sender, link in self._links.items() if link is None or sender not in known]:
            self._forget(gone)

    def _forget(self, senders: Iterable[int]) -> None:
        with self.thread.host.lock:
            for sender in senders:
                link = self._links.pop(sender)
                if link is not None:
                    self.thread.host.meter.link_ended(link)

    # ── keyed state ─────────────────────────────────────────────────────────────────────────────

    def _tell_of_state(self, keyed: KeyedTask) -> None:
        """What of its state was lost, or cannot be saved: once for each."""
        if (lost := len(keyed.rows.ranges.lost)) > self._lost:
            self._say(f"the state of {lost - self._lost} key ranges was lost with the threads that had it")
            self._lost = lost
        if bool(keyed.unsaved) != bool(self._unsaved):
            self._unsaved = keyed.unsaved
            self._say(
                f"no snapshot can be written: {keyed.unsaved}; its rows are kept until one can"
                if keyed.unsaved
                else f"snapshots are written again, after {keyed.saves_failed} failures in all"
            )
            self.thread.host.changed()

    def _tell_of_memory(self, keyed: KeyedTask) -> None:
        """Why states that memory has no room for stay there: an alarm of the VM's disk."""
        why, host = keyed.cannot_overflow, self.thread.host
        if why == self._stays:
            return
        self._stays, number = why, self.thread.desired.thread
        what = f"state of thread {number} of {self.thread.task.name} beyond memory"
        path = SqliteStates(host.directory, self.thread.task.name, number).path
        if why:
            host.disk.failed(what, path, OSError(f"{why}; it stays in memory; {OVERFLOW_HINT}"))
        else:
            host.disk.works(what)
        host.changed()

    def _say(self, text: str) -> None:
        name = f"thread {self.thread.desired.thread} of {self.thread.task.name}"
        print(f"headgate: {name}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._forget(list(self._links))
        keyed = self.core.behaviour
        if not isinstance(keyed, KeyedTask):
            return
        keyed.forget_overflow()
        self._tell_of_memory(keyed)
        if keyed.rows.ranges.versions:
            keyed.store.close()
            return
        keyed.store.remove()


class AnsweringWork(ThreadWork):
    """Of a thread in the place of one that is no more, on a VM where no other could say what its snapshots hold. It
    runs no user code: whatever ended the others here does not end it."""

    def turn(self) -> None:
        try:
            item = self.thread.inbox.get(timeout=IDLE_S)
        except Empty:
            return
        if isinstance(item, StateAsked):
            self.core.hear(item, monotonic_ns())


def spent_ns(begin_ns: int, end_ns: int) -> int:
    """From one to the other, where a peer says the times: no less than none and no more than an hour."""
    spent = end_ns - begin_ns
    return spent if 0 <= spent <= SPENT_MOST_NS else 0 if spent < 0 else SPENT_MOST_NS
