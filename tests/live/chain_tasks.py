"""User code of the tests of chained threads: each notes which thread called it, for which row. Imported in
workers only."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

from headgate.topology_runtime.logic import Context, any_thread


class Noting:
    """A line for each call: the row's id and the thread that calls."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, context: Context) -> None:
        path = os.path.join(self.folder, f"{context.task}-{os.getpid()}.txt")
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        os.write(self.fd, f"{row['id']} {threading.get_native_id()}\n".encode("ascii"))
        return row


@any_thread
class Anywhere(Noting):
    """May be called by any thread."""


class Bound(Noting):
    """Holds what only its own thread may use."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.base = sqlite3.connect(":memory:")

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        self.base.execute("select 1").fetchone()
        return super().__call__(row)


def costly(row: dict[str, int]) -> dict[str, int]:
    """Two tenths of a millisecond of CPU."""
    until_ns = time.thread_time_ns() + 200_000
    while time.thread_time_ns() < until_ns:
        pass
    return row
