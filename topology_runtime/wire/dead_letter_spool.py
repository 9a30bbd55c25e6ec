"""Dead letters of one worker on their way to its agent, and on its VM's disk: a row is acked only once its letter is
there, so a worker that is killed then takes none along, and an agent neither: what workers left stays until the
controller has it.

The page cache keeps what was written, whoever is killed. Letters are numbered from 0 on in a worker's life. Two files
at most: another is started when one is large enough, and what was in the one before was told long ago.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Container
from itertools import islice

import msgspec

from headgate.topology_runtime.platform.disk import (
    DiskTroubles,
    append_whole,
    open_plain,
    text_of,
    write_note,
)
from headgate.topology_runtime.wire.dead_letter_messages import DeadLetter, weighed

FOLDER = "letters"
RUN_NOTE = "run"  # holds the name of the run whose dead letters are here
FILE_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")  # slot, incarnation, number of the first dead letter in it
PART_BYTES = 1 << 20
WHOLE_MOST = 1000  # that wait to be told; of more only what they are of

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DeadLetter).decode


class LettersKept:
    """The worker's side. `put`: any thread; `take`: the main thread."""

    def __init__(self, directory: str, slot: int, incarnation: int, disk: DiskTroubles) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._who = slot, incarnation
        self._disk = disk
        self._lock = threading.Lock()
        self._waiting: deque[DeadLetter] = deque()
        self._number = self._size = 0
        self._fd = -1
        self._paths: list[str] = []

    @property
    def empty(self) -> bool:
        return not self._waiting

    def put(self, letter: DeadLetter) -> None:
        """In a flood most come without row and traceback: memory is bounded."""
        with self._lock:
            if len(self._waiting) >= WHOLE_MOST:
                letter = letter.bare()
            with self._disk.writing("dead letters", self._folder):
                self._write(_encode(letter) + b"\n")
            self._waiting.append(letter)
            self._number += 1

    def take(self, most: int) -> tuple[DeadLetter, ...]:
        """At most so many, and as many as a message may have."""
        count = weighed(list(islice(self._waiting, most)), most)
        return tuple(self._waiting.popleft() for _ in range(count))

    def _write(self, line: bytes) -> None:
        if self._fd < 0 or self._size >= PART_BYTES:
            self._next()
        append_whole(self._fd, line)
        self._size += len(line)

    def _next(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, "-".join(map(str, (*self._who, self._number))))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, 0
        self._paths.append(path)
        if len(self._paths) > 2:
            os.remove(self._paths.pop(0))


def left_by(directory: str, slot: int, incarnation: int, told: int) -> tuple[DeadLetter, ...]:
    """What a worker that is no more has kept and not told; `told`: how many it has."""
    try:
        return _left(directory, (slot, incarnation), told)
    except (OSError, msgspec.DecodeError) as error:
        _cannot_read(directory, error)
        return ()


def left_before(directory: str, run: str) -> tuple[DeadLetter, ...]:
    """What workers of an earlier life of the agent have kept in this run, told or not. Those of another run, in the
    same folder, go."""
    folder = os.path.join(directory, FOLDER)
    note = os.path.join(folder, RUN_NOTE)
    found: list[DeadLetter] = []
    try:
        if text_of(note) != run:
            forget(directory, ())
            os.makedirs(folder, exist_ok=True)
            write_note(note, run)
        for who in sorted({(int(match[1]), int(match[2])) for match in _files(directory)}):
            found += left_by(directory, *who, told=0)
    except OSError as error:
        _cannot_read(directory, error)
    return tuple(found)


def _cannot_read(directory: str, error: Exception) -> None:
    import logging  # 2 MB, which a worker does without

    logging.getLogger("headgate.agent").error("dead letters under %s: %s", directory, error)


def forget(directory: str, living: Container[tuple[int, int]]) -> None:
    """Remove the files of all workers but these (slot, incarnation). Raises OSError."""
    for match in _files(directory):
        if (int(match[1]), int(match[2])) not in living:
            os.remove(os.path.join(directory, FOLDER, match[0]))


def _left(directory: str, who: tuple[int, int], told: int) -> tuple[DeadLetter, ...]:
    found: list[DeadLetter] = []
    for match in _files(directory):
        if (int(match[1]), int(match[2])) == who:
            with open_plain(os.path.join(directory, FOLDER, match[0])) as file:
                lines = file.read().split(b"\n")[:-1]  # a torn line was never acked
            found += [_decode(line) for line in lines[max(0, told - int(match[3])) :]]
    return tuple(found)


def _files(directory: str) -> list[re.Match[str]]:
    """By the numbers of their first dead letters."""
    folder = os.path.join(directory, FOLDER)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(filter(None, map(FILE_NAME.fullmatch, names)), key=lambda match: int(match[3]))
