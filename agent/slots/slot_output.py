"""What the slots of a VM say, read from their logs and told to the controller: what a log has is its buffer, so
lines wait there while the controller is away, or while there are too many of them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable

from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.output_messages import (
    DROPPED,
    LineBudget,
    OutputLine,
    OutputLines,
    lines_in,
    more,
)

READ_BYTES = 64 * 1024  # of a log, in one look
LINES_MOST = 2_000  # of them; more are that only where somebody writes next to nothing per line
BEHIND_MOST = 1 << 20  # bytes of a log that wait; of more, the last READ_BYTES stay
HALF_MOST = 16 * 1024  # bytes without an end of a line: they are a line
MESSAGE_LINES, MESSAGE_CHARS = 1_500, 128 * 1024  # then a message is full
LINES_A_SECOND, CHARS_A_SECOND = 2_000, 256 * 1024  # of a VM


class LogTail:
    """The lines that come to a log from now on. It may be cut, and a new one may take its place."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._at = 0
        self._half = b""
        self._open(at_end=True)

    def _open(self, at_end: bool) -> None:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self._at = os.fstat(self._fd).st_size if at_end else 0
        except FileNotFoundError:
            self._fd = -1

    def read(self, ended: bool) -> tuple[list[bytes], int]:
        """(whole lines, how many bytes had to be left out before them). ended: its process has, so half a line is one.
        Raises OSError."""
        if self._fd < 0:
            self._open(at_end=False)
            if self._fd < 0:
                return [], 0
        size, skipped = os.fstat(self._fd).st_size, 0
        if size < self._at:
            self._at, self._half = 0, b""  # it was cut
        if size - self._at > BEHIND_MOST:
            skipped, self._half = size - self._at - READ_BYTES, b""
            self._at += skipped
        data, lines = os.pread(self._fd, READ_BYTES, self._at), list[bytes]()
        if not data and self._is_another():
            os.close(self._fd)
            self._open(at_end=False)
            lines, self._half = [self._half], b""
            data = os.pread(self._fd, READ_BYTES, 0) if self._fd >= 0 else b""
        self._at += len(data)
        *whole, self._half = (self._half + data).split(b"\n")
        lines += whole
        if len(self._half) > HALF_MOST or (ended and not data and self._half):
            lines.append(self._half)
            self._half = b""
        return lines, skipped

    def _is_another(self) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class SlotOutput:
    """The logs of a VM's slots. `path`: of a slot's."""

    def __init__(
        self, vm: str, boot: int, slots: int, path: Callable[[int], str], disk: DiskTroubles
    ) -> None:
        self._vm, self._boot, self._disk = vm, boot, disk
        self._tails = deque((slot, LogTail(path(slot))) for slot in range(slots))
        self._budget = LineBudget(LINES_A_SECOND, CHARS_A_SECOND)

    def take(self, now_ns: int, wall_ns: int, living: Iterable[int]) -> OutputLines | None:
        """Some of what is new; None: nothing, or it is too much for now. living: slots that have a worker."""
        self._budget.refill(now_ns)
        lines: list[OutputLine] = []
        alive = set(living)
        for slot, tail in self._tails:
            if not self._has_room(lines):
                break
            with self._disk.writing("a slot's log", str(slot)):
                lines += self._lines_of(slot, tail, wall_ns, slot not in alive)
        self._tails.rotate(-1)  # another slot is the first one next time
        for line in lines:
            self._budget.take(len(line.text))
        return OutputLines(self._vm, self._boot, tuple(lines)) if lines else None

    def _has_room(self, lines: list[OutputLine]) -> bool:
        chars = sum(len(line.text) for line in lines)
        left = min(self._budget.lines - len(lines), self._budget.chars - chars)
        return left > 0 and len(lines) < MESSAGE_LINES and chars < MESSAGE_CHARS

    def _lines_of(self, slot: int, tail: LogTail, wall_ns: int, ended: bool) -> list[OutputLine]:
        raw, skipped = tail.read(ended)
        left_out = [f"… {skipped:,} bytes more"] * bool(skipped)
        lines = [line for one in raw[:LINES_MOST] for line in lines_in(one, slot, wall_ns)]
        if len(raw) > LINES_MOST:
            left_out.append(more(len(raw) - LINES_MOST))
        return [*(OutputLine(wall_ns, slot, "", 0, DROPPED, text) for text in left_out), *lines]

    def close(self) -> None:
        for _, tail in self._tails:
            tail.close()
