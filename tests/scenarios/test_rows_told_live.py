"""How many rows a sink got twice: what the summary tells against the sink's own file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from watched_runs.trials import Trial

pytestmark = pytest.mark.live
KILLS = 2
SLOW_SINK = """
import time
from headgate.topology_runtime.tasks.sinks import CollectToFile

class Slow(CollectToFile):
    def __call__(self, row):
        super().__call__(row)
        time.sleep(0.005)
"""


class OneSlot(Trial):
    """Source and sink in one slot; the sink is at a row most of the time."""

    def _write_topology(self) -> None:
        (self.folder / "slow_sink.py").write_text(SLOW_SINK)
        static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
        source = {
            "name": "source",
            "kind": "source",
            "run": "headgate.topology_runtime.tasks.row_sources:Counter",
        }
        store = {
            "name": "store",
            "run": "slow_sink:Slow",
            "params": {"path": str(self.folder / "stored.txt")},
        }
        topology = {
            "schema": "headgate/topology/v1",
            "name": "trial",
            "edges": [{"from": "source", "to": "store"}],
        }
        topology["tasks"] = [source | {"static": static}, store | {"static": static}]
        (self.folder / "topology.json").write_text(json.dumps(topology))
        (self.folder / "models").mkdir()


def test_what_a_killed_slot_did_twice_is_counted_to_the_row(tmp_path: Path) -> None:
    running = OneSlot(tmp_path, "150", 600, ["--vms", "1", "--max-vms", "1"])
    try:
        for _ in range(KILLS):
            running.wait_for_tuples(more_than=len(running.stored()) + 200)
            running.kill("worker")
        running.wait_for_tuples(more_than=len(running.stored()) + 200)
        running.end()
        tuples = running.finish()["tuples"]
    finally:
        running.end()
    assert running.missing(tuples["emitted"]) == []
    assert not running.miscounted(tuples)
    assert tuples["finished_dropped"] <= KILLS, "a slow sink logs row by row"
    assert tuples["duplicates_exact"] == (tuples["finished_dropped"] == 0)


# ── A live source whose slot is given up, with real processes: whatever it said that it took reaches the
# sink, though nobody can read it twice and the thread that took it is no more.

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
RATE_TPS = 150.0  # more than the sink's task does, so that events wait
RUN_S, READ = 600.0, 1500
SPOOL = "/spools/in~0~"

FLOW = """
import os, time
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import LiveSource

class Counter(LiveSource):
    '''Numbers as time goes by. What it gave is known to be taken when it is asked again: then it says so, and
    never gives it again.'''

    def open(self, context):
        text = open({taken!r}).read() if os.path.exists({taken!r}) else ""
        self.next = self.given = int(text or 0)
        self.since = time.monotonic() - self.next / {rate}

    def poll(self, limit):
        if self.given > self.next:
            self.next = self.given
            with open({taken!r} + ".new", "w") as file:
                file.write(str(self.next))
            os.replace({taken!r} + ".new", {taken!r})
        due = int((time.monotonic() - self.since) * {rate})
        self.given = max(self.next, min(due, self.next + limit))
        return list(range(self.next, self.given))

class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        time.sleep(0.012)
        self.file.write(f"{{row}}\\n")

flow = topology("kept")
flow.source("in", Counter) >> flow.task("store", Store, path={stored!r})
"""

MODEL = {
    "schema": "headgate/model/v1",
    "task": "store",
    "points": [{"threads": 1, "rate_tps": 70.0, "cpu": 0.3, "memory": 0.1}],
}


def reader(folder: Path) -> tuple[psutil.Process, str] | None:
    """The worker that has the source's spool open, and the spool's name."""
    for process in psutil.process_iter(["pid"]):
        try:
            links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        except OSError:
            continue
        for link in links:
            if link.startswith(str(folder)) and SPOOL in link:
                return process, link.split(SPOOL)[1].split("/")[0]
    return None


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_events_that_a_given_up_slot_had_taken_reach_the_sink(tmp_path: Path) -> None:
    taken, stored, log = tmp_path / "taken", tmp_path / "stored", tmp_path / "log.txt"
    (tmp_path / "flow.py").write_text(FLOW.format(taken=str(taken), stored=str(stored), rate=RATE_TPS))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "store.json").write_text(json.dumps(MODEL))
    words = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--vms", "3,3", "--rates", "140"]
    words += ["--seconds", f"{RUN_S:g}", "--state-dir", "state", "--trace-dir", "traces", "-o", "json"]
    with open(tmp_path / "out.json", "wb") as out, open(log, "wb") as said:
        up = subprocess.Popen(words, cwd=tmp_path, stdout=out, stderr=said, stdin=subprocess.DEVNULL)
    try:
        first = until(lambda: reader(tmp_path), log.read_text, up)[1]

        def moved() -> bool:
            process, spool = until(lambda: reader(tmp_path), log.read_text, up)
            if spool == first:
                time.sleep(0.7)  # it takes events meanwhile
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE_S)
            return bool(spool != first)

        until(moved, log.read_text, up)
        before = int(taken.read_text())
        until(lambda: int(taken.read_text()) > before + READ, log.read_text, up)
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE_S) in (0, 130), log.read_text()
    finally:
        if up.poll() is None:
            up.terminate()
            up.wait(30)
    missing = sorted(set(range(int(taken.read_text()))) - set(numbers(stored)))
    summary = json.loads((tmp_path / "out.json").read_text())
    rows = numbers(stored)
    print(len(rows) - len(set(rows)), "duplicates")
    print(f"{before} taken by the thread that was given up, {taken.read_text()} in all; {summary['tuples']}")
    assert before > 100 and missing == [], f"{len(missing)} of {before}: {missing[:20]}"
    assert "slot_quarantined" in [plan["reason"] for plan in summary["plans"]]
    assert summary["tuples"]["lost"] == 0
    assert "in: events that were accepted again" in summary["tuples"]["duplicates_why"]
