"""A controller and agents as real processes below one folder, and their operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keys_made import agent, operator

from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Reply, Request
from watched_runs.trials import end


def headgate(*words: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "headgate", *map(str, words)]


class RealRun:
    """Its logs are `controller.log` and `agent.log`. here: where the processes are started."""

    def __init__(self, root: Path, name: str, cores: float, here: Path, limit_s: float = 30.0) -> None:
        self.root, self.state, self.here, self.limit_s = root, root / "state", here, limit_s
        self.name, self.cores = f"{name}-{os.getpid()}", str(cores)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str | Path, **env: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{words[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                headgate(*words), cwd=self.here, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )  # fmt: skip
        self.processes.append(process)
        return process

    def start_controller(self, *more: str | Path) -> None:
        own = ("--state-dir", self.state, "--run", self.name, "--slot-cores", self.cores)
        self.controller = self.start("controller", "run", *own, "--owner", str(os.getpid()), *more)
        self.wait(lambda: self.where().get("pid") == self.controller.pid)

    def where(self) -> dict[str, Any]:
        path = self.state / "controller" / "endpoint"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def start_agent(self, vm: str, *more: str | Path, slots: int = 2, **env: str) -> subprocess.Popen[bytes]:
        agent(self.state, vm)
        key = self.state / "keys" / f"agent.{vm}.key"
        own = ("--vm", vm, "--slots", str(slots), "--slot-cores", self.cores, "--key", key)
        own += ("--run", f"{self.name}-{vm}", "--owner", str(os.getpid()))
        place: tuple[str | Path, ...] = ("--state-dir", self.root / vm)
        place += () if "--controller" in more else ("--controller", self.where()["control"])
        return self.start("agent", "run", *own, *place, *more, **env)

    def headgate(self, *words: str | Path) -> str:
        """What a command prints that ends well."""
        done = subprocess.run(
            headgate(*words), cwd=self.here, capture_output=True, text=True, timeout=self.limit_s, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, command: str, **arguments: Any) -> Reply:
        return channels.ask(operator(self.state), Request(command, arguments), self.limit_s)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("status").data
        return found

    def vms(self) -> list[str]:
        return [vm["vm"] for vm in self.status()["vms"]]

    def used(self) -> set[str]:
        """VMs with threads of the plan."""
        return {vm["vm"] for vm in self.status()["vms"] if any(slot["threads"] for slot in vm["slots"])}

    def wait(self, what: Callable[[], Any], seconds: float | None = None) -> None:
        until = time.monotonic() + (self.limit_s if seconds is None else seconds)
        while not what():
            logs = "\n".join(path.read_text() for path in sorted(self.root.glob("*.log")))
            assert time.monotonic() < until, logs
            time.sleep(0.05)

    def end(self) -> None:
        end(self.processes)
