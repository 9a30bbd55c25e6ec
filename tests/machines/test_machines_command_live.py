"""A run that has VMs by a command and gives them back: real controller, real agents, a cloud that is this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keys_made import agent, operator

from headgate.topology_runtime import channels
from headgate.topology_runtime.messages import Request
from watched_runs.bed_cluster import FLOW
from watched_runs.children import end

pytestmark = pytest.mark.live

LIMIT_S = 90.0
PRICES = """
schema = "headgate/prices/v1"
[[size]]
name = "small"
slots = 2
usd_per_hour = 0.4
slot_cores = 0.2
slot_memory_bytes = 268435456
"""
COMMAND = """
import json, os, signal, subprocess, sys
from pathlib import Path

here = Path(__file__).parent
said = json.load(sys.stdin)
with (here / "said.jsonl").open("a") as file:
    file.write(json.dumps(said) + "\\n")
answer = {"schema": "headgate/machines/v1"}
pids = {path.stem: int(path.read_text()) for path in here.glob("*.pid")}

def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

if said["do"] == "list":
    answer["machines"] = [{"name": name} for name, pid in sorted(pids.items()) if lives(pid)]
elif said["do"] == "release":
    os.kill(pids[said["machine"]["name"]], signal.SIGTERM)
else:
    vm = said["machine"]
    words = [sys.executable, "-P", "-m", "headgate.dashboards.cli", "agent", "run", "--controller", said["controller"],
             "--vm", vm["name"], "--key", said["agent_key"], "--slots", str(vm["slots"]),
             "--slot-cores", str(vm["slot_cores"]), "--slot-memory", str(vm["slot_memory_bytes"]),
             "--workers-as", "agent",
             "--run", said["run"] + "-" + vm["name"], "--directory", str(here / vm["name"])]
    with (here / "agents.log").open("ab") as log:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (here / (vm["name"] + ".pid")).write_text(str(child.pid))
print(json.dumps(answer))
"""


class Rented:
    """A controller with one VM of its own, and a command for more."""

    def __init__(self, root: Path) -> None:
        self.root, self.state, self.run = root, root / "state", f"rent-{os.getpid()}"
        self.cloud = root / "cloud"
        self.cloud.mkdir()
        (self.cloud / "cloud.py").write_text(COMMAND)
        (root / "prices.toml").write_text(PRICES)
        (root / "flow.py").write_text(FLOW.format(path=str(root / "rows.jsonl")))
        (root / "models").mkdir()
        for task, tps in (("double", 60.0), ("store", 400.0)):
            points = [{"threads": 1, "rate_tps": tps, "cpu": 0.9, "memory": 0.1}]
            slot = {"cores": 0.2, "memory_bytes": 1 << 28, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (root / "models" / f"{task}.json").write_text(json.dumps(model))
        self.children: list[subprocess.Popen[bytes]] = []
        self.start(
            "controller", "run", "--state-dir", "state", "--run", self.run, "--owner", str(os.getpid()),
            "--initial-vms", "vm1=2", "--max-vms", "6", "--slot-cores", "0.2", "--slot-memory", str(1 << 28),
            "--machines-command", f"{sys.executable} {self.cloud / 'cloud.py'}", "--prices", "prices.toml",
            "--max-usd-per-hour", "0.8", "--machine-life", "5",
        )  # fmt: skip
        self.wait((self.state / "controller" / "endpoint").exists)
        agent(self.state, "vm1")
        at = json.loads((self.state / "controller" / "endpoint").read_text())["control"]
        self.start(
            "agent", "run", "--controller", at, "--vm", "vm1", "--key", str(self.state / "keys" / "agent.vm1.key"),
            "--slots", "2", "--slot-cores", "0.2", "--slot-memory", str(1 << 28), "--run", f"{self.run}-vm1",
            "--directory", str(root / "vm1"), "--owner", str(os.getpid()), "--workers-as", "agent",
        )  # fmt: skip

    def start(self, *words: str) -> None:
        with (self.root / "log").open("ab") as log:
            command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words]
            self.children.append(subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log))

    def headgate(self, *words: str) -> None:
        command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words, "--controller", "state"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = channels.ask(operator(self.state), Request("status"), LIMIT_S).data
        return found

    def used(self) -> set[str]:
        return {vm["vm"] for vm in self.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}

    def rented(self) -> set[str]:
        return {path.stem for path in self.cloud.glob("*.pid") if alive(int(path.read_text()))}

    def said(self, do: str) -> list[dict[str, Any]]:
        path = self.cloud / "said.jsonl"
        return [one for one in map(json.loads, path.read_text().splitlines()) if one["do"] == do]

    def wait(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < end, "\n".join(path.read_text() for path in self.root.rglob("*log"))
            time.sleep(0.1)

    def end(self) -> None:
        end(self.children)
        for path in self.cloud.glob("*.pid"):
            if alive(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def rented(tmp_path: Path) -> Iterator[Rented]:
    found = Rented(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_vms_come_and_go_with_the_rate_and_every_row_arrives_once(rented: Rented) -> None:
    rented.headgate("submit", "flow.py:flow", "--models", "models", "--rates", "40")
    rented.wait(lambda: rented.status()["tuples"]["acked"] >= 100)
    assert rented.used() == {"vm1"} and not (rented.cloud / "said.jsonl").exists()

    rented.headgate("rate", "set", "500")  # as many as 0.8 USD/h allow, which are too few
    rented.wait(lambda: rented.used() == {"vm1", "vm2", "vm3"})
    assert rented.rented() == {"vm2", "vm3"} and len(rented.said("request")) == 2
    assert {one["machine"]["usd_per_hour"] for one in rented.said("request")} == {0.4}
    rented.wait(lambda: [alarm for alarm in rented.status()["alarms"] if alarm["what"] == "short"])

    rented.headgate("rate", "set", "40")
    rented.wait(lambda: rented.rented() == set())
    assert rented.used() == {"vm1"}
    rented.wait(lambda: not list((rented.state / "machines").iterdir()))
    assert {one["machine"]["name"] for one in rented.said("release")} == {"vm2", "vm3"}

    rented.headgate("rate", "set", "150")
    rented.wait(lambda: len(rented.used()) > 1)
    assert len({one["token"] for one in rented.said("request")}) == len(rented.said("request")) >= 3
    rented.headgate("stop")
    rented.wait(lambda: rented.children[0].poll() is not None)
    assert rented.children[0].returncode == 0 and rented.rented() == set(), "all is given back at the end"
    rows = Counter(map(int, (rented.root / "rows.jsonl").read_text().split()))
    assert len(rows) >= 500 and rows == Counter(2 * n for n in range(len(rows)))
