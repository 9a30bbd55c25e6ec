"""A sink that keeps a list of what reached it: one line per row."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from headgate.topology_runtime.logic import Context

_encode = msgspec.json.Encoder().encode


class CollectToFile:
    """Appends each row (or its `key`: a position or a field's name) as a line of JSON to `path`.

    Threads and processes may share one file: O_APPEND keeps their lines apart. With `path` absent each
    thread writes `rows-<task>-<thread>.jsonl` in the task's own folder. A row that is replayed is
    there twice."""

    def __init__(self, path: str | None = None, key: str | int | None = None) -> None:
        self._path = path
        self._key = key
        self._fd = -1

    def open(self, context: Context) -> None:
        path = self._path or os.path.join(context.directory, f"rows-{context.task}-{context.thread}.jsonl")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __call__(self, row: Any) -> Any:
        value = row if self._key is None else row[self._key]
        line = _encode(value) + b"\n"
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"{self._path}: wrote {written} of {len(line)} bytes")  # a full disk
        return row

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
