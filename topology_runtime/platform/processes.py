"""What the kernel says of a process, read from /proc; None or 0 when it is gone."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def call(name: str, *arguments: object) -> int:
    """A function of the C library that Python lacks. Raises OSError when it answers with less than 0."""
    answer: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return answer


def prctl(what: int, value: int) -> int:
    """Raises OSError."""
    return call("prctl", what, *map(ctypes.c_ulong, (value, 0, 0, 0)))


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


def rss_bytes_of_all(pid: int) -> int:
    """Of a process and of those that it and they started."""
    found, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        found += rss_bytes(one)
        for tid in threads(one):
            data = read(f"/proc/{one}/task/{tid}/children")
            waiting += map(int, data.split()) if data else ()
    return found


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


# ── Processes end with the process that owns them, however that one dies (promise P9) ───────────────────

PR_SET_PDEATHSIG = 1


def die_with(owner: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal `number` when our parent `owner` dies; exit at once if it is dead already.

    The signal comes when the *thread* that started us ends, and does not pass on to our own children.
    Where there is no prctl, look at `orphaned` from time to time."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, number)
    if orphaned(owner):
        sys.exit(0)


def orphaned(owner: int) -> bool:
    """Is our parent no longer `owner`?"""
    return os.getppid() != owner


# ── Variables whose values nobody sees in /proc/PID/environ (`ps e`) ────────────────────────────────────
#
# That file shows the memory into which the kernel put a process's first environment. Where these begin and end is in
# /proc/PID/stat. Before they are overwritten Python's own copy is set again, so that this process and those that it
# starts have the values as before.

ENVIRONMENT_BEGINS, ENVIRONMENT_ENDS = 47, 48  # of the fields behind the name


def hide_variables(names: Iterable[str]) -> None:
    """From now on stars stand there for their values."""
    wanted = {name.encode() for name in names if name in os.environ}
    data = read("/proc/self/stat") if wanted else None
    if not data:
        return
    numbers = data[data.rindex(b")") + 2 :].split()
    begin, end = int(numbers[ENVIRONMENT_BEGINS]), int(numbers[ENVIRONMENT_ENDS])
    for word in ctypes.string_at(begin, end - begin).split(b"\0"):
        name, equals, value = word.partition(b"=")
        if equals and name in wanted and value.strip(b"*"):
            os.environb[name] = os.environb[name]
            ctypes.memset(begin + len(name) + 1, ord("*"), len(value))
        begin += len(word) + 1


# ── Points at which a process can be made to die, for tests of what a crash does exactly there ───
#
# Off unless HEADGATE_FAILPOINTS names a folder. In it a file named like a point arms that point from the
# epoch on that the file holds: the first process to reach it renames the file to NAME.hit and kills itself.

FOLDER = os.environ.get("HEADGATE_FAILPOINTS", "")


def reach(point: str, epoch: int) -> None:
    """The enactment of this epoch is at this point."""
    if FOLDER:
        _die_if_armed(os.path.join(FOLDER, point), epoch)


def _die_if_armed(path: str, epoch: int) -> None:
    try:
        with open(path) as file:
            first = int(file.read())
        if epoch < first:
            return
        os.rename(path, f"{path}.hit")
    except FileNotFoundError:
        return  # not armed, or another process was first
    sys.stderr.write(f"headgate: failpoint {os.path.basename(path)}: process {os.getpid()} dies here\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
