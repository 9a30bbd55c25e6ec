"""The event loop of a thread whose task is async, and the calls in it: as many at once as the task says, each tried
three times and at most so long. What is called next, and what comes of it, is async_task.py's to say.

A call that takes too long is cancelled, and that was a try. One that does not end then is left behind: its row fails,
and another takes its place. A call that blocks the whole loop is found as a blocking call of any task is, by the agent.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headgate.topology_runtime.api.logic import CALLS, concurrency_of
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.worker.calls.attempts import PAUSES_S, TRIES, CallWatch, failure
from headgate.topology_runtime.worker.calls.batches import rows_of
from headgate.topology_runtime.worker.calls.user_code import Results, UserCode
from headgate.topology_runtime.worker.operators.async_task import AsyncTask, FrameInWork

TURN_S = 0.1  # so often, or four times within the limit, calls are looked at
CANCEL_S = 1.0  # so long calls have to end when their thread does


class Lane:
    """A place for a call at a time. begun_s: of the try under way, if one is. cancelled: it took too long. left: it did
    not end even then, and nobody waits for it any more. careful: it was named, and is alone in its worker."""

    def __init__(self) -> None:
        self.work: FrameInWork | None = None
        self.place = 0
        self.begun_s: float | None = None
        self.cancelled = self.careful = self.left = False
        self.task: asyncio.Task[None]


class AsyncCalls:
    """Of one thread; made, and used, in it. on_done: what is to happen when a call is done. pause: between two tries,
    in place of waiting; what that raises ends the run."""

    def __init__(
        self,
        max_call_s: float,
        loop: asyncio.AbstractEventLoop | None = None,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self._pause = pause
        self._broken: BaseException | None = None
        self._max_s, self._clock = max_call_s, self.loop.time
        self.turn_s = min(TURN_S, max_call_s / 4)
        self._watch = CallWatch()
        self._lanes: set[Lane] = set()
        self._lost: set[Lane] = set()  # left behind
        self._ending = False
        self._look_s = 0.0  # when they are looked at next
        self.on_done: Callable[[], None] = lambda: None
        self.behaviour: AsyncTask
        self._call: Callable[[Any], Awaitable[Any]]

    def compose(
        self, results: Results, kind: str, logic: Any, watch: CallWatch | None = None, at_once: bool = False
    ) -> AsyncTask:
        """The behaviour of a thread round this object. at_once: its `take` makes all calls of a frame before it
        returns, and what comes of them is in order."""
        self._watch = watch or CallWatch()
        self._call = awaited(logic, kind)
        calls, ordered = concurrency_of(logic) or (CALLS, True)
        code = UserCode(results, kind, logic, time.sleep, self._watch)
        self.behaviour = AsyncTask(code, calls, ordered or at_once, self.run_all if at_once else None)
        return self.behaviour

    def run(self, found: Any) -> Any:
        """What a call gave, waited for if it is to be."""
        if not (hasattr(found, "__await__") or isinstance(found, Coroutine)):
            return found

        async def waited() -> Any:
            return await found

        return self._complete(waited())

    # ── calls ───────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """As many calls as may be under way are."""
        behaviour = self.behaviour
        calls = 1 if self._watch.careful else behaviour.calls
        for _ in range(min(calls - behaviour.in_calls, behaviour.ahead)):
            lane = Lane()
            self._lanes.add(lane)
            lane.task = self.loop.create_task(self._work(lane))

    def run_for(self, seconds: float) -> None:
        """Calls go on for so long, or until the loop is told to stop."""
        handle = (
            self.loop.call_later(seconds, self.loop.stop)
            if seconds > 0
            else self.loop.call_soon(self.loop.stop)
        )
        try:
            self.loop.run_forever()
        except (KeyboardInterrupt, SystemExit) as error:
            self._started_ended(error)
        finally:
            handle.cancel()
        if self._broken is not None:
            raise self._broken

    def run_all(self) -> None:
        """Until all that was begun is done."""
        self.on_done = self.loop.stop
        while self.behaviour.ahead or self.behaviour.in_calls:
            self.begin()
            self.run_for(self.turn_s)
            self.look()

    async def _work(self, lane: Lane) -> None:
        """Row after row."""
        behaviour, watch = self.behaviour, self._watch
        try:
            while behaviour.ahead and not (
                self._ending or lane.left or (watch.careful and behaviour.in_calls)
            ):
                lane.work, lane.place = work, place = behaviour.next_call()
                lane.careful = watch.careful
                if lane.careful:
                    watch.enter(work.name(place))
                else:
                    watch.calls += 1
                try:
                    answer = await self._tried(lane, work.batch.rows[place], place)
                finally:
                    if lane.careful and not lane.left:
                        watch.leave()
                if not lane.left:
                    behaviour.called(work, place, answer)
                    self.on_done()
        except BaseException as error:  # somebody left the debugger
            if self._ending or isinstance(error, self._watch.ends):
                raise
            self._broken = error
            self.loop.stop()
        finally:
            self._lanes.discard(lane)
            self._lost.discard(lane)

    async def _tried(self, lane: Lane, row: Any, place: int) -> Any:
        """The result for a row, or why there is none. As with any call, whatever it raises is its row's failure."""
        tries = 0
        while True:
            lane.begun_s = self._clock()
            try:
                answer = await self._call(row)
                lane.begun_s = None
                self._watch.served()
                if lane.cancelled:  # and it answered all the same
                    lane.cancelled = False
                    lane.task.uncancel()
                return answer
            except self._watch.ends:
                raise
            except BaseException as error:
                lane.begun_s = None
                if self._ending:
                    raise
                failed = error
                away_s = self._watch.away_s(error) if isinstance(error, ServiceAway) else None
                if away_s is not None and not (lane.cancelled or lane.left):
                    await asyncio.sleep(away_s)
                    continue
                if self._pause is not None:
                    self._pause(PAUSES_S[min(tries, TRIES - 2)])
            self._watch.raised += 1
            tries += 1
            if lane.cancelled:
                lane.cancelled = False
                lane.task.uncancel()
                failed = late(self._max_s, failed)
            if tries == TRIES or lane.left:
                return failure(place, failed)
            if self._pause is None:
                await asyncio.sleep(PAUSES_S[tries - 1])

    def look(self) -> None:
        """Calls that take too long are cancelled; those that do not end then are left behind."""
        if (now_s := self._clock()) < self._look_s:
            return
        self._look_s = now_s + self.turn_s
        for lane in list(self._lanes):
            if lane.begun_s is None or (over_s := now_s - lane.begun_s - self._max_s) <= 0.0:
                continue
            if not lane.cancelled:
                lane.cancelled = True
                lane.task.cancel()
            elif over_s > self._max_s and lane.work is not None:
                lane.left = True
                if lane.careful:
                    self._watch.leave()
                self._lanes.discard(lane)
                self._lost.add(lane)
                error = late(self._max_s, None, "and did not end when it was cancelled: it is left behind")
                self.behaviour.called(lane.work, lane.place, failure(lane.place, error))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def cancel(self) -> None:
        """Calls that are under way end; nothing comes of their rows here."""
        self._ending = True
        tasks = [lane.task for lane in self._lanes | self._lost]
        for task in tasks:
            task.cancel()
        if tasks:
            self._complete(asyncio.wait(tasks, timeout=CANCEL_S))

    def _complete(self, found: Coroutine[Any, Any, Any]) -> Any:
        """What it gives, whatever else runs in the loop."""
        task = self.loop.create_task(found)
        while True:
            try:
                return self.loop.run_until_complete(task)
            except (KeyboardInterrupt, SystemExit) as error:
                if task.done():
                    raise
                self._started_ended(error)

    def _started_ended(self, error: BaseException) -> None:
        """Something that the task started in its loop, and that no call waits for, has raised what ends programs."""
        if isinstance(error, self._watch.ends):
            raise error
        print("headgate: something that a task started in its event loop was ended:", file=sys.stderr)
        traceback.print_exception(error)

    def close(self) -> None:
        """The loop ends, and with it what the task left running in it."""
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self._complete(asyncio.wait(left, timeout=CANCEL_S))
        self._complete(self.loop.shutdown_asyncgens())
        self.loop.close()


def late(most_s: float, error: BaseException | None, more: str = "") -> TimeoutError:
    """What a call that took too long has failed of."""
    found = TimeoutError(f"the call took longer than max_call_s={most_s:g} {more}".rstrip())
    found.__cause__ = error
    return found


def awaited(logic: Any, kind: str) -> Callable[[Any], Awaitable[Any]]:
    """How this object is called, so that the result is what its kind of task gives."""

    async def rows(row: Any) -> list[Any]:
        found = logic(row)
        if hasattr(found, "__aiter__"):
            return [one async for one in found]
        return rows_of(await found)

    async def kept(row: Any) -> bool:
        return bool(await logic(row))

    call: Callable[[Any], Awaitable[Any]] = {"flat_map": rows, "filter": kept}.get(kind, logic)
    return call
