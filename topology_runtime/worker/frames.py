"""The work of a thread that takes in rows: a frame at a time through its behaviour, measured. And that of one which
only answers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from queue import Empty
from typing import Any

from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.latency_buckets import bucket_of
from headgate.topology_runtime.logic import batched_of, runs_anywhere
from headgate.topology_runtime.messages import Frame, WireFrame
from headgate.topology_runtime.state_moves import StateAsked
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.behaviours import behaviour_of
from headgate.topology_runtime.worker.chained_post import Ran
from headgate.topology_runtime.worker.gathering import edge_of, gathered, rows_in
from headgate.topology_runtime.worker.keyed import KeyedTask
from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.snapshots import SnapshotFiles
from headgate.topology_runtime.worker.threads import IDLE_S, TaskThread, ThreadWork
from headgate.topology_runtime.worker.writing import read

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
        self._files = SnapshotFiles(thread.host.directory, thread.task.name, thread.desired.thread)
        self._links: dict[int, int | None] = {}  # sender → its record in the meter, if there was one left
        self._taken: dict[int, int] = {}  # sender → frames
        self._gathers = False  # it takes what waits together
        self._anywhere = False  # its object may be called by any thread
        self.refused = 0
        self._until_ns = 0  # it sleeps so long at most, unless something wakes it
        self._lost = 0  # key ranges of which it was told
        self._unsaved = ""

    def begin(self, logic: Any) -> None:
        core = self.core
        core.behaviour = behaviour_of(core, logic, time.sleep, self.thread.watch)
        self._anywhere = runs_anywhere(logic)
        self._gathers = bool(batched_of(logic)) and not self.thread.task.exclusive

    def turn(self) -> None:
        """One look round: orders, one item, time, flush."""
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
        with thread.lock:
            if not thread.task.exclusive or self._wait_for_lease(item is None):
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
            core.on_time(now_ns)
            now_ns, thread.post.cpu_ns = monotonic_ns(), 0
        core.flush(now_ns)
        if isinstance(behaviour, KeyedTask):
            self._tell_of_state(behaviour)

    def _wait_for_lease(self, idle: bool) -> bool:
        """True once it may work; False when it is to end, or has nothing to work on."""
        while not self.thread.may_go_on():
            if idle or self.thread.stopping:
                return False
            time.sleep(WAIT_S)
        return True

    def _patience_s(self) -> float:
        due_ns = self.core.outputs.next_flush_ns()
        if due_ns is None:
            return TICK_S if self.core.behaviour.by_the_clock else IDLE_S
        return max(0.0, (due_ns - monotonic_ns()) / 1e9)

    def _take(self, *items: Arrived) -> int:
        """Frames, as one; when that was done."""
        thread, came = self.thread, []
        for arrived_ns, sent, wire_bytes in items:
            one = read(sent) if isinstance(sent, WireFrame) else sent
            if one is None:
                self._refuse()
            else:
                came.append((arrived_ns, one, wire_bytes))
        if not came:
            return monotonic_ns()
        frame = came[0][1] if len(came) == 1 else gathered([one for _, one, _ in came])
        words, at, watch, post = self._words, self._at, thread.watch, thread.post
        if (copies := thread.copies) is not None:
            copies.add(thread.topology.edges[frame.edge].source, frame.rows)
        start_ns, cpu_ns, rows = monotonic_ns(), post.cpu_ns or time.thread_time_ns(), len(frame.rows)
        words[at + mt.CALL_STARTED_NS] = start_ns
        watch.quick = not (watch.careful or watch.poison.any)
        self.core.take(frame, start_ns)
        watch.quick = False
        end_ns = monotonic_ns()
        busy_ns = end_ns - start_ns
        words[at + mt.CALL_STARTED_NS] = 0
        words[at + mt.TUPLES_IN] += rows
        words[at + mt.FRAMES_IN] += len(came)
        words[at + mt.BUSY_NS] += busy_ns
        post.cpu_ns = now_ns = time.thread_time_ns()
        if (waited_ns := busy_ns - (now_ns - cpu_ns)) > 0:
            words[at + mt.WAIT_NS] += waited_ns
        for arrived_ns, one, wire_bytes in came:
            rows, one.rows = len(one.rows), []  # let go before those that take what came of them take it
            if wire_bytes:
                words[at + mt.BYTES_IN] += wire_bytes
            latency_ns = end_ns - arrived_ns
            words[at + mt.LATENCY_SUM_NS] += latency_ns * rows
            words[at + mt.FIELDS + bucket_of(latency_ns)] += rows
            self._taken[one.sender] = self._taken.get(one.sender, 0) + 1
            self._measure_link(one, rows, arrived_ns, wire_bytes)
        return end_ns

    def _refuse(self) -> None:
        """A peer's frame that is none: it is sent again, or its sender is at fault for good."""
        self.refused += 1
        if self.refused == 1:
            self._say("a frame that cannot be read came, and is left out; more of them are not told")

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
        """Senders that are no more, and those without a record, are looked at anew."""
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

    def _say(self, text: str) -> None:
        name = f"thread {self.thread.desired.thread} of {self.thread.task.name}"
        print(f"headgate: {name}: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        self._forget(list(self._links))
        keyed = self.core.behaviour
        if isinstance(keyed, KeyedTask) and not keyed.rows.ranges.versions:
            try:
                self._files.remove()
            except OSError as error:
                self._say(f"its snapshot cannot be removed: {error}")  # it is cleaned later


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
