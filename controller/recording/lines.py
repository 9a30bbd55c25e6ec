"""Files of JSON lines that only grow and whose lines are always whole; one of them may be in parts."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from headgate.topology_runtime.line_parts import number_of, parts_of

TAIL_BYTES = 1 << 20  # read back at a time in search of the last whole line
PART_BYTES = 16 * 1024**2
COPY_BYTES = 1 << 20  # compressed at a time
QUICK = 1  # the level of compression: a third of the bytes in a tenth of a second per part


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

    @property
    def size_bytes(self) -> int:
        return self._whole

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


class PartedLines:
    """A `LineFile` in parts: the newest lines are in `path`; when they are PART_BYTES, `put_aside` makes a
    part of them (`parts_of`). Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = LineFile(path)
        self.truncated = self._file.truncated
        for unfinished in path.parent.glob(f"_{path.stem}-*"):
            unfinished.unlink(missing_ok=True)  # of a controller that was killed while it compressed

    @property
    def is_due(self) -> bool:
        return self._file is not None and self._file.size_bytes >= PART_BYTES

    def append(self, lines: bytes) -> None:
        """As `LineFile.append`."""
        if self._file is None:
            self._file = LineFile(self._path)
        self._file.append(lines)

    def put_aside(self) -> None:
        """Begin a new part, and compress those before. What cannot be compressed stays as it is until the
        next time."""
        if self._file is not None:
            self._file.sync()
            os.rename(self._path, self._path.with_name(f"{self._path.stem}-{self._next():06d}.jsonl"))
            self._file.close()
            self._file = None
        for part in self._path.parent.glob(f"{self._path.stem}-*.jsonl"):
            _compress(part)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _next(self) -> int:
        return max((number_of(part) for part in parts_of(self._path)), default=0) + 1


def _compress(part: Path) -> None:
    """`part` → `part.gz`, whole or not at all."""
    unfinished = part.with_name(f"_{part.name}.gz")
    try:
        with open(part, "rb") as plain, open(unfinished, "wb") as file:
            with gzip.open(file, "wb", QUICK) as packed:
                shutil.copyfileobj(plain, packed, COPY_BYTES)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, part.with_name(f"{part.name}.gz"))
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    part.unlink()


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
