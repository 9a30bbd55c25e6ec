"""Whoever watches: the picture's publisher, Prometheus, and questions that take long, thought about beside the loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys.key_pairs import KeyGuard
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.planning_time import clocked
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import HERE, Waker
from headgate.topology_runtime.wire.messages import Reply, refusal
from headgate.topology_runtime.wire.run_snapshot import Delta

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from headgate.topology_runtime.metrics.metrics_port import MetricsPort
    from headgate.topology_runtime.metrics.otlp_push import OtlpPush
    from headgate.topology_runtime.platform.http_options import MetricsAt


# ── Sends the picture to whoever listens, and answers who asks for all of it. Thin: `views/run_snapshots.py`
# makes it
#
# It is shown each view of the run, and never waits: a listener that does not take its messages loses them.
# While nobody listens and nothing is recorded, nothing is made but the history. What is recorded is what is
# sent.

LINGER_MS = 200
WHOLE_NS = 60_000_000_000  # between two snapshots in the record: whoever seeks in it reads no more than that
REST = 50  # times as long as making a delta took passes before the next: 2 % of a core …
REST_MOST_NS = 1_000_000_000  # … but no more: two seconds of silence are taken for a dead controller


class Publisher:
    """A picture on its channel."""

    def __init__(self, guard: KeyGuard, port: int = 0, at: Listening = HERE) -> None:
        self._picture = SnapshotMaker()
        self._view: RunView | None = None
        self._told: RunView | None = None
        self._channel = channels.PublisherChannel(guard, at, port)
        self.endpoint = self._channel.endpoint
        self._rested_ns = self._whole_ns = 0
        self._record: Callable[[bytes], None] | None = None

    def ask_again(self) -> None:
        """Whoever listens must come in again, if he may still."""
        self._channel.ask_again()

    def record(self, write: Callable[[bytes], None]) -> None:
        """From now on `write` gets a line for each delta, and now and then a snapshot in place of one."""
        self._record, self._whole_ns = write, 0

    def show(self, view: RunView) -> None:
        """Send what changed if anybody listens."""
        self._view = view
        if view.mono_ns >= self._rested_ns and self._watched():
            self._advance(view)
        else:
            self._picture.look(view)

    def snapshot(self) -> dict[str, Any]:
        """The whole picture, and where its changes are published."""
        if self._view is not None and self._told is not self._view:
            self._advance(self._view, whole=True)
        return {"snapshot": self._picture.snapshot(), "stream": self.endpoint}

    def _watched(self) -> bool:
        return self._channel.heard or self._record is not None

    def _advance(self, view: RunView, whole: bool = False) -> None:
        self._told, began_ns = view, monotonic_ns()
        delta = self._picture.advance(view, whole)
        data = msgspec.json.encode(delta)
        self._channel.send_bytes(data)
        if self._record is not None:
            self._record(data if view.mono_ns < self._whole_ns else self._whole(view, delta))
        self._rested_ns = view.mono_ns + min(REST_MOST_NS, REST * (monotonic_ns() - began_ns))

    def _whole(self, view: RunView, delta: Delta) -> bytes:
        """The snapshot that the delta leads to, with the delta's rows of history only."""
        self._whole_ns = view.mono_ns + WHOLE_NS
        return msgspec.json.encode({**self._picture.snapshot(), "history": delta.history})

    def close(self, over: bool = False) -> None:
        """over: so is the run, and whoever listens gets its last moment, as does the record."""
        if over and self._view is not None and self._watched():
            self._advance(self._view, whole=True)
        self._channel.close(LINGER_MS)


WAITING_MOST = 16  # questions; more are refused

Work = Callable[[], Any]


class Viewers:
    """Lives in the controller's thread, but for the one that thinks. wake: what wakes the controller.
    guard: who may look. metrics: where to serve them; raises Unreachable when it cannot be had."""

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
        self._push: OtlpPush | None = None
        self._publisher: Publisher | None = Publisher(guard, port, at)
        self._questions: Queue[tuple[int, Work]] = Queue(WAITING_MOST)
        self._answers: Queue[tuple[int, Reply]] = Queue()
        self._thinker: threading.Thread | None = None

    def push(self, url: str, instance: str) -> None:
        """Send metrics there from now on. Raises InvalidInput, HeadgateError."""
        from headgate.topology_runtime.metrics.otlp_push import OtlpPush

        self._push = OtlpPush(url, "headgate-controller", instance, self._families)

    def _families(self) -> Iterable[Metric]:
        return families(self.view) if self.view is not None else ()

    def show(self, view: RunView) -> None:
        """What there is to see now."""
        self.view = view
        if self._publisher is not None:
            with self._costing():
                self._publisher.show(view)

    def ask_again(self) -> None:
        """Somebody may come in no more: all who listen must come in again."""
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
        if self._push is not None:
            self._push.close()

    def _metrics_port(self, at: MetricsAt) -> MetricsPort:
        from headgate.topology_runtime.metrics.metrics_port import MetricsPort

        return MetricsPort(at, self._families)

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
