"""A counted run on VMs whose ways to the controller and whose processes a test may stop: every row and every key is
checked as it comes out (counted_run.py)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from broken_line import BrokenLine
from real_run import RealRun

from watched_runs.counted_run import OWN, Checker, Segments, topology

RATE_TPS, SHARE = 80.0, {"keyed": 1.5, "tally": 0.6, "batch": 1.0}
CORES = 0.2


class CountedHosts(RealRun):
    """Two slots on each VM; the agents reach the controller by lines that break."""

    def __init__(self, root: Path, vms: tuple[str, ...], source: dict[str, Any] | None = None) -> None:
        """source: what its numbers come from, in place of a paced counter."""
        super().__init__(root, "cut", CORES, root, 90.0)
        self.checker, self.lines = Checker(), dict[str, BrokenLine]()
        (root / "rows").mkdir()
        self.segments = Segments(root / "rows", self.checker)
        (root / "counted_tasks.py").write_text(OWN.read_text())
        document = topology(root / "rows")
        document["tasks"][0] |= source or {}
        (root / "topology.json").write_text(json.dumps(document))
        (root / "models").mkdir()
        for task, share in SHARE.items():
            points = [{"threads": 1, "rate_tps": RATE_TPS * share, "cpu": 0.8, "memory": 0.1}]
            slot = {"cores": CORES, "memory_bytes": 1 << 28, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (root / "models" / f"{task}.json").write_text(json.dumps(model))
        self._vms = ",".join(f"{vm}=2" for vm in vms)
        self.start_again()
        for vm in vms:
            self.lines[vm] = BrokenLine(self.where()["control"])
            line = self.lines[vm].endpoint.partition("#")[0]
            self.start_agent(vm, "--slot-memory", str(1 << 28), "--workers-as", "agent", "--controller", line)
        self.headgate("submit", "topology.json", "--models", "models", "--rates", f"{RATE_TPS:g}", *self.at)
        self.rows_come(200)

    def start_again(self) -> None:
        """The controller, on its ports."""
        port = self.where()["control"].rpartition(":")[2] if self.lines else "0"
        self.start_controller("--set", f"slot-memory={1 << 28}", "--vms", self._vms, "--port", port)

    @property
    def at(self) -> tuple[str, str]:
        return "--controller", str(self.state)

    @property
    def log(self) -> str:
        return (self.root / "controller.log").read_text()

    def rows_come(self, more: int) -> None:
        """Wait until the sinks have so many more."""
        wanted = self.checker.rows + more

        def there() -> bool:
            self.segments.drain()
            return self.checker.rows >= wanted

        self.wait(there)

    def slots_of(self, task: str) -> set[tuple[str, int]]:
        return {
            (vm["vm"], s["slot"]) for vm in self.status()["vms"] for s in vm["slots"] if task in s["threads"]
        }

    def pids(self, vm: str) -> list[int]:
        """Its agent and its workers."""
        found = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] is not None]
        words = {p.pid: " ".join(p.info["cmdline"]) for p in found}
        agent = [pid for pid, said in words.items() if f"--run {self.name}-{vm} " in said]
        return agent + [child.pid for pid in agent for child in psutil.Process(pid).children(recursive=True)]

    def written_by(self, vm: str) -> int:
        """Bytes in sinks of this VM's workers."""
        pids = {str(pid) for pid in self.pids(vm)}
        return sum(e.stat().st_size for e in os.scandir(self.root / "rows") if e.name.split("-")[1] in pids)

    @contextmanager
    def stopped(self, vm: str) -> Iterator[None]:
        """All its processes, at once."""
        pids = self.pids(vm)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def summary(self) -> dict[str, Any]:
        """Of the run, ended; with what came out (`found`)."""
        self.headgate("stop", *self.at)
        self.wait(lambda: (self.state / "summary.json").exists())
        self.segments.drain()
        said: dict[str, Any] = json.loads((self.state / "summary.json").read_text())
        said |= {"found": self.checker.verdict(said["tuples"]["emitted"])}
        for sink, told in said["tuples"]["sinks"].items():
            found = said["found"]["sinks"][sink]["duplicates"]
            right = told["duplicates"] == found if told["duplicates_exact"] else told["duplicates"] <= found
            assert right, f"{sink}: {told}, and {found} rows came twice"
        return said

    def close(self) -> None:
        self.end()
        for line in self.lines.values():
            line.close()
