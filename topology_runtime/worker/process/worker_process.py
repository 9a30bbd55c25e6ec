"""The process inside one slot: a shell round `WorkerState`.

Its main thread talks with the agent and obeys; the sender makes the sockets to other workers, the receiver owns the
one from them; every task thread runs user code, and puts its frames into a socket that is free. Signal handlers only
record.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.references import use_paths
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard
from headgate.topology_runtime.platform import clock, processes
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.platform.process_logs import hold_out
from headgate.topology_runtime.platform.processes import die_with, prctl
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import ClientChannel, PullChannel, Waiter, Waker
from headgate.topology_runtime.wire.dead_letter_messages import Poisoned, Struck
from headgate.topology_runtime.wire.dead_letter_spool import LettersKept
from headgate.topology_runtime.wire.messages import (
    ClockOff,
    DesiredState,
    FromAgentToWorker,
    FromWorker,
    Lease,
    OffsetsKept,
    Ping,
    Quit,
    SendAgain,
    SourceStatus,
    ThreadSpec,
    ThreadStatus,
    WorkerHello,
    WorkerReport,
)
from headgate.topology_runtime.wire.report_messages import UserMetric
from headgate.topology_runtime.wire.state_questions import StateAnswer, StateQuestion
from headgate.topology_runtime.worker.calls.attempts import poison_of
from headgate.topology_runtime.worker.calls.dead_lettering import dead_letters_of
from headgate.topology_runtime.worker.keyed_state import far_snapshots
from headgate.topology_runtime.worker.keyed_state import snapshot_files as snapshots
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace
from headgate.topology_runtime.worker.links.peer_links import Links, taken
from headgate.topology_runtime.worker.links.switchboard import Receiver, Sender, Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.meters.row_copies import Mirror
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.orders import worker_state as st
from headgate.topology_runtime.worker.process import garbage
from headgate.topology_runtime.worker.process.latency_watch import LatencyWatch
from headgate.topology_runtime.worker.process.source_thread import SourceWork
from headgate.topology_runtime.worker.process.task_output import TaskOutput
from headgate.topology_runtime.worker.process.task_thread import (
    AnsweringWork,
    FrameWork,
    HeldLease,
    Host,
    TaskThread,
    ThreadWork,
)

PR_SET_TIMERSLACK, SLACK_NS = 29, 1  # of threads that begin from now on: how late a wait may end
STATE_SHARE = 0.5  # of a slot's memory, for keyed state
TICK_S = 0.05  # how often threads are looked at while some start or leave
CALM_S = 0.2  # … else: what happens wakes the main thread
NOBODY: frozenset[int] = frozenset()
REPORT_EVERY_NS = 500_000_000
HELLO_EVERY_NS = 200_000_000
LETTERS_A_REPORT = 100  # of 6 kB at most: below what a message may have
SHUTDOWN_NS = 300_000_000  # for all threads together to let their objects go
LEAVING_NS = 4_000_000_000  # … when nobody waits for this worker's end but its agent, which does for 5 s


@dataclass(frozen=True)
class WorkerPlace:
    """Where this worker is, from its command line. agent: the way to it. memory: of its slot, bytes; 0: not known."""

    agent: Contact
    slot: Slot
    incarnation: int
    meter_fd: int
    directory: str
    at: Listening
    owner: int
    memory: int = 0


class Worker:
    """See the module's text; `main` is its outline."""

    def __init__(self, place: WorkerPlace) -> None:
        self.place = place
        self.state = st.WorkerState(place.slot, place.incarnation)
        self.meter = mt.Meter(place.meter_fd)
        self.wake = Waker()
        self.lease = HeldLease()
        self.board = Switchboard(place.slot, place.incarnation, self.state.by_columns)
        self.records: dict[int, int] = {}
        self.threads: dict[int, TaskThread] = {}
        self.closing: dict[int, TaskThread] = {}
        self.pings: SimpleQueue[Ping] = SimpleQueue()
        self.sender = Sender(self.board, self.meter, self.records, self.wake, place.agent.own)
        self.pull = PullChannel(KeyGuard(place.agent.own, self.state.keys.get, later=True), place.at)
        self.receiver = Receiver(self.board, self.pull, self.state, self.pings, self.wake)
        self.links = Links(self.sender.watches)
        self.endpoint = self.pull.endpoint
        self.stop: str | None = None
        self.leaves = False
        self.exit_code = 0
        self.mirror = Mirror(place.slot, place.directory)
        self.disk = DiskTroubles()
        self.output = TaskOutput(sys.stderr.fileno())
        self.latency = LatencyWatch(self.board, self.meter, random.randrange)
        self.letters = LettersKept(place.directory, place.slot.number, place.incarnation, self.disk)
        self._counting: dict[int, TaskThread] = {}  # threads whose own metrics are not told to their end
        self._paths: tuple[str, ...] = ()
        self._struck: tuple[Struck, ...] = ()
        self._cleaned = 0  # number of the routes under which old snapshots were removed
        self._reported_ns = 0
        self._news: object = None
        self._unlogged_of_gone = 0
        self._heard = False

    # ── outline ─────────────────────────────────────────────────────────────────────────────────

    def startup(self) -> None:
        self.meter.words[mt.H_INCARNATION] = self.place.incarnation
        self.agent: ClientChannel[FromWorker, FromAgentToWorker] = ClientChannel(
            channels.from_agent_to_worker, self.place.agent
        )
        self.waiter = Waiter([self.agent], [self.wake.fd])
        self.sender.start()
        self.receiver.start()
        mt.hold()
        self._hello()

    def main_loop(self) -> None:
        while self.stop is None:
            ready = self.waiter.wait(self._patience_s())
            self.wake.clear()
            self.on_turn(ready)

    def _patience_s(self) -> float:
        if not self.letters.empty:
            return TICK_S / 10
        going = any(thread.core.going for thread in self.threads.values())
        return TICK_S if going or not self.state.ready else CALM_S

    def on_turn(self, ready: Sequence[object]) -> None:
        """Everything that may have come, once."""
        now_ns = monotonic_ns()
        self.meter.words[mt.H_PROGRESS] += 1
        self._owner_lives()
        while self.stop is None and (data := self.agent.receive_bytes()) is not None:
            self._on_message(data)
        self.lease.look(any(thread.working for thread in self.threads.values()), monotonic_ns())
        self._on_peers(ready)
        self._perform(self.state.on_threads(*self._look()))
        for number, thread in self.threads.items():
            self.state.on_started_again(number, thread.core.behaviour.started_again)
        self._look_at_late()
        self._perform(self.state.on_tick(now_ns))
        self._look_at_closing(now_ns)
        self._bad_rows()
        self.mirror.look(now_ns)
        self._look_at_latency(now_ns)
        self.output.tell()
        self._answer()
        self._report(now_ns)

    def shutdown(self) -> None:
        """End what runs; what cannot end in time is left to the process's end."""
        self.meter.words[mt.H_ENDING] = 1
        for thread in self.threads.values():
            thread.stopping = True
        self.board.wake_all()
        deadline_ns = monotonic_ns() + (LEAVING_NS if self.leaves else SHUTDOWN_NS)
        for thread in [*self.threads.values(), *self.closing.values()]:
            thread.join(timeout=max(0.0, (deadline_ns - monotonic_ns()) / 1e9))
            if late := thread.stuck_in(mt.CLOSE, 0, monotonic_ns()):
                self._say(f"{late}; it is not waited for")
        for number, thread in self.closing.items():
            self._look_at_rows_of(number, thread)
        self._look_at_late()
        self._perform(self.state.last_words())
        self.sender.stop()
        self.receiver.stopping = True
        self.sender.join(timeout=0.5)
        self.agent.close(linger_ms=300)

    # ── the agent ───────────────────────────────────────────────────────────────────────────────

    def _hello(self) -> None:
        self._reported_ns = monotonic_ns()
        self.agent.send(WorkerHello(self.place.slot, self.place.incarnation, os.getpid(), self.endpoint))

    def _on_message(self, data: bytes) -> None:
        try:
            message = self.agent.decode(data)
        except BadMessage as error:
            print(f"headgate worker {self.place.slot}: {error.what}: {error.cause}", file=sys.stderr)
            return
        if isinstance(message, Quit):
            self.stop = message.reason or "told to quit"
            return
        if isinstance(message, Lease):
            if message.work_until_ns >= 0:
                self.state.contact_ns, self.lease.work_until_ns = message.contact_ns, message.work_until_ns
            return self.lease.renew(message.until_ns, monotonic_ns())
        if isinstance(message, ClockOff):
            return clock.HERE.hear(message.offset_ns, message.ahead_ns)
        if isinstance(message, Poisoned):
            self._struck = message.struck
            for thread in self.threads.values():
                self._warn(thread)
            return
        if isinstance(message, OffsetsKept):
            for number, offset in message.offsets:
                if number in self.threads:
                    self.threads[number].work.kept(offset)
            for number, thread in self.threads.items() if message.positions else ():
                if thread.task.state == "keyed":
                    self.board.put(number, message)
            return
        if isinstance(message, StateQuestion):
            return self._look_for(message)
        if isinstance(message, SendAgain):
            return self.board.put(message.thread, message) if message.thread in self.threads else None
        self._heard = True
        self._on_desired(message)

    def _look_for(self, asked: StateQuestion) -> None:
        """Its thread answers between two frames, unless it is none that could."""
        thread = self.threads.get(asked.thread)
        if thread is not None and isinstance(thread.core.behaviour, KeyedTask):
            return self.board.put(asked.thread, asked)
        slot, incarnation = self.place.slot, self.place.incarnation
        self.agent.send(StateAnswer(slot.vm, slot, incarnation, asked.number, asked.thread, "elsewhere"))

    def _answer(self) -> None:
        """What threads have looked up."""
        for thread in self.threads.values():
            answers = thread.core.behaviour.answers if isinstance(thread.core.behaviour, KeyedTask) else ()
            while answers:
                self.agent.send(answers.popleft())

    def _on_desired(self, desired: DesiredState) -> None:
        if desired.user_paths != self._paths:
            use_paths(desired.user_paths)
            self._paths = desired.user_paths
        processes.hide_variables(desired.topology.variables)
        sys.setswitchinterval(desired.settings.switch_interval_s)
        self.board.strict = desired.settings.strict
        self._reach(desired, "heard")
        self._perform(self.state.on_desired(desired))
        self._reach(desired, "obeyed")
        self._clean_snapshots(desired)
        if self.state.desired is not None:
            self.mirror.obey(self.state.desired.profile, self.threads.values(), monotonic_ns())

    def _look_at_latency(self, now_ns: int) -> None:
        def in_turn(number: int) -> bool:
            thread = self.threads.get(number)
            return thread is not None and thread.work.one_by_one

        self.latency.look(self.records, now_ns, in_turn)
        for number, thread in self.threads.items():
            thread.asked = self.latency.chained.get(number, NOBODY)

    def _clean_snapshots(self, desired: DesiredState) -> None:
        """Once per plan, when it is committed: snapshots of threads that nobody can ask for any more go."""
        if desired.phase != "committed" or desired.routes_number <= self._cleaned:
            return
        self._cleaned = desired.routes_number
        kept = {thread.thread for thread in desired.threads}
        kept |= {thread for keepers in desired.keepers for thread, _ in keepers.ranges}
        try:
            snapshots.clean(self.place.directory, kept)
        except OSError as error:
            where = f"headgate worker {self.place.slot}"
            print(f"{where}: old snapshots cannot be removed: {error}", file=sys.stderr)
        if desired.state_to and self.place.slot == min(thread.slot for thread in desired.threads):
            threading.Thread(target=_clean_far, args=(desired, kept), daemon=True).start()

    def _reach(self, desired: DesiredState, moment: str) -> None:
        processes.reach(f"worker.{desired.phase}-{moment}", desired.token.epoch)

    def _on_peers(self, ready: Sequence[object]) -> None:
        """What peers, and the links to them, have told."""
        for slot, up in self.links.changes(self.waiter, ready):
            self._perform(self.state.on_link(slot, up))
        for refused in taken(self.receiver.early):
            self._perform(self.state.on_refused(*refused))
        for name in taken(self.receiver.lost):
            self.state.on_dropped(name)
        for whose in taken(self.sender.lost):
            self.state.on_unsent(whose)
        for ping in taken(self.pings):
            self._perform(self.state.on_ping(ping, monotonic_ns()))

    def _warn(self, thread: TaskThread) -> None:
        """Tell it of rows that it must not call user code for."""
        sources = [task.name for task in thread.topology.sources]
        thread.watch.poison = poison_of(thread.desired.task, sources, self._struck)

    def _ping(self, slot: Slot, answer: bool) -> None:
        self.board.out.put((slot, self.state.ping(slot, answer, monotonic_ns())))

    def _look_at_late(self) -> None:
        while self.board.late:
            self.state.on_late(self.board.late.pop())

    def _look_at_rows_of(self, number: int, thread: TaskThread) -> None:
        """It is over, or will be: did it leave rows?"""
        if thread.dropped:
            self.state.on_started_again(number, st.ENDED)

    def _look_at_closing(self, now_ns: int) -> None:
        """Threads that let their objects go; one that takes too long for it is told of and left behind."""
        before = len(self.closing)
        for number, thread in list(self.closing.items()):
            most_ns = int(thread.task.max_call_s * 1e9)
            late = thread.stuck_in(mt.CLOSE, most_ns, now_ns) or thread.stuck_in(mt.OPEN, most_ns, now_ns)
            if late:
                self._say(f"{late}; it is left behind")
            over = late or not thread.is_alive()  # before its rows are looked at: it may end just now
            self._look_at_rows_of(number, thread)
            if over:
                del self.closing[number], thread
        if len(self.closing) < before:
            garbage.let_go()

    def _look(self) -> tuple[list[ThreadStatus], list[SourceStatus]]:
        now = [t.now() for n, t in self.threads.items() if n not in self.state.ended]
        sources = [one for t in self.threads.values() if (one := t.work.source_now()) is not None]
        words, now_ns = self.meter.words, monotonic_ns()
        for thread in self.threads.values():
            thread.look_at_open(now_ns)
            at = thread.at
            frames = max(1, words[at + mt.FRAMES_IN])
            words[at + mt.CALL_MOVED] = thread.watch.moved
            words[at + mt.QUEUE] = thread.inbox.qsize() * max(1, words[at + mt.TUPLES_IN] // frames)
        return now, sources

    def _thread_troubles(self) -> tuple[str, ...]:
        """What failed lately of what every thread needs, and what peers sent too much of."""
        failed = filter(None, (self.sender.trouble(), self.receiver.trouble()))
        return (*curve.troubles(), *failed, *self.receiver.dropped())

    def _report(self, now_ns: int) -> None:
        if not self._heard:
            if now_ns - self._reported_ns >= HELLO_EVERY_NS:
                self._hello()
            return
        letters = self.letters.take(LETTERS_A_REPORT)
        state = self.state
        report = WorkerReport(
            self.place.slot,
            self.place.incarnation,
            state.token,
            state.ready,
            tuple(state.threads.values()),
            tuple(state.sources.values()),
            letters,
            self.stop is not None,
            (*self.disk.texts(), *self._thread_troubles()),
            self._unlogged_of_gone + sum(thread.records.unlogged for thread in self.threads.values()),
            tuple(t.work.again for t in self.threads.values() if t.work.again),
            tuple(seen for t in self.threads.values() for seen in t.keys_seen),
            self.latency.now(),
            heard=state.heard(now_ns),
        )
        news = (
            report.token,
            report.ready,
            tuple(map(_news_of, report.threads)),
            report.leaving,
            report.troubles,
            report.again,
            [(path.constraint, path.standing) for path in report.paths],
            tuple(map(_standing, report.sources)),
        )
        if letters or news != self._news or now_ns - self._reported_ns >= REPORT_EVERY_NS:
            self.agent.send(replace(report, metrics=self._user_metrics()))
            self._news, self._reported_ns = news, now_ns
            if state.desired is not None and state.ready:
                self._reach(state.desired, "reported")

    def _user_metrics(self) -> tuple[UserMetric, ...]:
        """What is new of tasks' own; of threads that have ended too, once more."""
        ended = {number for number, thread in self._counting.items() if not thread.is_alive()}
        slot = self.place.slot.number
        new = tuple(
            UserMetric(slot, number, thread.task.name, name, *taken)
            for number, thread in self._counting.items()
            for name, taken in thread.metrics.take()
        )
        for number in ended:
            del self._counting[number]
        return new

    # ── instructions ────────────────────────────────────────────────────────────────────────────

    def _perform(self, instructions: list[st.Instruction]) -> None:
        for instruction in instructions:
            self._do(instruction)

    def _do(self, instruction: st.Instruction) -> None:
        match instruction:
            case st.Obey(orders):
                self.board.slot_of = orders.slot_of
                self.board.topology_size = len(orders.topology.edges), len(orders.topology.sources)
                for thread in self.threads.values():
                    thread.orders = orders
                self.latency.obey(orders, monotonic_ns())
                self.board.wake_all()
            case st.StartThread(desired):
                self._start(desired)
            case st.EndThread(number):
                self._end(number)
            case st.Connect(peer):
                self.sender.connect(peer)
            case st.Disconnect(slot):
                self.sender.disconnect(slot)
            case st.AskPeer(slot):
                self._ping(slot, answer=False)
            case st.AnswerPeer(slot):
                self._ping(slot, answer=True)
            case st.Fault():
                for thread in self.threads.values():
                    thread.faults += 1
            case st.Leave():
                self.stop, self.leaves = "no thread is left", True

    def _start(self, desired: ThreadSpec) -> None:
        orders = self.state.orders
        assert orders is not None
        self.records[desired.thread] = record = self.meter.thread_record()
        task = orders.topology.by_name[desired.task]
        self.meter.words[record + mt.TASK] = orders.topology.tasks.index(task)
        self.meter.words[record + mt.THREAD] = desired.thread + 1
        work = _work_of(desired, orders.topology)
        thread = TaskThread(desired, orders.topology, self._host(orders.desired), record, work)
        thread.orders = orders
        self._warn(thread)
        self.threads[desired.thread] = self._counting[desired.thread] = thread
        thread.start()
        garbage.keep()

    def _host(self, desired: DesiredState) -> Host:
        far = FarPlace(desired.state_to, desired.run, self.place.incarnation) if desired.state_to else None
        return Host(
            self.board, self.meter, self.place.directory, self.letters.put, self.wake.set, self._crashed, self._lock,
            self.disk, self.lease, self._one, self.threads, self.output, far, desired.exactly_once,
            desired.state_in_memory or int(STATE_SHARE * self.place.memory),
        )  # fmt: skip

    _lock, _one = threading.Lock(), threading.Lock()

    def _end(self, number: int) -> None:
        thread = self.threads.pop(number, None)
        self.board.close_inbox(number)
        if thread is not None:
            self._unlogged_of_gone += thread.records.unlogged
            thread.stopping = True
            thread.wake()
            self.closing[number] = thread

    def _say(self, text: str) -> None:
        print(f"headgate worker {self.place.slot}: {text}", file=sys.stderr, flush=True)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────

    def _crashed(self, error: BaseException) -> None:
        """A thread cannot go on: the whole worker ends, so that its agent starts a fresh one."""
        traceback.print_exception(error)
        self.exit_code = 1
        self.stop = f"a thread crashed: {error}"
        self.wake.set()

    def _bad_rows(self) -> None:
        for frame, bad in taken(self.board.bad_rows):
            assert self.state.desired is not None
            for letter in dead_letters_of(frame, bad, self.state.desired.topology):
                self.letters.put(letter)

    def _owner_lives(self) -> None:
        if os.getppid() != self.place.owner:
            self.stop = "the agent is gone"


def _clean_far(desired: DesiredState, kept: set[int]) -> None:
    """One worker of all does this, beside its work: a store may take long."""
    try:
        far_snapshots.clean(FarPlace(desired.state_to, desired.run, 0).open(), kept)
    except OSError as error:
        print(f"headgate worker: old snapshots cannot be removed: {error}", file=sys.stderr)


def _work_of(desired: ThreadSpec, topology: Topology) -> type[ThreadWork]:
    if desired.answers:
        return AnsweringWork
    return FrameWork if topology.in_edges(desired.task) else SourceWork


def _news_of(thread: ThreadStatus) -> ThreadStatus:
    """What of a thread is worth a report of its own: not how far its event time has come, nor how large it is."""
    timed = thread.watermark_us is not None or thread.timeless or thread.held_by >= 0
    if not timed and thread.held is None:
        return thread
    return replace(thread, watermark_us=None, held_by=-1, late=0, timeless=0, held=None)


def _standing(source: SourceStatus) -> tuple[int, bool, bool, int]:
    """What of a source is worth a report of its own (its counts are in the meter)."""
    return source.thread, source.stopped, source.exhausted, source.rests


def run(place: WorkerPlace) -> int:
    """The worker's life; its exit code."""
    die_with(place.owner, signal.SIGKILL)
    hold_out()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process where it stands (`HeldLease`)
    garbage.begin()
    with contextlib.suppress(OSError):  # where that is refused, rows leave a twentieth of a millisecond later
        prctl(PR_SET_TIMERSLACK, SLACK_NS)
    worker = Worker(place)
    worker.output.install()
    worker.startup()
    with contextlib.suppress(KeyboardInterrupt):
        worker.main_loop()
    worker.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(worker.exit_code)  # user threads that cannot end must not keep the slot
