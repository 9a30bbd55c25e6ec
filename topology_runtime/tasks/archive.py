"""Writes rows to files in batches, each file whole or not there."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec

from headgate.topology_runtime.logic import Context, Hold

_encode = msgspec.json.Encoder().encode


class Archive(Hold):
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
