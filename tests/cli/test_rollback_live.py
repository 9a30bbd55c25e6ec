"""A real run is brought back to an earlier plan, stays there over a killed controller, and goes on by `resume`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
LIMIT_S = 120.0

FLOW = """
import time

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import Source

class Count(Source):
    def read(self, position, limit):
        return list(range(position, position + limit))

def same(row):
    time.sleep(0.01)  # what the model says: a thread carries 100 rows/s, and no more
    return row

flow = topology("count")
flow.source("in", Count) >> flow.task("same", same)
"""


class Running:
    """A run in a folder of its own, asked by commands as a user types them."""

    def __init__(self, folder: Path, up: subprocess.Popen[bytes]) -> None:
        self.folder, self.up = folder, up

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [*HEADGATE, *words]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60)

    def data(self, *words: str) -> Any:
        done = self.ask(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def until(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of which this is so."""
        end = time.monotonic() + LIMIT_S
        while True:
            asked = self.ask("status", "--controller", "state", "-o", "json")
            status = json.loads(asked.stdout) if asked.returncode == 0 else {}
            if status.get("plan") and what(status):
                return status
            assert time.monotonic() < end and self.up.poll() is None, (asked.stderr, self.log())
            time.sleep(0.3)

    def log(self) -> str:
        return (self.folder / "up.log").read_text()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "models").mkdir()
    points = [{"threads": 1, "rate_tps": 100.0, "cpu": 0.4, "memory": 0.1}]
    model = {"schema": "headgate/model/v1", "task": "same", "points": points}
    (tmp_path / "models" / "same.json").write_text(json.dumps(model))
    words = ["flow.py:flow", "--models", "models", "--rates", "60", "--vms", "4", "--state-dir", "state"]
    with open(tmp_path / "up.json", "wb") as out, open(tmp_path / "up.log", "wb") as log:
        command = [*HEADGATE, "up", *words, "-o", "json"]
        up = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    yield Running(tmp_path, up)
    if up.poll() is None:
        up.kill()
        up.wait()


def test_a_run_is_brought_back_held_and_let_go(run: Running) -> None:
    first = run.until(lambda status: status["plan"]["phase"] == "committed")["plan"]
    run.ask("rate", "set", "240", "--controller", "state")
    second = run.until(
        lambda status: status["plan"]["id"] != first["id"] and not status["enactment"]["leaving"]
    )["plan"]
    changed = run.data("diff", first["id"][:6], second["id"][:6])
    assert changed["threads"]["start"] > 0

    unknown = run.ask("rollback", "0000", "--controller", "state")
    assert unknown.returncode == 3 and first["id"][:8] in unknown.stderr
    done = run.data("rollback", first["id"][:6], "--controller", "state")
    assert done["id"] == first["id"] and done["moves"] > 0
    other = run.ask("rollback", second["id"], "--controller", "state")
    assert other.returncode == 6 and first["id"] in other.stderr and "try:" in other.stderr

    run.until(
        lambda status: status["plan"]["epoch"] == done["epoch"] and status["plan"]["phase"] == "committed"
    )
    os.kill(run.until(lambda status: status["stage"] == "committed")["pid"], signal.SIGKILL)
    back = run.until(lambda status: status["boot"] == 2 and status["stage"] == "committed")
    short = run.until(lambda status: "short" in {alarm["what"] for alarm in status["alarms"]})
    assert short["plan"]["id"] == back["plan"]["id"] == first["id"] and first["id"] in short["held"]
    told = next(alarm["text"] for alarm in short["alarms"] if alarm["what"] == "short")
    assert "headgate resume" in told

    assert "planning was held" in run.ask("resume", "--controller", "state").stdout
    after = run.until(lambda status: status["plan"]["epoch"] > done["epoch"])
    assert after["plan"]["reason"] == "rate_changed" and after["held"] is None
    run.until(lambda status: status["plan"]["phase"] == "committed")

    said = run.ask("explain", first["id"][:6], "--controller", "state").stdout
    assert "rollback → plan" in said and "start → plan" in said
    reasons = [row["reason"] for row in run.data("history")["plans"]]
    assert reasons[:4] == ["start", "rate_changed", "rollback", "rate_changed"]
    assert set(reasons[4:]) <= {"overloaded"}, "for the rows that waited"
    run.ask("stop", "--controller", "state")
    assert run.up.wait(60) == 0, run.log()
    assert json.loads((run.folder / "up.json").read_text())["tuples"]["lost"] == 0
    (trace,) = (run.folder / "traces" / "count").iterdir()
    assert run.data("replay", str(trace))["equal"], "an operator's word is part of what is replayed"
