"""What a task thread decides, without a thread: orders, marks, frames, kept rows that move. Pure but for
the user's code. threads.py runs it in a thread, the simulator in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol

from msgspec.structs import replace

from topology_runtime.cluster import Slot
from topology_runtime.instances import key_function
from topology_runtime.lease import may_begin
from topology_runtime.logic import kind_of
from topology_runtime.messages import Ack, Frame, ThreadSpec, ThreadStatus
from topology_runtime.state_moves import Barrier, StateAsked, StateMove, StateTaken
from topology_runtime.topology import Topology
from topology_runtime.worker.burial import Around
from topology_runtime.worker.flow import Addressed, Flow, HoldFlow
from topology_runtime.worker.orders import Orders
from topology_runtime.worker.outputs import Outputs
from topology_runtime.worker.router import Router, owners, range_of

LATEST_MARK = 1 << 62  # what a thread without upstream has in marks


class Post(Protocol):
    """How threads of one worker reach others (switchboard.py; in a simulation, its network)."""

    slot: Slot
    incarnation: int

    def deliver(self, frames: Iterable[Frame]) -> None: ...
    def send_acks(self, acks: Iterable[Addressed]) -> None: ...
    def send_word(self, word: Barrier | StateMove | StateTaken | StateAsked) -> None: ...


class TaskCore:
    """One thread of a task. `record` is called before acks leave: what was finished, dead letters."""

    def __init__(
        self,
        desired: ThreadSpec,
        topology: Topology,
        post: Post,
        random64: Callable[[], int],
        record: Callable[[Flow], None],
    ) -> None:
        self.desired, self.topology, self.post = desired, topology, post
        self.task = topology.by_name[desired.task]
        self._edges = len(topology.out_edges(desired.task))
        self.random64, self._record = random64, record
        self.outputs = Outputs(desired.thread, post.slot, post.incarnation, random64, 0)
        self.orders: Orders | None = None
        self.switched = 0
        self.marks: dict[int, int] = {}
        self.flow: Flow | None = None

    # ── the user's object ───────────────────────────────────────────────────────────────────────

    def adopt(self, logic: Any, pause: Callable[[float], None]) -> Flow:
        """Take the task's object, built by the caller."""
        self.flow = self.make_flow(self.around(), logic, pause)
        return self.flow

    def around(self) -> Around:
        return Around(
            self.task.name,
            self.desired.thread,
            tuple(task.name for task in self.topology.sources),
            {number: edge.source for number, edge in self.topology.in_edges(self.task.name)},
            not self.topology.out_edges(self.task.name),
            self.topology.tasks.index(self.task),
        )

    def make_flow(self, around: Around, logic: Any, pause: Callable[[float], None]) -> Flow:
        """What this kind of task does with a frame."""
        kind = self.task.kind if self.task.kind != "map" else kind_of(logic)  # a file need not say it
        if kind == "hold":
            return HoldFlow(around, kind, logic, self.outputs, pause, random64=self.random64)
        return Flow(around, kind, logic, self.outputs, pause)

    # ── what others see ─────────────────────────────────────────────────────────────────────────

    def now(self, idle: bool, failed: str = "") -> ThreadStatus:
        """`idle`: nothing waits in the inbox. Only a thread that is to go says whether it is empty: for
        others that changes with every frame."""
        empty = self.going and idle and self.empty
        return ThreadStatus(self.desired.thread, self.switched, self.marked, empty, False, failed)

    @property
    def going(self) -> bool:
        orders = self.orders
        return orders is not None and (orders.desired.draining or self.desired.thread in orders.leaving)

    @property
    def may_work(self) -> bool:
        """May it take frames? Not before it knows where its rows go: the first plan's senders may be told
        to begin before this worker is, and what it sent nowhere would count as done."""
        orders = self.orders
        if orders is None or not orders.may_run(self.desired.thread):
            return False
        return self.routed

    @property
    def routed(self) -> bool:
        """Does it know where its rows go?"""
        return self.outputs.edges >= self._edges

    def leased(self, now_ns: int, until_ns: int) -> bool:
        """May it begin something under a lease until then? (Only exclusive threads need one.)"""
        return not self.task.exclusive or may_begin(now_ns, until_ns)

    @property
    def empty(self) -> bool:
        return self.outputs.empty and (self.flow is None or self.flow.holding == 0)

    @property
    def marked(self) -> int:
        """Marks of this number or newer are in from all upstream threads."""
        if self.orders is None:
            return 0
        marks, upstream = self.marks, self.orders.upstream(self.task.name)
        return min([marks.get(thread, 0) for thread in upstream], default=LATEST_MARK)

    # ── frames and time ─────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> None:
        assert self.flow is not None
        self.settle(self.flow.take(frame, now_ns))

    def settle(self, acks: Iterable[Addressed]) -> None:
        """First what was finished is recorded, then it is acked."""
        assert self.flow is not None
        if self.flow.refused:  # a share that nobody cancels: their roots stay open
            refused, self.flow.refused = self.flow.refused, set()
            acks = [self._left_open(home, ack) if ack.key in refused else (home, ack) for home, ack in acks]
        self._record(self.flow)
        self.post.send_acks(acks)

    def _left_open(self, home: Slot, ack: Ack) -> Addressed:
        return home, replace(ack, value=ack.value ^ self.random64())

    @property
    def by_the_clock(self) -> bool:
        """Has `on_time` anything to look at?"""
        return self.flow is not None and self.flow.holding > 0

    def on_time(self, now_ns: int) -> None:
        if self.flow is not None and self.orders is not None and self.flow.holding:
            self.settle(self.flow.on_time(now_ns, self.orders.desired.draining))

    def flush(self, now_ns: int, everything: bool = False) -> None:
        if frames := self.outputs.flush(now_ns, everything):
            self.post.deliver(frames)

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def obey(self, orders: Orders, now_ns: int) -> bool:
        """New orders: new routes (what was for the old ones goes first), marks, kept rows that move.

        True when there is something to report."""
        before, self.orders = self.orders, orders
        gone = before.task_of.keys() - orders.task_of.keys() if before is not None else set()
        for thread in gone & self.marks.keys():
            del self.marks[thread]
        if gone and self.flow is not None:
            self.flow.forget(gone)
        self.outputs.cap_of = orders.cap_of
        self.outputs.gap_ns = int(orders.desired.settings.gap_s * 1e9)
        if before is None or before.number != orders.number or before.desired.routes != orders.desired.routes:
            self.flush(now_ns, everything=True)
            self.outputs.route_by(routers(self.task.name, self.desired.thread, orders, self.post.slot))
        changed = self.switched != orders.number
        self.switched = orders.number
        if orders.switched:
            for target in orders.to_mark(self.task.name):
                self.post.send_word(Barrier(self.desired.thread, target, orders.number))
        self.pass_on(now_ns)
        return changed

    def on_word(self, word: Barrier | StateMove | StateTaken | StateAsked, now_ns: int) -> bool:
        """True when there is something to report."""
        if not isinstance(word, Barrier):
            return False  # a stray word: only keyed tasks have state that moves
        before = self.marked
        self.marks[word.sender] = max(word.number, self.marks.get(word.sender, 0))
        if self.marked == before:
            return False
        self.pass_on(now_ns)
        return True

    def pass_on(self, now_ns: int) -> None:
        """Kept rows whose keeper is another thread now go there, once all marks are in."""
        orders, flow = self.orders, self.flow
        if orders is None or not isinstance(flow, HoldFlow) or not flow.holding:
            return
        if not orders.switched or self.marked < orders.number:
            return
        if any(edge.grouping == "fields" for _, edge in self.topology.in_edges(self.task.name)):
            self.settle(flow.hand_over(self._keeper(orders), now_ns))
        elif self.desired.thread in orders.leaving:
            self.settle(flow.finish_all(now_ns))

    def _keeper(self, orders: Orders) -> Callable[[int, Any], int | None]:
        """(in-edge, row) → the thread that keeps such rows now, None when it is this one."""
        tables = {
            number: (owners(orders.route_of[number]), key_function(edge.key))
            for number, edge in self.topology.in_edges(self.task.name)
            if edge.grouping == "fields" and edge.key is not None and number in orders.route_of
        }

        def keeper(edge: int, row: Any) -> int | None:
            if edge not in tables:
                return None
            table, key = tables[edge]
            owner = table[range_of(key(row))]
            return None if owner == self.desired.thread else owner

        return keeper


def routers(task: str, thread: int, orders: Orders, here: Slot) -> list[tuple[int, Router]]:
    """A router per out-edge that has a route."""
    local = frozenset(thread for thread, slot in orders.slot_of.items() if slot == here)
    made: list[tuple[int, Router]] = []
    for number, edge in orders.topology.out_edges(task):
        route = orders.route_of.get(number)
        if route is None or not route.targets:
            continue
        key: Callable[[Any], Hashable] | None = key_function(edge.key) if edge.key is not None else None
        router = Router(edge, route, local, key, orders.cap_of, thread)
        made.append((number, router))
    return made
