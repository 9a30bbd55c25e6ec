"""How many rows a sink got twice: what the summary tells against the sink's own file."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from watched_runs.trials import Trial
from watched_runs.user_project import user_project

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
    running = OneSlot(tmp_path, "150", 12, ["--vms", "1", "--max-vms", "1"])
    try:
        for _ in range(KILLS):
            running.wait_for_tuples(more_than=len(running.stored()) + 200)
            running.kill("worker")
        tuples = running.finish()["tuples"]
    finally:
        running.end()
    assert running.missing(tuples["emitted"]) == []
    assert not running.miscounted(tuples)
    assert tuples["finished_dropped"] <= KILLS, "a slow sink logs row by row"
    assert tuples["duplicates_exact"] == (tuples["finished_dropped"] == 0)


# ── A live source whose slot is given up, with real processes: whatever it said that it took reaches the
# sink, though nobody can read it twice and the thread that took it is no more.

RATE_TPS = 150.0  # more than the sink's task does, so that events wait
RUN_S, START_S, MOVED_S, READ_S = 60.0, 30.0, 25.0, 12.0
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


def wait_for_reader(folder: Path, limit_s: float) -> tuple[psutil.Process, str]:
    end = time.monotonic() + limit_s
    while (found := reader(folder)) is None:
        assert time.monotonic() < end, "nobody reads"
        time.sleep(0.05)
    return found


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_events_that_a_given_up_slot_had_taken_reach_the_sink(tmp_path: Path) -> None:
    taken, stored = tmp_path / "taken", tmp_path / "stored"
    flow = FLOW.format(taken=str(taken), stored=str(stored), rate=RATE_TPS)
    with user_project(tmp_path, flow, {"store": 70.0}, 0.12) as project:
        project.up("--vms", "3,3", "--rates", "140", "--seconds", f"{RUN_S:g}", "--state-dir", "state")
        first = wait_for_reader(tmp_path, START_S)[1]
        moved_by = time.monotonic() + MOVED_S
        while (now := wait_for_reader(tmp_path, MOVED_S))[1] == first:
            assert time.monotonic() < moved_by, project.log()
            time.sleep(0.7)  # it takes events meanwhile
            now[0].send_signal(signal.SIGKILL)
            now[0].wait(5)
        before = int(taken.read_text())
        time.sleep(READ_S)
        summary = project.ended()
    missing = sorted(set(range(int(taken.read_text()))) - set(numbers(stored)))
    assert before > 100 and missing == [], f"{len(missing)} of {before}: {missing[:20]}"
    assert "slot_quarantined" in [plan["reason"] for plan in summary["plans"]]
    assert summary["tuples"]["lost"] == 0
    assert "in: events that were accepted again" in summary["tuples"]["duplicates_why"]
