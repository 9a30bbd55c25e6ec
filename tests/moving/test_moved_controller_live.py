"""A controller that is moved while rows flow: agents and workers go on under it at another address."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_run import RealRun, headgate

pytestmark = pytest.mark.live

FLOW = """
from headgate import topology
from headgate.tasks import CollectToFile, Counter

def work(row):
    return row

flow = topology("moved")
flow.source("count", Counter) >> flow.task("work", work) >> flow.task("store", CollectToFile, path={path!r})
"""


class Moving(RealRun):
    """A controller at one of two addresses that its agents know."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "moving", 0.3, root, limit_s=60.0)
        self.rows, self.ports = root / "rows.jsonl", [free_port(), free_port()]
        (root / "flow.py").write_text(FLOW.format(path=str(self.rows)))

    def start_at(self, number: int) -> None:
        self.start_controller("--port", str(self.ports[number]), "--vms", "vm1=2,vm2=2")

    def start_agents(self) -> None:
        both = ",".join(f"tcp://127.0.0.1:{port}" for port in self.ports)
        for vm in ("vm1", "vm2"):
            self.start_agent(vm, "--controller", both, "--workers-as", "agent")

    def submit(self) -> None:
        words = headgate("submit", "flow.py:flow", "--rates", "300", "--controller", self.state)
        subprocess.run(words, cwd=self.root, check=True, capture_output=True, timeout=120)
        self.wait(lambda: self.acked() > 600)

    def acked(self) -> int:
        return int(self.status()["tuples"]["acked"])

    def kill(self) -> None:
        self.controller.kill()
        self.controller.wait()

    def move(self, archive: Path, to: Path, at: int) -> None:
        self.headgate("controller", "import", archive, to)
        self.state = to
        self.start_at(at)

    def stop(self) -> dict[str, Any]:
        """The run's summary, once it is over."""
        assert self.ask("stop").error is None
        self.controller.wait(90)
        found: dict[str, Any] = json.loads((self.state / "summary.json").read_bytes())
        return found

    def at_the_sink(self) -> Counter[int]:
        return Counter(int(line) for line in self.rows.read_text().splitlines())


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Moving]:
    one = Moving(tmp_path)
    try:
        one.start_at(0)
        one.start_agents()
        yield one
    finally:
        one.end()


def test_exported_under_load_killed_and_imported_elsewhere_nothing_is_lost_or_twice(run: Moving) -> None:
    run.submit()
    archive, plan = run.root / "moved.archive", run.status()["plan"]["epoch"]
    run.headgate("controller", "export", archive, run.state)
    at_export = run.acked()
    run.wait(lambda: run.acked() > at_export + 300)  # the archive is older than what was done by now
    run.kill()
    before = run.at_the_sink().total()
    run.move(archive, run.root / "elsewhere" / "state", 1)
    run.wait(lambda: run.at_the_sink().total() > before + 300 and run.vms() == ["vm1", "vm2"])
    run.wait(lambda: run.status()["plan"] is not None and run.status()["plan"]["epoch"] == plan)
    assert run.ask("rate_set", rate_tps=200.0).error is None  # it commands them
    summary = run.stop()
    rows = run.at_the_sink()
    assert sorted(rows) == list(range(max(rows) + 1))
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["dead_lettered"]) == (0, 0)
    assert (
        tuples["duplicates"] == rows.total() - len(rows) <= tuples["replayed"]
    )  # of replays on a slow machine
    assert tuples["emitted"] == tuples["acked"] == len(rows)
    words = headgate("events", "--audit", "--controller", run.state, "-o", "json")
    audit = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    assert [row["command"] for row in audit["commands"] if row["key"]] == ["submit", "rate_set", "stop"]


def test_an_archive_from_before_the_newest_plan_commands_nobody_and_says_why(run: Moving) -> None:
    run.submit()
    archive = run.root / "old.archive"
    run.headgate("controller", "export", archive, run.state)
    plan = run.status()["plan"]["epoch"]
    assert run.ask("drain", vms=["vm1"]).error is None
    run.wait(lambda: run.status()["plan"]["epoch"] > plan and run.used() == {"vm2"})
    run.kill()
    run.headgate("controller", "import", archive, run.root / "old")
    used, run.state = run.state, run.root / "old"
    words = ("--port", str(run.ports[1]), "--vms", "vm1=2,vm2=2", "--state-dir", run.state, "--run", run.name)
    old = run.start("controller", "run", *words, "--slot-cores", run.cores)
    assert old.wait(60) == 6
    assert "the archive is older than what runs" in (run.root / "controller.log").read_text()
    run.state = used
    run.start_at(0)  # the one that knows goes on
    acked = run.acked()
    run.wait(lambda: run.acked() > acked + 300)
    assert run.stop()["tuples"]["lost"] == 0
    rows = run.at_the_sink()
    assert sorted(rows) == list(range(max(rows) + 1))
