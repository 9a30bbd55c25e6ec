"""Whoever watches: the picture's publisher, and questions that take long, thought about on a thread beside.

Neither is an input of the loop: a run is decided, recorded and replayed the same, watched or not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import Any

from controller.analyze.demand import planned_for
from controller.core.commands import refusal
from controller.core.deciding import question
from controller.core.loop import Loop
from controller.knowledge.turns import Now
from controller.plan.planner import PlanRequest
from controller.publisher import Publisher
from controller.views.whatif import rates_asked, whatif
from topology_runtime.channels import Waker
from topology_runtime.errors import Conflict, HeadgateError
from topology_runtime.messages import Reply, Request, SampleBlock

COMMANDS = frozenset({"snapshot", "whatif"})
WAITING_MOST = 16  # questions; more are refused
QUIET_TPS = 1.0  # a question's rate does not matter before its rates are filled in

Question = tuple[bytes, PlanRequest, tuple[float, ...], bool]


class Viewers:
    """Lives in the controller's thread, but for the one that thinks. wake: what wakes the controller."""

    def __init__(self, loop: Loop, wake: Waker, port: int = 0) -> None:
        self._loop, self._wake = loop, wake
        self._publisher: Publisher | None = Publisher(loop, port)
        self._questions: Queue[Question] = Queue(WAITING_MOST)
        self._answers: Queue[tuple[bytes, Reply]] = Queue()
        self._thinker: threading.Thread | None = None

    def turn(self, now: Now) -> None:
        """When it is time: look, and send what changed."""
        if self._publisher is not None:
            with self._costing():
                self._publisher.turn(now)

    def add(self, block: SampleBlock, now: Now) -> None:
        """Samples that have come."""
        if self._publisher is not None:
            with self._costing():
                self._publisher.add(block, now)

    def record(self, write: Callable[[bytes], None]) -> None:
        """Record from now on what is sent: see `Publisher.record`."""
        if self._publisher is not None:
            self._publisher.record(write)

    def answer(self, peer: bytes, request: Request, now: Now) -> Reply | None:
        """The reply, or None when it will be among `answers`."""
        try:
            if request.command == "snapshot":
                return Reply(data=self._snapshot(now))
            self._ask(peer, request.arguments)
        except HeadgateError as error:
            return refusal(error)
        return None

    def answers(self) -> list[tuple[bytes, Reply]]:
        """(peer, reply) of what was thought about since."""
        found = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except Empty:
                return found

    def close(self, now: Now | None = None) -> None:
        """now: the run is over, and whoever looks is shown its end."""
        if self._publisher is not None:
            self._publisher.close(now)

    def _snapshot(self, now: Now) -> dict[str, Any]:
        if self._publisher is not None:
            with self._costing():
                return self._publisher.snapshot(now)
        raise HeadgateError("there is no picture of this run", cause="see the controller's log")

    @contextmanager
    def _costing(self) -> Iterator[None]:
        """What goes wrong in it costs the picture, and is said."""
        try:
            yield
        except Exception as error:
            sys.stderr.write(f"controller: warning: no picture any more: {type(error).__name__}: {error}\n")
            self.close()
            self._publisher = None

    def _ask(self, peer: bytes, arguments: dict[str, Any]) -> None:
        rates = rates_asked(arguments)
        loop = self._loop
        if arguments.get("offered"):
            rates = self._planned(rates)
        request = question(loop.knowledge, loop.members, QUIET_TPS, False).request
        try:
            self._questions.put_nowait((peer, request, rates, bool(arguments.get("full"))))
        except Full:
            raise Conflict("too many ask what if at once", hint="ask again in a moment") from None
        if self._thinker is None:
            self._thinker = threading.Thread(target=self._think, name="whatif", daemon=True)
            self._thinker.start()

    def _planned(self, offered: tuple[float, ...]) -> tuple[float, ...]:
        """What would be planned for if these rates were offered."""
        k = self._loop.knowledge
        planned_tps = k.plan.rate_tps if k.plan else 0.0
        return tuple(planned_for(rate_tps, planned_tps, k.settings.headroom) for rate_tps in offered)

    def _think(self) -> None:
        while True:
            peer, request, rates, full = self._questions.get()
            self._answers.put((peer, _reply(request, rates, full)))
            self._wake.set()


def _reply(request: PlanRequest, rates: tuple[float, ...], full: bool) -> Reply:
    try:
        return Reply(data=whatif(request, rates, full))
    except HeadgateError as error:
        return refusal(error)
    except Exception as error:  # whoever asked must hear of it, and the next one be answered
        return refusal(HeadgateError(f"what-if failed: {type(error).__name__}", cause=str(error) or None))
