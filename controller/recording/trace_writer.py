"""The files of one trace, as the recorder's thread writes them. Failures are counted and said, none ends it."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.controller.monitor.sample_blocks import EDGES_NS, Arrays, arrays_of, percentiles_ns
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.user_metrics import percentile
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.disk import sync_directory
from headgate.topology_runtime.traces.line_parts import number_of, parts_of
from headgate.topology_runtime.traces.trace_tables import (
    DEAD_LETTERS,
    DECISIONS,
    INPUTS,
    OUTPUT,
    PLANS,
    PREDICTED_LATENCY,
    RUN_FILE,
    TABLES,
    VIEWS,
)
from headgate.topology_runtime.wire.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock

# ── Files of JSON lines that only grow and whose lines are always whole; one of them may be in parts ────

TAIL_BYTES = 1 << 20  # read back at a time in search of the last whole line
PART_BYTES = 16 * 1024**2
COPY_BYTES = 1 << 20  # compressed at a time
QUICK = 1  # the level of compression: a third of the bytes in a tenth of a second per part


class LineFile:
    """Appends lines to `path`; what a crash left of a line at its end is cut off on opening.

    `truncated`: bytes that were. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        self._whole = _whole_lines(self._fd, size)
        self.truncated = size - self._whole
        if self.truncated:
            os.ftruncate(self._fd, self._whole)

    @property
    def size_bytes(self) -> int:
        return self._whole

    def append(self, lines: bytes) -> None:
        """Add whole lines, as `write_whole`."""
        write_whole(self._fd, lines, self._whole)
        self._whole += len(lines)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class PartedLines:
    """A `LineFile` in parts: the newest lines are in `path`; when they are PART_BYTES, `put_aside` makes a
    part of them (`parts_of`). Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = LineFile(path)
        self.truncated = self._file.truncated
        for unfinished in path.parent.glob(f"_{path.stem}-*"):
            unfinished.unlink(missing_ok=True)  # of a controller that was killed while it compressed

    @property
    def is_due(self) -> bool:
        return self._file is not None and self._file.size_bytes >= PART_BYTES

    def append(self, lines: bytes) -> None:
        """As `LineFile.append`."""
        if self._file is None:
            self._file = LineFile(self._path)
        self._file.append(lines)

    def put_aside(self) -> None:
        """Begin a new part, and compress those before. What cannot be compressed stays as it is until the
        next time."""
        if self._file is not None:
            self._file.sync()
            os.rename(self._path, self._path.with_name(f"{self._path.stem}-{self._next():06d}.jsonl"))
            self._file.close()
            self._file = None
        for part in self._path.parent.glob(f"{self._path.stem}-*.jsonl"):
            _compress(part)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _next(self) -> int:
        return max((number_of(part) for part in parts_of(self._path)), default=0) + 1


def write_whole(fd: int, lines: bytes, at: int) -> None:
    """At the end of a file. Raises OSError when the disk does not take them all: none is there then."""
    left, end = memoryview(lines), at
    try:
        while left:
            written = os.pwrite(fd, left, end)
            end, left = end + written, left[written:]
    except OSError:
        os.ftruncate(fd, at)
        raise


def _compress(part: Path) -> None:
    """`part` → `part.gz`, whole or not at all."""
    unfinished = part.with_name(f"_{part.name}.gz")
    try:
        with open(part, "rb") as plain, open(unfinished, "wb") as file:
            with gzip.open(file, "wb", QUICK) as packed:
                shutil.copyfileobj(plain, packed, COPY_BYTES)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, part.with_name(f"{part.name}.gz"))
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    part.unlink()


def _whole_lines(fd: int, size: int) -> int:
    """How many bytes of the file are whole lines."""
    end = size
    while end > 0:
        begin = max(0, end - TAIL_BYTES)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


# ── A sample block's rows of the tables of a trace ──────────────────────────────────────────────────────

Columns = dict[str, Any]  # name → array or list, all of one length

LATENCY_SAMPLES = (
    20  # rows of `latency` at most per block, sink and source; `tuples` says for how many each stands
)
GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, fill the unit interval evenly, however many there are

_SECONDS = {
    "cpu_s": "cpu_ns", "run_delay_s": "run_delay_ns", "latency_mean_s": "latency_mean_ns",
    "latency_p50_s": "latency_p50_ns", "latency_p99_s": "latency_p99_ns", "busy_s": "busy_ns",
    "wait_s": "wait_ns",
}  # fmt: skip
_SAMPLE = {name: row for row, name in enumerate(SAMPLE_COLUMNS)}
_SLOT = {name: row for row, name in enumerate(SLOT_COLUMNS)}
_LINK = {name: row for row, name in enumerate(LINK_COLUMNS)}

TaskOf = Callable[[NDArray[np.int64]], list[str]]
Predicted = Mapping[Slot, tuple[float, float]]


def _same(block: SampleBlock, rows: int) -> Columns:
    return {
        "time": np.full(rows, block.wall_ns // 1000),
        "window_s": np.full(rows, block.window_ns / 1e9),
        "epoch": np.full(rows, block.epoch),
    }


def samples(block: SampleBlock, arrays: Arrays) -> Columns:
    """One row per thread; the epoch is the thread's own."""
    columns = _same(block, len(block.tasks))
    columns |= {"vm": [block.vm] * len(block.tasks), "task": list(block.tasks)}
    for name in TABLES["samples"]:
        if name in _SECONDS:
            columns[name] = arrays.threads[_SAMPLE[_SECONDS[name]]] / 1e9
        elif name in _SAMPLE:
            columns[name] = arrays.threads[_SAMPLE[name]]
    return columns


def slots(block: SampleBlock, arrays: Arrays, vm: Vm, predicted: Predicted) -> Columns:
    """One row per slot; predictions are null where there is none."""
    numbers, held = arrays.slots[_SLOT["slot"]], arrays.slots[_SLOT["memory_bytes"]]
    expected = [predicted.get(Slot(block.vm, number)) for number in numbers.tolist()]
    window_s = block.window_ns / 1e9
    return _same(block, len(numbers)) | {
        "vm": [block.vm] * len(numbers),
        "slot": numbers,
        "cpu": arrays.slots[_SLOT["cpu_ns"]] / 1e9 / window_s / vm.slot_cores,
        "memory": [size / vm.slot_memory_bytes if size else None for size in held.tolist()],
        "predicted_cpu": [None if use is None else use[0] for use in expected],
        "predicted_memory": [None if use is None else use[1] for use in expected],
    }


def links(block: SampleBlock, arrays: Arrays, task_of: TaskOf) -> Columns:
    """One row per pair of threads; latencies are means over its frames."""
    senders, receivers = arrays.links[_LINK["from_thread"]], arrays.links[_LINK["to_thread"]]
    return _same(block, len(senders)) | {
        "from_task": task_of(senders),
        "from_thread": senders,
        "to_task": task_of(receivers),
        "to_thread": receivers,
        "tuples": arrays.links[_LINK["tuples"]],
        "bytes": arrays.links[_LINK["bytes"]],
        "frames": arrays.links[_LINK["frames"]],
        "buffer_latency_s": arrays.links[_LINK["buffer_latency_ns"]] / 1e9,
        "channel_latency_s": arrays.links[_LINK["channel_latency_ns"]] / 1e9,
    }


def user_metrics(block: SampleBlock) -> Columns:
    """One row per metric of a thread of which there is something new; count and percentiles of histograms alone."""
    columns = _same(block, len(block.user)) | {"vm": [block.vm] * len(block.user)}
    for name in ("slot", "task", "thread", "name", "kind", "value"):
        columns[name] = [getattr(one, name) for one in block.user]
    columns["count"] = [one.count if one.kind == "histogram" else None for one in block.user]
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        columns[name] = [percentile(dict(one.buckets), share) for one in block.user]
    return columns


def latency(block: SampleBlock, arrays: Arrays) -> Columns:
    """An even sample of the rows that reached a sink: its quantiles, each for as many rows as `tuples` says. Where the
    first lies differs from block to block, so that over many the sample has the longest too.

    `error_s`: half the width of the bucket it comes from."""
    parts = [
        _sampled(block, sink, source, counts) for sink, source, counts in arrays.latency if counts.sum() > 0
    ]
    return {name: [value for part in parts for value in part[name]] for name in TABLES["latency"]}


def _sampled(block: SampleBlock, sink: str, source: str, counts: NDArray[np.int64]) -> Columns:
    rows = int(counts.sum())
    n = min(rows, LATENCY_SAMPLES)
    first = (0.5 + block.sequence * GOLDEN) % 1 if n < rows else 0.5
    shares = tuple(((np.arange(n) + first) / n).tolist())
    at_ns = percentiles_ns(counts[None].astype(np.float64), shares)[0]
    bucket = np.clip(np.searchsorted(EDGES_NS, at_ns, side="left") - 1, 0, None)
    return {
        "time": [block.wall_ns // 1000] * n,
        "epoch": [block.epoch] * n,
        "source": [source] * n,
        "sink": [sink] * n,
        "latency_s": (at_ns / 1e9).tolist(),
        "error_s": ((EDGES_NS[bucket + 1] - EDGES_NS[bucket]) / 2e9).tolist(),
        "tuples": [rows / n] * n,
    }


# ── One table of a trace as rotated Parquet files, each complete on its own ───
#
# A segment is gathered in memory, written under a name that begins with `_`, synced and renamed: whoever
# reads sees whole files only, and a full disk or a kill costs one segment at most (a Parquet file that meets
# a full disk is wholly lost). Used by the recorder's thread alone; pyarrow is imported there, on first use.

ROTATE_S = 10.0  # what a kill or a full disk costs at most
ROTATE_BYTES = 200_000_000  # of a table, in memory: rows of some 120,000 threads in that time
ROW_BYTES = 8  # per column, roughly


class Segments:
    """The segments of `table` in `directory`/`table`; `life` distinguishes the files of one controller."""

    def __init__(self, directory: Path, table: str, life: str) -> None:
        self.table = table
        self._directory = directory / table
        self._life = life
        self._number = 0
        self._parts: list[Columns] = []
        self._rows = 0
        self._began_s: float | None = None

    @property
    def rows(self) -> int:
        """Rows gathered and not yet written."""
        return self._rows

    def add(self, columns: Columns, now_s: float) -> None:
        rows = len(columns["time"])
        if rows:
            self._parts.append(columns)
            self._rows += rows
            self._began_s = now_s if self._began_s is None else self._began_s

    def is_due(self, now_s: float) -> bool:
        if self._began_s is None:
            return False
        size = self._rows * ROW_BYTES * len(TABLES[self.table])
        return size >= ROTATE_BYTES or now_s - self._began_s >= ROTATE_S

    def write(self) -> int:
        """Write what is gathered; how many rows. Raises OSError when the disk does not take it: the rows
        are gone then, and no part of a file stays."""
        parts, rows = self._parts, self._rows
        self._parts, self._rows, self._began_s = [], 0, None
        if not rows:
            return 0
        name = f"{self._life}-{self._number:06d}.parquet"
        self._number += 1
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f"_{name}"
        try:
            self._write(unfinished, parts)
            os.rename(unfinished, self._directory / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)
        return rows

    def _write(self, path: Path, parts: list[Columns]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from headgate.topology_runtime.traces.arrow_schema import arrow_schema

        schema = arrow_schema(self.table)
        pieces = [pa.table([pa.array(part[f.name], f.type) for f in schema], schema=schema) for part in parts]
        with open(path, "wb") as file:
            pq.write_table(pa.concat_tables(pieces), file)
            file.flush()
            os.fsync(file.fileno())


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

log = logging.getLogger(__name__)

SYNC_S = 1.0  # lines are synced this often; a missing run.json is tried again
LINES_WAIT_BYTES = 32 * 1024**2  # of each file of lines, in memory while the disk is full
PARTED = (INPUTS, VIEWS, OUTPUT)
OUTPUT_PARTS = 8  # of what tasks printed; the oldest goes when there is one more
LINKS_WAIT_S = 2.0  # until the agents of both ends have reported which task a thread runs


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
        names = (DECISIONS, PLANS, PREDICTED_LATENCY, DEAD_LETTERS, *PARTED)
        self._lines: dict[str, list[bytes]] = {name: [] for name in names}
        self._links: deque[tuple[float, SampleBlock, Arrays]] = deque()
        self._task_of: dict[int, str] = {}
        self._synced_s = 0.0
        self._written = self._dropped = 0
        self._troubles: dict[str, str] = {}  # file or table → what is wrong with it now

    def state(self) -> tuple[int, int, tuple[str, ...]]:
        """(rows and lines written, dropped, what is wrong now)."""
        return self._written, self._dropped, tuple(self._troubles.copy().values())

    def add_block(self, block: SampleBlock, vm: Vm, predicted: Predicted) -> None:
        arrays, now_s = arrays_of(block), time.monotonic()
        self._task_of.update(zip(arrays.threads[0].tolist(), block.tasks, strict=True))
        self._segments["samples"].add(samples(block, arrays), now_s)
        self._segments["slots"].add(slots(block, arrays, vm, predicted), now_s)
        self._segments["user_metrics"].add(user_metrics(block), now_s)
        self._segments["latency"].add(latency(block, arrays), now_s)
        self._links.append((now_s, block, arrays))

    def add_rates(self, rates: dict[str, Any]) -> None:
        """One row of `rates`, as the loop tells it: of one source."""
        self._segments["rates"].add({name: [value] for name, value in rates.items()}, time.monotonic())

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
                self.attempt(f"old parts of {OUTPUT}", self._forget_output, 0)
                self.attempt("old traces", self._grown, 0)
        for table, segments in self._segments.items():
            if segments.rows and (final or segments.is_due(now_s)):
                self.attempt(table, lambda s=segments: self._segment(s), segments.rows)  # type: ignore[misc]
        if final or now_s - self._synced_s >= SYNC_S:
            self._synced_s = now_s
            self._sync()

    def _forget_output(self) -> None:
        for part in parts_of(self._directory / OUTPUT)[:-OUTPUT_PARTS]:
            part.unlink()

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
            self._segments["links"].add(links(block, arrays, self._tasks), at_s)

    def _tasks(self, threads: NDArray[np.int64]) -> list[str]:
        """Tasks of these threads; "" for one that never sent samples."""
        return [self._task_of.get(thread, "") for thread in threads.tolist()]
