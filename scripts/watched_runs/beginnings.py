"""Who takes the time in which a run begins: its processes, when each was there and what CPU it took until a moment."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

import psutil

from watched_runs.trials import ROLES, Trial

SIGNS = {**ROLES, "loader": "headgate.topology_runtime.loading", "up": " up "}
LOOK_S = 0.01


@dataclass
class Began:
    """at_s: when it was seen first, after the run's start."""

    at_s: float
    role: str = "other"
    cpu_s: float = 0.0


def watched(running: Trial, timeout_s: float = 30.0) -> tuple[float, list[Began]]:
    """Until its first row is stored: how long that took, and all its processes meanwhile, itself the first."""
    began_s, seen = time.monotonic(), dict[int, Began]()
    while not running.stored():
        now_s = time.monotonic() - began_s
        if now_s > timeout_s:
            raise TimeoutError(f"no tuple in {timeout_s:g} s:\n{running.log()[-3000:]}")
        for pid in (running.process.pid, *running.everyone()):
            _look(pid, seen.setdefault(pid, Began(now_s)))
        time.sleep(LOOK_S)
    return time.monotonic() - began_s, list(seen.values())


def _look(pid: int, one: Began) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended: what was seen of it stays
        process = psutil.Process(pid)
        words = " ".join(process.cmdline())  # until it runs its own program, its parent's
        one.role = next((role for role, sign in SIGNS.items() if sign in words), one.role)
        times = process.cpu_times()
        one.cpu_s = times.user + times.system
