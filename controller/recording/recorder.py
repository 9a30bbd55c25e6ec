"""The trace of a run, written by a thread of its own: nothing here ever blocks or fails the loop.

What is recorded waits in a bounded queue; when the disk is slower than that, or full, records are dropped,
counted and said loudly, and recording goes on with what comes next (guarantee P8).
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.models.plan_data import plan_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.prediction_ledger import LedgerEntry
from headgate.controller.recording.prediction_ledger_file import LedgerFile
from headgate.controller.recording.trace_writer import Predicted, TraceWriter
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.traces.line_parts import number_of, parts_of
from headgate.topology_runtime.traces.old_traces import Old, recorded, remove_old, size_of
from headgate.topology_runtime.traces.trace_tables import (
    DEAD_LETTERS,
    DECISIONS,
    INPUTS,
    LEDGER,
    OUTPUT,
    PLANS,
    PREDICTED_LATENCY,
    VIEWS,
)
from headgate.topology_runtime.wire.messages import SampleBlock
from headgate.topology_runtime.wire.run_options import Keep
from headgate.topology_runtime.wording import counted

log = logging.getLogger(__name__)

QUEUE_ITEMS = 20_000  # several seconds of a thousand agents; blocks are held by reference
TURN_S = 0.2  # how long records wait to be written together
KEEP_ALL = Keep()
CLOSE_S = 30.0  # for a slow disk to take what is queued at the end

_json = msgspec.json.Encoder()


class Recorded(msgspec.Struct, frozen=True):
    """How recording goes: rows and lines written and dropped, items waiting in the queue, and what is
    wrong at the moment ("" when all is well)."""

    written: int
    dropped: int
    waiting: int
    trouble: str


class Recorder:
    """Records into `directory` (`traces/<topology>/<run>`); `run` is what `run.json` holds.

    A restarted controller goes on in the same directory: `run.json` stays, lines are appended after what
    is whole, segments get names of their own. Old traces beside it go as `keep` says, first and as this one
    grows, and `tell` hears of it from the recorder's thread. Raises OSError when the directory cannot be made."""

    def __init__(
        self,
        directory: Path,
        run: dict[str, Any],
        keep: Keep = KEEP_ALL,
        tell: Callable[[str], None] = log.info,
        queue_items: int = QUEUE_ITEMS,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._keep, self._tell = directory, keep, tell
        self._queue: queue.Queue[tuple[Callable[[], None], int] | None] = queue.Queue(queue_items)
        self._ledger = LedgerFile(directory.parent / LEDGER)
        self._writer = TraceWriter(directory, run, self._remove_old)
        self._overflowed = 0
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def block(self, block: SampleBlock, vm: Vm, predicted: Predicted) -> None:
        """Rows of samples, slots, links and latency. `predicted`: slot → (CPU, memory) at this rate."""
        self._put(lambda: self._writer.add_block(block, vm, predicted), len(block.tasks))

    def rates(self, rates: dict[str, Any]) -> None:
        self._put(lambda: self._writer.add_rates(rates), 1)

    def decision(self, decision: dict[str, Any], plan: Plan | None = None) -> None:
        """One line of `decisions.jsonl`, and of `plans.jsonl` with the plan that is new; encoded now, so that they may
        change afterwards."""
        line = _json.encode(decision)
        self._put(lambda: self._writer.add_line(DECISIONS, line), 1)
        if plan is not None:
            whole = _json.encode({"time": decision["time"], "plan": plan_data(plan)})
            self._put(lambda: self._writer.add_line(PLANS, whole), 1)

    def latency(self, predicted: dict[str, Any]) -> None:
        """One line of `predicted_latency.jsonl`."""
        self._put(partial(self._writer.add_line, PREDICTED_LATENCY, _json.encode(predicted)), 1)

    def prediction(self, entry: LedgerEntry) -> None:
        """One entry of the prediction ledger, which lies beside the runs of its topology."""
        self._put(lambda: self._enter(entry), 1)

    def letters(self, records: Iterable[msgspec.Struct]) -> None:
        """Lines of `dead_letters.jsonl`; those of an earlier life come again, it may have died before."""
        for line in map(_json.encode, records):
            self._put(partial(self._writer.add_line, DEAD_LETTERS, line), 1)

    def input(self, now: int | msgspec.Struct, kind: str, event: bytes | msgspec.Struct) -> None:
        """One line of `inputs.jsonl`: what the loop's step is given. `event`: JSON bytes as they are, or a
        frozen struct that is encoded later (sample blocks whole, their bytes as base64)."""
        self._put(lambda: self._writer.add_line(INPUTS, input_line(now, kind, event)), 1)

    def output(self, lines: list[bytes]) -> None:
        """Lines of `output.jsonl`: what tasks printed."""
        for line in lines:
            self._put(partial(self._writer.add_line, OUTPUT, line), 1)

    def view(self, line: bytes) -> None:
        """One line of `views.jsonl`: a snapshot, or what changed since the line before."""
        self._put(lambda: self._writer.add_line(VIEWS, line), 1)

    def state(self) -> Recorded:
        written, dropped, troubles = self._writer.state()
        if self._overflowed:
            troubles = (*troubles, f"{self._overflowed} records came faster than the disk took them")
        return Recorded(written, dropped + self._overflowed, self._queue.qsize(), "; ".join(troubles))

    def close(self) -> Recorded:
        """Write all that is queued and end; what it came to."""
        try:
            self._queue.put(None, timeout=CLOSE_S)
        except queue.Full:
            log.error("trace: the disk took nothing for %g s; what was queued is lost", CLOSE_S)
        self._thread.join(CLOSE_S)
        return self.state()

    def _put(self, work: Callable[[], None], rows: int) -> None:
        try:
            self._queue.put_nowait((work, rows))
        except queue.Full:
            if not self._overflowed:
                log.error("trace: records are dropped, the disk is slower than the run")
            self._overflowed += rows

    def _work(self) -> None:
        with recorded(self._directory):
            self._writer.attempt("old traces", self._remove_old, 0)
            going = True
            while going:
                going = self._take()
                self._writer.write(final=not going)
            self._writer.close()

    def _enter(self, entry: LedgerEntry) -> None:
        self._writer.attempt("the prediction ledger", lambda: self._ledger.append(entry), 1)

    def _remove_old(self) -> None:
        removed = remove_old(self._directory, self._keep, time.time())
        if removed:
            self._tell(words_of(removed))
        if gone := shorten(self._directory, self._keep):
            self._tell(
                f"this run's trace is too large: {counted(gone, 'old part')} of it had to go (--set trace-keep)"
            )

    def _take(self) -> bool:
        """Take what is queued, for one turn at most; False when the recorder is closed."""
        until_s = time.monotonic() + TURN_S
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                item = self._queue.get(timeout=left_s)
            except queue.Empty:
                return True
            if item is None:
                return False
            self._writer.attempt("queue", *item)
        return True


def input_line(now: int | msgspec.Struct, kind: str, event: bytes | msgspec.Struct) -> bytes:
    """A line of `inputs.jsonl`, without its end."""
    data = event if isinstance(event, bytes) else _json.encode(event)
    return b'{"now_ns":%b,"kind":%b,"event":%b}' % (_json.encode(now), _json.encode(kind), data)


# ── A run that is too large all by itself loses the oldest of its inputs and views: it cannot be replayed then, nor
# looked at from its beginning, but all that is analysed of it stays.


def shorten(current: Path, keep: Keep) -> int:
    """Remove the oldest parts of the run's own inputs, views and output while it is larger than all traces may be; how
    many."""
    gone = 0
    parts = [part for name in (INPUTS, VIEWS, OUTPUT) for part in parts_of(current / name) if number_of(part)]
    for part in sorted(parts, key=os.path.getmtime):
        if keep.total_bytes is None or size_of(current)[0] <= keep.total_bytes:
            break
        part.unlink()
        gone += 1
    return gone


def words_of(removed: tuple[Old, ...]) -> str:
    names = ", ".join(old.folder.name for old in removed[:5]) + (", …" if len(removed) > 5 else "")
    size_mb = sum(old.size_bytes for old in removed) / 1e6
    runs = "1 old trace" if len(removed) == 1 else f"{len(removed)} old traces"
    return f"removed {runs}, {size_mb:,.1f} MB ({names}): --set trace-keep"
