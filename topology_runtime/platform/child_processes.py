"""Child processes that `up` owns: started, watched, started again when they die unexpectedly.

1. Spawn from the main thread only: a child's PR_SET_PDEATHSIG fires when the *thread* that made it ends.
2. Every child leads a process group of its own, so that Ctrl-C on the terminal reaches `up` alone.
3. A child that ends with an exit code above 1 has said why and is not restarted; 0: it ended on purpose.
4. One may be begun before its command line is known whole (`BegunAhead`): it imports meanwhile.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.process_logs import open_log, trim

NS = 1_000_000_000
RESTARTS, RESTARTS_WITHIN_S = 5, 60.0  # more restarts than this in this time: it does not get better
LOG_LINES = 12  # of a child that is given up: enough for an error with its cause


class GaveUp(HeadgateError):
    """A child died again and again, or said that it cannot run."""

    code = "HG-CHILD"


class ChildRefused(HeadgateError):
    """A child ended with an error of its own; its words and its exit code are ours."""

    def __init__(self, name: str, exit_code: int, words: Sequence[str]) -> None:
        super().__init__(f"{name} ended with exit code {exit_code}")
        self.exit_code = exit_code
        self._words = list(words)

    def lines(self) -> list[str]:
        return self._words or super().lines()


@dataclass
class RestartLimit:
    """Counts restarts within a sliding time. Pure: the caller says what time it is."""

    most: int = RESTARTS
    within_s: float = RESTARTS_WITHIN_S
    times_ns: deque[int] = field(default_factory=deque)

    def allows(self, now_ns: int) -> bool:
        """Note one more restart; False when that is one too many."""
        self.times_ns.append(now_ns)
        while self.times_ns and now_ns - self.times_ns[0] > self.within_s * NS:
            self.times_ns.popleft()
        return len(self.times_ns) <= self.most


def headgate_command(*words: str) -> list[str]:
    """The command line of one of our own commands. -P: the folder it is started in stays out of
    sys.path, so that a user's `controller.py` is never taken for ours."""
    return [sys.executable, "-P", "-m", "headgate", *words]


def spawned(command: Sequence[str], log: Path, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A process of a group of its own that writes to this log."""
    to = open_log(str(log))
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=to, stderr=to, process_group=0)
    finally:
        os.close(to)


class Prestarted:
    """A process of a command with --begin-ahead. `words`: what is known of its line, so that `ps` tells whose it is."""

    def __init__(self, command: Sequence[str], words: Sequence[str], log: Path) -> None:
        self._words = len(command)
        self._process = spawned(
            [*command, "--set", "begin-ahead=yes", *words, *owner_option()], log, subprocess.PIPE
        )

    def told(self, command: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """It goes on with this command line, which begins with the command. None: it is there no more."""
        assert self._process.stdin is not None  # it was made with one
        try:
            with self._process.stdin as stdin:
                stdin.write(msgspec.json.encode(command[self._words :]))
        except BrokenPipeError:
            self._process.wait()
            return None
        return self._process

    def end(self) -> None:
        """It was never told more."""
        self._process.kill()
        self._process.communicate()


class Child:
    """One process, its log and its restarts. `begun`: its first one, where that was begun ahead."""

    def __init__(self, name: str, command: Sequence[str], log: Path, begun: Prestarted | None = None) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._begun = begun
        self.restarts = 0
        self.stopping = False
        self._limit = RestartLimit()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        begun, self._begun = self._begun, None
        self._process = (begun and begun.told(self.command)) or spawned(self.command, self.log)

    def look(self, now_ns: int) -> str | None:
        """Start it again if it died; the line to show then. Raises ChildRefused or GaveUp."""
        if self.stopping or self._process is None:
            return None
        code = self._process.poll()
        if code is None or code == 0:
            with suppress(OSError):  # a disk that does not even cut a file: the next look tries again
                trim(str(self.log))
            return None  # it runs, or has ended on purpose
        if code > 1:
            raise ChildRefused(self.name, code, self.error_lines())
        if not self._limit.allows(now_ns):
            raise GaveUp(
                f"{self.name} died {RESTARTS + 1} times within {RESTARTS_WITHIN_S:g} s (last: {how(code)})",
                cause="\n  ".join(["its last lines:", *self.last_lines()]),
                hint=f"the whole log is {self.log}",
            )
        self.restarts += 1
        self.start()
        return f"{self.name} {how(code)}; started again as process {self.pid}"

    def send(self, number: signal.Signals) -> None:
        """Signal the process itself (its own children are its own business)."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def ended_by(self, deadline_ns: int) -> bool:
        """Wait for its end, at most until then."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, (deadline_ns - monotonic_ns()) / NS))
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_lines(self, count: int = LOG_LINES) -> list[str]:
        try:
            return self.log.read_text("utf-8", "replace").splitlines()[-count:]
        except FileNotFoundError:
            return []

    def error_lines(self) -> list[str]:
        """The last `error[HG-…]` of its log, to the end."""
        lines = self.last_lines(200)
        starts = [i for i, line in enumerate(lines) if line.startswith("error[")]
        return lines[starts[-1] :] if starts else lines[-LOG_LINES:]


def how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def stop_all(children: Iterable[Child], patience_s: float) -> list[str]:
    """SIGTERM, then after `patience_s` SIGKILL to what is left; the names of those killed."""
    waiting = list(children)
    for child in waiting:
        child.stopping = True
        child.send(signal.SIGTERM)
    killed = []
    deadline_ns = monotonic_ns() + int(patience_s * NS)
    for child in waiting:
        if not child.ended_by(deadline_ns):
            child.send(signal.SIGKILL)
            child.ended_by(monotonic_ns() + NS)
            killed.append(child.name)
    return killed


def owner_option() -> list[str]:
    """Tells a child whose death is its own."""
    return ["--owner", str(os.getpid())]
