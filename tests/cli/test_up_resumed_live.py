"""`up` is killed with everything it owns and goes on with `up --resume`: nothing is lost that its source can read
again, nor what a live source had taken.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

from watched_runs import counted_tasks

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
ENOUGH = 120

FLOW = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import Source

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
    until(lambda: len(set(numbers(folder))) >= rows, (folder / log).read_text, up)


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
    assert " --set begin-ahead=yes " in controller, "it imported while what the run knows was read"
    up.send_signal(signal.SIGINT)
    assert up.wait(PATIENCE_S) == 0, (killed / "second.log").read_text()
    summary: dict[str, Any] = json.loads((killed / "second.json").read_text())
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["in_flight"]) == (0, 0)
    assert sorted(set(numbers(killed))) == list(range(tuples["emitted"])), "whole, over both lives"
    assert len(set(numbers(killed))) == tuples["acked"]
    until(lambda: not alive(killed), lambda: str(alive(killed)))
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


# ── `up` is killed just as a plan for more is brought into force: with `up --resume` all that a live source
# took is done, and keyed state lacks no row.

KEYS, DOWN_S = counted_tasks.KEYS, 2.0

LIVE_FLOW = """
import socket
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import LiveSource
from counted_tasks import Tally, keyed

class Udp(LiveSource):
    def open(self, context):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(("127.0.0.1", {port}))
        self.socket.setblocking(False)

    def poll(self, limit):
        rows = []
        while len(rows) < limit:
            try:
                rows.append(int(self.socket.recv(100)))
            except BlockingIOError:
                break
        return rows

    def close(self):
        self.socket.close()

def pair(row):
    return keyed(row)

class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(" ".join(map(str, row)) + "\\n")

flow = topology("live")
pairs = flow.source("in", Udp) >> flow.task("pair", pair)
pairs >> flow.task("tally", Tally).by(0) >> flow.task("store", Store, path={stored!r})
"""


class Sender:
    """Sends whole numbers in their order, `rate` a second."""

    def __init__(self, port: int) -> None:
        self.rate, self.sent, self._port = 50.0, 0, port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        due = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            while not self._over.wait(max(0.0, due - time.monotonic())):
                out.sendto(str(self.sent).encode(), ("127.0.0.1", self._port))
                self.sent += 1
                due += 1 / self.rate

    def end(self) -> None:
        self._over.set()
        self._thread.join()


class KilledRun:
    """A run in a folder of its own; its rows as (number, different rows of its key in the state, applied again)."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        (folder / "flow.py").write_text(LIVE_FLOW.format(port=port, stored=str(folder / "stored")))
        shutil.copy(counted_tasks.__file__, folder)
        (folder / "models").mkdir()
        for task, rate_tps in (("pair", 100.0), ("tally", 100.0), ("store", 2000.0)):
            points = [{"threads": 1, "rate_tps": rate_tps, "cpu": 0.3, "memory": 0.05}]
            model = {"schema": "headgate/model/v1", "task": task, "points": points}
            (folder / "models" / f"{task}.json").write_text(json.dumps(model))

    def up(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.json", "wb") as out, open(self.folder / f"{name}.log", "wb") as log:
            command = [*HEADGATE, "up", *words, "--state-dir", "state", "-o", "json"]
            return subprocess.Popen(
                command, cwd=self.folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL
            )

    def until(self, what: Callable[[], Any], up: subprocess.Popen[bytes], log: str) -> None:
        until(what, (self.folder / log).read_text, up)

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        path = self.folder / "stored"
        lines = path.read_text().splitlines() if path.exists() else []
        whole = [line.split() for line in lines]
        return [(int(row[1]), int(row[2]), int(row[3])) for row in whole if len(row) == 4]

    @property
    def plans(self) -> int:
        return sum(
            file.read_text().count('"action":"plan"')
            for file in self.folder.glob("traces/*/*/decisions.jsonl")
        )


@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_what_a_live_source_took_and_keyed_state_are_there_after_a_kill(
    tmp_path: Path, after_s: float
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    run, sender = KilledRun(tmp_path, port), Sender(port)
    up = run.up("first", "flow.py:flow", "--models", "models", "--vms", "2,2", "--max-vms", "4")
    run.until(lambda: len(run.rows) > 150, up, "first.log")
    sender.rate = 350.0
    run.until(lambda: run.plans > 1, up, "first.log")
    time.sleep(after_s)
    up.send_signal(signal.SIGKILL)
    up.wait()
    done = {number for number, _, _ in run.rows}
    time.sleep(DOWN_S)
    again, sender.rate = sender.sent, 50.0
    up = run.up("second", "--resume")
    run.until(lambda: max(number for number, _, _ in run.rows) > again + 150, up, "second.log")
    sender.end()
    up.send_signal(signal.SIGINT)
    assert up.wait(PATIENCE_S) == 0, (run.folder / "second.log").read_text()

    tuples = json.loads((run.folder / "second.json").read_text())["tuples"]
    assert (tuples["lost"], tuples["in_flight"], tuples["left_on_vms"]) == (0, 0, 0)
    rows = run.rows
    numbers = {number for number, _, _ in rows}
    assert len(numbers) == tuples["acked"] == tuples["emitted"], "whole, over both lives"
    missing = sorted(set(range(min(numbers), max(numbers))) - numbers)
    assert missing and missing == list(range(missing[0], missing[-1] + 1)), (
        "only what came while nobody listened"
    )
    assert max(done) < missing[0]
    for key in range(KEYS):
        mine = [(number, applied, twice) for number, applied, twice in rows if number % KEYS == key]
        assert max(applied for _, applied, _ in mine) == len({number for number, _, _ in mine})
