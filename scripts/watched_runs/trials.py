"""Runs of `headgate up` that are watched from outside: who lives, who is killed, what came out.

Used by the benchmarks beside this file and by tests/scenarios.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROLES = {
    "worker": "headgate.topology_runtime.worker",
    "agent": "agent run",
    "controller": "controller run",
}
CGROUP_ROOTS = [Path("/sys/fs/cgroup") / name for name in ("cpu", "cpuacct", "memory", "unified", "")]
MODELS = {
    "work": [(1, 80.0, 0.75, 0.05), (2, 80.0, 0.78, 0.05)],
    "wait": [(1, 40.0, 0.05, 0.05), (2, 80.0, 0.1, 0.05), (4, 150.0, 0.2, 0.06), (8, 220.0, 0.4, 0.07)],
}  # conservative figures for slots of 0.12 core: 1 ms of CPU, 20 ms of waiting


@dataclass
class Trial:
    """One `headgate up` in `folder`, on the topology counter → work (CPU) → wait → store."""

    folder: Path
    rates: str
    seconds: float
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_topology()
        command = [
            sys.executable,
            "-m",
            "headgate.dashboards.cli",
            "up",
            "topology.json",
            "--models",
            "models",
        ]
        command += ["--rates", self.rates, "--seconds", str(self.seconds), "--state-dir", "state"]
        command += ["--trace-dir", "traces", *self.options, "-o", "json"]
        with open(self.folder / "out.json", "wb") as out, open(self.folder / "log.txt", "wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C at a terminal reaches us alone
            )

    def _write_topology(self) -> None:
        tasks = "headgate.topology_runtime.tasks"
        static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
        topology = {
            "schema": "headgate/topology/v1",
            "name": "trial",
            "tasks": [
                {"name": "source", "kind": "source", "run": f"{tasks}.counter:Counter", "static": static},
                {"name": "work", "run": f"{tasks}.spin:Spin", "params": {"cpu_ms": 1.0}},
                {"name": "wait", "run": f"{tasks}.wait:Wait", "params": {"ms": 20.0}},
                {"name": "store", "run": f"{tasks}.collect_to_file:CollectToFile", "static": static}
                | {"params": {"path": str(self.folder.resolve() / "stored.txt")}},
            ],
            "edges": [
                {"from": "source", "to": "work"},
                {"from": "work", "to": "wait"},
                {"from": "wait", "to": "store"},
            ],
        }
        (self.folder / "topology.json").write_text(json.dumps(topology))
        (self.folder / "models").mkdir(exist_ok=True)
        slot = {"cores": 0.12, "memory_bytes": 536870912, "machine": "any"}
        for task, points in MODELS.items():
            rows = [dict(zip(("threads", "rate_tps", "cpu", "memory"), p, strict=True)) for p in points]
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": rows}
            (self.folder / "models" / f"{task}.json").write_text(json.dumps(model))

    # ── who is there ────────────────────────────────────────────────────────────────────────────

    def pids(self, role: str) -> list[int]:
        """Processes of a role below this run, oldest first."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if ROLES[role] in " ".join(child.cmdline()):
                        found.append((child.create_time(), child.pid))
        return [pid for _, pid in sorted(found)]

    def everyone(self) -> list[int]:
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        return []

    def stored(self) -> list[int]:
        path = self.folder / "stored.txt"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_for_tuples(self, timeout_s: float = 30.0, more_than: int = 0) -> float:
        """Until the sink has more than so many rows; how long it took."""
        start = time.monotonic()
        while len(self.stored()) <= more_than:
            if time.monotonic() - start > timeout_s or self.process.poll() is not None:
                raise TimeoutError(f"no tuple in {timeout_s:g} s:\n{self.log()[-3000:]}")
            time.sleep(0.02)
        return time.monotonic() - start

    def kill(self, role: str, number: int = -1) -> int:
        """`kill -9` of one process of a role (the youngest unless told otherwise)."""
        pid = self.pids(role)[number]
        os.kill(pid, signal.SIGKILL)
        return pid

    # ── what came out ───────────────────────────────────────────────────────────────────────────

    def finish(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """The run's summary."""
        try:
            self.process.wait(self.seconds + timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise
        if self.process.returncode != 0:
            raise RuntimeError(f"exit {self.process.returncode}:\n{self.log()[-4000:]}")
        summary: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return summary

    def end(self, patience_s: float = 20.0) -> None:
        """However it is: nothing of it stays."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")

    def missing(self, emitted: int) -> list[int]:
        """Positions that never reached the sink."""
        return sorted(set(range(emitted)) - set(self.stored()))

    def duplicates(self) -> int:
        counted = Counter(self.stored())
        return counted.total() - len(counted)

    def miscounted(self, tuples: dict[str, Any]) -> str:
        """What is wrong with what a summary says of rows that the sink got twice: nothing, when it is so."""
        told, found = tuples["duplicates"], self.duplicates()
        most = told if tuples["duplicates_exact"] else None
        if tuples["finished_dropped"] and len(tuples["duplicates_why"]) == 1:
            most = told + tuples["finished_dropped"]
        wrong = found < told or (most is not None and found > most)
        return f"{found} found, told: {tuples}" if wrong else ""

    def leftovers(self, run: str, pids: Sequence[int]) -> list[str]:
        """What should be gone and is not: processes, cgroups, sockets."""
        left = [f"process {pid}" for pid in pids if lives(pid)]
        for root in CGROUP_ROOTS:
            left += [str(path) for path in root.glob(f"headgate-{run}*")]
        left += [str(path) for path in self.folder.rglob("*") if path.is_socket()]
        return left


def lives(pid: int) -> bool:
    """Does the process run? One that has ended, and that a slow init has yet to reap, does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def trial(folder: Path, rates: str, seconds: float, options: Sequence[str] = ()) -> Iterator[Trial]:
    """A run that is surely over when the block is left."""
    running = Trial(folder, rates, seconds, options)
    try:
        yield running
    finally:
        running.end()
