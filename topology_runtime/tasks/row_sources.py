"""Numbers for trying things out: a source that can be read again from any position."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence

from headgate.topology_runtime.api.logic import Context, Exhausted, Source
from headgate.topology_runtime.errors import InvalidInput


class Numbered(Source):
    """Partition k of n has the numbers k, k + n, k + 2 n …"""

    _first, _stride = 0, 1

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions

    def numbers(self, position: int, limit: int) -> range:
        first = self._first + position * self._stride
        return range(first, first + limit * self._stride, self._stride)


class Counter(Numbered):
    """0, 1, 2 …: with n partitions, partition k gives k, k + n, k + 2 n … Ends before `limit` if given."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit

    def read(self, position: int, limit: int) -> Sequence[int]:
        numbers = self.numbers(position, limit)
        if self._limit is None:
            return numbers
        if numbers.start >= self._limit:
            raise Exhausted
        return range(numbers.start, min(numbers.stop, self._limit), numbers.step)


# ── A file of events, one per line, read again from the start when it ends ──────────────────────────────
#
# Rows are (id, line). The id is the global position of the event (p·n + k at position p of partition k
# of n), so that a line that comes again is another event.

CHUNK_BYTES = 1 << 20
LINE_MOST_BYTES = 1 << 18  # a quarter of a frame (frames are at most 1 MiB)


class FileLines(Numbered):
    """Lines of a text file (UTF-8; what is not is replaced), without empty ones. Any position is found
    through an index of the lines' places, built once per thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def open(self, context: Context) -> None:
        super().open(context)
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
        return [(number, self._line(number)) for number in self.numbers(position, limit)]

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
