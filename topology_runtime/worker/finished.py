"""The log of rows finished at a sink: five int64 a run, appended to a file of this thread's own.

It survives a killed worker (the page cache keeps what `write` took), so that duplicates can be counted
exactly: rows in all logs − distinct (source, partition, position, variant). The agent reads it on.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable

from topology_runtime.worker.flow import Finished

FOLDER = "finished"
WORDS_PER_RUN = 5


def log_name(task_number: int, thread: int, incarnation: int) -> str:
    """`<task number>-<thread>-<incarnation>.log`"""
    return f"{task_number}-{thread}-{incarnation}.log"


class FinishedLog:
    """Append-only; one writer."""

    def __init__(self, directory: str, task_number: int, thread: int, incarnation: int) -> None:
        folder = os.path.join(directory, FOLDER)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, log_name(task_number, thread, incarnation))
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, finished: Iterable[Finished]) -> None:
        words = array("q")
        for root, offset, count, variant in finished:
            words.extend((root.source, root.partition, root.position + offset, count, variant))
        data = words.tobytes()
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        os.close(self._fd)
