"""A VM whose clock is an hour off (by a library of C that stands between it and the kernel): its rows are as old as
they are, its source keeps to the controller's schedule, and the offset is shown. A clock that is set is followed."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_run import RealRun

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here: apt-get install gcc"),
]
SOURCE = Path(__file__).with_name("another_clock.c")
HOUR_S = 3600
STATIC = {"threads": 1, "cpu": 0.9, "memory": 0.1}
TASKS = """
from headgate.topology_runtime.api.logic import Source
class Ids(Source):
    def read(self, position, limit):
        return list(range(position, position + limit))
def same(row):
    return row
def drop(row):
    return None
"""


def task(name: str, run: str, kind: str = "map") -> dict[str, Any]:
    return {"name": name, "kind": kind, "run": f"flow_tasks:{run}", "static": STATIC}


TOPOLOGY = {
    "schema": "headgate/topology/v1",
    "name": "clocks",
    "tasks": [task("ids", "Ids", "source"), task("same", "same"), task("last", "drop")],
    "edges": [{"from": "ids", "to": "same"}, {"from": "same", "to": "last"}],
}


class Cluster(RealRun):
    """A controller and two agents; the second one's clock is what its file says."""

    def __init__(self, folder: Path, set_s: int) -> None:
        super().__init__(folder, "clocks", 0.2, folder)
        (folder / "flow_tasks.py").write_text(TASKS)
        (folder / "topology.json").write_text(json.dumps(TOPOLOGY))
        (folder / "models").mkdir()
        library = folder / "another_clock.so"
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self.set(set_s)
        flow = ("--topology", "topology.json", "--models", "models", "--rate", "40", "--path", folder)
        self.start_controller(*flow, "--vms", "vm1=1,vm2=2")
        own = ("--slot-memory", "256M", "--workers-as", "agent")
        self.start_agent("vm1", *own, slots=1)
        self.start_agent("vm2", *own, ANOTHER_CLOCK=str(folder / "clock"), LD_PRELOAD=str(library))

    def set(self, seconds: int) -> None:
        """The second VM's clock, from now on."""
        new = self.root / "clock.new"
        new.write_text(f"{seconds}\n")
        new.rename(self.root / "clock")

    def behind_s(self) -> float | None:
        vms = {vm["vm"]: vm for vm in self.status()["vms"]}
        found = vms.get("vm2", {}).get("clock_behind_ms")
        return None if found is None else found / 1000


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    try:
        yield made
    finally:
        made.end()


def settled(cluster: Cluster) -> dict[str, Any]:
    """The status once many rows went through since now."""
    cluster.wait(lambda: cluster.status()["tuples"]["acked"] > 100)
    time.sleep(12.0)  # the window of latencies
    status: dict[str, Any] = cluster.status()
    assert not any(slot["crashes"] for vm in status["vms"] for slot in vm["slots"])
    return status


@pytest.mark.parametrize("cluster", [HOUR_S, -HOUR_S], indirect=True)
def test_rows_are_as_old_as_they_are(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    status = settled(cluster)
    behind_s = cluster.behind_s()
    assert behind_s is not None and abs(abs(behind_s) - HOUR_S) < 0.05
    assert {vm["vm"]: bool(vm["clock_behind_ms"]) for vm in status["vms"]} == {"vm1": False, "vm2": True}
    assert 0 <= status["latency_ms"]["p50"] < 1000, status["latency_ms"]
    assert abs(status["rates"]["emitted_tps"] - 40) < 8 and status["tuples"]["lost"] == 0
    assert status["tuples"]["emitted"] < 40 * (status["seconds"] + 3), "no hour is made up for"


@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_a_clock_that_is_set_while_it_runs_is_followed_and_told(cluster: Cluster) -> None:
    before = settled(cluster)
    assert cluster.behind_s() == 0.0
    cluster.set(-HOUR_S)
    cluster.wait(lambda: abs((cluster.behind_s() or 0.0) - HOUR_S) < 0.05)
    after = settled(cluster)
    events = [
        event["text"] for event in cluster.ask("events").data["events"] if event["kind"] == "clock_step"
    ]
    assert len(events) == 1 and "vm2" in events[0]
    assert 0 <= after["latency_ms"]["p50"] < 1000
    emitted = after["tuples"]["emitted"] - before["tuples"]["emitted"]
    assert abs(emitted - 40 * (after["seconds"] - before["seconds"])) < 40 * 4
