"""One controller, agents of two wire versions side by side: a plan over both, every row once; one too old is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keys_made import agent, operator
from patience import PATIENCE_S, until

from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request
from headgate.topology_runtime.wire.wire_version import OLDEST, WIRE
from watched_runs.host_bed import FLOW
from watched_runs.trials import end

pytestmark = pytest.mark.live

AS_IF = """
import sys

from headgate.topology_runtime.wire import wire_version

wire_version.WIRE = int(sys.argv.pop(1))

from headgate.dashboards.headgate_command import main

sys.exit(main())
"""  # an agent that says it speaks another version; the messages that it sends are those of today


class Mixed:
    """A controller of today and agents, each of its own wire version."""

    def __init__(self, root: Path) -> None:
        self.root, self.state, self.name = root, root / "state", f"wire-{os.getpid()}"
        (root / "as_if.py").write_text(AS_IF)
        (root / "flow.py").write_text(FLOW.format(path=str(root / "rows.jsonl")))
        (root / "models").mkdir()
        for task, tps in (("double", 60.0), ("store", 400.0)):
            points = [{"threads": 1, "rate_tps": tps, "cpu": 0.9, "memory": 0.1}]
            slot = {"cores": 0.2, "memory_bytes": 1 << 28, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (root / "models" / f"{task}.json").write_text(json.dumps(model))
        self.children: list[subprocess.Popen[bytes]] = []
        owner = ("--owner", str(os.getpid()), "--run", self.name, "--slot-cores", "0.2")
        self.start(
            "-m",
            "headgate",
            "controller",
            "run",
            "--state-dir",
            str(self.state),
            *owner,
        )
        self.endpoint = self.state / "controller" / "endpoint"
        self.wait(self.endpoint.exists)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.root / "log").open("ab") as log:
            command = [sys.executable, "-P", *words]
            self.children.append(subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log))
        return self.children[-1]

    def agent(self, vm: str, wire: int) -> subprocess.Popen[bytes]:
        agent(self.state, vm)
        at = json.loads(self.endpoint.read_text())["control"]
        return self.start(
            "as_if.py", str(wire), "agent", "run", "--controller", at, "--vm", vm, "--slots", "2",
            "--slot-cores", "0.2", "--slot-memory", "256M", "--run", f"{self.name}-{vm}",
            "--state-dir", str(self.root / vm), "--owner", str(os.getpid()), "--workers-as", "agent",
            "--key", str(self.state / "keys" / f"agent.{vm}.key"),
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = channels.ask(operator(self.state), Request("status"), PATIENCE_S).data
        return found

    def wait(self, what: Callable[[], Any]) -> None:
        until(what, (self.root / "log").read_text)

    def headgate(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "headgate", *words]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=PATIENCE_S)

    def end(self) -> None:
        end(self.children)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    found = Mixed(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_two_versions_run_one_plan_and_a_third_is_refused(mixed: Mixed) -> None:
    mixed.agent("vm1", WIRE)
    mixed.agent("vm2", OLDEST)
    too_old = mixed.agent("vm3", OLDEST - 1)
    mixed.wait(
        lambda: {vm["vm"] for vm in mixed.status()["vms"]} == {"vm1", "vm2"} and too_old.poll() is not None
    )
    assert too_old.returncode == 6

    shown = {vm["vm"]: (vm["wire"], vm["skew"]) for vm in mixed.status()["vms"]}
    assert shown == {"vm1": (WIRE, False), "vm2": (OLDEST, True)}
    told = mixed.headgate("status", "--controller", "state")
    assert (
        told.returncode == 0
        and f"vm2 runs headgate {mixed.status()['headgate']} (wire version {OLDEST})" in told.stdout
    )
    [alarm] = mixed.status()["alarms"]
    for said in (alarm["text"], (mixed.root / "log").read_text()):
        assert f"(wire version {OLDEST - 1})" in said and "headgate cluster upgrade" in said
    assert alarm["what"] == "version" and "vm3" in alarm["text"]

    done = mixed.headgate(
        "submit", "flow.py:flow", "--models", "models", "--rates", "150", "--controller", "state"
    )
    assert done.returncode == 0, done.stderr
    mixed.wait(lambda: mixed.status()["tuples"]["acked"] >= 1000)
    used = {vm["vm"] for vm in mixed.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}
    assert used == {"vm1", "vm2"}
    assert mixed.headgate("stop", "--controller", "state").returncode == 0
    mixed.wait(lambda: mixed.children[0].poll() is not None)
    rows = Counter(map(int, (mixed.root / "rows.jsonl").read_text().split()))
    assert len(rows) >= 1000 and rows == Counter(2 * n for n in range(len(rows)))
