"""What tasks print is on the console of `up`, in `headgate logs` while the run goes on, and in its trace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
PATIENCE_S = 60.0
FLOW = """
import logging, os, subprocess
from headgate import topology
from headgate.tasks import Counter

class Speak:
    def open(self, context):
        print("open in", context.task)
    def __call__(self, row):
        if row == 3:
            print("half", end=" ")
            print("and half \\x1b[2J")
            logging.getLogger("user").warning("old row %d", row)
        if row == 5:
            subprocess.run(["echo", "from a child"], check=True)
        return row
    def close(self):
        print("last words")

class Store:
    def __call__(self, row):
        return None

def forget(row):
    "Lacks its return."

flow = topology("speaking")
numbers = flow.source("numbers", Counter)
numbers >> flow.task("speak", Speak) >> flow.task("forget", forget) >> flow.task("store", Store)
"""


def logs(*words: str) -> str:
    return subprocess.run([*HEADGATE, "logs", *words], capture_output=True, text=True, check=False).stdout


def test_on_the_console_live_and_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "models").mkdir()
    for task in ("speak", "forget", "store"):
        points = [{"threads": n, "rate_tps": 400.0, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (tmp_path / "models" / f"{task}.json").write_text(json.dumps(model))
    words = ["up", "flow.py:flow", "--models", "models", "--slot-cores", "0.2", "--rates", "20"]
    with open("err.txt", "w") as log, subprocess.Popen([*HEADGATE, *words], stderr=log, stdout=log) as up:
        deadline_s = time.monotonic() + PATIENCE_S
        while "from a child" not in (live := logs()):
            assert up.poll() is None and time.monotonic() < deadline_s, Path("err.txt").read_text()
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE_S) == 0
    console = Path("err.txt").read_text()
    past = logs("speak")
    for text in ("open in speak", "half and half \\x1b[2J", "warning: old row 3"):
        for seen in (live, console, past):
            assert f"| {text}\n" in seen
    assert "vm1/" in live and "| last words\n" in past and "| last words\n" in console
    assert "returned None, and that went on as a row: return the row" in console, "once is enough"
    assert console.count("| warning: task 'forget' (") == 1
    assert "from a child" in logs("--since", "1h") and "from a child" not in past
