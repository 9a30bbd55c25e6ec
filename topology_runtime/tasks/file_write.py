"""Writes to a file what many rows brought: a task of memory and disk (paper 0, section 5.2)."""

from __future__ import annotations

import os
from typing import TypeVar

from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.tasks.event_number import number_of

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
