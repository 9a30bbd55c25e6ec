"""A task thread in virtual time: a real ThreadCore with its behaviour, driven as task_thread.py and
source_thread.py drive it. Its worker may be killed at every effect it has on others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headgate.lab.simulation.row_account import answered_by, claiming, copies_of
from headgate.lab.simulation.simulated_topologies import Batches, Picky, SimFeed, Sink, Tally
from headgate.lab.simulation.virtual_time import MS
from headgate.topology_runtime.api.logic import Context, Exhausted
from headgate.topology_runtime.api.task_functions import build, key_function
from headgate.topology_runtime.wire.dead_letter_messages import SentAgain
from headgate.topology_runtime.wire.messages import Frame, SourceStatus, ThreadSpec, ThreadStatus
from headgate.topology_runtime.wire.state_moves import StateAsked, StateMove
from headgate.topology_runtime.worker.calls.user_code import ToRecord
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import Ports, ThreadCore
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.process.task_thread import BUILD_AGAIN_MOST_S, BUILD_AGAIN_S
from headgate.topology_runtime.worker.sources.source_spool import Owner, Spool, SpoolsLeft
from headgate.topology_runtime.worker.sources.source_task import SourceTask
from headgate.topology_runtime.worker.sources.source_watermark import watermark_of

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_worker import SimWorker


# ── The spool of a live source in a simulated VM: the real one, over files in memory, on a disk that may be
# full


class SimSpool(Spool):
    """`full()`: does the VM's disk take no more?"""

    def __init__(self, folder: str, position: int, until: int | None, full: Callable[[], bool]) -> None:
        self._full = full
        super().__init__(folder, position, until)

    def _write(self, data: bytes) -> None:
        if self._full():
            raise OSError(28, "no space left on the simulated disk")
        super()._write(data)

    def _reserve(self) -> None:
        if self._full():
            raise OSError(28, "no space left on the simulated disk")


LOOK_NS = 100 * MS  # a thread that keeps rows looks around this often
REST_NS = 20 * MS  # a thread without contact looks again so often
SAVED_AT_ONCE = 3  # states of a whole snapshot
QUEUE_A_TURN = 4  # items taken in one turn at most


class Killed(Exception):
    """The worker died in the middle of what it did."""


class SimThread:
    """A thread of a task with in-edges."""

    def __init__(self, worker: SimWorker, desired: ThreadSpec, orders: Orders) -> None:
        self.worker, self.desired, self.orders = worker, desired, orders
        self.world = worker.world
        self.inbox: deque[Any] = worker.inboxes.setdefault(desired.thread, deque())
        self.ended = False
        self.faults = 0
        ports = Ports(
            worker,
            self,
            worker.store,
            self.world.random64,
            key_function,
            lambda: self.world.wall_ns,
            exactly_once=self.world.exact,
        )
        self.core = ThreadCore(desired, orders.topology, ports)
        self.logic: Any = None  # the task's object, once it is built
        self.failed = ""  # why it could not be
        self._started_again = 0
        self._due_ns = -1
        self._turns = 0
        self.world.later(self.world.delay_ns(0.2, 3.0), self._build)

    @property
    def alive(self) -> bool:
        return self.worker.alive and not self.ended

    def _build(self) -> None:
        if not self.alive:
            return
        task, w = self.core.task, self.desired
        logic = build(task)
        self.core.tries += 1
        if isinstance(logic, Tally):
            logic.meets = self.world.code.meets
        try:
            self.world.code.meets("open")
            if hasattr(logic, "open"):
                partitions = task.static.threads if task.static else 1
                logic.open(Context(task.name, w.thread, w.partition, partitions, ""))
            self.logic = logic
            self._compose()
        except Exception as error:  # as task_thread.py: built again until that works
            self.logic, self.failed = None, str(error)
            self.worker.changed()
            pause_s = min(BUILD_AGAIN_S * 2 ** (self.core.tries - 1), BUILD_AGAIN_MOST_S)
            self.world.later(int(pause_s * 1e9), self._build)
            return
        if self.failed:
            self.failed = ""
            self.worker.changed()
        restored = len(copies_of(self))
        self.world.met["snapshots restored"] += bool(restored)
        self.world.met["ranges restored"] += restored
        if isinstance(logic, SimFeed):
            logic.events = self.world.events
        if isinstance(logic, Picky):
            logic.mended = self.world.letters.mended
        self.wake()

    def _compose(self) -> None:
        self.core.behaviour = keyed = behaviour_of(self.core, self.logic, lambda _: None)
        if isinstance(keyed, KeyedTask):
            keyed.parts.most = SAVED_AT_ONCE
        if self.world.exact and isinstance(keyed, KeyedTask):
            keyed.rows.applied.most = 16  # rows are forgotten as soon as they may be

    @property
    def could_work(self) -> bool:
        """Would it take a frame now, if it had one?"""
        orders = self.worker.state.orders
        if orders is None or self.desired.thread not in orders.task_of:
            return False
        leased = self.core.leased(self.world.now_ns, self.worker.leased_until_ns)
        return (
            leased
            and not self.worker.rests
            and self.alive
            and self.logic is not None
            and orders.may_run(self.desired.thread)
        )

    def now(self) -> ThreadStatus:
        return self.core.now(not self.inbox, self.failed)

    # ── turns ───────────────────────────────────────────────────────────────────────────────────

    def wake(self, delay_ns: int = 0) -> None:
        """Have a turn soon."""
        self._at(self.world.now_ns + (delay_ns or self.world.delay_ns(0.05, 0.5)))

    def _at(self, when_ns: int) -> None:
        if self._due_ns >= 0 and self._due_ns <= when_ns:
            return
        self._due_ns = when_ns
        self._turns += 1
        self.world.clock.at(when_ns, "", partial(self._turn_if, self._turns))

    def _turn_if(self, turn: int) -> None:
        if turn != self._turns or not self.alive:
            return
        self._due_ns = -1
        if self.logic is not None:
            try:
                self.turn()
                self._look_back()
                self._plan_next()
            except Killed as how:
                self.worker.kill(f"in the middle of {how}")
            except ConnectionError as error:  # `restore`, where a thread starts again
                self.worker.kill(f"a thread crashed: {error}")

    def _look_back(self) -> None:
        """What it forgot, it never did."""
        behaviour = self.core.behaviour
        if behaviour.started_again > self._started_again:
            self._started_again = behaviour.started_again
            self.world.met["threads started again"] += 1
            self.world.tallies.owners_killed += 1
            if isinstance(self.logic, Tally):
                self.logic.counted.clear()
            self.worker.changed()

    def turn(self) -> None:
        """Orders, a few items, time, flush."""
        now_ns = self.world.now_ns
        self.look_at_orders()
        if not self.core.may_work or not self.core.leased(now_ns, self.worker.leased_until_ns):
            return
        if self.worker.rests:
            self.world.met["rests without contact"] += 1
            return
        for _ in range(QUEUE_A_TURN):
            if self.inbox and not self._queues(self.inbox[0]):
                self._one(self.inbox.popleft(), now_ns)
        self.core.behaviour.on_faults(self.faults, now_ns)
        self.core.on_time(now_ns)
        self.core.flush(now_ns)

    def _queues(self, item: Any) -> bool:
        """Must this frame still wait here (a story about long queues)?"""
        if not self.world.options.queue_ms:
            return False
        if not isinstance(item, Frame) or item.edge not in self.world.last_edges:
            return False
        wait_ns = int(self.world.options.queue_ms * MS)
        return self.world.now_ns < item.flushed_ns + wait_ns

    def _one(self, item: Any, now_ns: int) -> None:
        if isinstance(item, Frame):
            self.world.clock.say(f"{self.name} takes {len(item.rows)} of {item.sender}")
            self.world.checks.works(self)
            self.world.checks.beside(self)
            self.core.take(item, now_ns)
            return
        if isinstance(item, StateMove) and item.gone is not None:
            self.world.met["ranges taken over"] += sum(bool(copy.data) for copy in item.copies)
        if self.core.hear(item, now_ns):
            self.worker.changed()

    def look_at_orders(self) -> None:
        orders = self.worker.state.orders
        if orders is not None and orders is not self.core.orders:
            self.orders = orders
            answered = answered_by(self)
            if self.core.obey(orders, self.world.now_ns):
                self.worker.changed()
            self.world.met["ranges thawed"] += len(answered and answered & claiming(self))

    def _plan_next(self) -> None:
        if self.inbox and self.core.may_work:
            self.wake(self.world.service_ns(self.desired.task))
        due_ns = self.core.outputs.next_flush_ns()
        if due_ns is not None:
            self._at(max(due_ns, self.world.now_ns + (1 if self.could_work else LOOK_NS)))
        if self.core.behaviour.holding or isinstance(self.core.behaviour, TimedTask):
            self._at(self.world.now_ns + LOOK_NS)

    def write(self, done: ToRecord, holding: int) -> None:
        """What was finished is durable from here on (thread_records.py: the page cache keeps it)."""
        self.worker.effect("record")
        logic = self.logic
        if done.finished and isinstance(logic, (Sink, Batches)):
            rows, logic.rows = logic.rows, []
            self.world.account.finished(self.core.results.around.sources, done.finished, rows)
            self.world.tallies.see(rows)
        elif isinstance(logic, Tally):
            self.world.tallies.count(self.desired.task, logic.counted)
            logic.counted = []
        if done.letters:
            self.world.account.buried(done.letters)
            self.worker.letters += done.letters
            self.worker.letters_kept += done.letters

    def end(self) -> None:
        """The worker says: it is empty, or no longer desired."""
        try:
            self.core.flush(self.world.now_ns, everything=True)
        except Killed as how:
            self.worker.kill(f"in the middle of {how}")
        self.ended = True

    def gone(self, killed: bool) -> None:
        """Its worker is no more."""
        if killed:
            self.world.tallies.owners_killed += self.desired.task in self.world.shape.keys
        elif self.core.orders is not None and self.core.orders.desired.draining:
            self.world.tallies.ends(self)

    @property
    def dropped(self) -> bool:
        """As task_thread.py's."""
        left = any(isinstance(item, Frame) for item in self.inbox)
        return not isinstance(self, SimSource) and (left or not self.core.empty)

    @property
    def name(self) -> str:
        return f"{self.desired.task}-{self.desired.thread}"


class SimAnswering(SimThread):
    """As task_thread.py's."""

    def _build(self) -> None:
        self.wake()

    def _turn_if(self, turn: int) -> None:
        while turn == self._turns and self.alive and self.inbox:
            item = self.inbox.popleft()
            try:
                if isinstance(item, StateAsked):
                    self.world.met["answers for others"] += 1
                    self.core.hear(item, self.world.now_ns)
            except Killed as how:
                self.worker.kill(f"in the middle of {how}")
        self._due_ns = -1

    def end(self) -> None:
        self.ended = True


class SimSource(SimThread):
    """A thread of a task without in-edges."""

    def __init__(self, worker: SimWorker, desired: ThreadSpec, orders: Orders) -> None:
        self.told: SourceStatus | None = None  # what its meter says
        self.spool: SimSpool | None = None
        super().__init__(worker, desired, orders)
        self.core.behaviour = self.source = SourceTask(self.core)

    def _compose(self) -> None:
        """Its behaviour is there from the beginning."""
        if self.core.topology.timed_below(self.desired.task):
            self.source.times = watermark_of(self.core.task, key_function)

    @property
    def place(self) -> tuple[str, int]:
        return self.desired.task, self.desired.partition

    def source_now(self) -> SourceStatus:
        w = self.desired
        if self.told is None or self.source.ledger is None:
            stopped = self.source.stopped_reading
            return SourceStatus(w.task, w.partition, w.thread, 0, 0, 0, 0, 0, stopped=stopped)
        return self.told

    def again_now(self) -> SentAgain | None:
        """Letters that it is to send again, if there are any."""
        return self.source.letters.now(self.desired.thread)

    def turn(self) -> None:
        core, source, now_ns = self.core, self.source, self.world.now_ns
        self.look_at_orders()
        while self.inbox:
            core.hear(self.inbox.popleft(), now_ns)
        source.on_faults(self.faults, now_ns)
        if source.ledger is None:
            self._begin()
        self.world.account.look(self)
        leased = core.may_work and core.leased(now_ns, self.worker.leased_until_ns)
        if not self.worker.rests and (leased or not core.task.exclusive):
            self.world.checks.beside(self)
            if self.spool is not None and source.takes_over:
                source.more_left = self._take_over(self.spool)
            if source.arrivals is not None:
                self._take()
            source.turn(now_ns, self.world.wall_ns, self._rows)
            self.world.account.look(self)
            core.flush(now_ns)
        self._count()

    def _begin(self) -> None:
        position = self.source.start_position()
        if position is not None:
            if self.world.shape.live:
                self.owner = Owner(*self.place, self.world.settings.run, self.desired.thread)
                self.spool = self.worker.agent.spool_of(self.owner, position, self.source.again_until)
                self._left = SpoolsLeft(self.worker.agent.directory, self.owner)
            self.source.begin(position, self.spool)
            assert self.source.ledger is not None
            self.world.clock.say(f"{self.name} reads from {self.source.ledger.position}")
            self.world.account.begin(self)
            self.worker.changed()

    def _rows(self, position: int, limit: int) -> list[Any]:
        """As source_thread.py's."""
        kept = self.spool
        if kept is None:
            try:
                return list(self.logic.read(position, limit))
            except Exhausted:
                self.source.exhausted = True
                return []
        if position >= kept.end and self.source.arrivals is None:
            self._poll(kept, limit)
        return kept.read(position, limit)

    def _poll(self, kept: SimSpool, limit: int) -> None:
        before = kept.end
        with suppress(OSError):
            kept.accept()
            rows = self.logic.poll(limit)
            kept.append(rows, [self.world.wall_ns] * len(rows))
        vm, accepted = self.worker.agent.name, self.world.account.accepted
        accepted.update((row[:3], vm) for row in kept.read(before, kept.end - before))

    def _take(self) -> None:
        """As source_thread.py's: the world says how many rows have come, and when the next one does."""
        core, kept, now, offer = self.source, self.spool, self.world, self.world.offer
        if kept is None or offer is None or not core.takes(now.wall_ns):
            return
        parts, mine = core.partitions, self.desired.partition
        due = (offer.due(now.wall_ns) - mine + parts - 1) // parts
        if due > kept.end:
            self._poll(kept, due - kept.end)
        next_ns = offer.intended_ns(kept.end * parts + mine)
        core.quiet_until_ns = now.now_ns + (max(1, next_ns - now.wall_ns) if next_ns is not None else LOOK_NS)

    def _take_over(self, kept: SimSpool) -> bool:
        """As source_thread.py's."""
        assert self.core.orders is not None
        with suppress(OSError):
            self._left.look(self.core.orders)
            self.world.met["events accepted again"] += self._left.take(kept, self.world.now_ns)
        return self._left.more

    def _forget(self, kept: SimSpool, acked: int) -> None:
        with suppress(OSError):
            kept.done_below(acked, self.world.now_ns)
            if kept.waiting and not (self.source.reading or self.source.leaving):
                kept.accept()

    def gone(self, killed: bool) -> None:
        if self.spool is not None:
            self._left.close()
            self.spool.drop() if killed else self.spool.close()

    def end(self) -> None:
        super().end()
        if self.spool is not None:
            self._left.close()
            self.spool.close()

    def _count(self) -> None:
        source, w = self.source, self.desired
        before = (self.told.stopped, self.told.exhausted, self.told.rests) if self.told else (False, False, 0)
        if source.ledger is not None:
            name, came = (w.task, w.partition, w.thread), source.came(self.world.wall_ns) or ()
            told = SourceStatus(*name, *source.counts, source.stopped, source.exhausted, *came)
            held = source.times is not None and source.times.held_by >= 0
            self.world.met["sources held"] += held
            self.told = replace(told, rests=source.rests, held=held)
            if self.spool is not None:
                self._forget(self.spool, source.ledger.acked)
        if (source.stopped, source.exhausted, source.rests) != before:
            self.worker.changed()

    def _plan_next(self) -> None:
        least_ns = REST_NS if self.worker.rests else 1
        due_ns = self.source.wake_ns(self.world.now_ns, self.world.wall_ns)
        self._at(max(self.world.now_ns + least_ns, due_ns))
