"""Keeps one service of a cluster running where no systemd does: starts it, starts it again when it ends, stops it.

`keeper.py SERVICE.json` is told {"name", "command", "digest", "signal"}; {keeper} in the command is this process, so
that the service dies with it. Beside that file it keeps SERVICE.lock, held while it lives, and SERVICE.state: what runs
now. It is one file of its own, run by the host's Python: a version that is replaced does not take it along.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

FIRST_S, MOST_S = 0.5, 30.0  # before it is started again: twice as long each time
WELL_S = 60.0  # after so long it counts as well, and the next wait is the first again
PATIENCE_S = 30.0  # from SIGTERM to SIGKILL
LOCKED_S = 5.0
LOG_MOST = 32 * 1024 * 1024
LOOK_S = 0.2


class Keeper:
    """One service, from its start to its stop."""

    def __init__(self, settings: Path) -> None:
        told = json.loads(settings.read_bytes())
        self.name: str = told["name"]
        self.digest: str = told["digest"]
        self.signal = signal.Signals[told["signal"]]  # that ends it
        self.command = [word.replace("{keeper}", str(os.getpid())) for word in told["command"]]
        self.beside = settings.parent
        self.log = settings.parent.parent / "log" / self.name
        self.stopping = False
        self.restarts = 0
        self.last_exit: int | None = None

    def hold(self) -> bool:
        """This one keeps the service, and nobody else does."""
        lock = os.open(self.beside / f"{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOCKED_S  # whoever looks whether it is held holds it for a moment
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return True  # the descriptor stays open as long as the process

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(self.beside.parent)
        wait_s = FIRST_S
        while not self.stopping:
            began = time.monotonic()
            process = self.started()
            self.write({"pid": process.pid, "since_ns": time.time_ns()})
            while process.poll() is None and not self.stopping:
                time.sleep(LOOK_S)
                self.trim()
            if self.stopping:
                end(process, self.signal)
                return
            self.last_exit, self.restarts = process.returncode, self.restarts + 1
            wait_s = FIRST_S if time.monotonic() - began > WELL_S else wait_s
            self.write({"pid": 0, "again_in_s": wait_s})
            self.rest(wait_s)
            wait_s = min(2 * wait_s, MOST_S)

    def started(self) -> subprocess.Popen[bytes]:
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        finally:
            os.close(log)

    def rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < deadline:
            time.sleep(min(LOOK_S, seconds))

    def write(self, now: dict[str, Any]) -> None:
        """What runs now, for whoever looks. A full disk does not end the service."""
        whole = {"digest": self.digest, "restarts": self.restarts, "last_exit": self.last_exit, **now}
        new = self.beside / f"{self.name}.state.new"
        try:
            new.write_text(json.dumps(whole))
            os.replace(new, self.beside / f"{self.name}.state")
        except OSError as error:
            sys.stderr.write(f"{self.name}: its state cannot be written: {error}\n")

    def trim(self) -> None:
        """Half of a log that has become too long goes; whoever writes appends."""
        try:
            size = self.log.stat().st_size
            if size > LOG_MOST:
                with open(self.log, "r+b") as file:
                    file.seek(size // 2)
                    rest = file.read()
                    file.seek(0)
                    file.write(rest)
                    file.truncate()
        except OSError as error:
            sys.stderr.write(f"{self.log}: {error}\n")


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """This signal, and after a while SIGKILL."""
    process.send_signal(number)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    keeper = Keeper(Path(sys.argv[1]))
    if not keeper.hold():
        sys.stderr.write(f"{keeper.name} is kept by another process already\n")
        return 1
    keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
