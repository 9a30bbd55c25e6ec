"""Reads on in the logs of finished rows that workers append to (topology_runtime/worker/finished.py).

No byte is skipped, and only whole records are sent, as they are: whoever gets them knows by (task, thread,
incarnation, offset) what it had before. So whenever bytes may have been lost (a silent connection, a new
controller, a new agent) they are simply sent again.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from topology_runtime.messages import FinishedRuns

FOLDER, WORDS_PER_RUN = "finished", 5  # as the worker has them, whose module imports all of its data plane
LOG_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.log")
RECORD_BYTES = WORDS_PER_RUN * 8
RUN_NOTE = "run"  # holds the name of the run whose logs are here
MOST_BYTES = 256 * 1024 // RECORD_BYTES * RECORD_BYTES  # in one block: a quarter of what a message may have
RECENT_MOST = 4096  # pieces sent lately, to be sent again if the connection turns out to be lost


@dataclass(slots=True)
class Log:
    """One log; up to byte `sent` it has been sent."""

    path: str
    task_number: int
    thread: int
    incarnation: int
    sent: int = 0

    def waiting(self) -> int:
        """Bytes of whole records that are still to be sent; none when somebody removed the log."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return 0
        return size // RECORD_BYTES * RECORD_BYTES - self.sent

    def read(self, most: int) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(self.sent)
            return file.read(most)


class FinishedTail:
    """All logs under `directory`/finished."""

    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._logs: dict[str, Log] = {}
        self._recent: deque[tuple[int, Log, int]] = deque(maxlen=RECENT_MOST)
        self._begun = self._noted = False

    def begin(self, run: str) -> None:
        """From now on logs are of this run: those of another one, in the same folder, are removed. Raises
        OSError when that cannot be noted; call again then."""
        if self._noted:
            return
        note = os.path.join(self._folder, RUN_NOTE)
        os.makedirs(self._folder, exist_ok=True)
        if not self._begun and _text(note) != run:
            for name in os.listdir(self._folder):
                if LOG_NAME.fullmatch(name):
                    os.remove(os.path.join(self._folder, name))
        self._begun = True
        if _text(note) != run:
            with open(note, "w", encoding="utf-8") as file:
                file.write(run)
        self._noted = True

    def take(self, names: Sequence[str], now_ns: int) -> tuple[FinishedRuns, ...]:
        """What is to be sent now, bounded; call again when `behind`. `names`: of tasks by number."""
        self._find()
        left = MOST_BYTES
        taken: list[FinishedRuns] = []
        for log in self._logs.values():
            size = min(left, log.waiting())
            if size > 0:
                runs = log.read(size)
                name = names[log.task_number]
                taken.append(FinishedRuns(name, log.thread, log.incarnation, log.sent, runs))
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

    def _find(self) -> None:
        """Logs that have appeared, those of earlier workers and agents too."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # no sink has run here yet
        for name in sorted(names):
            match = LOG_NAME.fullmatch(name)
            if match is not None and name not in self._logs:
                path = os.path.join(self._folder, name)
                self._logs[name] = Log(path, int(match[1]), int(match[2]), int(match[3]))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
