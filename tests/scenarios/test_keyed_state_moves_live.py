"""Keyed state follows its key ranges through live re-plans: every row is counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
HERE = Path(__file__).parent
TASKS = "topology_runtime.tasks"
STATIC = {"threads": 1, "cpu": 0.1, "memory": 0.1}


def write_work(folder: Path) -> None:
    topology = {
        "schema": "headgate/topology/v1",
        "name": "tally",
        "tasks": [
            {"name": "source", "kind": "source", "run": f"{TASKS}.counter:Counter", "static": STATIC},
            {"name": "group", "run": "keyed_tasks:group"},
            {"name": "tally", "kind": "keyed", "state": "keyed", "run": "keyed_tasks:Tally"},
            {"name": "store", "run": f"{TASKS}.collect_to_file:CollectToFile", "static": STATIC}
            | {"params": {"path": str(folder / "stored.txt")}},
        ],
        "edges": [
            {"from": "source", "to": "group"},
            {"from": "group", "to": "tally", "grouping": "fields", "key": 0},
            {"from": "tally", "to": "store"},
        ],
    }
    (folder / "topology.json").write_text(json.dumps(topology))
    (folder / "keyed_tasks.py").write_text((HERE / "keyed_tasks.py").read_text())
    (folder / "models").mkdir()
    for task, rate in (("group", 400.0), ("tally", 50.0)):  # one slot carries 50/s: more rate, more owners
        point = {"threads": 1, "rate_tps": rate, "cpu": 0.9, "memory": 0.05}
        slot = {"cores": 0.12, "memory_bytes": 536870912, "machine": "any"}
        model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": [point]}
        (folder / "models" / f"{task}.json").write_text(json.dumps(model))
    (folder / "steps.txt").write_text("0,30\n7,110\n24,30\n")


def test_counts_stay_exact_while_ranges_move(tmp_path: Path) -> None:
    write_work(tmp_path)
    command = [sys.executable, "-m", "dashboards.cli", "up", "topology.json", "--models", "models"]
    command += ["--rates", "steps.txt", "--seconds", "42", "--vms", "4,4", "-o", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert len(summary["plans"]) >= 3, summary["plans"]
    assert not any(plan["rolled_back"] for plan in summary["plans"])
    emitted = summary["tuples"]["emitted"]
    rows = Counter(tuple(json.loads(line)) for line in (tmp_path / "stored.txt").read_text().splitlines())
    assert rows == Counter((g, n) for g in range(20) for n in range(1, len(range(g, emitted, 20)) + 1))
