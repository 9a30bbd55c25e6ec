"""The logs of processes that somebody keeps running: bounded files, and streams that no disk can break.

A daemon's stdout and stderr are a file. On a full disk a plain `print` raises: in our code that would end the
daemon, in a user's task it would cost a row. So what the file does not take is dropped, counted and said in it
later. The file's owner bounds it: `open_log` at every start, `trim` while the process runs.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

KEPT_BYTES = 1 << 20  # at a start a longer log becomes `….1`
MOST_BYTES = 16 << 20  # a longer one is cut while its process runs: its last MiB becomes `….1`


class LogStream(io.FileIO):
    """A file descriptor to write to that never fails. dropped_bytes: not taken since the last that were."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "wb", closefd=False)
        self.dropped_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            if self.dropped_bytes:
                self._tell()
            self._write_all(view)
        except OSError:  # counted, and told once it works again: there is nowhere to say it now
            self.dropped_bytes += len(view)
        return len(view)

    def _write_all(self, view: memoryview) -> None:
        while view:  # a write may be short without an error
            written = super().write(view)
            if written is None:
                raise BlockingIOError("a pipe that is full")
            view = view[written:]

    def _tell(self) -> None:
        self._write_all(memoryview(f"\n[{self.dropped_bytes} bytes of log: the disk took none]\n".encode()))
        self.dropped_bytes = 0


def hold_out() -> None:
    """From now on nothing printed by this process raises. Terminals stay as they are."""
    sys.stdout, sys.stderr = _held(sys.stdout, False), _held(sys.stderr, True)


def _held(stream: TextIO, by_line: bool) -> TextIO:
    try:
        stream.flush()
        fd = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return stream  # no file: nothing that fills
    if os.isatty(fd):
        return stream
    raw = io.BufferedWriter(LogStream(fd))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=by_line)


def open_log(path: str) -> int:
    """A descriptor that appends to `path`; what is longer than 1 MiB becomes `path`.1 first. Where no log can
    be had, one that drops everything: a process without a log is better than none."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path) > KEPT_BYTES:
            os.replace(path, f"{path}.1")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def trim(path: str) -> None:
    """Cut a log that has grown beyond 16 MiB; its process appends on from the new end. Raises OSError."""
    if not os.path.exists(path) or os.path.getsize(path) <= MOST_BYTES:
        return
    try:
        with open(path, "rb") as file:
            file.seek(-KEPT_BYTES, os.SEEK_END)
            tail = file.read(KEPT_BYTES)
        with open(f"{path}.1", "wb") as kept:
            kept.write(tail)
    finally:
        os.truncate(path, 0)
