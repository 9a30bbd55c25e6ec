"""What one thread of a task decides, whatever the task: orders, routes, barriers, what leaves it and when. What it does
with rows and time is its behaviour, one of four: maps (here), window_task.py (keeps rows), keyed_task.py (has state
per key), source_task.py. Pure but for the user's code; a thread runs it, or the simulator in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.latency.latency_messages import Pace
from headgate.topology_runtime.wire.dead_letter_messages import SendAgain
from headgate.topology_runtime.wire.messages import (
    Ack,
    Frame,
    OffsetsKept,
    ThreadSpec,
    ThreadStatus,
    may_begin,
)
from headgate.topology_runtime.wire.state_moves import Barrier, StateAsked, StateWord
from headgate.topology_runtime.wire.state_questions import StateQuestion
from headgate.topology_runtime.worker.calls.dead_lettering import Around
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import ENDS_A_RUN, Router
from headgate.topology_runtime.worker.calls.user_code import Results, ToRecord, UserCode
from headgate.topology_runtime.worker.keyed_state.kept_states import StateStore
from headgate.topology_runtime.worker.keyed_state.range_answers import answers_for
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SnapshotStore
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows.acks import Addressed, left_open, passed_on
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.rows.row_values import MadeSizes

LATEST_BARRIER = 1 << 62  # what a thread without upstream has in barriers


Heard = StateWord | StateQuestion | SendAgain | OffsetsKept | Pace | list[Ack]  # beside frames
KeyOf = Callable[[str | int | None], Callable[[Any], Hashable]]  # the key of an edge → its function


class Post(Protocol):
    """How threads of one worker reach others (switchboard.py; in a simulation, its network)."""

    slot: Slot
    incarnation: int

    def deliver(self, frames: Iterable[Frame]) -> None: ...
    def send_acks(self, acks: Iterable[Addressed]) -> None: ...
    def send_word(self, word: StateWord) -> None: ...


class Records(Protocol):
    """Where a thread writes down what is done (thread_records.py)."""

    def write(self, done: ToRecord, holding: int) -> None:
        """holding: rows that are kept now."""


@dataclass(frozen=True)
class Ports:
    """All by which a thread reaches what is outside. snapshots: (task, thread) → those on this VM. key_of: the key
    of an edge → its function. wall_ns: this VM's clock (UTC). ends: what a key function may end the run by.
    exactly_once: as the run is to count. overflow: (task, thread) → the scratch store of its states; state_bytes: of
    states in memory, in all threads of this slot (0: nothing bounds them)."""

    post: Post
    records: Records
    snapshots: Callable[[str, int], SnapshotStore]
    random64: Callable[[], int]
    key_of: KeyOf
    wall_ns: Callable[[], int]
    ends: tuple[type[BaseException], ...] = ENDS_A_RUN
    exactly_once: bool = False
    overflow: Callable[[str, int], StateStore] | None = None
    state_bytes: int = 0


class Behaviour:
    """What a thread does. Here: that of one that keeps nothing. started_again: how often it forgot what it had, so that
    sources are to send it again. soon: has it more to do than it did?"""

    started_again = 0
    soon = False

    @property
    def holding(self) -> int:
        """Rows buffered now."""
        return 0

    @property
    def empty(self) -> bool:
        """Has it nothing that must not be lost?"""
        return self.holding == 0

    @property
    def by_the_clock(self) -> bool:
        """Has `on_time` anything to look at?"""
        return self.holding > 0

    @property
    def due_ns(self) -> int | None:
        """When `on_time` does next what its rows are waiting for; None: not by the clock."""
        return None

    def status(self, status: ThreadStatus) -> ThreadStatus:
        """What the thread says of itself, as this behaviour corrects it."""
        return status

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """One frame; returns its acks."""
        raise NotImplementedError

    def on_time(self, now_ns: int) -> None:
        """Work that is due by time."""

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        """Orders are obeyed. gone: threads that were known and are desired no more. rerouted: routes of another
        number are in force."""

    def on_barriers(self, now_ns: int) -> None:
        """Barriers of a newer number are in from all upstream threads."""

    def on_faults(self, count: int, now_ns: int) -> None:
        """So many peers were replaced in all, or lost something."""

    def on_word(self, word: Heard, now_ns: int) -> bool:
        """True when there is something to report. Here: a stray word."""
        return False


class MapTask(Behaviour):
    """A task that keeps no rows: map, flat-map or filter over whole frames. Its code makes one batch of another:
    tasks that run in one thread by direct calls are several of these, one after the other."""

    holding, empty, by_the_clock = 0, True, False

    def __init__(self, code: UserCode) -> None:
        self.code, self.results = code, code.results
        self._sizes = MadeSizes()

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        results, roots = self.results, frame.roots
        results.edge = frame.edge
        batch = self.code.run(Batch(frame.rows, frame.runs, roots))
        results.edge = None
        given = results.emit(batch, now_ns)
        if not results.outputs.edges:
            return passed_on(roots, given)
        made_bytes = self._sizes.made_bytes(batch.rows, len(roots))
        return passed_on(roots, given, results.around.number, made_bytes)


class ThreadCore:
    """One thread of a task. `behaviour`: composed when the task's object is there (behaviours.py)."""

    def __init__(self, desired: ThreadSpec, topology: Topology, ports: Ports) -> None:
        self.desired, self.topology, self.ports = desired, topology, ports
        self.post = post = ports.post
        self.task = topology.by_name[desired.task]
        self._edges = len(topology.out_edges(desired.task))
        self.outputs = Outputs(desired.thread, post.slot, post.incarnation, ports.random64, 0)
        self.results = Results(self._around(), self.outputs)
        self.orders: Orders | None = None
        self.switched = 0
        self.may_work = False
        """May it take frames, by its orders? Not before it knows where its rows go: the first plan's senders may be
        told to begin before this worker is, and what it sent nowhere would count as done."""
        self.barriers: dict[int, int] = {}
        self.tries = 0  # to build the task's object, so far
        self.behaviour = Behaviour()

    def _around(self) -> Around:
        return Around(
            self.task.name,
            self.desired.thread,
            tuple(task.name for task in self.topology.sources),
            {number: edge.source for number, edge in self.topology.in_edges(self.task.name)},
            not self.topology.out_edges(self.task.name),
            self.topology.tasks.index(self.task),
        )

    # ── what others see ─────────────────────────────────────────────────────────────────────────

    def now(self, idle: bool, failed: str = "") -> ThreadStatus:
        """`idle`: nothing waits in the inbox. Only a thread that is to go says whether it is empty: for
        others that changes with every frame."""
        empty = self.going and idle and self.empty
        status = ThreadStatus(self.desired.thread, self.switched, self.marked, empty, False, failed)
        return self.behaviour.status(status)

    @property
    def going(self) -> bool:
        orders = self.orders
        return orders is not None and (orders.desired.draining or self.desired.thread in orders.leaving)

    @property
    def leaving(self) -> bool:
        """Is it to go, and the routes without it are in force?"""
        orders = self.orders
        return orders is not None and self.desired.thread in orders.leaving and orders.switched

    @property
    def routed(self) -> bool:
        """Does it know where its rows go?"""
        return self.outputs.edges >= self._edges

    def leased(self, now_ns: int, until_ns: int) -> bool:
        """May it begin something under a lease until then? (Only exclusive threads need one.)"""
        return not self.task.exclusive or may_begin(now_ns, until_ns)

    @property
    def empty(self) -> bool:
        return self.outputs.empty and self.behaviour.empty

    @property
    def marked(self) -> int:
        """Barriers of this number or newer are in from all upstream threads."""
        if self.orders is None:
            return 0
        barriers, upstream = self.barriers, self.orders.upstream(self.task.name)
        return min([barriers.get(thread, 0) for thread in upstream], default=LATEST_BARRIER)

    # ── frames and time ─────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> None:
        self.settle(self.behaviour.take(frame, now_ns))

    def settle(self, acks: Iterable[Addressed]) -> None:
        """First what was finished is recorded, then it is acked."""
        results = self.results
        if results.refused:
            refused, results.refused = results.refused, set()
            acks = left_open(acks, refused, self.ports.random64)
        self.ports.records.write(results.done(), self.behaviour.holding)
        self.post.send_acks(acks)

    def on_time(self, now_ns: int) -> None:
        self.behaviour.on_time(now_ns)

    def flush(self, now_ns: int, everything: bool = False) -> None:
        if frames := self.outputs.flush(now_ns, everything):
            self.post.deliver(frames)

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def obey(self, orders: Orders, now_ns: int) -> bool:
        """New orders: new routes (what was for the old ones goes first), barriers, buffered rows that move.

        True when there is something to report."""
        before, self.orders = self.orders, orders
        gone = before.task_of.keys() - orders.task_of.keys() if before is not None else set()
        for thread in gone & self.barriers.keys():
            del self.barriers[thread]
        self.outputs.cap_of = orders.cap_of
        self.outputs.gap_ns = int(orders.desired.settings.gap_s * 1e9)
        self.results.checks.every = orders.desired.settings.strict
        self.results.run = orders.desired.rows_of or orders.desired.run
        if before is None or before.number != orders.number or before.desired.routes != orders.desired.routes:
            self.flush(now_ns, everything=True)
            self.outputs.route_by(self._routers(orders), orders.number)
        self.may_work = self.routed and orders.may_run(self.desired.thread)
        rerouted = self.switched != orders.number
        self.switched = orders.number
        if orders.switched:
            for target in orders.barriers_to(self.task.name):
                self.post.send_word(Barrier(self.desired.thread, target, orders.number))
        self.behaviour.on_orders(gone, rerouted, now_ns)
        return rerouted

    def hear(self, word: Heard, now_ns: int) -> bool:
        """Whatever came but a frame. True when there is something to report."""
        if isinstance(word, StateAsked):
            self._answer(word)
            return False
        if isinstance(word, Pace):
            self.outputs.pace(word)
            return False
        if not isinstance(word, Barrier):
            return self.behaviour.on_word(word, now_ns)
        before = self.marked
        self.barriers[word.sender] = max(word.number, self.barriers.get(word.sender, 0))
        if self.marked == before:
            return False
        self.behaviour.on_barriers(now_ns)
        return True

    def _answer(self, asked: StateAsked) -> None:
        """What a thread that is no more has on this VM's disk. The task is a part of a path: only one that there is."""
        if asked.task in self.topology.by_name:
            for move in answers_for(asked, self.ports.snapshots(asked.task, asked.thread)):
                self.post.send_word(move)

    def _routers(self, orders: Orders) -> list[tuple[int, Router]]:
        """One for each out-edge that has a route."""
        local = frozenset(thread for thread, slot in orders.slot_of.items() if slot == self.post.slot)
        made: list[tuple[int, Router]] = []
        for number, edge in orders.topology.out_edges(self.task.name):
            route = orders.route_of.get(number)
            if route is not None and route.targets:
                key = self.ports.key_of(edge.key) if edge.key is not None else None
                router = Router(edge, route, local, key, orders.cap_of, self.desired.thread, self.ports.ends)
                made.append((number, router))
        return made
