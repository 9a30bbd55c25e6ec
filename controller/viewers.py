"""Whoever watches: the picture's publisher, Prometheus, and questions that take long, thought about beside the loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from headgate.controller.knowledge.run_view import RunView
from headgate.controller.publisher import Publisher
from headgate.controller.views.metrics import families
from headgate.topology_runtime.addresses import Listening
from headgate.topology_runtime.channels import HERE, Waker
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys.pairs import KeyGuard
from headgate.topology_runtime.messages import Reply, refusal
from headgate.topology_runtime.patience import clocked

if TYPE_CHECKING:
    from headgate.topology_runtime.http_options import MetricsAt
    from headgate.topology_runtime.metrics_port import MetricsPort

WAITING_MOST = 16  # questions; more are refused

Work = Callable[[], Any]


class Viewers:
    """Lives in the controller's thread, but for the one that thinks. wake: what wakes the controller.
    guard: who may look. metrics: where to tell them; raises Unreachable when it cannot be had."""

    def __init__(
        self,
        wake: Waker,
        guard: KeyGuard,
        port: int = 0,
        metrics: MetricsAt | None = None,
        at: Listening = HERE,
    ) -> None:
        self._wake = wake
        self.view: RunView | None = None  # the newest
        self._metrics = self._metrics_port(metrics) if metrics is not None else None
        self.metrics_address = self._metrics.address if self._metrics is not None else None
        self._publisher: Publisher | None = Publisher(guard, port, at)
        self._questions: Queue[tuple[int, Work]] = Queue(WAITING_MOST)
        self._answers: Queue[tuple[int, Reply]] = Queue()
        self._thinker: threading.Thread | None = None

    def show(self, view: RunView) -> None:
        """What there is to see now."""
        self.view = view
        if self._publisher is not None:
            with self._costing():
                self._publisher.show(view)

    def ask_again(self) -> None:
        """Somebody may come in no more: all who listen must come in anew."""
        if self._publisher is not None:
            with self._costing():
                self._publisher.ask_again()

    def record(self, write: Callable[[bytes], None]) -> None:
        """Record from now on what is sent: see `Publisher.record`."""
        if self._publisher is not None:
            self._publisher.record(write)

    def snapshot(self) -> Reply:
        """The whole picture."""
        if self._publisher is not None and self.view is not None:
            with self._costing():
                return Reply(data=self._publisher.snapshot())
        return refusal(HeadgateError("there is no picture of this run", cause="see the controller's log"))

    def think(self, number: int, work: Work) -> None:
        """The reply to this question will be among `answers`."""
        try:
            self._questions.put_nowait((number, work))
        except Full:
            error = Conflict("too many ask what if at once", hint="ask again in a moment")
            self._answers.put((number, refusal(error)))
            self._wake.set()
        if self._thinker is None:
            self._thinker = threading.Thread(target=self._think, name="whatif", daemon=True)
            self._thinker.start()

    def answers(self) -> Iterator[tuple[int, Reply]]:
        """(question, reply) of what was thought about since."""
        while True:
            try:
                yield self._answers.get_nowait()
            except Empty:
                return

    def close(self, over: bool = False) -> None:
        """over: so is the run, and whoever looks is shown its end."""
        if self._publisher is not None:
            self._publisher.close(over)
        if self._metrics is not None:
            self._metrics.close()

    def _metrics_port(self, at: MetricsAt) -> MetricsPort:
        from headgate.topology_runtime.metrics_port import MetricsPort

        return MetricsPort(at, lambda: families(self.view) if self.view is not None else ())

    @contextmanager
    def _costing(self) -> Iterator[None]:
        """What goes wrong in it costs the picture, and is said."""
        try:
            yield
        except Exception as error:
            sys.stderr.write(f"controller: warning: no picture any more: {type(error).__name__}: {error}\n")
            self._publisher, failed = None, self._publisher
            if failed is not None:
                failed.close()

    def _think(self) -> None:
        while True:
            number, work = self._questions.get()
            self._answers.put((number, _reply(work)))
            self._wake.set()


def _reply(work: Work) -> Reply:
    try:
        with clocked(lambda: monotonic_ns() / 1e9):
            return Reply(data=work())
    except HeadgateError as error:
        return refusal(error)
    except Exception as error:  # whoever asked must hear of it, and the next one be answered
        return refusal(HeadgateError(f"what-if failed: {type(error).__name__}", cause=str(error) or None))
