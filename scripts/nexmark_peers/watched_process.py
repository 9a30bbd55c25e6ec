"""A command and all that it starts, watched from outside: the CPU of all of them, and what is in its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

EVERY_S, QUIET_S = 0.05, 12.0


class Watched:
    """`with`: it runs, in a session of its own. begun: may rows come? Asked again and again, until they may."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, begun: Callable[[], bool]
    ) -> None:
        self.folder, self._begun = folder, begun
        self.begun_s = self.grown_s = 0.0  # by the clock, and CPU by then
        self.begun_cpu_s = self.grown_cpu_s = 0.0
        self.cpu_s = 0.0
        self._spent: dict[tuple[int, float], float] = {}
        self._known: dict[tuple[int, float], psutil.Process] = {}
        self.size = 0  # of its output, in bytes
        self._log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            command, env=dict(env), cwd=folder, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ends.set()
            self._thread.join()
        finally:  # a second signal may come meanwhile
            self.kill()
            self._log.close()

    # ── what is seen ────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        while not self._ends.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        self._count()
        now = time.monotonic()
        if not self.begun_s and self._begun():
            self.begun_s, self.begun_cpu_s = now, self.cpu_s
        size = _bytes_in(self.folder / "out")
        if size != self.size:
            self.size, self.grown_s, self.grown_cpu_s = size, now, self.cpu_s

    def _count(self) -> None:
        """CPU of every process seen so far; of one that has ended, what it had when it was last seen."""
        asked = [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        for one in [*asked, *self._known.values()]:
            try:
                for found in [one, *one.children(recursive=True)]:
                    self._known.setdefault((found.pid, found.create_time()), found)
            except psutil.Error:
                continue
        for name, one in list(self._known.items()):
            try:
                times = one.cpu_times()
                self._spent[name] = times.user + times.system
            except psutil.Error:
                del self._known[name]
        self.cpu_s = sum(self._spent.values())

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    def wait(self, most_s: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Until it has ended, or `until` says so. False: neither in time."""
        end = time.monotonic() + most_s
        while time.monotonic() < end:
            if self.process.poll() is not None or until():
                return True
            time.sleep(EVERY_S)
        return False

    def quiet(self) -> bool:
        """Some systems have no end: has its output, which grew, not grown for some seconds?"""
        return (
            bool(self.begun_s and self.grown_s)
            and time.monotonic() - max(self.grown_s, self.begun_s) > QUIET_S
        )

    def kill(self) -> int:
        """kill -9 of all of it at once; how many processes that were."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)  # it starts nothing else
        self._count()
        alive = [one for one in self._known.values() if one.is_running()]
        for one in alive:
            try:
                one.kill()
            except psutil.Error:
                continue
        self.process.wait()
        psutil.wait_procs(alive, timeout=10)
        return len(alive)


def _bytes_in(folder: Path) -> int:
    """Of all its files; some go, or get another name, while one looks."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(place, name)).st_size
    return size
