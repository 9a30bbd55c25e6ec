"""A run that is stopped with open windows says so, and gives them whole once it goes on: by `up --resume`, and as a
checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live

SIZE_S, KEYS = 200, 4  # rows of a window; each key has a quarter of them
FLOW = """
from headgate import Source, topology, windows

class Ticks(Source):
    def read(self, position, limit):
        return [{"key": p % KEYS, "at": p} for p in range(position, position + limit)]

class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(f"{row['key']} {row['start']:.0f} {row['value']}\\n")

flow = topology("counts")
counts = flow.task("counts", windows.EventWindow, at="at", windows=windows.tumbling(SIZE_S))
flow.source("ticks", Ticks).timestamps("at") >> counts.by("key") >> flow.task("store", Store, path="stored")
""".replace("KEYS", str(KEYS)).replace("SIZE_S", str(SIZE_S))


class Ups:
    """`headgate up` in a folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.up = folder, None
        (folder / "flow.py").write_text(FLOW)

    def start(self, *words: str) -> None:
        command = [sys.executable, "-P", "-m", "headgate", "up", *words, "-o", "json"]
        with open(self.folder / "out.json", "wb") as out, open(self.folder / "log", "wb") as log:
            self.up = subprocess.Popen(
                command, cwd=self.folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL
            )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def windows(self) -> list[tuple[int, ...]]:
        path = self.folder / "stored"
        return (
            [tuple(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []
        )

    def given(self, more: int) -> None:
        before = len(self.windows())
        until(lambda: len(self.windows()) >= before + more, self.log, self.up)

    def stop(self) -> dict[str, Any]:
        assert self.up is not None
        self.up.send_signal(signal.SIGINT)
        assert self.up.wait(PATIENCE_S) == 0, self.log()
        found: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return found

    def end(self) -> None:
        if self.up is not None and self.up.poll() is None:
            self.up.kill()
            self.up.wait()


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[Ups]:
    found = Ups(tmp_path)
    yield found
    found.end()


def whole(found: list[tuple[int, ...]]) -> bool:
    """Each window once, with all of its rows, and none is missing between."""
    starts = {start for _, start, _ in found}
    every = {(key, start, SIZE_S // KEYS) for key in range(KEYS) for start in range(0, max(starts), SIZE_S)}
    return every <= set(found) and len(set(found)) == len(found)


def test_windows_that_a_stop_left_open_are_whole_once_the_run_goes_on(ups: Ups) -> None:
    ups.start("flow.py", "--rates", "100", "--state-dir", "state")
    ups.given(KEYS)
    summary = ups.stop()
    (open_now,) = summary["event_time"]
    assert open_now["task"] == "counts" and open_now["open_keys"] == KEYS, open_now
    assert open_now["state"] == "known" and open_now["watermark"] >= SIZE_S
    state = ups.folder / "state"
    assert summary["go_on"] == [f"headgate up --resume --state-dir {state}"]
    assert f"they go on with: {summary['go_on'][0]}" in ups.log()
    ups.start("--resume", "--state-dir", "state")
    ups.given(2 * KEYS)
    ups.stop()
    assert whole(ups.windows()), ups.windows()


def test_a_checkpoint_of_a_stopped_run_gives_its_windows_whole(ups: Ups) -> None:
    far = str(ups.folder / "far")
    ups.start("flow.py", "--rates", "100", "--state-dir", "state", "--state-to", far)
    ups.given(KEYS)
    _, create, begin = ups.stop()["go_on"]
    words = [sys.executable, "-P", "-m", *create.replace("NAME", "open").split()]
    subprocess.run(words, cwd=ups.folder, check=True, capture_output=True)
    words = begin.replace("NAME", "open").split()[2:]
    ups.start(*words, "--rates", "100", "--state-dir", "other")
    ups.given(2 * KEYS)
    ups.stop()
    assert whole(ups.windows()), ups.windows()
