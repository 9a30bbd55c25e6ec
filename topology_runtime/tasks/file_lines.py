"""A file of events, one per line, read again from the start when it ends.

Rows are (id, line). The id is the global position of the event (p·n + k at position p of partition k
of n), so that a line that comes again is another event.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.logic import Context, Source

CHUNK_BYTES = 1 << 20
LINE_MOST_BYTES = 1 << 18  # a quarter of a frame (frames are at most 1 MiB)


class FileLines(Source):
    """Lines of a text file (UTF-8; what is not is replaced), without empty ones. Any position is found
    through an index of the lines' places, built once per thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._first, self._stride = 0, 1
        self._fd = -1

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._starts, self._lengths = index_lines(self._fd)
        except OSError as error:
            raise InvalidInput(f"cannot read the events {self._path}", cause=error.strerror) from error
        if not self._starts:
            raise InvalidInput(f"cannot read the events {self._path}", cause="it has no lines")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, position: int, limit: int) -> Sequence[tuple[int, str]]:
        if self._fd < 0:
            self._open()
        first = self._first + position * self._stride
        return [
            (number, self._line(number))
            for number in range(first, first + limit * self._stride, self._stride)
        ]

    def _line(self, number: int) -> str:
        place = number % len(self._starts)
        return os.pread(self._fd, self._lengths[place], self._starts[place]).decode("utf-8", "replace")


def index_lines(fd: int) -> tuple[array[int], array[int]]:
    """(start, length in bytes) of every line that is not empty; longer ones end at `LINE_MOST_BYTES`."""
    starts, lengths = array("Q"), array("L")
    at = begin = 0
    rest = b""
    while chunk := os.pread(fd, CHUNK_BYTES, at):
        at += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _note(starts, lengths, begin, line)
            begin += len(line) + 1
    _note(starts, lengths, begin, rest)
    return starts, lengths


def _note(starts: array[int], lengths: array[int], begin: int, line: bytes) -> None:
    bare = line.rstrip(b"\r")
    if bare.strip():
        starts.append(begin)
        lengths.append(min(len(bare), LINE_MOST_BYTES))
