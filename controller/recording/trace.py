"""The files of one trace, as the recorder's thread writes them. Failures are counted and said, none ends it."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.controller.monitor.blocks import Arrays, arrays_of
from headgate.controller.recording import block_rows
from headgate.controller.recording.lines import LineFile, PartedLines
from headgate.controller.recording.segments import Segments
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.messages import SampleBlock
from headgate.topology_runtime.trace_tables import (
    DEAD_LETTERS,
    DECISIONS,
    INPUTS,
    PLANS,
    RUN_FILE,
    TABLES,
    VIEWS,
)

log = logging.getLogger(__name__)

SYNC_S = 1.0  # lines are synced this often; a missing run.json is tried again
LINES_WAIT_BYTES = 32 * 1024**2  # of each file of lines, in memory while the disk is full
PARTED = (INPUTS, VIEWS)
LINKS_WAIT_S = 2.0  # until the agents of both ends have told which task a thread runs


class RatesRow(msgspec.Struct, frozen=True):
    """One row of `rates`: what a source offered, emitted and had acked, against plan and prediction: rates over the
    controller's window, counts since the row before (None: unknown)."""

    wall_ns: int
    window_s: float
    epoch: int
    source: str
    offered_tps: float
    emitted_tps: float
    acked_tps: float
    planned_tps: float
    predicted_tps: float
    source_kind: str = "paced"
    lag_rows: int | None = None
    lag_s: float | None = None
    offered: int | None = None
    emitted: int | None = None
    acked: int | None = None


class TraceWriter:
    """Gathers rows and lines and writes them in turns; used by one thread but for `state`. `grown` is called
    when the trace has grown by a part of its inputs or views."""

    def __init__(
        self, directory: Path, run: dict[str, Any], grown: Callable[[], None] = lambda: None
    ) -> None:
        self._directory, self._grown = directory, grown
        self._run: dict[str, Any] | None = None if (directory / RUN_FILE).exists() else run
        life = str(time.time_ns())
        for torn in directory.glob("*/_*.parquet"):
            torn.unlink(missing_ok=True)  # of a controller that was killed while it wrote
        self._segments = {table: Segments(directory, table, life) for table in TABLES}
        self._files: dict[str, LineFile | PartedLines] = {}
        self._lines: dict[str, list[bytes]] = {name: [] for name in (DECISIONS, PLANS, DEAD_LETTERS, *PARTED)}
        self._links: deque[tuple[float, SampleBlock, Arrays]] = deque()
        self._task_of: dict[int, str] = {}
        self._synced_s = 0.0
        self._written = self._dropped = 0
        self._troubles: dict[str, str] = {}  # file or table → what is wrong with it now

    def state(self) -> tuple[int, int, tuple[str, ...]]:
        """(rows and lines written, dropped, what is wrong now)."""
        return self._written, self._dropped, tuple(self._troubles.copy().values())

    def add_block(self, block: SampleBlock, vm: Vm, predicted: block_rows.Predicted) -> None:
        arrays, now_s = arrays_of(block), time.monotonic()
        self._task_of.update(zip(arrays.threads[0].tolist(), block.tasks, strict=True))
        self._segments["samples"].add(block_rows.samples(block, arrays), now_s)
        self._segments["slots"].add(block_rows.slots(block, arrays, vm, predicted), now_s)
        self._segments["latency"].add(block_rows.latency(block, arrays), now_s)
        self._links.append((now_s, block, arrays))

    def add_rates(self, rates: RatesRow) -> None:
        row = msgspec.structs.asdict(rates)
        row["time"] = row.pop("wall_ns") // 1000
        self._segments["rates"].add({name: [value] for name, value in row.items()}, time.monotonic())

    def add_line(self, name: str, line: bytes) -> None:
        self._lines[name].append(line)

    def write(self, final: bool) -> None:
        """Write the lines, and the segments that are due (`final`: all)."""
        now_s = time.monotonic()
        self._add_links(now_s, final)
        for name in self._lines:
            self._write_lines(name, final)
        for name in PARTED:
            file = self._files.get(name)
            if isinstance(file, PartedLines) and file.is_due:
                self.attempt(f"parts of {name}", file.put_aside, 0)
                self.attempt("old traces", self._grown, 0)
        for table, segments in self._segments.items():
            if segments.rows and (final or segments.is_due(now_s)):
                self.attempt(table, lambda s=segments: self._segment(s), segments.rows)  # type: ignore[misc]
        if final or now_s - self._synced_s >= SYNC_S:
            self._synced_s = now_s
            self._sync()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def attempt(self, name: str, work: Callable[[], None], rows: int) -> bool:
        """Do it; was it done? Whatever goes wrong costs these `rows`, is said once until it changes, and ends
        nothing."""
        try:
            work()
        except Exception as error:
            cause = error.cause if isinstance(error, HeadgateError) else None
            why = f"{name}: {type(error).__name__}: {error}" + (f": {cause}" if cause else "")
            self._dropped += rows
            if self._troubles.get(name) != why:
                log.error("trace: %d records dropped so far; %s", self._dropped, why)
            self._troubles[name] = why
            return False
        self._troubles.pop(name, None)
        return True

    def _write_lines(self, name: str, final: bool) -> None:
        """Lines that a full disk does not take wait for it, in their order, as long as they are not too many:
        without one of them no run can be replayed."""
        lines, self._lines[name] = self._lines[name], []
        if not lines:
            return
        wait = not final and sum(map(len, lines)) <= LINES_WAIT_BYTES
        if not self.attempt(name, lambda: self._append(name, lines), 0 if wait else len(lines)) and wait:
            self._lines[name] = lines

    def _append(self, name: str, lines: list[bytes]) -> None:
        if name not in self._files:
            kind = PartedLines if name in PARTED else LineFile
            file = self._files[name] = kind(self._directory / name)
            if file.truncated:
                log.warning("trace: %s ended in a torn line; %d bytes cut off", name, file.truncated)
        self._files[name].append(b"\n".join(lines) + b"\n")
        self._written += len(lines)

    def _segment(self, segments: Segments) -> None:
        self._written += segments.write()

    def _sync(self) -> None:
        for name, file in self._files.items():
            self.attempt(f"sync of {name}", file.sync, 0)
        if self._run is not None:
            self.attempt(RUN_FILE, self._write_run, 0)

    def _write_run(self) -> None:
        unfinished = self._directory / f"_{RUN_FILE}"
        with open(unfinished, "wb") as file:
            file.write(msgspec.json.encode(self._run) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, self._directory / RUN_FILE)
        self._run = None

    def _add_links(self, now_s: float, final: bool) -> None:
        while self._links and (final or now_s - self._links[0][0] >= LINKS_WAIT_S):
            at_s, block, arrays = self._links.popleft()
            self._segments["links"].add(block_rows.links(block, arrays, self._tasks), at_s)

    def _tasks(self, threads: NDArray[np.int64]) -> list[str]:
        """Tasks of these threads; "" for one that never sent samples."""
        return [self._task_of.get(thread, "") for thread in threads.tolist()]
