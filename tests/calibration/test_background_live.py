"""A profile beside a run as a process: it goes on where it was killed, and says why it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from headgate.topology_runtime.calibration import sample_rows
from headgate.topology_runtime.calibration.background import FAILED, ProfileOrder
from headgate.topology_runtime.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.worker.mirror import FOLDER

pytestmark = pytest.mark.live
TASKS = "headgate.topology_runtime.tasks"
TOPOLOGY = Topology(
    "line",
    (
        Task("source", "source", f"{TASKS}.counter:Counter", static=Static()),
        Task("work", run=f"{TASKS}.wait:Wait", params={"ms": 5.0}),
        Task("store", run=f"{TASKS}.collect_to_file:CollectToFile", static=Static()),
    ),
    (Edge("source", "work"), Edge("work", "store")),
)


def begin(folder: Path, rows: int = 50, budget_s: float = 60.0) -> subprocess.Popen[bytes]:
    """The process, as an agent starts it; outside of any slot."""
    for name in (FOLDER, "own"):
        (folder / name).mkdir(exist_ok=True)
    if rows:
        sample_rows.write(folder / FOLDER / "7-0.rows", [("source", number) for number in range(rows)])
    own, output = str(folder / "own"), str(folder / "out")
    order = ProfileOrder(
        TOPOLOGY, "work", 7, (), str(folder), own, output, (), "test", 0.2, 1 << 28, budget_s, os.getpid()
    )
    (folder / "order.json").write_bytes(msgspec.json.encode(order))
    command = [sys.executable, "-P", "-m", "headgate.topology_runtime.calibration.background"]
    with (folder / "order.json").open("rb") as given:
        return subprocess.Popen(command, stdin=given, start_new_session=True)


def test_a_profile_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    record = tmp_path / "out" / ".profile" / "work.jsonl"
    first = begin(tmp_path)
    try:
        end_s = time.monotonic() + 40.0
        while not record.exists() or len(record.read_bytes().splitlines()) < 2:
            assert first.poll() is None and time.monotonic() < end_s
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    known = json.loads(record.read_bytes().splitlines()[1])["probe"]

    assert begin(tmp_path).wait(60.0) == 0
    model = json.loads((tmp_path / "out" / "work.json").read_text())
    assert model["complete"] and model["waiting"] and [p["threads"] for p in model["points"]][:3] == [1, 2, 4]
    assert model["points"][0]["closed_loop_tps"] == pytest.approx(known["rate_tps"], rel=0.001)
    assert not record.exists()  # the next profile is a new one


def test_a_profile_without_rows_says_so(tmp_path: Path) -> None:
    assert begin(tmp_path, rows=0, budget_s=1.0).wait(30.0) == 1
    assert "no rows of task 'work' came" in (tmp_path / "own" / FAILED).read_text()
