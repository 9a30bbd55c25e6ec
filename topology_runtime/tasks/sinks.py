"""A sink that keeps a list of what reached it: one line per row."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from headgate.topology_runtime.api.logic import Context, Window
from headgate.topology_runtime.tasks.ready_made import number_of

_encode = msgspec.json.Encoder().encode


class CollectToFile:
    """Appends each row (or its `key`: a position or a field's name) as a line of JSON to `path`.

    Threads and processes may share one file: O_APPEND keeps their lines apart, and a line that a full disk or a
    kill cut short is ended before the next one. With `path` absent each thread writes
    `rows-<task>-<thread>.jsonl` in the task's own folder. A row that is replayed is there twice."""

    def __init__(self, path: str | None = None, key: str | int | None = None) -> None:
        self._path = path
        self._key = key
        self._fd = self._reading = -1
        self._end = 0  # of the file after this thread's last line

    def open(self, context: Context) -> None:
        path = self._path or os.path.join(context.directory, f"rows-{context.task}-{context.thread}.jsonl")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            self._reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self, row: Any) -> Any:
        value = row if self._key is None else row[self._key]
        line = _encode(value) + b"\n"
        if self._reading >= 0:
            end = os.lseek(self._fd, 0, os.SEEK_END)
            if end and end != self._end and os.pread(self._reading, 1, end - 1) != b"\n":
                line = b"\n" + line  # the last one is torn
            self._end = end + len(line)
        written = os.write(self._fd, line)
        if written != len(line):
            if self._reading >= 0 and os.lseek(self._fd, 0, os.SEEK_END) == self._end - len(line) + written:
                os.ftruncate(self._fd, self._end - len(line))  # half a number is a number, too
            raise OSError(f"{self._path}: wrote {written} of {len(line)} bytes")  # a full disk
        return row

    def close(self) -> None:
        for fd in {self._fd, self._reading} - {-1}:
            os.close(fd)
        self._fd = self._reading = -1


# ── Writes rows to files in batches, each file whole or not there ───────────────────────────────────────


class Archive(Window):
    """JSON lines, at most `rows` rows or `seconds` of them a file: written under a hidden name, then
    renamed, so that a reader never sees half a file. A row counts as done when its file is there.

    `directory`: where to; by default the task's own folder. `sync`: fsync each file, so that it
    survives a power cut too."""

    def __init__(
        self, directory: str | None = None, rows: int = 100, seconds: float = 1.0, sync: bool = False
    ) -> None:
        self._directory = directory
        self._rows = rows
        self._sync = sync
        self._name = f"{time.time_ns():x}"
        self._count = 0
        self.max_age_s = seconds

    def open(self, context: Context) -> None:
        self._directory = self._directory or context.directory
        self._name = f"{context.task}-{context.thread}-{time.time_ns():x}"
        os.makedirs(self._directory, exist_ok=True)

    def ready(self, key: Hashable, rows: Sequence[Any]) -> bool:
        return len(rows) >= self._rows

    def finish(self, key: Hashable, rows: Sequence[Any]) -> Iterable[Any]:
        data = b"".join([_encode(row) + b"\n" for row in rows])
        directory = self._directory or "."
        name = f"{self._name}-{self._count:06d}.jsonl"
        hidden = os.path.join(directory, f".{name}")
        with open(hidden, "wb") as file:
            file.write(data)
            if self._sync:
                file.flush()
                os.fsync(file.fileno())
        os.rename(hidden, os.path.join(directory, name))
        self._count += 1
        return ()


# ── Writes to a file what many rows brought: a task of memory and disk (paper 0, section 5.2) ───────────

Row = TypeVar("Row")


class FileWrite:
    """Gives each row on, and keeps `row_bytes` bytes for it; `rows` of them become a file.

    As in the paper, rows count as done before they are on the disk: those of a batch that is not full are
    lost with the worker (`archive:Archive` loses none). Files are `DIRECTORY/TASK-THREAD-n.txt`, by default in
    the task's own folder; after `files` of them the oldest is written over, so that the disk does not
    fill. `sync`: fsync each."""

    def __init__(
        self,
        directory: str | None = None,
        rows: int = 10_000,
        row_bytes: int = 100,
        files: int = 10,
        sync: bool = False,
    ) -> None:
        if min(rows, files) < 1 or row_bytes < 2:
            raise ValueError("rows and files: at least 1, row_bytes: at least 2")
        self._directory = directory or "."
        self._given = directory is not None
        self._rows, self._width, self._files, self._sync = rows, row_bytes - 1, files, sync
        self._name = "file"
        self._lines: list[str] = []
        self._count = 0

    def open(self, context: Context) -> None:
        if not self._given:
            self._directory = context.directory
        self._name = f"{context.task}-{context.thread}"
        os.makedirs(self._directory, exist_ok=True)

    def __call__(self, row: Row) -> Row:
        line = str(number_of(row)).ljust(self._width)[: self._width]
        if len(self._lines) + 1 < self._rows:
            self._lines.append(line)
        else:
            self._write([*self._lines, line])
        return row

    def close(self) -> None:
        if self._lines:
            self._write(self._lines)

    def _write(self, lines: list[str]) -> None:
        """A batch to its file. OSError: the batch is as before, without the row that made it full."""
        data = "\n".join([*lines, ""]).encode("ascii")
        path = os.path.join(self._directory, f"{self._name}-{self._count % self._files}.txt")
        with open(path, "wb") as file:
            file.write(data)
            if self._sync:
                file.flush()
                os.fsync(file.fileno())
        self._lines = []
        self._count += 1
