"""The live page beside a running demo: what its server costs, how old a tick is when it arrives, and whether
the controller notices its viewers.

Three parts of equal length: nobody looks; three browsers' worth of WebSockets at the page; fifty more
subscribers at the controller's own stream, which read nothing. CPU from /proc, in shares of a core.
"""
# bench: page – the live page's server with three clients, age of a tick at the socket, 50 more listeners

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from headgate.dashboards.runs.connection import contact_of
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
HZ = os.sysconf("SC_CLK_TCK")
START_S = 120.0
CLIENTS, DEAF = 3, 50
GOALS = {"server_share": 0.01, "age_p95_ms": 100.0}


def cpu_s(pid: int) -> float:
    """User and system time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def children(pid: int) -> dict[str, int]:
    """Command's second and third word → pid, of the children of `up`."""
    found = {}
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{each}/cmdline").read_bytes().decode().split("\0")
        found[" ".join(words[4:6])] = int(each)
    return found


class Viewer(threading.Thread):
    """One client of the page; ages of the ticks it got, in ms."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.ages: list[float] = []
        self._port = port
        self.ended = threading.Event()

    def run(self) -> None:
        with connect(f"ws://127.0.0.1:{self._port}/api/stream", max_size=None) as socket:
            while not self.ended.is_set():
                said = socket.recv(10)
                now = time.time()
                delta = json.loads(said)
                if delta["schema"] == "headgate/delta/v1":
                    self.ages.append(1000 * (now - datetime.fromisoformat(delta["now"]).timestamp()))


class Part:
    """Shares of a core while something goes on, and how long the controller takes to answer."""

    def __init__(self, pids: dict[str, int], commands: Contact, seconds: float) -> None:
        begin, cpu = time.monotonic(), {name: cpu_s(pid) for name, pid in pids.items()}
        pings = []
        while time.monotonic() - begin < seconds:
            asked = time.monotonic()
            channels.ask(commands, Request("ping"), 10.0)
            pings.append(1000 * (time.monotonic() - asked))
            time.sleep(0.25)
        took = time.monotonic() - begin
        self.shares = {name: (cpu_s(pid) - cpu[name]) / took for name, pid in pids.items()}
        self.ping_ms = statistics.median(pings)

    def data(self) -> dict[str, Any]:
        shares = {f"{name}_share": round(share, 4) for name, share in self.shares.items()}
        return {**shares, "ping_ms": round(self.ping_ms, 2)}


def bench(seconds: float = 20.0) -> dict[str, Any]:
    """seconds: of each of the three parts."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "up.log"
        with log.open("wb") as file:
            words = [*HEADGATE, "up", "--dashboard", "--seconds", "inf", "--trace-dir", f"{folder}/traces"]
            up = subprocess.Popen(words, stdout=file, stderr=file, cwd=folder)
        try:
            return measured(up.pid, log, Path(folder), seconds)
        finally:
            up.send_signal(signal.SIGINT)
            try:
                up.wait(60)
            except subprocess.TimeoutExpired:
                up.kill()
                up.wait()


def measured(pid: int, log: Path, folder: Path, seconds: float) -> dict[str, Any]:
    deadline = time.monotonic() + START_S
    while "committed" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", log.read_text())
    assert found is not None, log.read_text()
    port, there = int(found[1]), children(pid)
    pids = {"server": there["dashboard run"], "controller": there["controller run"]}
    endpoint = next(folder.glob(".headgate/*/controller/endpoint"))
    commands = contact_of(str(endpoint.parents[1]))
    stream = channels.ask(commands, Request("snapshot"), 10.0).data["stream"]
    parts = {"nobody": Part(pids, commands, seconds).data()}
    viewers = [Viewer(port) for _ in range(CLIENTS)]
    for viewer in viewers:
        viewer.start()
    parts["three"] = Part(pids, commands, seconds).data()
    deaf = [channels.SubscriberChannel(commands.to(stream)) for _ in range(DEAF)]
    parts["fifty_more"] = Part(pids, commands, seconds).data()
    for each in deaf:
        each.close(0)
    ages = sorted(age for viewer in viewers for age in viewer.ages)
    for viewer in viewers:
        viewer.ended.set()
    p95 = ages[int(0.95 * (len(ages) - 1))]
    return {
        "seconds": seconds,
        "clients": CLIENTS,
        "parts": parts,
        "ticks": len(ages),
        "age_ms": {
            "median": round(statistics.median(ages), 2),
            "p95": round(p95, 2),
            "max": round(ages[-1], 2),
        },
        "goals": GOALS,
        "load_average": os.getloadavg()[0],
        "met": parts["three"]["server_share"] <= GOALS["server_share"] and p95 <= GOALS["age_p95_ms"],
    }


BENCHMARKS = {"page": bench}
