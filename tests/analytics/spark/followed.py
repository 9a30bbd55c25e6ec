"""`headgate analyze --follow` beside a run whose segments come when a test brings them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[3]
LIMIT_S = 200


HEADGATE = [sys.executable, "-P", "-m", "headgate"]


def command(*words: object) -> list[str]:
    return [*HEADGATE, "analyze", *map(str, words), "-o", "json"]


class Follow:
    """`headgate analyze --follow run --to out`, and what it says."""

    def __init__(self, run: Path, out: Path) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command("--follow", run, "--output", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    def wait_for(self, words: str) -> None:
        until_s = time.monotonic() + LIMIT_S
        while not any(words in line for line in self.said):
            assert time.monotonic() < until_s and self.process.poll() is None, self.said
            time.sleep(0.1)

    def ended(self) -> tuple[int, str]:
        assert self.process.stdout is not None and self.process.stderr is not None
        with self.process.stdout, self.process.stderr:
            words = self.process.stdout.read()
            code = self.process.wait(LIMIT_S)
            self._thread.join()
        return code, words

    def kill(self, number: int) -> None:
        """Its whole group; returns when all of it is gone."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, number)
        assert psutil.wait_procs(below, 20)[1] == []


def bring(source: Path, to: Path, *names: str) -> None:
    """As the recorder does: under another name first."""
    for name in names:
        part = to / Path(name).parent / f"_{Path(name).name}"
        part.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, part)
        part.rename(to / name)


def rows_in(run: Path) -> int:
    """Of samples, in the segments that are there."""
    return sum(pq.read_metadata(file).num_rows for file in (run / "samples").glob("[0-9]*.parquet"))
