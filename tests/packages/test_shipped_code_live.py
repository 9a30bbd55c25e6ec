"""Code that is on no host reaches it: real controller, real agents, workers that import from their agent's store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keys_made import agent, operator
from package_made import digest_of, folder, package_of

from topology_runtime import channels
from topology_runtime.messages import Reply, Request
from topology_runtime.packages import signing_keys
from topology_runtime.packages.wire import PART_BYTES

pytestmark = pytest.mark.live

LIMIT_S = 30.0
FLOW = b"""
from pathlib import Path

from shipped_words import loud
from topology_runtime.topology import Edge, Static, Task, Topology

ONE = Static(threads=1, cpu=0.1, memory=0.1)


class Note:
    def __init__(self, folder):
        self.file = Path(folder, "rows")

    def __call__(self, row):
        with self.file.open("a") as file:
            file.write(f"{loud(row[1])} {__file__}\\n")
        return row


def flow():
    return Topology(
        "shipped",
        (
            Task("lines", run="topology_runtime.tasks.file_lines:FileLines", kind="source", static=ONE,
                 params={"path": "data/lines.txt"}),
            Task("note", run="shipped_flow:Note", params={"folder": FOLDER}, static=ONE),
        ),
        (Edge("lines", "note"),),
    )
"""
CODE = {
    "shipped_words.py": b"def loud(text):\n    return text.upper()\n",
    "data/lines.txt": b"one\ntwo\n",
    "data/large.bin": os.urandom(3 * PART_BYTES),
}


def headgate(*words: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "dashboards.cli", *map(str, words)]


class Hosts:
    """A controller and its agents, each with a folder of its own; the code is in none of them."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, root / "state"
        self.elsewhere = root / "elsewhere"
        self.elsewhere.mkdir()
        self.rows = root / "rows"
        self.rows.mkdir()
        (root / "models").mkdir()
        source = f"FOLDER = {str(self.rows)!r}\n".encode() + FLOW
        self.code = folder(root / "mine", {**CODE, "shipped_flow.py": source})
        signing_keys.make(root / "ann", "ann")
        signing_keys.make(root / "eve", "eve")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start_controller()

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        log = (self.root / f"{words[0]}.log").open("ab")
        with log:
            process = subprocess.Popen(
                headgate(*words), cwd=self.elsewhere, stdin=subprocess.DEVNULL, stderr=log
            )
        self.processes.append(process)
        return process

    def start_controller(self) -> None:
        options = ("--state-dir", self.state, "--run", f"ship-{os.getpid()}", "--initial-vms", "vm1=2")
        self.controller = self.start(
            "controller", "run", *options, "--slot-cores", "0.4", "--owner", str(os.getpid())
        )
        self.wait(lambda: self.where().get("pid") == self.controller.pid)

    def where(self) -> dict[str, Any]:
        path = self.state / "controller" / "endpoint"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def start_agent(self, vm: str, *options: str | Path) -> subprocess.Popen[bytes]:
        agent(self.state, vm)
        key = self.state / "keys" / f"agent.{vm}.key"
        own = (
            "--vm",
            vm,
            "--slots",
            "2",
            "--slot-cores",
            "0.4",
            "--run",
            f"ship-{os.getpid()}-{vm}",
            "--key",
            key,
        )
        place = (
            "--directory",
            self.root / vm,
            "--controller",
            self.where()["control"],
            "--owner",
            str(os.getpid()),
        )
        return self.start("agent", "run", *own, *place, *options)

    def ask(self, command: str, **arguments: Any) -> Reply:
        return channels.ask(operator(self.state), Request(command, arguments), LIMIT_S)

    def submit(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        given = ("--controller", self.state, "--models", self.root / "models", "--rates", "20")
        words = headgate("submit", *given, "--on-every-host", "note.folder", *options)
        return subprocess.run(words, cwd=self.elsewhere, capture_output=True, text=True, timeout=90)

    def vms(self) -> list[str]:
        return [vm["vm"] for vm in self.ask("status").data["vms"]]

    def wait(self, what: Callable[[], bool], seconds: float = LIMIT_S) -> None:
        end = time.monotonic() + seconds
        while not what():
            logs = "\n".join(path.read_text() for path in sorted(self.root.glob("*.log")))
            assert time.monotonic() < end, logs
            time.sleep(0.05)

    def noted(self) -> list[str]:
        path = self.rows / "rows"
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


def test_workers_run_code_that_is_nowhere_but_in_their_agents_store(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    signed = ("--ship", "--sign", hosts.root / "ann" / "signing.key")
    done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(hosts.code)
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    store = hosts.root / "vm1" / "packages"
    assert {line.split()[0] for line in hosts.noted()} == {"ONE", "TWO"}
    assert all(line.split()[1].startswith(f"{store}/") for line in hosts.noted())

    agent_pid = hosts.processes[-1]
    agent_pid.send_signal(signal.SIGKILL)
    agent_pid.wait()
    before = len(hosts.noted())
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: len(hosts.noted()) >= before + 20)
    assert (hosts.root / "agent.log").read_text().count("is here") == 1, "it was fetched again"


def test_a_host_that_does_not_trust_the_signer_runs_nothing_and_is_named(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.start_agent("vm2", "--trust-signer", hosts.root / "eve" / "signing.pub")
    hosts.start_agent("vm3")
    hosts.wait(lambda: set(hosts.vms()) >= {"vm1", "vm2", "vm3"})
    signed = ("--ship", "--sign", hosts.root / "ann" / "signing.key")
    done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
    assert done.returncode == 3
    assert "- vm2 does not take package" in done.stderr and "- vm3 does not take package" in done.stderr
    assert "vm1" not in done.stderr and "--trust-signer" in done.stderr
    assert hosts.ask("status").data["stage"] == "idle", "nothing was submitted"
    for vm in ("vm2", "vm3"):
        assert [path.name for path in (hosts.root / vm / "packages").iterdir()] == ["parts"]
        assert list((hosts.root / vm / "packages" / "parts").iterdir()) == []


def test_what_would_not_be_found_on_other_hosts_is_refused_before_anything_is_sent(hosts: Hosts) -> None:
    signed = ("--ship", "--sign", hosts.root / "ann" / "signing.key")
    (hosts.code / "data" / "lines.txt").rename(hosts.elsewhere / "lines.txt")
    text = (hosts.code / "shipped_flow.py").read_text()
    (hosts.code / "shipped_flow.py").write_text(
        text.replace("data/lines.txt", str(hosts.elsewhere / "lines.txt"))
    )
    done = hosts.submit(hosts.code / "shipped_flow.py:flow", *signed)
    assert done.returncode == 3 and "lines.path names" in done.stderr, done.stderr
    assert not (hosts.state / "packages").exists()


def test_an_upload_goes_on_where_a_killed_controller_had_it_and_is_not_sent_twice(hosts: Hosts) -> None:
    data = package_of({"big.bin": os.urandom(5 * PART_BYTES), "a.py": b""})
    digest = digest_of(data)

    def put(offset: int) -> Any:
        reply = hosts.ask(
            "package_put", digest=digest, offset=offset, data=data[offset : offset + PART_BYTES]
        )
        assert reply.error is None, reply.error
        return reply.data

    assert put(0)["taken"] == PART_BYTES
    assert put(PART_BYTES)["taken"] == 2 * PART_BYTES
    hosts.controller.kill()
    hosts.controller.wait()
    hosts.start_controller()
    at = hosts.ask("package_put", digest=digest).data
    assert at == {"digest": digest, "taken": 2 * PART_BYTES, "whole": False}
    assert hosts.ask("package_at", digest=digest).error is not None, "half a package is none"
    assert hosts.ask("submit", package=digest).error is not None
    while not at["whole"]:
        at = put(at["taken"])
    assert hosts.ask("package_put", digest=digest).data["whole"]
    wrong = hosts.ask("package_put", digest="0" * 64, offset=0, data=data[:PART_BYTES])
    assert wrong.error is not None and "another package" in wrong.error[2]
    for bad in ({}, {"digest": "../x"}, {"digest": 7}, {"digest": digest, "offset": "x", "data": 3}):
        reply = hosts.ask("package_put", **bad)
        assert reply.error is not None or reply.data["whole"]
