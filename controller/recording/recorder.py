"""The trace of a run, written by a thread of its own: nothing here ever blocks or fails the loop.

What is recorded waits in a bounded queue; when the disk is slower than that, or full, records are dropped,
counted and said loudly, and recording goes on with what comes next (guarantee P8).
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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
from headgate.topology_runtime.traces.trace_tables import (
    ANY_VERSION,
    DEAD_LETTERS,
    DECISIONS,
    INPUTS,
    LEDGER,
    OUTPUT,
    PLANS,
    PREDICTED_LATENCY,
    RUN_FILE,
    VIEWS,
)
from headgate.topology_runtime.wire.messages import SampleBlock
from headgate.topology_runtime.wire.run_options import Keep
from headgate.topology_runtime.wording import counted

# ── Old traces of a topology are removed when a new run begins and as it grows, by number, size and age;
# the recorder's thread does it, so that no run waits for a disk.
#
# Only folders that are traces (with a `run.json` of ours) are counted and removed; never the run being
# written, never one that another controller still writes to. What is removed is renamed first: half a trace
# is never seen under its name. A run that is too large all by itself loses the oldest of its inputs and
# views: it cannot be replayed then, nor looked at from its beginning, but all that is analysed of it stays.

log = logging.getLogger(__name__)

BUSY_S = 60.0  # a trace is written to every second: one changed since then is perhaps being written
REMOVED = ".removed-"  # what a removal leaves when it is broken off; the next one finishes it
DAY_S = 86400.0


@dataclass(frozen=True)
class Old:
    """A trace on disk. `changed_s`: the newest change of a file in it, seconds since 1970."""

    folder: Path
    size_bytes: int
    changed_s: float


class _Head(msgspec.Struct):
    schema: str = ""


def remove_old(current: Path, keep: Keep, now_s: float) -> tuple[Old, ...]:
    """Remove what `keep` does not keep beside the trace `current`; what was removed, oldest first.

    What cannot be removed is said and stays. `now_s`: seconds since 1970."""
    for rest in current.parent.glob(f"{REMOVED}*"):
        shutil.rmtree(rest, ignore_errors=True)
    if keep == Keep():
        return ()
    there = sorted(traces_beside(current), key=lambda old: old.changed_s)
    mine_bytes = _size_of(current)[0]
    return tuple(old for old in excess(there, keep, now_s, mine_bytes) if _remove(old.folder))


def shorten(current: Path, keep: Keep) -> int:
    """Remove the oldest parts of the run's own inputs, views and output while it is larger than all traces may be; how
    many."""
    gone = 0
    parts = [part for name in (INPUTS, VIEWS, OUTPUT) for part in parts_of(current / name) if number_of(part)]
    for part in sorted(parts, key=os.path.getmtime):
        if keep.total_bytes is None or _size_of(current)[0] <= keep.total_bytes:
            break
        part.unlink()
        gone += 1
    return gone


def traces_beside(current: Path) -> Iterator[Old]:
    for folder in current.parent.iterdir():
        if folder != current and not folder.is_symlink() and folder.is_dir() and _is_trace(folder):
            yield Old(folder, *_size_of(folder))


def _size_of(folder: Path) -> tuple[int, float]:
    """(bytes, newest change of a file in it, seconds since 1970)."""
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    stats = [os.lstat(path) for path in files]
    return sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=0.0)


def excess(there: list[Old], keep: Keep, now_s: float, mine_bytes: int) -> Iterator[Old]:
    """Which of these (oldest first) are too many, too old, or too much beside the run being written."""
    runs, total_bytes = len(there) + 1, mine_bytes + sum(old.size_bytes for old in there)
    for old in there:
        if now_s - old.changed_s < BUSY_S:
            continue
        too_many = keep.runs is not None and runs > keep.runs
        too_much = keep.total_bytes is not None and total_bytes > keep.total_bytes
        too_old = keep.days is not None and now_s - old.changed_s > keep.days * DAY_S
        if too_many or too_much or too_old:
            runs, total_bytes = runs - 1, total_bytes - old.size_bytes
            yield old


def _is_trace(folder: Path) -> bool:
    try:
        head = msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=_Head)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return head.schema.startswith(ANY_VERSION)


def _remove(folder: Path) -> bool:
    gone = folder.with_name(f"{REMOVED}{folder.name}")
    try:
        os.rename(folder, gone)
        shutil.rmtree(gone)
    except OSError as error:
        log.error("trace: the old trace %s cannot be removed: %s", folder, error)
        return False
    return True


def words_of(removed: tuple[Old, ...]) -> str:
    names = ", ".join(old.folder.name for old in removed[:5]) + (", …" if len(removed) > 5 else "")
    size_mb = sum(old.size_bytes for old in removed) / 1e6
    runs = "1 old trace" if len(removed) == 1 else f"{len(removed)} old traces"
    return f"removed {runs}, {size_mb:,.1f} MB ({names}): --set trace-keep"


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

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
