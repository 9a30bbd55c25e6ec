"""A stream at its own pace, from a process of its own with its own clock: the sender, and what `headgate up` says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from headgate.dashboards.runs.connection import asked

S = 1_000_000_000
HEADGATE = [sys.executable, "-P", "-m", "headgate"]
START_S = 120.0  # a quiet machine needs two
END_S = 120.0
LOOK_EVERY_S = 0.4
SOON_NS = S // 4
Steps = Sequence[tuple[float, float]]  # (rows/s, for so many seconds)

SOURCE = """
import socket, time
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import LiveSource

class Udp(LiveSource):
    def __init__(self, port):
        self.port = port

    def open(self, context):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(("127.0.0.1", self.port))
        self.socket.setblocking(False)

    def poll(self, limit):
        rows = []
        while len(rows) < limit:
            try:
                rows.append(self.socket.recv(100).decode())
            except BlockingIOError:
                break
        return rows

    def came(self, row):
        return int(row.split()[1]) / 1e9

    def close(self):
        self.socket.close()
"""

WORK = """
def work(row):
    time.sleep(0.003)
    return row
"""

STORE = """
class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(f"{{row}} {{time.time_ns()}}\\n")

flow = topology("arrivals")
flow.source("in", Udp, port={port}) >> flow.task("work", work) >> flow.task("store", Store, path={path!r})
"""

SENDER = """
import json, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent, due = [], time.monotonic()
for rate, seconds in json.loads(sys.argv[2]):
    for _ in range(int(rate * seconds)):
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.time_ns()
        out.sendto(f"{len(sent)} {now}".encode(), ("127.0.0.1", int(sys.argv[1])))
        sent.append(now)
json.dump(sent, open(sys.argv[3], "w"))
"""


@dataclass(frozen=True)
class Stage:
    """What runs, and on what. work: Python text with a task `work`. models: (rows/s of a thread, CPU) of each task.
    options: more of `up`. beside: called with the process and its folder before each look."""

    work: str = WORK
    models: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"work": (60.0, 0.3), "store": (1000.0, 0.3)}
    )
    options: tuple[str, ...] = ()
    beside: Callable[[int, Path], None] = lambda pid, folder: None


@dataclass
class Followed:
    """What both sides say. sent: UTC ns by row; stored: (row, sent, stored) as the sink has them; looks: status
    with the time of asking; said: the log of `up`."""

    steps: Steps
    sent: list[int]
    stored: list[tuple[int, int, int]]
    looks: list[tuple[int, dict[str, Any]]]
    summary: dict[str, Any]
    said: str
    trace: Path

    @property
    def steps_ns(self) -> list[int]:
        """When each rate began, and the end."""
        begins = accumulate((int(rate * seconds) for rate, seconds in self.steps[:-1]), initial=0)
        return [*(self.sent[at] for at in begins), self.sent[-1]]

    def decisions(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.trace / "decisions.jsonl").read_text().splitlines()]

    def came(self, begin_ns: int, end_ns: int) -> int:
        return sum(begin_ns < at <= end_ns for at in self.sent)

    def waits_ms(self) -> list[float]:
        """From the sender's clock to the sink's, one machine's; lowest first."""
        return sorted((stored - sent) / 1e6 for _, sent, stored in self.stored)


def followed(folder: Path, steps: Steps, run_s: float, vms: str, stage: Stage = Stage()) -> Followed:
    """One run of `headgate up` while another process sends by UDP. Raises RuntimeError with its log when it fails."""
    port = _free_port()
    store = STORE.format(port=port, path=str(folder / "stored.txt"))
    (folder / "flow.py").write_text(SOURCE + stage.work + store)
    (folder / "models").mkdir()
    for task, (tps, cpu) in stage.models.items():
        (folder / "models" / f"{task}.json").write_text(_model(task, tps, cpu))
    words = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--vms", vms, "--seconds", f"{run_s:g}"]
    words += ["--state-dir", "state", "--trace-dir", "traces", *stage.options, "-o", "json"]
    with open(folder / "out.json", "wb") as out, open(folder / "log.txt", "wb") as log:
        up = subprocess.Popen(words, cwd=folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        return _watched(folder, port, steps, up, stage)
    finally:
        if up.poll() is None:
            up.terminate()
            up.wait(30)


def _watched(folder: Path, port: int, steps: Steps, up: subprocess.Popen[bytes], stage: Stage) -> Followed:
    log, end = folder / "log.txt", time.monotonic() + START_S
    while "plan 1 is in force" not in log.read_text():
        if time.monotonic() > end or up.poll() is not None:
            raise RuntimeError(log.read_text())
        time.sleep(0.1)
    words = [sys.executable, "-c", SENDER, str(port), json.dumps(steps), str(folder / "sent.json")]
    looks = []
    with subprocess.Popen(words) as sender:
        try:
            while sender.poll() is None:
                time.sleep(LOOK_EVERY_S)
                stage.beside(up.pid, folder)
                asked_ns = time.time_ns()
                found = asked(str(folder / "state"), "status")
                if time.time_ns() - asked_ns < SOON_NS:  # else it is not known of when it is
                    looks.append((asked_ns, found))
        finally:
            sender.kill()  # where somebody interrupts us; else it has ended
    sent = json.loads((folder / "sent.json").read_text())
    if up.wait(END_S) != 0:
        raise RuntimeError(log.read_text())
    rows = [tuple(map(int, line.split())) for line in (folder / "stored.txt").read_text().splitlines()]
    summary = json.loads((folder / "out.json").read_text())
    trace = folder / "traces" / "arrivals" / summary["run"]
    return Followed(steps, sent, rows, looks, summary, log.read_text(), trace)  # type: ignore[arg-type]


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _model(task: str, rate_tps: float, cpu: float) -> str:
    points = [{"threads": 1, "rate_tps": rate_tps, "cpu": cpu, "memory": 0.1}]
    return json.dumps({"schema": "headgate/model/v1", "task": task, "points": points})
