"""Real runs to ask about: one in which workers are killed and a row fails, a shorter one after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from patience import PATIENCE_S, until

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
FLOW = """
import time

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.sinks import CollectToFile

def double(row):
    if row == 13:
        raise ValueError("unlucky")
    return 2 * row

def once_more(row):
    time.sleep(0.005)  # so that rows are on their way when a worker is killed
    return row + 1

flow = topology("doubles")
numbers = flow.source("numbers", Counter)
twice = numbers >> flow.task("double", double)
twice >> flow.task("more", once_more) >> flow.task("store", CollectToFile, path={path!r})
"""


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The summaries of two runs in `folder`/traces."""
    (folder / "flow.py").write_text(FLOW.format(path=str(folder / "rows.jsonl")))
    (folder / "models").mkdir()
    for task, rate_tps in (("double", 300.0), ("more", 150.0), ("store", 400.0)):
        points = [{"threads": n, "rate_tps": rate_tps, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (folder / "models" / f"{task}.json").write_text(json.dumps(model))
    (folder / "first.csv").write_text("0,60\n6,160\n18,160\n")
    (folder / "second.csv").write_text("0,60\n")
    return [run(folder, "first.csv", 20, kills=True), run(folder, "second.csv", 8, kills=False)]


def run(folder: Path, rates: str, seconds: int, kills: bool) -> dict[str, Any]:
    words = [
        "up",
        "flow.py:flow",
        "--models",
        "models",
        "--slot-cores",
        "0.2",
        "--vms",
        "4",
        "--rates",
        rates,
    ]
    words += ["--seconds", str(seconds), "-o", "json"]
    with (folder / f"{rates}.log").open("w+") as log:
        command = [*HEADGATE, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder) as up:
            try:
                if kills:
                    kill_workers(up, folder / f"{rates}.log")
                out, _ = up.communicate(timeout=PATIENCE_S)
            finally:
                up.kill()
    assert up.returncode == 0, (folder / f"{rates}.log").read_text()
    summary: dict[str, Any] = json.loads(out)
    return summary


def kill_workers(up: subprocess.Popen[str], log: Path) -> None:
    """Once rows flow for some seconds: what is on its way through them is sent again."""
    until(
        lambda: log.read_text().count("plan #2 probation") >= 2, log.read_text, up
    )  # another worker has had rows
    workers = [
        child
        for child in psutil.Process(up.pid).children(recursive=True)
        if any("headgate.topology_runtime.worker" in word for word in child.cmdline())
    ]
    assert len(workers) > 1, [child.cmdline() for child in psutil.Process(up.pid).children(recursive=True)]
    for worker in workers[1:]:
        os.kill(worker.pid, signal.SIGKILL)
