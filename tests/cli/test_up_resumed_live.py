"""`up` is killed with everything it owns and goes on with `up --resume`: nothing is lost that its source can read
again, nor what a live source had taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate.dashboards.cli"]
START_S, ENOUGH, LEFT_S = 30.0, 120, 5.0

FLOW = """
from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.logic import Source

class Count(Source):
    def read(self, position, limit):
        return list(range(position, position + limit))

class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(f"{{row}}\\n")

def same(row):
    return row

flow = topology("count")
flow.source("in", Count) >> flow.task("same", same) >> flow.task("store", Store, path={stored!r})
"""


def start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.json", "wb") as out, open(folder / f"{name}.log", "wb") as log:
        command = [*HEADGATE, "up", *words, "-o", "json"]
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL)


def numbers(folder: Path) -> list[int]:
    path = folder / "stored"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_for(folder: Path, rows: int, up: subprocess.Popen[bytes], log: str) -> None:
    end = time.monotonic() + START_S
    while len(set(numbers(folder))) < rows:
        assert time.monotonic() < end and up.poll() is None, (folder / log).read_text()
        time.sleep(0.05)


def alive(folder: Path) -> list[str]:
    """Processes whose command line names the folder's state."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder / "state") in line:
                found.append(line)
    return found


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A folder with a run whose `up` was killed."""
    (tmp_path / "flow.py").write_text(FLOW.format(stored=str(tmp_path / "stored")))
    (tmp_path / "models").mkdir()
    for task in ("same", "store"):
        points = [{"threads": 1, "rate_tps": 2000.0, "cpu": 0.5, "memory": 0.1}]
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (tmp_path / "models" / f"{task}.json").write_text(json.dumps(model))
    words = ["flow.py:flow", "--models", "models", "--rates", "60", "--vms", "3", "--state-dir", "state"]
    up = start(tmp_path, "first", *words)
    wait_for(tmp_path, ENOUGH, up, "first.log")
    refused = subprocess.run(
        [*HEADGATE, "up", "--resume", "--state-dir", "state"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode != 0 and "its `headgate up` lives" in refused.stderr, refused.stderr
    up.send_signal(signal.SIGKILL)
    up.wait()
    return tmp_path


def test_a_run_goes_on_where_it_was_killed(killed: Path) -> None:
    before = len(set(numbers(killed)))
    up = start(killed, "second", "--resume", "--state-dir", "state")
    wait_for(killed, before + ENOUGH, up, "second.log")
    (controller,) = [line for line in alive(killed) if " controller run " in line]
    assert " --begin-ahead " in controller, "it imported while what the run knows was read"
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0, (killed / "second.log").read_text()
    summary: dict[str, Any] = json.loads((killed / "second.json").read_text())
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["in_flight"]) == (0, 0)
    assert sorted(set(numbers(killed))) == list(range(tuples["emitted"])), "whole, over both lives"
    assert len(set(numbers(killed))) == tuples["acked"]
    end = time.monotonic() + LEFT_S
    while left := alive(killed):
        assert time.monotonic() < end, left
        time.sleep(0.1)
    over = subprocess.run(
        [*HEADGATE, "up", "--resume", "--state-dir", "state"],
        cwd=killed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert over.returncode != 0 and "has ended" in over.stderr


def test_other_options_are_refused_and_the_run_can_be_resumed_still(killed: Path) -> None:
    said = subprocess.run(
        [*HEADGATE, "up", "flow.py:flow", "--resume", "--rates", "5", "--state-dir", "state"],
        cwd=killed, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode != 0 and "--rates, TOPOLOGY cannot be given" in said.stderr, said.stderr
    assert (killed / "state" / "up.json").exists()
