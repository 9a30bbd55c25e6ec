"""A small disk of its own for a test, and a run of `up` that has its state and trace on it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import PATIENCE_S, until

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)

FLOW = """
import sys
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.sinks import CollectToFile

def work(row):
    if row % 500 == 13:
        raise ValueError("unlucky")
    if row % 50 == 0:
        print("a word of the user's code", row)
    return row

flow = topology("numbers")
numbers = flow.source("count", Counter)
numbers >> flow.task("work", work) >> flow.task("store", CollectToFile, path={path!r})
"""


class SmallDisk:
    """A tmpfs of so many bytes (and files) at `path`. Raises OSError where that is not allowed."""

    def __init__(self, path: Path, size_bytes: int, files: int) -> None:
        path.mkdir()
        self.path, self._filled = path, path / "filled"
        options = f"size={size_bytes},nr_inodes={files}".encode()
        if _libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def fill(self) -> None:
        """Not a byte is free from now on."""
        with open(self._filled, "ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def use_up_files(self) -> None:
        """No file can be made from now on."""
        folder = self.path / "many"
        folder.mkdir()
        try:
            for number in range(1 << 20):
                (folder / str(number)).touch()
        except OSError:
            return

    def free(self) -> None:
        self._filled.unlink(missing_ok=True)
        for file in (self.path / "many").glob("*"):
            file.unlink()

    def close(self) -> None:
        _libc.umount2(os.fsencode(self.path), MNT_DETACH)


class Run:
    """`headgate up flow.py:flow` in `home`, its state and trace in `disk`."""

    def __init__(self, home: Path, disk: Path, *words: str) -> None:
        self._home = home
        self.state, self.rows = disk / "state", home / "rows.jsonl"
        self._err = (home / "err.txt").open("wb")
        places = ["--state-dir", str(self.state), "--trace-dir", str(disk / "traces")]
        command = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--slot-cores", "0.2", "-o", "json"]
        self.process = subprocess.Popen(
            [*command, *places, *words],
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            process_group=0,
            cwd=home,
        )

    def says(self) -> str:
        return (self._home / "err.txt").read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, self.says, self.process)

    def count(self) -> int:
        """Rows that have reached the sink."""
        return self.rows.read_bytes().count(b"\n") if self.rows.exists() else 0

    def asked(self, *words: str) -> Any:
        done = subprocess.run(
            [*HEADGATE, *words, "--controller", str(self.state), "-o", "json"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def alarms(self) -> dict[str, str]:
        return {alarm["what"]: alarm["text"] for alarm in self.asked("status")["alarms"]}

    def end(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, (self.process.returncode, self.says()[-6000:])
        found: dict[str, Any] = json.loads(out)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._err.close()


def project(home: Path) -> None:
    """A user's project with the flow above; its sink writes to `home`, which is no small disk."""
    (home / "flow.py").write_text(FLOW.format(path=str(home / "rows.jsonl")))
    (home / "models").mkdir()
    for task in ("work", "store"):
        points = [{"threads": n, "rate_tps": 400.0 * n, "cpu": 0.4, "memory": 0.1} for n in (1, 2)]
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (home / "models" / f"{task}.json").write_text(json.dumps(model))
