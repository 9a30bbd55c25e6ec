"""A run that has VMs by a command and gives them back: real controller, real agents, a cloud that is this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_read import pod, words
from real_run import RealRun

from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request
from watched_runs.host_bed import FLOW

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
    words = [sys.executable, "-P", "-m", "headgate", "agent", "run", "--controller", said["controller"],
             "--vm", vm["name"], "--key", said["agent_key"], "--slots", str(vm["slots"]),
             "--slot-cores", str(vm["slot_cores"]), "--slot-memory", str(vm["slot_memory_bytes"]),
             "--workers-as", "agent",
             "--run", said["run"] + "-" + vm["name"], "--state-dir", str(here / vm["name"])]
    with (here / "agents.log").open("ab") as log:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (here / (vm["name"] + ".pid")).write_text(str(child.pid))
print(json.dumps(answer))
"""


class Rented(RealRun):
    """A controller with one VM of its own, and a command for more."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "rent", 0.2, root, LIMIT_S)
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
        self.start_controller(
            "--vms", "vm1=2", "--max-vms", "6", "--set", f"slot-memory={1 << 28}",
            "--set", f"machines-command={sys.executable} {self.cloud / 'cloud.py'}", "--set", "prices=prices.toml",
            "--set", "max-usd-per-hour=0.8", "--set", "machine-life=5",
        )  # fmt: skip
        self.start_agent("vm1", "--slot-memory", str(1 << 28), "--workers-as", "agent")

    def rented(self) -> set[str]:
        return {path.stem for path in self.cloud.glob("*.pid") if alive(int(path.read_text()))}

    def said(self, do: str) -> list[dict[str, Any]]:
        path = self.cloud / "said.jsonl"
        return [one for one in map(json.loads, path.read_text().splitlines()) if one["do"] == do]

    def end(self) -> None:
        super().end()
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
    rented.headgate("submit", "flow.py:flow", "--models", "models", "--rates", "40", "--controller", "state")
    rented.wait(lambda: rented.status()["tuples"]["acked"] >= 100)
    assert rented.used() == {"vm1"} and not (rented.cloud / "said.jsonl").exists()

    rented.headgate(
        "rate", "set", "500", "--controller", "state"
    )  # as many as 0.8 USD/h allow, which are too few
    rented.wait(lambda: rented.used() == {"vm1", "vm2", "vm3"})
    assert rented.rented() == {"vm2", "vm3"} and len(rented.said("request")) == 2
    assert {one["machine"]["usd_per_hour"] for one in rented.said("request")} == {0.4}
    rented.wait(lambda: [alarm for alarm in rented.status()["alarms"] if alarm["what"] == "short"])

    rented.headgate("rate", "set", "40", "--controller", "state")
    rented.wait(lambda: rented.rented() == set())
    assert rented.used() == {"vm1"}
    rented.wait(lambda: not list((rented.state / "machines").iterdir()))
    assert {one["machine"]["name"] for one in rented.said("release")} == {"vm2", "vm3"}

    rented.headgate("rate", "set", "150", "--controller", "state")
    rented.wait(lambda: len(rented.used()) > 1)
    assert len({one["token"] for one in rented.said("request")}) == len(rented.said("request")) >= 3
    rented.headgate("stop", "--controller", "state")
    rented.wait(lambda: rented.controller.poll() is not None)
    assert rented.controller.returncode == 0 and rented.rented() == set(), "all is given back at the end"
    rows = Counter(map(int, (rented.root / "rows.jsonl").read_text().split()))
    assert len(rows) >= 500 and rows == Counter(2 * n for n in range(len(rows)))


# ── What the how-to has Kubernetes and Slurm start, started as it stands there: the agents register ───

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "kubernetes-nomad-slurm.md"
BIN = Path(sys.executable).parent
SCHEDULER_LIMIT_S = 60.0


class Started(RealRun):
    """The folders of containers are folders in `root`; names of services are this machine."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "page", 1.0, root, SCHEDULER_LIMIT_S)
        self.keys = root / "made"
        self.headgate("keys", "init", str(self.keys))
        self.env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.port = 0

    def in_root(self, pod: str, word: str) -> str:
        """Paths of the container's file system are below a folder of its own."""
        found = re.sub(r"/(secret|keys|var/lib/headgate)\b", lambda m: f"{self.root}/{pod}/{m[1]}", word)
        return found.replace("headgate-controller", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")

    def start_pod(self, name: str, spec: dict[str, Any], secret: list[str], **env: str) -> None:
        """A pod: its init containers one after the other, then its container."""
        for folder in ("secret", "keys", "var/lib/headgate"):
            (self.root / name / folder).mkdir(parents=True)
        for file in secret:
            (self.root / name / "secret" / file).write_bytes((self.keys / file).read_bytes())
            (self.root / name / "secret" / file).chmod(0o644)
        for container in spec["initContainers"]:
            command = [self.in_root(name, word) for word in words(container, **env)]
            subprocess.run(command, check=True, timeout=SCHEDULER_LIMIT_S, capture_output=True)
        [container] = spec["containers"]
        self.spawn([self.in_root(name, word) for word in words(container, **env)])

    def spawn(self, command: list[str], **env: str) -> None:
        command = [
            re.sub(r"(-port|--port|7311|:7311)=?\b.*", lambda m: self._port(m[0]), word) for word in command
        ]
        with (self.root / "pods.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command, cwd=self.root, env=self.env | env, stdout=log, stderr=log, process_group=0
                )
            )

    def _port(self, word: str) -> str:
        """Any port: those of the manifests may be taken here."""
        if word.startswith((":", "7")):
            return word.replace("7311", str(self.port))
        return word.partition("=")[0] + "=0"

    def endpoint(self) -> Path:
        """Below the folder of its run; where it would be while there is none."""
        states = self.root / "controller" / "var/lib/headgate" / "state"
        return next(states.glob("*/controller/endpoint"), states / "endpoint")

    def registered(self) -> set[str]:
        commands = json.loads(self.endpoint().read_text())["commands"]
        contact = read_key(self.keys / "operator.local.key").contact(commands)
        return {vm["vm"] for vm in channels.ask(contact, Request("status"), SCHEDULER_LIMIT_S).data["vms"]}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    found = Started(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_what_the_page_has_started_is_a_cluster(started: Started) -> None:
    names = [f"headgate-agent-{n}" for n in range(2)]
    for name in (*names, "node7"):
        started.headgate("keys", "add", "agent", name, "--keys", str(started.keys))
    started.start_pod(
        "controller", pod("Deployment", "headgate-controller"), ["trust.json", "controller.key"]
    )
    started.wait(lambda: started.endpoint().exists())
    started.port = int(json.loads(started.endpoint().read_text())["control"].rpartition(":")[2])
    secret = [f"agent.{name}.key" for name in names]
    for name in names:
        agent = pod("StatefulSet", "headgate-agent")
        started.start_pod(name, agent, secret, POD_NAME=name, POD_IP="127.0.0.1")
        [kept] = (started.root / name / "keys").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    started.wait(lambda: started.registered() == set(names))

    [script] = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", PAGE.read_text("utf-8"), re.S)
    own = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_CPUS_PER_TASK": "2", "HEADGATE_KEYS": str(started.keys),
           "HEADGATE_CONTROLLER": f"tcp://127.0.0.1:{started.port}", "TMPDIR": str(started.root)}  # fmt: skip
    (started.root / "agents.sh").write_text(script)
    started.spawn(["bash", str(started.root / "agents.sh")], **own)
    started.wait(lambda: started.registered() == {*names, "node7"})
