"""What the thread of an async task does: takes frames as long as more calls may be under way, and lets its event loop
run until a call is done, a frame comes, or something is due. Of an exclusive task, a frame at a time: what is under
way is over when its lease is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wire.messages import Frame
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.operators.async_task import AsyncTask
from headgate.topology_runtime.worker.operators.behaviours import kind_in
from headgate.topology_runtime.worker.process.async_calls import AsyncCalls
from headgate.topology_runtime.worker.process.task_thread import IDLE_S, WAIT_S, FrameWork, TaskThread


def work_of(thread: TaskThread) -> FrameWork:
    """Of a thread whose task is async."""
    return (ExclusiveAsyncWork if thread.task.exclusive else AsyncWork)(thread)


class ExclusiveAsyncWork(FrameWork):
    """A frame at a time: all its calls at once, as far as the task allows, and the next frame when they are done."""

    def __init__(self, thread: TaskThread) -> None:
        super().__init__(thread)
        self.calls = AsyncCalls(thread.task.max_call_s)

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.calls.run(function(*arguments))

    def begin(self, logic: Any) -> None:
        self.core.behaviour = self._behaviour(logic, at_once=True)

    def _behaviour(self, logic: Any, at_once: bool) -> AsyncTask:
        kind = kind_in(self.thread.task, logic)
        return self.calls.compose(self.core.results, kind, logic, self.thread.watch, at_once)

    def unbuilt(self) -> None:
        self.calls.close()

    def cancel(self) -> None:
        self.calls.cancel()

    def close(self) -> None:
        super().close()
        self.calls.close()


class AsyncWork(ExclusiveAsyncWork):
    """Several frames at a time.

    Busy is the share of its calls that are under way (or its CPU, if that is more): half of them for a second are half
    a second, so that a model of the thread says its rate with all of them under way, and a thread at half of that rate
    is half busy, as one that waits in single calls is."""

    one_by_one = False

    def __init__(self, thread: TaskThread) -> None:
        super().__init__(thread)
        self._arrived: dict[int, tuple[int, Frame, int]] = {}  # frames in work, by their id()
        self._asleep = False
        self._counted = 0, 0, 0  # the clock, CPU, and CPU spent on others, when time was counted last
        thread.host.board.wakers[thread.desired.thread] = self._wake

    def begin(self, logic: Any) -> None:
        self.behaviour: AsyncTask = self._behaviour(logic, at_once=False)
        self.core.behaviour = self.behaviour
        self.calls.on_done = self.calls.loop.stop
        self._counted = self._times()

    def turn(self) -> None:
        """One look around: orders, what came, what is done, and the loop until there is more of it."""
        thread, behaviour = self.thread, self.behaviour
        thread.busy = True
        with thread.lock:
            thread.look_round()
            if may_work := self.core.may_work and not thread.rests:
                thread.post.begin()
                self._hear_and_take()
                self._leave()
                self.core.flush(monotonic_ns())
                thread.post.end_and_send()
                thread.count()
        thread.busy = False
        self.calls.begin()
        calls = behaviour.in_calls + behaviour.ahead
        patience_s = min(self._patience_s(), self.calls.turn_s) if calls else self._patience_s()
        self._let_run(calls, patience_s if may_work else WAIT_S, may_work)
        self.calls.look()

    def _hear_and_take(self) -> None:
        """Whatever waits, in its order, as long as frames are of use."""
        inbox, core = self.thread.inbox, self.core
        while self.behaviour.has_room:
            try:
                item = inbox.get_nowait()
            except Empty:
                return
            if type(item) is tuple:
                for arrived in self.read(item):
                    self._arrived[id(arrived[1])] = arrived
                    self.behaviour.begin(arrived[1])
            elif item is not None and core.hear(item, monotonic_ns()):
                self.thread.host.changed()

    def _leave(self) -> None:
        """Rows that are done leave; what was finished is recorded, then it is acked."""
        now_ns, words, at = monotonic_ns(), self._words, self._at
        acks, left = self.behaviour.leave(now_ns)
        if not left:
            return
        self.core.settle(acks)
        self.behaviour.recorded()
        for frame, rows, over in left:
            arrived = self._arrived[id(frame)]
            words[at + mt.TUPLES_IN] += rows
            self.count_latency(rows, now_ns - arrived[0])
            if over:
                del self._arrived[id(frame)]
                self.count_frame(arrived)

    def _let_run(self, calls: int, seconds: float, listens: bool) -> None:
        """The loop, so long at most. listens: it is to end when something comes."""
        thread, words, started = self.thread, self._words, self._at + mt.CALL_STARTED_NS
        words[started] = monotonic_ns() if calls else 0
        self._asleep = listens and self.behaviour.has_room
        if self._asleep and not thread.inbox.empty():
            seconds = 0.0
        if not thread.stopping:
            self.calls.run_for(seconds)
        self._asleep = False
        words[started] = 0
        before, self._counted = self._counted, self._times()
        if calls:
            passed_ns, ran_ns, lent_ns = (now - then for now, then in zip(self._counted, before, strict=True))
            used = min(calls, self.behaviour.calls)
            busy_ns = max(ran_ns, (passed_ns * used) // self.behaviour.calls) - lent_ns
            words[self._at + mt.BUSY_NS] += busy_ns
            words[self._at + mt.WAIT_NS] += busy_ns - (ran_ns - lent_ns)

    def _times(self) -> tuple[int, int, int]:
        return monotonic_ns(), time.thread_time_ns(), self.thread.post.lent_ns

    def _patience_s(self) -> float:
        due_ns = self.core.outputs.next_flush_ns()
        return IDLE_S if due_ns is None else max(0.0, (due_ns - monotonic_ns()) / 1e9)

    def _wake(self) -> None:
        """Something came; called by other threads."""
        if self._asleep:
            self._asleep = False
            self.calls.loop.call_soon_threadsafe(self.calls.loop.stop)

    def close(self) -> None:
        del self.thread.host.board.wakers[self.thread.desired.thread]
        super().close()
