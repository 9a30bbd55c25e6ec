"""Reads on in the logs of finished rows that workers append to, and hands them on in chunks.

Rules:
 1. No byte is skipped: a chunk begins where the one before it ended, and only whole records count.
 2. A chunk once made is the same for ever: its end is noted on disk before it is sent. So it can be sent
    again, after a lost connection, to a new controller or by a new agent, and whoever gets it knows by
    (task, thread, incarnation, offset) whether it was there before.
 3. Chunks of one log are sent in order; one that is sent again is followed by those after it.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from topology_runtime.messages import FinishedRuns

FOLDER = "finished"
LOG_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.log")
RECORD = struct.Struct("<5q")
RAW_MOST_BYTES = 1024 * 1024 // RECORD.size * RECORD.size  # read for one block: bounds its cost
MERGED_MOST_BYTES = 256 * 1024  # in one block
RECENT_MOST = 4096  # chunks sent lately, to be sent again if the connection turns out to be lost


@dataclass(slots=True)
class Log:
    """One log. ends: where its chunks end. next: the chunk to send next (len(ends): not made yet)."""

    path: str
    task_number: int
    thread: int
    incarnation: int
    ends: array[int] = field(default_factory=lambda: array("q"))
    next: int = 0

    def begin(self, chunk: int) -> int:
        return self.ends[chunk - 1] if chunk else 0


class FinishedTail:
    """All logs under `directory`/finished."""

    def __init__(self, directory: str) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._logs: dict[str, Log] = {}
        self._recent: deque[tuple[int, Log, int]] = deque(maxlen=RECENT_MOST)

    def take(self, names: Sequence[str], now_ns: int) -> tuple[FinishedRuns, ...]:
        """What is to be sent now, bounded; call again when `behind`. `names`: of tasks by number."""
        self._find()
        raw_left, merged_left = RAW_MOST_BYTES, MERGED_MOST_BYTES
        taken: list[FinishedRuns] = []
        for log in self._logs.values():
            while raw_left > 0 and merged_left > 0:
                chunk = self._chunk(log, min(raw_left, merged_left))
                if chunk is None:
                    break
                offset, raw = chunk
                runs = merged(raw)
                raw_left -= len(raw)
                merged_left -= len(runs)
                self._recent.append((now_ns, log, log.next))
                log.next += 1
                name = names[log.task_number]
                taken.append(FinishedRuns(name, log.thread, log.incarnation, offset, runs))
        return tuple(taken)

    def behind(self) -> bool:
        """Is there more to send?"""
        self._find()
        return any(
            log.next < len(log.ends) or _whole(log) > log.begin(log.next) for log in self._logs.values()
        )

    def rewind(self, since_ns: int | None = None) -> None:
        """Send again what was sent since then; everything when no time is given."""
        if since_ns is None:
            for log in self._logs.values():
                log.next = 0
            self._recent.clear()
        while self._recent and since_ns is not None and self._recent[-1][0] >= since_ns:
            _, log, chunk = self._recent.pop()
            log.next = min(log.next, chunk)

    # ── logs ────────────────────────────────────────────────────────────────────────────────────

    def _find(self) -> None:
        """Logs that have appeared, with the chunks that an agent before us made."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # no sink has run here yet
        for name in sorted(names):
            match = LOG_NAME.fullmatch(name)
            if match is not None and name not in self._logs:
                path = os.path.join(self._folder, name)
                self._logs[name] = Log(path, int(match[1]), int(match[2]), int(match[3]), _ends(path))

    def _chunk(self, log: Log, most: int) -> tuple[int, bytes] | None:
        """(offset, bytes) of the next chunk, made now if need be."""
        begin = log.begin(log.next)
        if log.next == len(log.ends):
            end = min(_whole(log), begin + max(RECORD.size, most // RECORD.size * RECORD.size))
            if end <= begin:
                return None
            _note_end(log, end)
        with open(log.path, "rb") as file:
            file.seek(begin)
            return begin, file.read(log.ends[log.next] - begin)


def _whole(log: Log) -> int:
    """Bytes of whole records in a log now."""
    return os.stat(log.path).st_size // RECORD.size * RECORD.size


def _ends_path(path: str) -> str:
    return path.removesuffix(".log") + ".chunks"


def _ends(path: str) -> array[int]:
    """Chunk ends noted by an earlier agent; a torn last one never was sent."""
    ends = array("q")
    try:
        with open(_ends_path(path), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return ends
    ends.frombytes(data[: len(data) // ends.itemsize * ends.itemsize])
    return ends


def _note_end(log: Log, end: int) -> None:
    """Rule 2. Raises OSError when the disk is full: nothing is sent then, and nothing is lost."""
    with open(_ends_path(log.path), "r+b" if len(log.ends) else "wb") as file:
        file.seek(len(log.ends) * log.ends.itemsize)
        file.write(array("q", (end,)).tobytes())
    log.ends.append(end)


def merged(raw: bytes) -> bytes:
    """Records (source number, partition, first position, count, variant), contiguous ones made one."""
    runs: list[list[int]] = []
    last: dict[tuple[int, int, int], list[int]] = {}
    for source, partition, first, count, variant in RECORD.iter_unpack(raw):
        run = last.get((source, partition, variant))
        if run is not None and run[2] + run[3] == first:
            run[3] += count
        else:
            last[source, partition, variant] = run = [source, partition, first, count, variant]
            runs.append(run)
    return array("q", [word for run in runs for word in run]).tobytes()
