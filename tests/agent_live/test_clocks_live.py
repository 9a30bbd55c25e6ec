"""A VM whose clock is an hour off (by a library of C that stands between it and the kernel): its rows are as old as
they are, its source keeps to the controller's schedule, and the offset is shown. A clock that is set is followed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keys_made import agent, operator
from patience import PATIENCE_S, until

from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

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


class Cluster:
    """A controller and two agents; the second one's clock is what its file says."""

    def __init__(self, folder: Path, set_s: int) -> None:
        self.folder, self.state, self.processes = folder, folder / "state", list[subprocess.Popen[bytes]]()
        (folder / "flow_tasks.py").write_text(TASKS)
        (folder / "topology.json").write_text(json.dumps(TOPOLOGY))
        (folder / "models").mkdir()
        build = [
            str(COMPILER),
            "-shared",
            "-fPIC",
            "-O1",
            "-o",
            str(folder / "another_clock.so"),
            str(SOURCE),
        ]
        subprocess.run([*build, "-ldl"], check=True)
        self.set(set_s)
        options = ["--topology", "topology.json", "--models", "models", "--rate", "40", "--slot-cores", "0.2"]
        options += [
            "--vms",
            "vm1=1,vm2=2",
            "--path",
            str(folder),
            "--state-dir",
            str(self.state),
        ]
        self.start(["controller", "run", *options, "--run", f"clocks-{os.getpid()}"])
        until((self.state / "controller" / "endpoint").exists)
        where = json.loads((self.state / "controller" / "endpoint").read_text())["control"]
        for vm, slots, fake in (("vm1", "1", False), ("vm2", "2", True)):
            agent(self.state, vm)
            key = self.state / "keys" / f"agent.{vm}.key"
            words = ["agent", "run", "--controller", where, "--vm", vm, "--key", str(key), "--slots", slots]
            words += ["--slot-cores", "0.2", "--slot-memory", "256M", "--run", f"clocks-{os.getpid()}"]
            self.start([*words, "--workers-as", "agent", "--state-dir", str(folder / vm)], fake)

    def set(self, seconds: int) -> None:
        """The second VM's clock, from now on."""
        new = self.folder / "clock.new"
        new.write_text(f"{seconds}\n")
        new.rename(self.folder / "clock")

    def start(self, words: list[str], fake: bool = False) -> None:
        told = {
            "ANOTHER_CLOCK": str(self.folder / "clock"),
            "LD_PRELOAD": str(self.folder / "another_clock.so"),
        }
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "headgate", *words]
            env = {**os.environ, **(told if fake else {})}
            self.processes.append(subprocess.Popen(command, cwd=self.folder, env=env, stdout=log, stderr=log))

    def ask(self, command: str) -> Any:
        return c.ask(operator(self.state), m.Request(command), PATIENCE_S).data

    def behind_s(self) -> float | None:
        vms = {vm["vm"]: vm for vm in self.ask("status")["vms"]}
        found = vms.get("vm2", {}).get("clock_behind_ms")
        return None if found is None else found / 1000

    def log(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def settled(cluster: Cluster) -> dict[str, Any]:
    """The status once many rows went through since now."""
    until(lambda: cluster.ask("status")["tuples"]["acked"] > 100, cluster.log)
    time.sleep(12.0)  # the window of latencies
    status: dict[str, Any] = cluster.ask("status")
    assert not any(slot["crashes"] for vm in status["vms"] for slot in vm["slots"]), cluster.log()
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
    until(lambda: abs((cluster.behind_s() or 0.0) - HOUR_S) < 0.05, cluster.log)
    after = settled(cluster)
    events = [event["text"] for event in cluster.ask("events")["events"] if event["kind"] == "clock_step"]
    assert len(events) == 1 and "vm2" in events[0]
    assert 0 <= after["latency_ms"]["p50"] < 1000
    emitted = after["tuples"]["emitted"] - before["tuples"]["emitted"]
    assert abs(emitted - 40 * (after["seconds"] - before["seconds"])) < 40 * 4
