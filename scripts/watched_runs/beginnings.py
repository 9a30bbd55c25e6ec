"""Who takes the time in which a run begins: its processes, when each was there and what CPU it took until a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROLES = {
    "topology_runtime.worker": "worker",
    "topology_runtime.loading": "loader of the topology",
    "own_user": "try-out of the tasks' user",
    "agent run": "agent",
    "controller run": "controller",
    " up ": "up",
}
LOOK_S = 0.004


@dataclass
class Began:
    """at_s: when it was seen first, after the run's start (0.004 s late at most). cpu_s: by its CPU clock."""

    pid: int
    at_s: float
    role: str = "other"
    cpu_s: float = 0.0


def watch_beginning(pid: int, over: Callable[[], bool], timeout_s: float = 30.0) -> tuple[float, list[Began]]:
    """Until it is `over`: how long that took, and all processes below `pid` (itself the first) meanwhile."""
    began_s, seen = time.monotonic(), dict[int, Began]()
    while not over():
        now_s = time.monotonic() - began_s
        if now_s > timeout_s:
            raise TimeoutError(f"not begun within {timeout_s:g} s")
        for each in below(pid):
            known = seen.setdefault(each, Began(each, now_s))
            known.role = role_of(each) or known.role  # before it runs its own program it is like its parent
            known.cpu_s = cpu_s_of(each) or known.cpu_s
        time.sleep(LOOK_S)
    return time.monotonic() - began_s, list(seen.values())


def below(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for each in found:
        for file in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, file.read_text("ascii").split())
            except OSError:
                continue  # it has ended
    return found


def role_of(pid: int) -> str:
    """By its command line; nothing when it is no more, or none of ours."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
    return next((role for sign, role in ROLES.items() if sign in words), "")


def cpu_s_of(pid: int) -> float:
    """CPU of all its threads, those that have ended too; 0 when it is no more."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # a process's CPU clock, as clock_getcpuclockid makes it
    except OSError:
        return 0.0
