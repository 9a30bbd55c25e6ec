"""The thread of a source (what it decides is in source_core.py): reads user code or its spool, counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from queue import Empty
from typing import Any

from topology_runtime.clock import monotonic_ns, wall_ns
from topology_runtime.logic import Exhausted, LiveSource
from topology_runtime.messages import SourceNow
from topology_runtime.schedule import NS
from topology_runtime.worker import meter as mt
from topology_runtime.worker.source_core import SourceCore
from topology_runtime.worker.spool import Spool, folder_of
from topology_runtime.worker.task_core import TaskCore
from topology_runtime.worker.threads import TaskThread

LOOK_AGAIN_NS = NS // 50  # how soon an empty source is asked again
RETRY_NS = NS  # after a source raised


class SourceThread(TaskThread):
    """A thread of a task without in-edges."""

    faults = 0  # counted by the main thread
    _faults_seen = 0
    _spool: Spool | None = None
    _source: Any = None
    _trouble = ""

    def make_core(self) -> TaskCore:
        return SourceCore(self.wanted, self.topology, self.host.board, self.random64, self.record)

    @property
    def source(self) -> SourceCore:
        assert isinstance(self.core, SourceCore)
        return self.core

    def source_now(self) -> SourceNow:
        wanted = self.wanted
        if self.source.ledger is None:
            stopped = self.source.stopped_reading
            return SourceNow(wanted.task, wanted.partition, wanted.thread, 0, 0, 0, 0, 0, stopped=stopped)
        words, at = self.host.meter.words, self.at
        state = words[at + mt.SOURCE_STATE]
        return SourceNow(
            wanted.task,
            wanted.partition,
            wanted.thread,
            emitted=words[at + mt.SOURCE_EMITTED],
            acked=words[at + mt.SOURCE_ACKED],
            acked_above=words[at + mt.SOURCE_ACKED_ABOVE],
            in_flight=words[at + mt.SOURCE_IN_FLIGHT],
            replayed=words[at + mt.SOURCE_REPLAYED],
            stopped=bool(state & 1),
            exhausted=bool(state & 2),
        )

    def startup(self) -> None:
        super().startup()
        assert self.core.flow is not None
        self._source = self.core.flow.logic
        self.host.meter.words[self.at + mt.SOURCE_PARTITION] = self.wanted.partition + 1

    def shutdown(self) -> None:
        super().shutdown()
        if self._spool is not None:
            self._spool.close()

    def turn(self) -> None:
        """One look round: orders, acks, replays, what is due, flush."""
        core = self.source
        self.look_at_orders()
        self._hear()
        self.busy = True
        now_ns = monotonic_ns()
        if self.faults != self._faults_seen:
            self._faults_seen = self.faults
            core.on_fault(now_ns)
        self._begin()
        core.turn(now_ns, wall_ns(), self._rows)
        core.flush(monotonic_ns())
        self._count()
        self.busy = False

    def _hear(self) -> None:
        """Acks from the inbox; waits a little when there are none and nothing is due."""
        now_ns = monotonic_ns()
        patience_s = max(0.0, (self.source.wake_ns(now_ns, wall_ns()) - now_ns) / NS)
        try:
            item = self.inbox.get(timeout=patience_s)
            while True:
                if isinstance(item, list):
                    self.source.on_acks(item, monotonic_ns())
                item = self.inbox.get_nowait()
        except Empty:
            return

    def _begin(self) -> None:
        """A ledger, once the controller has said from which position."""
        position = self.source.start_position()
        if position is None:
            return
        if isinstance(self._source, LiveSource):
            folder = folder_of(self.host.directory, self.task.name, self.wanted.partition)
            self._spool = Spool(folder, position)
            position = max(position, self._spool.acked)
        self.source.begin(position)
        self.host.changed()

    def _rows(self, position: int, limit: int) -> Sequence[Any]:
        core, now_ns = self.source, monotonic_ns()
        try:
            if self._spool is not None:
                if position >= self._spool.end:
                    for _, refused in self._spool.append(self._source.poll(limit)):
                        self._say(f"an event was left out: {refused}")
                rows = self._spool.read(position, limit)
            else:
                rows = list(self._source.read(position, limit))[:limit]
        except Exhausted:
            core.exhausted = True
            self.host.changed()
            return ()
        except Exception as error:  # user code: said in the worker's log, tried again
            self._say(f"{type(error).__name__}: {error}")
            core.quiet_until_ns = now_ns + RETRY_NS
            return ()
        self._trouble = ""
        if not rows:
            core.quiet_until_ns = now_ns + LOOK_AGAIN_NS
        return rows

    def _say(self, trouble: str) -> None:
        """Once for each trouble, not once a second."""
        if trouble != self._trouble:
            self._trouble = trouble
            text = f"headgate: source {self.task.name} cannot be read: {trouble}; tried again every second"
            print(text, file=sys.stderr, flush=True)

    def _count(self) -> None:
        core, words, at = self.source, self.host.meter.words, self.at
        ledger = core.ledger
        if ledger is not None:
            words[at + mt.SOURCE_EMITTED] = ledger.position
            words[at + mt.SOURCE_ACKED] = ledger.acked
            words[at + mt.SOURCE_ACKED_ABOVE] = ledger.acked_above
            words[at + mt.SOURCE_IN_FLIGHT] = ledger.in_flight
            words[at + mt.SOURCE_REPLAYED] = ledger.replayed
            if self._spool is not None:
                self._spool.done_below(ledger.acked, monotonic_ns())
        state = int(core.stopped) | (2 if core.exhausted else 0)
        if state != words[at + mt.SOURCE_STATE]:
            words[at + mt.SOURCE_STATE] = state
            self.host.changed()
