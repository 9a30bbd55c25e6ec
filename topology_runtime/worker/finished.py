"""The log of rows finished at a sink: five int64 a run, appended to a file of this thread's own.

It survives a killed worker (the page cache keeps what `write` took), so that duplicates can be counted
exactly: rows in all logs − distinct (source, partition, position, variant). The agent reads it on.
What a full disk does not take is dropped and counted: duplicates are then "at least" so many, and tuples go on.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

from topology_runtime.disk import DiskTroubles
from topology_runtime.worker.flow import Finished

FOLDER = "finished"
WORDS_PER_RUN = 5
RUN_BYTES = WORDS_PER_RUN * 8
WHAT = "the log of finished rows"


def log_name(task_number: int, thread: int, incarnation: int) -> str:
    """`<task number>-<thread>-<incarnation>.log`"""
    return f"{task_number}-{thread}-{incarnation}.log"


class FinishedLog:
    """Append-only; one writer. dropped: rows that the disk did not take."""

    def __init__(
        self, directory: str, task_number: int, thread: int, incarnation: int, disk: DiskTroubles
    ) -> None:
        self._path = os.path.join(directory, FOLDER, log_name(task_number, thread, incarnation))
        self._what = f"{WHAT} of thread {thread}"
        self._disk = disk
        self._fd = -1
        self._size = 0  # bytes of whole runs
        self.dropped = 0

    def append(self, finished: Sequence[Finished]) -> None:
        """Log these; never raises OSError."""
        words = array("q")
        for root, offset, count, variant in finished:
            words.extend((root.source, root.partition, root.position + offset, count, variant))
        data = memoryview(words.tobytes())
        written = 0
        try:
            self._open()
            while data:
                done = os.pwrite(self._fd, data, self._size + written)
                written, data = written + done, data[done:]
            self._disk.works(self._what)
        except OSError as error:
            self.dropped += sum(count for _, _, count, _ in finished[written // RUN_BYTES :])
            self._disk.failed(self._what, self._path, error)
        self._size += written // RUN_BYTES * RUN_BYTES  # whole runs stay: the agent may have read them

    def _open(self) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size // RUN_BYTES * RUN_BYTES

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
