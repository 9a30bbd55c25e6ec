"""What one thread has done, written where it outlives the worker: counted in the meter, finished rows in their log,
dead letters on their way to the controller.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from collections.abc import Callable, Sequence

from headgate.topology_runtime.latency.latency_buckets import bucket_of
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.messages import DeadLetter
from headgate.topology_runtime.worker.calls.user_code import Finished, ToRecord
from headgate.topology_runtime.worker.meters import meter as mt

# ── The log of rows finished at a sink: five int64 a run, appended to a file of this thread's own ───
#
# It survives a killed worker (the page cache keeps what `write` took), so that duplicates can be counted
# exactly: rows in all logs − distinct (source, partition, position, variant). The agent reads it on. It goes
# on in another file when one is large enough, named after where it begins, so that the agent can throw away
# what nobody needs any more. What a full disk does not take is dropped and counted: duplicates are then "at
# least" so many, and tuples go on.

FOLDER = "finished"
WORDS_PER_RUN = 5
RUN_BYTES = WORDS_PER_RUN * 8
PART_BYTES = 1 << 18
WHAT = "the log of finished rows"


def log_name(task_number: int, thread: int, incarnation: int, begin: int = 0) -> str:
    """`<task number>-<thread>-<incarnation>.log`; of a part that begins at a later byte, `…-<byte>.log`."""
    name = f"{task_number}-{thread}-{incarnation}"
    return f"{name}-{begin}.log" if begin else f"{name}.log"


class FinishedLog:
    """Append-only; one writer. dropped: rows that the disk did not take."""

    def __init__(
        self, directory: str, task_number: int, thread: int, incarnation: int, disk: DiskTroubles
    ) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._name = task_number, thread, incarnation
        self._what = f"{WHAT} of thread {thread}"
        self._disk = disk
        self._fd = -1
        self._begin = 0  # where the present part begins
        self._size = 0  # bytes of whole runs in it
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
        if self._size >= PART_BYTES:
            self.close()
            self._begin, self._size = self._begin + self._size, 0

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, log_name(*self._name, self._begin))

    def _open(self) -> None:
        if self._fd < 0:
            os.makedirs(self._folder, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_SH)  # until it is closed, also by this process's death
            self._size = os.fstat(self._fd).st_size // RUN_BYTES * RUN_BYTES

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ThreadRecords:
    """`at`: the first word of the thread's meter record. `sink`: the log of its finished rows."""

    def __init__(
        self, words: memoryview, at: int, letters: Callable[[DeadLetter], None], sink: FinishedLog
    ) -> None:
        self._words, self._at, self._letters, self._sink = words, at, letters, sink

    @property
    def unlogged(self) -> int:
        """Finished rows of which there is no log."""
        return self._sink.dropped

    def write(self, done: ToRecord, holding: int) -> None:
        self._words[self._at + mt.TUPLES_OUT] = done.tuples_out
        self._words[self._at + mt.HELD_ROWS] = holding
        for letter in done.letters:
            self._letters(letter)

    def begun(self, rows: int) -> None:
        self._words[self._at + mt.UNLOGGED] = rows

    def log(self, finished: list[Finished]) -> None:
        if not finished:
            return
        words, at, now_ns = self._words, self._at, wall_ns()
        for root, _, count, _ in finished:
            words[at + mt.E2E + bucket_of(max(0, now_ns - root.intended_ns))] += count
        self._sink.append(finished)

    def close(self) -> None:
        self._sink.close()
