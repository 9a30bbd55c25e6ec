"""A controller, its agents and code that none of them has: real processes, each with a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keys_made import agent, operator
from package_made import folder
from patience import PATIENCE_S, until

from headgate.topology_runtime.packages import signing_keys
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import PART_BYTES, Reply, Request

FLOW = b"""
from pathlib import Path

from shipped_words import loud
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

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
            Task("lines", run="headgate.topology_runtime.tasks.row_sources:FileLines", kind="source", static=ONE,
                 params={"path": "data/lines.txt"}),
            Task("note", run="shipped_flow:Note", params={"folder": FOLDER}, static=ONE),
        ),
        (Edge("lines", "note"),),
    )
"""
CODE = {
    "shipped_words.py": b"def loud(text):\n    return text.upper()\n",
    "data/lines.txt": b"one\ntwo\n",
    "data/large.bin": os.urandom(3 * PART_BYTES) + b"\x90" * PART_BYTES * 2,
}


def headgate(*words: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "headgate", *map(str, words)]


class Hosts:
    """A controller and its agents, each with a folder of its own; the code is in none of them."""

    def __init__(self, root: Path, listen: str | None = None) -> None:
        """listen: an address off loopback."""
        self.root, self.state, self.listen = root, root / "state", listen
        self.elsewhere = root / "elsewhere"
        self.elsewhere.mkdir()
        self.rows = Path(tempfile.mkdtemp(prefix="headgate-rows-"))  # tasks of any user may write there
        self.rows.chmod(0o777)
        (root / "models").mkdir()
        source = f"FOLDER = {str(self.rows)!r}\n".encode() + FLOW
        self.code = folder(root / "mine", {**CODE, "shipped_flow.py": source})
        signing_keys.make(root / "ann", "ann")
        signing_keys.make(root / "eve", "eve")
        self.processes: list[subprocess.Popen[bytes]] = []
        if listen is not None:
            subprocess.run(headgate("keys", "init", self.state / "keys"), check=True, capture_output=True)
        self.start_controller()

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        log = (self.root / f"{words[0]}.log").open("ab")
        with log:
            process = subprocess.Popen(
                headgate(*words), cwd=self.elsewhere, stdin=subprocess.DEVNULL, stderr=log
            )
        self.processes.append(process)
        return process

    def start_controller(self, *more: str | Path) -> None:
        options: list[str | Path] = [
            *more,
            "--state-dir",
            self.state,
            "--run",
            f"ship-{os.getpid()}",
            "--vms",
            "vm1=2",
        ]
        if self.listen is not None:
            options += ["--listen", self.listen, "--keys", self.state / "keys"]
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
            "--state-dir",
            self.root / vm,
            "--controller",
            self.where()["control"],
            "--owner",
            str(os.getpid()),
        )
        return self.start("agent", "run", *own, *place, *options)

    def ask(self, command: str, **arguments: Any) -> Reply:
        return channels.ask(operator(self.state), Request(command, arguments), PATIENCE_S)

    def packed(self) -> Path:
        """The code and its topology, signed by ann."""
        made, topology = self.root / "made.package", self.code / "shipped_flow.py:flow"
        sign = ("--set", f"sign={self.root / 'ann' / 'signing.key'}", "--set", "on-every-host=note.folder")
        words = headgate("package", "build", self.code, "--topology", topology, "--output", made, *sign)
        subprocess.run(words, cwd=self.elsewhere, check=True, capture_output=True, timeout=PATIENCE_S)
        return made

    def submit(self, *options: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        """path: where the submitter's own Python finds what the code needs."""
        client = self.start_submit(*options, path=path)
        out, said = client.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(client.args, client.returncode, out, said)

    def start_submit(self, *options: str | Path, path: Path | None = None) -> subprocess.Popen[str]:
        given = ("--controller", self.state, "--models", self.root / "models", "--rates", "20")
        here = () if "--package" in options else ("--set", "on-every-host=note.folder")
        words = headgate("submit", *given, *here, *options)
        env = {**os.environ, "PYTHONPATH": str(path or "")}
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=self.elsewhere, stdout=pipe, stderr=pipe, text=True, env=env)

    def vms(self) -> list[str]:
        return [vm["vm"] for vm in self.ask("status").data["vms"]]

    def wait(self, what: Callable[[], bool]) -> None:
        until(what, lambda: "\n".join(path.read_text() for path in sorted(self.root.glob("*.log"))))

    def log(self, of: str) -> list[str]:
        return (self.root / f"{of}.log").read_text().splitlines(keepends=True)

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
        self.wait(control_groups_gone)
        shutil.rmtree(self.rows)


def control_groups_gone() -> bool:
    """Those of agents that were killed: their workers end a moment later."""
    for path in sorted(Path("/sys/fs/cgroup").rglob(f"*headgate-ship-{os.getpid()}-*"), reverse=True):
        for group in (*path.glob("*/"), path):
            with contextlib.suppress(OSError):
                group.rmdir()
    return not list(Path("/sys/fs/cgroup").rglob(f"*headgate-ship-{os.getpid()}-*"))
