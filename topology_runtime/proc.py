"""What the kernel says of a process, read from /proc; None or 0 when it is gone."""

from __future__ import annotations

import os
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """state: the kernel's letter (R S D T t Z …). cpu_ns: user and system time, in steps of 10 ms."""

    state: str
    cpu_ns: int


def read(path: str) -> bytes | None:
    """A small file of /proc; None when the process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return os.read(fd, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)


def stat(pid: int) -> Stat | None:
    data = read(f"/proc/{pid}/stat")
    if not data:
        return None
    fields = data[data.rindex(b")") + 2 :].split()  # the name before may hold anything, also brackets
    return Stat(fields[0].decode("ascii"), (int(fields[11]) + int(fields[12])) * TICK_NS)


def run_delay_ns(pid: int) -> int:
    """How long the main thread has waited for a CPU."""
    data = read(f"/proc/{pid}/schedstat")
    return int(data.split()[1]) if data else 0


def rss_bytes(pid: int) -> int:
    data = read(f"/proc/{pid}/statm")
    return int(data.split()[1]) * PAGE_BYTES if data else 0


def threads(pid: int) -> list[int]:
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


class Schedstat:
    """A thread's CPU time and run-delay, its file kept open: 0.7 µs a reading, in ns."""

    def __init__(self, pid: int, tid: int) -> None:
        self._last = (0, 0)
        try:
            self._fd = os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1  # the thread has ended, or no descriptor is free: it counts nothing

    def added(self) -> tuple[int, int]:
        """(CPU, run-delay) in ns since the last call, the first time since the thread began."""
        if self._fd < 0:
            return 0, 0
        try:
            fields = os.pread(self._fd, 64, 0).split()
        except ProcessLookupError:
            self.close()
            return 0, 0
        before, self._last = self._last, (int(fields[0]), int(fields[1]))
        return self._last[0] - before[0], self._last[1] - before[1]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
