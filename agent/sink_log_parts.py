"""Reads on in the logs of finished rows that workers append to (topology_runtime/worker/finished.py).

No byte is skipped, and only whole records are sent, as they are: whoever gets them knows by (task, thread,
incarnation, offset) what it had before. So whenever bytes may have been lost (a silent connection, a new
controller, a new agent) they are simply sent again. What the controller has counted and kept for good is thrown
away, a whole part of a log at a time.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.topology_runtime.disk import open_plain, text_of, write_note
from headgate.topology_runtime.finished_kept import FinishedKept
from headgate.topology_runtime.messages import FinishedRuns

FOLDER, WORDS_PER_RUN = "finished", 5  # as the worker has them, whose module imports all of its data plane
LOG_NAME = re.compile(r"(\d+)-(\d+)-(\d+)(?:-(\d+))?\.log")
NUMBER_MOST = 1 << 62  # larger ones are of no log of ours: a task can make files there, too
RECORD_BYTES = WORDS_PER_RUN * 8
RUN_NOTE = "run"  # holds the name of the run whose logs are here
MOST_BYTES = 256 * 1024 // RECORD_BYTES * RECORD_BYTES  # in one block: a quarter of what a message may have
RECENT_MOST = 4096  # pieces sent lately, to be sent again if the connection turns out to be lost


@dataclass(slots=True)
class SinkLogPart:
    """A part of one log, from byte `begin` of it on; `sent` bytes of the part have been sent. highest: by
    (source number, partition), the highest position in those."""

    path: str
    task_number: int
    thread: int
    incarnation: int
    begin: int = 0
    sent: int = 0
    highest: dict[tuple[int, int], int] = field(default_factory=dict)

    def waiting(self) -> int:
        """Bytes of whole records that are still to be sent; none when somebody removed the log, or it is no file."""
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return 0
        size = status.st_size if stat.S_ISREG(status.st_mode) else self.sent
        return size // RECORD_BYTES * RECORD_BYTES - self.sent

    def read(self, most: int) -> bytes:
        with open_plain(self.path) as file:
            file.seek(self.sent)
            data = file.read(most)
        words = memoryview(data[: len(data) // RECORD_BYTES * RECORD_BYTES]).cast("q")
        for at in range(0, len(words), WORDS_PER_RUN):
            key, last = (words[at], words[at + 1]), words[at + 2] + words[at + 3] - 1
            self.highest[key] = max(last, self.highest.get(key, -1))
        return data

    def needless(self, counted: int, floors: Mapping[tuple[int, int], int]) -> bool:
        """Is all that was sent of it counted for good, and is there no more? counted: so many bytes of the whole
        log; floors: (source number, partition) → below which all is."""
        return (
            0 < self.sent <= counted - self.begin
            and not self.waiting()
            and all(last < floors.get(key, 0) for key, last in self.highest.items())
        )

    def remove(self) -> bool:
        """False while its worker may still write to it: it holds a lock for as long."""
        with open_plain(self.path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            os.remove(self.path)
        return True


class FinishedTail:
    """All logs under `directory`/finished."""

    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._logs: dict[str, SinkLogPart] = {}
        self._recent: deque[tuple[int, SinkLogPart, int]] = deque(maxlen=RECENT_MOST)
        self._begun = self._noted = False

    def begin(self, run: str) -> None:
        """From now on logs are of this run: those of another one, in the same folder, are removed. Raises
        OSError when that cannot be noted; call again then."""
        if self._noted:
            return
        note = os.path.join(self._folder, RUN_NOTE)
        os.makedirs(self._folder, exist_ok=True)
        if not self._begun and text_of(note) != run:
            for name in os.listdir(self._folder):
                if LOG_NAME.fullmatch(name):
                    os.remove(os.path.join(self._folder, name))
        self._begun = True
        if text_of(note) != run:
            write_note(note, run)
        self._noted = True

    def take(self, names: Sequence[str], now_ns: int) -> tuple[FinishedRuns, ...]:
        """What is to be sent now, bounded; call again when `behind`. `names`: of tasks by number."""
        self._find()
        left = MOST_BYTES
        taken: list[FinishedRuns] = []
        for log in self._logs.values():
            size = min(left, log.waiting())
            if size > 0 and log.task_number < len(names):
                runs = log.read(size)
                name = names[log.task_number]
                offset = log.begin + log.sent
                taken.append(FinishedRuns(name, log.thread, log.incarnation, offset, runs))
                self._recent.append((now_ns, log, log.sent))
                log.sent += size
                left -= size
        return tuple(taken)

    def behind(self) -> bool:
        """Is there more to send?"""
        self._find()
        return any(log.waiting() > 0 for log in self._logs.values())

    def rewind(self, since_ns: int | None = None) -> None:
        """Send again what was sent since then; everything when no time is given."""
        if since_ns is None:
            for log in self._logs.values():
                log.sent = 0
            self._recent.clear()
        while self._recent and since_ns is not None and self._recent[-1][0] >= since_ns:
            _, log, offset = self._recent.pop()
            log.sent = min(log.sent, offset)

    def trim(self, kept: FinishedKept, names: Sequence[str]) -> None:
        """Remove parts that the controller has counted for good and nobody writes to. Raises OSError."""
        ends = {(task, thread, boot): end for task, thread, boot, end in kept.logs}
        floors = {(source, partition): floor for source, partition, floor in kept.floors}
        for file, log in [one for one in self._logs.items() if one[1].task_number < len(names)]:
            counted = ends.get((names[log.task_number], log.thread, log.incarnation), 0)
            if log.needless(counted, floors) and log.remove():
                del self._logs[file]

    def _find(self) -> None:
        """Logs that have appeared, those of earlier workers and agents too."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # no sink has run here yet
        fresh = [match for name in names if (match := LOG_NAME.fullmatch(name)) and name not in self._logs]
        for match in sorted(fresh, key=lambda match: [int(number or 0) for number in match.groups()]):
            numbers = [int(number or 0) for number in match.groups()]
            if max(numbers) >= NUMBER_MOST:
                continue
            task, thread, incarnation, begin = numbers
            path = os.path.join(self._folder, match[0])
            self._logs[match[0]] = SinkLogPart(path, task, thread, incarnation, begin)
