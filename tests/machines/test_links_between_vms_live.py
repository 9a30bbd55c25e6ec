"""Links between VMs that are cut, one way or both, or slow. Each VM is a network namespace, and each two have a cable
of their own. What is cut is planned around, what is slow is named, and no row is lost or unaccounted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

from watched_runs.host_bed import DIES, done, missing, own_network, wait_for

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
CORES, MEMORY, RATE_TPS = 0.4, 1 << 28, 40.0
CONTROLLER = 0
TASKS = """
from headgate import Source

class Padded(Source):
    def read(self, position, limit):
        return [(number, "x" * 600) for number in range(position, position + limit)]

def work(row):
    return row
"""


class Cabled:
    """A controller (host 0) and VMs of one slot, each two with a cable between them."""

    def __init__(self, folder: Path, vms: int, stack: ExitStack) -> None:
        self.folder, self.vms = folder, vms
        self.hosts: list[int] = []
        for _ in range(vms + 1):
            process = subprocess.Popen(
                [*DIES, "unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL
            )
            stack.callback(process.wait, 10)
            stack.callback(process.kill)
            self.hosts.append(process.pid)
        for pid in self.hosts:
            wait_for(partial(own_network, pid), "a namespace")
        for host in range(vms + 1):
            self.inside(host, "ip", "link", "set", "lo", "up")
            self.inside(host, "ip", "address", "add", f"{self.address(host)}/32", "dev", "lo")
        for one, other in combinations(range(vms + 1), 2):
            ends = f"to{other}", "type", "veth", "peer", "name", f"to{one}", "netns", str(self.hosts[other])
            self.inside(one, "ip", "link", "add", *ends)
            for host, far in ((one, other), (other, one)):
                self.inside(host, "ip", "link", "set", f"to{far}", "up")
                self.inside(host, "ip", "route", "add", f"{self.address(far)}/32", "dev", f"to{far}",
                            "src", self.address(host))  # fmt: skip

    def address(self, host: int) -> str:
        return f"10.7.0.{host + 1}"

    def inside(self, host: int, *words: str) -> str:
        return done("nsenter", f"--net=/proc/{self.hosts[host]}/ns/net", *words)

    def cut(self, host: int, far: int) -> None:
        """What comes from the other one does not arrive here."""
        self.inside(host, "iptables", "-A", "INPUT", "-i", f"to{far}", "-j", "DROP")

    def slow(self, host: int, far: int, kbit: int) -> None:
        """So much goes there in a second, and the rest waits."""
        limits = f"{kbit}kbit", "burst", "3k", "limit", "4m"
        self.inside(host, "tc", "qdisc", "replace", "dev", f"to{far}", "root", "tbf", "rate", *limits)

    def heal(self, host: int, far: int) -> None:
        self.inside(host, "iptables", "-F", "INPUT")
        subprocess.run(["nsenter", f"--net=/proc/{self.hosts[host]}/ns/net", "tc", "qdisc", "del", "dev",
                        f"to{far}", "root"], capture_output=True, check=False)  # fmt: skip


class Run:
    def __init__(self, cabled: Cabled, stack: ExitStack) -> None:
        self.cabled, self.folder, self.stack = cabled, cabled.folder, stack
        key = str(self.folder / "keys" / "operator.local.key")
        self.environment = {**os.environ, "PYTHONPATH": str(self.folder), "HEADGATE_KEY": key}
        self.rows = self.folder / "rows.jsonl"
        (self.folder / "padded.py").write_text(TASKS)
        static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
        collect = {"run": "headgate.tasks:CollectToFile", "params": {"path": str(self.rows), "key": 0}}
        tasks = [
            {"name": "source", "kind": "source", "run": "padded:Padded", "static": static},
            {"name": "work", "run": "padded:work"},
            {"name": "sink", "static": static, **collect},
        ]
        edges = [{"from": "source", "to": "work"}, {"from": "work", "to": "sink"}]
        written = {"schema": "headgate/topology/v1", "name": "cabled", "tasks": tasks, "edges": edges}
        (self.folder / "topology.json").write_text(json.dumps(written))
        slot = {"cores": CORES, "memory_bytes": MEMORY, "machine": "any"}
        points = [{"threads": n, "rate_tps": 25.0 * n, "cpu": 0.45 * n, "memory": 0.1 * n} for n in (1, 2)]
        (self.folder / "models").mkdir()
        model = {"schema": "headgate/model/v1", "task": "work", "slot": slot, "points": points}
        (self.folder / "models" / "work.json").write_text(json.dumps(model))
        keys, here = self.folder / "keys", cabled.address(CONTROLLER)
        self.there = f"tcp://{here}:7002"
        self.command("keys", "init", str(keys))
        self.controller = self._start(
            CONTROLLER, "controller", "run", "--topology", "topology.json", "--models", "models", "--rate",
            str(RATE_TPS), "--vms", ",".join(f"vm{n}=1" for n in range(1, cabled.vms + 1)), "--slot-cores", str(CORES),
            "--set", f"slot-memory={MEMORY}", "--set", "mapper=dsm", "--state-dir", "state", "--trace-dir", "trace",
            "--path", str(self.folder), "--keys", str(keys), "--listen", here, "--port", "7001", "--command-port",
            "7002", "--run", "cabled",
        )  # fmt: skip
        for n in range(1, cabled.vms + 1):
            self.command("keys", "add", "agent", f"vm{n}", "--keys", str(keys))
            self._start(
                n, "agent", "run", "--controller", f"tcp://{here}:7001", "--vm", f"vm{n}", "--key",
                str(keys / f"agent.vm{n}.key"), "--slots", "1", "--slot-cores", str(CORES), "--slot-memory",
                str(MEMORY), "--state-dir", f"agent{n}", "--run", "cabled", "--set", "allow-folders=yes",
                "--workers-as", "agent", "--listen", cabled.address(n),
            )  # fmt: skip

    def _start(self, host: int, *words: str) -> subprocess.Popen[bytes]:
        where = f"--net=/proc/{self.cabled.hosts[host]}/ns/net"
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "nsenter", where, *HEADGATE, *words],
                cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment,
            )  # fmt: skip
        self.stack.callback(process.wait, 20)
        self.stack.callback(process.kill)
        return process

    def command(self, *words: str) -> str:
        where = f"--net=/proc/{self.cabled.hosts[CONTROLLER]}/ns/net"
        line = ["nsenter", where, *HEADGATE, *words]
        found = subprocess.run(
            line, cwd=self.folder, capture_output=True, text=True, check=False, env=self.environment
        )
        assert found.returncode == 0, (words, found.stdout[-2000:], found.stderr[-2000:])
        return found.stdout

    def status(self) -> dict[str, Any]:
        return json.loads(self.command("status", "--controller", self.there, "-o", "json"))

    def used(self) -> set[str]:
        """VMs with threads."""
        return {vm["vm"] for vm in self.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}

    def flows(self) -> bool:
        """Are rows of the last seconds done?"""
        status = self.status()
        return status["verdict"]["verdict"] == "stable" and status["rates"]["acked_tps"] > RATE_TPS / 2

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def until(self, true: Any) -> Any:
        return until(true, self.said, self.controller, every_s=0.3)

    def alarms(self) -> str:
        return "; ".join(alarm["text"] for alarm in self.status()["alarms"])

    def stop(self) -> None:
        """Every row that was read is at the sink, and the rows that came twice are those that are said to have."""
        self.command("stop", "--controller", self.there)
        assert self.controller.wait(PATIENCE_S) == 0, self.said()
        summary = json.loads((self.folder / "state" / "summary.json").read_text())["tuples"]
        sunk = Counter(int(line) for line in self.rows.read_text().splitlines())
        assert summary["lost"] == 0 and sunk.keys() == set(range(summary["emitted"])), summary
        assert sum(sunk.values()) - len(sunk) == summary["duplicates"], summary


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    if why := missing():
        pytest.skip(why)
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
def test_a_cut_between_two_vms_is_planned_around(tmp_path: Path, stack: ExitStack, both: bool) -> None:
    cabled = Cabled(tmp_path, 3, stack)
    run = Run(cabled, stack)
    run.until(lambda: run.status()["stage"] == "committed" and run.flows())
    assert run.used() == {"vm1", "vm2"}
    cabled.cut(1, 2)
    if both:
        cabled.cut(2, 1)
    run.until(lambda: len(run.used() & {"vm1", "vm2"}) == 1)
    assert "link_cut" in run.command("explain", "--controller", run.there)
    run.until(run.flows)
    assert "did not carry" in run.alarms()
    cabled.heal(1, 2)
    cabled.heal(2, 1)
    run.stop()


def overloads(folder: Path) -> int:
    """Plans that were made for overload."""
    (decisions,) = (folder / "trace").rglob("decisions.jsonl")
    made = [json.loads(line) for line in decisions.read_text().splitlines()]
    return sum(one["trigger"] == "overloaded" and one["action"] == "plan" for one in made)


def test_a_slow_link_is_named_and_not_taken_for_overload(tmp_path: Path, stack: ExitStack) -> None:
    cabled = Cabled(tmp_path, 2, stack)
    run = Run(cabled, stack)
    run.until(lambda: run.status()["stage"] == "committed" and run.flows())
    assert run.used() == {"vm1", "vm2"}
    cabled.slow(1, 2, 64)
    cabled.slow(2, 1, 64)
    run.until(lambda: "is slow" in run.alarms())
    before = overloads(tmp_path)  # one may have come before it was sure
    run.until(lambda: run.status()["last_decision"]["trigger"] == "link_slow")
    assert overloads(tmp_path) == before <= 1
    cabled.heal(1, 2)
    cabled.heal(2, 1)
    run.until(lambda: run.flows() and not run.alarms())
    run.stop()
