"""Keeps the machine awake while something is measured.

A core that idles falls asleep, clocks down, or loses its turn on the host: on the test machines a row then
costs up to 1.4 times the CPU it costs on a busy machine, differently from second to second. A process per
core that runs whenever nothing else wants to (SCHED_IDLE; else at the lowest priority) keeps that within 5 %.
Models so tell what a slot does on a machine that works, which is when it matters.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType

ROUNDS = 100_000  # between looks at whether the parent lives: a few milliseconds


class Awake:
    """Every core this process may use is kept busy while the `with` block lasts."""

    def __init__(self) -> None:
        self._spinners: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Awake:
        command = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
        self._spinners = [
            subprocess.Popen([*command, str(core)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            for core in sorted(os.sched_getaffinity(0))
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for spinner in self._spinners:
            spinner.kill()
        for spinner in self._spinners:
            spinner.wait()


def spin(parent: int, core: int) -> None:
    """Busy on that core while the parent lives."""
    os.sched_setaffinity(0, {core})
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    while os.getppid() == parent:
        for _ in range(ROUNDS):
            pass


if __name__ == "__main__":
    spin(int(sys.argv[1]), int(sys.argv[2]))
