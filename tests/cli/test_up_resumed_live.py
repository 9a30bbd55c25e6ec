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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from watched_runs import counted_tasks

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
ENOUGH, LEFT_S = 120, 5.0
STARTED: list[subprocess.Popen[bytes]] = []

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


def written(folder: Path, flow: str, **rates_tps: float) -> None:
    """The topology and models of its tasks."""
    (folder / "flow.py").write_text(flow)
    (folder / "models").mkdir()
    for task, rate_tps in rates_tps.items():
        points = [{"threads": 1, "rate_tps": rate_tps, "cpu": 0.3, "memory": 0.05}]
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (folder / "models" / f"{task}.json").write_text(json.dumps(model))


def start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.json", "wb") as out, open(folder / f"{name}.log", "wb") as log:
        command = [*HEADGATE, "up", *words, "--state-dir", "state", "-o", "json"]
        up = subprocess.Popen(command, cwd=folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    STARTED.append(up)
    return up


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """Also after a test that failed: what an `up` has started ends with it."""
    yield
    while STARTED:
        up = STARTED.pop()
        up.kill()
        up.wait()


def refused(folder: Path, *words: str) -> str:
    """What `up --resume` says of a run that it does not go on with."""
    command = [*HEADGATE, "up", *words, "--resume", "--state-dir", "state"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def until(what: Callable[[], Any], up: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end and up.poll() is None, log.read_text()
        time.sleep(0.02)


def ended(folder: Path, up: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The rows of the second life, after Ctrl-C."""
    up.send_signal(signal.SIGINT)
    assert up.wait(90) == 0, (folder / "second.log").read_text()
    tuples: dict[str, Any] = json.loads((folder / "second.json").read_text())["tuples"]
    assert (tuples["lost"], tuples["in_flight"]) == (0, 0)
    return tuples


def numbers(folder: Path) -> set[int]:
    path = folder / "stored"
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


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
    written(tmp_path, FLOW.format(stored=str(tmp_path / "stored")), same=2000.0, store=2000.0)
    up = start(tmp_path, "first", "flow.py:flow", "--models", "models", "--rates", "60", "--vms", "3")
    until(lambda: len(numbers(tmp_path)) >= ENOUGH, up, tmp_path / "first.log")
    assert "its `headgate up` lives" in refused(tmp_path)
    up.send_signal(signal.SIGKILL)
    up.wait()
    return tmp_path


def test_a_run_goes_on_where_it_was_killed(killed: Path) -> None:
    said = refused(killed, "flow.py:flow", "--rates", "5")
    assert "--rates, TOPOLOGY cannot be given" in said and (killed / "state" / "up.json").exists()
    before = len(numbers(killed))
    up = start(killed, "second", "--resume")
    until(lambda: len(numbers(killed)) >= before + ENOUGH, up, killed / "second.log")
    (controller,) = [line for line in alive(killed) if " controller run " in line]
    assert " --set begin-ahead=yes " in controller, "it imported while what the run knows was read"
    tuples = ended(killed, up)
    assert numbers(killed) == set(range(tuples["emitted"])), "whole, over both lives"
    assert len(numbers(killed)) == tuples["acked"]
    end = time.monotonic() + LEFT_S
    while left := alive(killed):
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert "has ended" in refused(killed)


# ── `up` is killed just as a plan for more is brought into force: with `up --resume` all that a live source
# took is done, and keyed state lacks no row.

KEYS, LIMIT_S, DOWN_S = counted_tasks.KEYS, 90.0, 2.0

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


def rows_of(folder: Path) -> list[tuple[int, int, int]]:
    """(number, different rows of its key in the state, applied again)."""
    path = folder / "stored"
    whole = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(int(row[1]), int(row[2]), int(row[3])) for row in whole if len(row) == 4]


def plans_of(folder: Path) -> int:
    return sum(
        file.read_text().count('"action":"plan"') for file in folder.glob("traces/*/*/decisions.jsonl")
    )


@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_what_a_live_source_took_and_keyed_state_are_there_after_a_kill(
    tmp_path: Path, after_s: float
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    flow = LIVE_FLOW.format(port=port, stored=str(tmp_path / "stored"))
    written(tmp_path, flow, pair=100.0, tally=100.0, store=2000.0)
    shutil.copy(counted_tasks.__file__, tmp_path)
    sender = Sender(port)
    up = start(tmp_path, "first", "flow.py:flow", "--models", "models", "--vms", "2,2", "--max-vms", "4")
    until(lambda: len(rows_of(tmp_path)) > 150, up, tmp_path / "first.log")
    sender.rate = 350.0
    until(lambda: plans_of(tmp_path) > 1, up, tmp_path / "first.log")
    time.sleep(after_s)
    up.send_signal(signal.SIGKILL)
    up.wait()
    done = {number for number, _, _ in rows_of(tmp_path)}
    time.sleep(DOWN_S)
    again, sender.rate = sender.sent, 50.0
    up = start(tmp_path, "second", "--resume")
    until(lambda: max(number for number, _, _ in rows_of(tmp_path)) > again, up, tmp_path / "second.log")
    time.sleep(3)
    sender.end()
    time.sleep(1)
    tuples, rows = ended(tmp_path, up), rows_of(tmp_path)
    assert tuples["left_on_vms"] == 0
    found = {number for number, _, _ in rows}
    assert len(found) == tuples["acked"] == tuples["emitted"], "whole, over both lives"
    missing = sorted(set(range(min(found), max(found))) - found)
    assert missing and missing == list(range(missing[0], missing[-1] + 1)), (
        "only what came while nobody listened"
    )
    assert max(done) < missing[0]
    for key in range(KEYS):
        mine = [(number, applied) for number, applied, _ in rows if number % KEYS == key]
        assert max(applied for _, applied in mine) == len({number for number, _ in mine})
