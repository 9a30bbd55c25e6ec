"""The threads that run tasks. A task thread takes frames from its inbox, runs the logic, sends and acks;
between two frames it looks for new orders. It touches no socket.

What one thread tells the worker's main thread is in `now()`: written by the thread, read by the other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from queue import Empty
from typing import Any

from topology_runtime.clock import monotonic_ns, wall_ns
from topology_runtime.loading import build, key_function
from topology_runtime.logic import Context, kind_of
from topology_runtime.messages import DeadLetter, Frame, Mark, StateMove, StateTaken, ThreadNow, ThreadWanted
from topology_runtime.topology import Task, Topology
from topology_runtime.worker import meter as mt
from topology_runtime.worker.finished import FinishedLog
from topology_runtime.worker.flow import Addressed, Around, Flow, HoldFlow
from topology_runtime.worker.meter import Meter
from topology_runtime.worker.orders import Orders
from topology_runtime.worker.outputs import Outputs
from topology_runtime.worker.router import Router, owners, range_of
from topology_runtime.worker.switchboard import Switchboard

IDLE_S = 0.1  # an idle thread looks around this often
LATEST_MARK = 1 << 62  # what a thread without upstream has in marks


@dataclass
class Host:
    """What a worker lends its threads."""

    board: Switchboard
    meter: Meter
    records: dict[int, int]  # thread → first word of its meter record
    directory: str
    letters: Callable[[DeadLetter], None]
    changed: Callable[[], None]  # wake the main thread: something to report
    crashed: Callable[[BaseException], None]  # a thread met what it cannot go on from
    lock: threading.Lock


class TaskThread(threading.Thread):
    """A thread of a task that has in-edges."""

    def __init__(self, wanted: ThreadWanted, topology: Topology, host: Host, record: int) -> None:
        super().__init__(name=f"{wanted.task}-{wanted.thread}", daemon=True)
        self.wanted, self.topology, self.host, self.record = wanted, topology, host, record
        self.task: Task = topology.by_name[wanted.task]
        self.inbox = host.board.inbox(wanted.thread)
        self.orders: Orders | None = None
        self.failed = ""
        self.stopping = False
        self._obeyed: Orders | None = None
        self._switched = 0
        self._marks: dict[int, int] = {}
        self._links: dict[int, int | None] = {}
        self._busy = False
        self._random = random.Random()
        self._outputs = Outputs(
            wanted.thread, host.board.slot, host.board.incarnation, lambda: self._random.getrandbits(64), 0
        )
        self.flow: Flow | None = None
        self._log: FinishedLog | None = None

    # ── what others see ─────────────────────────────────────────────────────────────────────────

    def now(self) -> ThreadNow:
        empty = self._going() and self._empty()
        return ThreadNow(self.wanted.thread, self._switched, self._marked(), empty, False, self.failed)

    def _going(self) -> bool:
        """Only a thread that is to go says whether it is empty: for others it changes with every frame."""
        orders = self._obeyed
        return orders is not None and (orders.wanted.draining or self.wanted.thread in orders.leaving)

    def _empty(self) -> bool:
        holding = self.flow.holding if self.flow is not None else 0
        return not self._busy and self.inbox.empty() and self._outputs.empty and holding == 0

    def _marked(self) -> int:
        if self._obeyed is None:
            return 0
        upstream = self._obeyed.upstream(self.task.name)
        return min((self._marks.get(thread, 0) for thread in upstream), default=LATEST_MARK)

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        self.host.meter.words[self.record + mt.TID] = threading.get_native_id()
        try:
            self.startup()
        except Exception as error:  # user code: whatever it is, it is reported as this thread's failure
            self.failed = f"{type(error).__name__}: {error}"
            self.host.changed()
            return
        self.host.changed()
        try:
            while not self.stopping:
                self.turn()
            self.shutdown()
        except BaseException as error:  # the worker dies of it, loudly; its ledgers replay
            self.host.crashed(error)

    def startup(self) -> None:
        """Build the task's object, in this thread."""
        logic = build(self.task)
        partitions = self.task.static.threads if self.task.static else 1
        if hasattr(logic, "open"):
            logic.open(
                Context(
                    self.task.name, self.wanted.thread, self.wanted.partition, partitions, self.host.directory
                )
            )
        sources = tuple(task.name for task in self.topology.sources)
        around = Around(
            self.task.name,
            self.wanted.thread,
            sources,
            {number: edge.source for number, edge in self.topology.in_edges(self.task.name)},
            not self.topology.out_edges(self.task.name),
        )
        flow = self.make_flow(around, logic)
        number = self.topology.tasks.index(self.task)
        if around.sink:
            self._log = FinishedLog(
                self.host.directory, number, self.wanted.thread, self.host.board.incarnation
            )
        self.flow = flow
        self.host.meter.words[self.record + mt.STATE] = 1

    def make_flow(self, around: Around, logic: Any) -> Flow:
        """What this kind of task does with a frame."""
        kind = kind_of(logic) if not hasattr(logic, "func") else kind_of(logic.func)
        if kind == "hold":
            return HoldFlow(around, kind, logic, self._outputs, self.pause, random64=self._random64)
        return Flow(around, kind, logic, self._outputs, self.pause)

    pause = staticmethod(time.sleep)

    def _random64(self) -> int:
        return self._random.getrandbits(64)

    def shutdown(self) -> None:
        """Nothing is in the inbox, the buffers or kept: let the task's object go."""
        self.host.board.deliver(self._outputs.flush(monotonic_ns(), everything=True))
        logic = self.flow.logic if self.flow else None
        if logic is not None and hasattr(logic, "close"):
            try:
                logic.close()
            except Exception as error:  # user code: its failure to close is told, not hidden
                self.failed = f"close: {type(error).__name__}: {error}"
        if self._log is not None:
            self._log.close()
        self.host.meter.words[self.record + mt.STATE] = 2
        self.host.changed()

    def turn(self) -> None:
        """One look round: orders, one item, time, flush."""
        if self.orders is not self._obeyed:
            self._obey()
        if self._obeyed is None or not self._obeyed.may_run(self.wanted.thread):
            time.sleep(0.005)
            return
        try:
            item = self.inbox.get(timeout=self._patience_s())
        except Empty:
            item = None
        self._busy = True
        if type(item) is tuple:
            self._take(*item)
        elif isinstance(item, Mark):
            self._on_mark(item)
        elif isinstance(item, (StateMove, StateTaken)):
            self._on_word(item)
        self._on_time()
        self.host.board.deliver(self._outputs.flush(monotonic_ns()))
        self._busy = False

    def _patience_s(self) -> float:
        due_ns = self._outputs.next_flush_ns()
        if due_ns is None:
            return IDLE_S
        return max(0.0, (due_ns - monotonic_ns()) / 1e9)

    # ── frames ──────────────────────────────────────────────────────────────────────────────────

    def _take(self, arrived_ns: int, frame: Frame, wire_bytes: int) -> None:
        assert self.flow is not None
        words, at = self.host.meter.words, self.record
        start_ns, cpu_ns = monotonic_ns(), time.thread_time_ns()
        words[at + mt.CALL_STARTED_NS] = start_ns
        acks = self.flow.take(frame, start_ns)
        end_ns = monotonic_ns()
        words[at + mt.CALL_STARTED_NS] = 0
        rows = len(frame.rows)
        words[at + mt.TUPLES_IN] += rows
        words[at + mt.FRAMES_IN] += 1
        words[at + mt.BYTES_IN] += wire_bytes
        words[at + mt.BUSY_NS] += end_ns - start_ns
        words[at + mt.WAIT_NS] += max(0, end_ns - start_ns - (time.thread_time_ns() - cpu_ns))
        words[at + mt.LATENCY_SUM_NS] += (end_ns - arrived_ns) * rows
        words[at + mt.FIELDS + mt.bucket_of(end_ns - arrived_ns)] += rows
        self._measure_link(frame, arrived_ns, wire_bytes)
        self._tell(acks)

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

    def _tell(self, acks: list[Addressed]) -> None:
        """Send acks; log what was finished; pass on dead letters."""
        flow = self.flow
        assert flow is not None
        words = self.host.meter.words
        words[self.record + mt.TUPLES_OUT] = flow.tuples_out
        words[self.record + mt.HELD_ROWS] = flow.holding
        if self._log is not None and flow.finished:
            now_ns = wall_ns()
            for root, _, count, _ in flow.finished:
                words[self.record + mt.E2E + mt.bucket_of(max(0, now_ns - root.intended_ns))] += count
            self._log.append(flow.finished)
            flow.finished = []
        if flow.letters:
            letters, flow.letters = flow.letters, []
            for letter in letters:
                self.host.letters(letter)
        self.host.board.send_acks(acks)

    def _on_time(self) -> None:
        assert self.flow is not None and self._obeyed is not None
        if self.flow.holding:
            self._tell(self.flow.on_time(monotonic_ns(), self._obeyed.wanted.draining))

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def _obey(self) -> None:
        """New orders: new routes (what was for the old ones goes first), marks, kept rows that move."""
        orders = self.orders
        assert orders is not None
        before, self._obeyed = self._obeyed, orders
        self._outputs.cap_of = lambda target: row_cap(orders, target)
        self._outputs.gap_ns = int(orders.wanted.settings.gap_s * 1e9)
        if before is None or before.number != orders.number or before.wanted.routes != orders.wanted.routes:
            self.host.board.deliver(self._outputs.flush(monotonic_ns(), everything=True))
            self._outputs.route_by(routers(self.task.name, orders, self.host.board))
        changed = self._switched != orders.number
        self._switched = orders.number
        if orders.switched:
            for target in orders.to_mark(self.task.name):
                self.host.board.send_word(Mark(self.wanted.thread, target, orders.number))
        self._pass_on()
        if changed:
            self.host.changed()

    def _on_mark(self, mark: Mark) -> None:
        before = self._marked()
        self._marks[mark.sender] = max(mark.number, self._marks.get(mark.sender, 0))
        if self._marked() != before:
            self._pass_on()
            self.host.changed()

    def _on_word(self, word: StateMove | StateTaken) -> None:
        """Only keyed tasks have state that moves."""
        raise TypeError(f"{self.task.name} keeps no state by key, yet was sent {type(word).__name__}")

    def _pass_on(self) -> None:
        """Kept rows whose keeper is another thread now go there, once all marks are in."""
        orders, flow = self._obeyed, self.flow
        if orders is None or not isinstance(flow, HoldFlow) or not flow.holding:
            return
        if not orders.switched or self._marked() < orders.number:
            return
        keyed = [edge for _, edge in self.topology.in_edges(self.task.name) if edge.grouping == "fields"]
        if keyed:
            self._tell(flow.hand_over(self._keeper(orders), monotonic_ns()))
        elif self.wanted.thread in orders.leaving:
            self._tell(flow.finish_all(monotonic_ns()))

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
            return None if owner == self.wanted.thread else owner

        return keeper


def row_cap(orders: Orders, target: int) -> int:
    """Rows in a frame for this thread at most: a tenth of a second of its modelled rate, so that a slow
    task's frame still acks soon."""
    most = orders.wanted.settings.frame_rows
    modelled = orders.wanted.modelled_tps.get(target)
    return most if modelled is None else max(1, min(most, int(0.1 * modelled)))


def routers(task: str, orders: Orders, board: Switchboard) -> list[tuple[int, Router]]:
    """A router per out-edge that has a route."""
    local = frozenset(thread for thread, slot in orders.slot_of.items() if slot == board.slot)
    made: list[tuple[int, Router]] = []
    for number, edge in orders.topology.out_edges(task):
        route = orders.route_of.get(number)
        if route is None or not route.targets:
            continue
        key: Callable[[Any], Hashable] | None = key_function(edge.key) if edge.key is not None else None
        made.append((number, Router(edge, route, local, key, lambda target: row_cap(orders, target))))
    return made
