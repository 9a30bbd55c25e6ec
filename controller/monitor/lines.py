"""A file of JSON lines that only grows and whose lines are always whole."""

from __future__ import annotations

import os
from pathlib import Path

TAIL_BYTES = 1 << 20  # read back at a time in search of the last whole line


class LineFile:
    """Appends lines to `path`; what a crash left of a line at its end is cut off on opening.

    `truncated`: bytes that were. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        self._whole = _whole_lines(self._fd, size)
        self.truncated = size - self._whole
        if self.truncated:
            os.ftruncate(self._fd, self._whole)

    def append(self, lines: bytes) -> None:
        """Add whole lines. Raises OSError when the disk does not take them all: none is there then."""
        at, left = self._whole, memoryview(lines)
        try:
            while left:
                written = os.pwrite(self._fd, left, at)
                at, left = at + written, left[written:]
        except OSError:
            os.ftruncate(self._fd, self._whole)
            raise
        self._whole = at

    def sync(self) -> None:
        """Make what was added durable."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _whole_lines(fd: int, size: int) -> int:
    """How many bytes of the file are whole lines."""
    end = size
    while end > 0:
        begin = max(0, end - TAIL_BYTES)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
