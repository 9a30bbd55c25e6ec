"""Runs of `headgate up` that are watched from outside: who lives, who is killed, what came out.

Used by the benchmarks beside this file and by tests/scenarios.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
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
SLOT_CORES = 0.12
MODELS = {
    "work": [(1, 80.0, 0.75, 0.05), (2, 80.0, 0.78, 0.05)],
    "wait": [(1, 40.0, 0.05, 0.05), (2, 80.0, 0.1, 0.05), (4, 150.0, 0.2, 0.06), (8, 220.0, 0.4, 0.07)],
}  # conservative figures for slots of SLOT_CORES: 1 ms of CPU, 20 ms of waiting


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
            "headgate",
            "up",
            "topology.json",
            *("--models", "models", "--slot-cores", f"{SLOT_CORES:g}"),
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
                {"name": "source", "kind": "source", "run": f"{tasks}.row_sources:Counter", "static": static},
                {"name": "work", "run": f"{tasks}.computing:Spin", "params": {"cpu_ms": 1.0}},
                {"name": "wait", "run": f"{tasks}.waiting:Wait", "params": {"ms": 20.0}},
                {"name": "store", "run": f"{tasks}.sinks:CollectToFile", "static": static}
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
        slot = {"cores": SLOT_CORES, "memory_bytes": 536870912, "machine": "any"}
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

    def wait_for_tuples(self, timeout_s: float = 120.0, more_than: int = 0) -> float:
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

    def end(self, patience_s: float = 120.0) -> None:
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
        wrong = wrong or (
            found > 0 and not tuples["replayed"]
        )  # nothing comes twice that was not sent or read again
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


# ── Who takes the time in which a run begins: its processes, when each was there and what CPU it took until
# a moment

SIGNS = {**ROLES, "loader": "headgate.topology_runtime.api.loading", "up": " up "}
LOOK_S = 0.01


@dataclass
class Began:
    """at_s: when it was seen first, after the run's start."""

    at_s: float
    role: str = "other"
    cpu_s: float = 0.0


def watched(running: Trial, timeout_s: float = 30.0) -> tuple[float, list[Began]]:
    """Until its first row is stored: how long that took, and all its processes meanwhile, itself the first."""
    began_s, seen = time.monotonic(), dict[int, Began]()
    while not running.stored():
        now_s = time.monotonic() - began_s
        if now_s > timeout_s:
            raise TimeoutError(f"no tuple in {timeout_s:g} s:\n{running.log()[-3000:]}")
        for pid in (running.process.pid, *running.everyone()):
            _look(pid, seen.setdefault(pid, Began(now_s)))
        time.sleep(LOOK_S)
    return time.monotonic() - began_s, list(seen.values())


def _look(pid: int, one: Began) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended: what was seen of it stays
        process = psutil.Process(pid)
        words = " ".join(process.cmdline())  # until it runs its own program, its parent's
        one.role = next((role for role, sign in SIGNS.items() if sign in words), one.role)
        times = process.cpu_times()
        one.cpu_s = times.user + times.system


# ── Ends processes that a test or a trial has started ───────────────────────────────────────────────────


def end(children: Sequence[subprocess.Popen[Any]], seconds: float = 20.0) -> None:
    """The last one first, all at once, each in this time; what has not ended then is killed."""
    for child in reversed(children):
        child.terminate()
    for child in children:
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


# ── Faults done to a running `up`: kills and stops of its processes, chosen by a seed ───────────────────

STOPPED_S = {"worker": 4.0, "agent": 1.5, "controller": 3.0}  # stopped so long, then it goes on


class Faults:
    """`KIND ROLE`, as in `kill worker` or `stop controller`. `spare_first_agent`: the oldest one is stopped but
    never killed, so that there is an agent as old as the run."""

    def __init__(self, running: Trial, seed: int, spare_first_agent: bool = False) -> None:
        self._running, self._choose = running, random.Random(seed)
        self._spare_first_agent = spare_first_agent
        self._stopped: list[tuple[float, psutil.Process]] = []
        self.done: Counter[str] = Counter()

    def inflict(self, fault: str) -> int:
        """On a process of that role; its pid, 0 when there is none now."""
        kind, role = fault.split()
        pids = self._running.pids(role)
        if kind == "kill" and role == "agent" and self._spare_first_agent:
            pids = pids[1:]
        if not pids:
            return 0
        try:
            process = psutil.Process(self._choose.choice(pids))
            if kind == "kill":
                process.kill()
            else:
                process.suspend()
                self._stopped.append((time.monotonic() + STOPPED_S[role], process))
        except psutil.Error:
            return 0  # it ended meanwhile
        self.done[fault] += 1
        return process.pid

    def any_of(self, faults: Sequence[str]) -> str:
        return self._choose.choice(faults)

    def heal(self, at_s: float = float("inf")) -> None:
        """Processes that were stopped long enough by then go on."""
        due = [entry for entry in self._stopped if entry[0] <= at_s]
        self._stopped = [entry for entry in self._stopped if entry[0] > at_s]
        for _, process in due:
            try:
                process.resume()
            except psutil.Error:
                continue  # it was killed meanwhile
