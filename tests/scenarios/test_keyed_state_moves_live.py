"""Keyed state follows its key ranges through live re-plans: every row is counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live
HERE = Path(__file__).parent
TASKS = "headgate.topology_runtime.tasks"
STATIC = {"threads": 1, "cpu": 0.1, "memory": 0.1}


def write_work(folder: Path, tally: str = "Tally", steps: str = "0,30\n4,110\n13,30\n60,30\n") -> None:
    topology = {
        "schema": "headgate/topology/v1",
        "name": "tally",
        "tasks": [
            {"name": "source", "kind": "source", "run": f"{TASKS}.counter:Counter", "static": STATIC},
            {"name": "group", "run": "keyed_tasks:group"},
            {
                "name": "tally",
                "kind": "keyed",
                "state": "keyed",
                "run": f"keyed_tasks:{tally}",
                "max_call_s": 10,
            },
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
    (folder / "steps.txt").write_text(steps)


def run(folder: Path) -> tuple[dict[str, Any], Counter[tuple[int, int]]]:
    """The summary, and the rows stored: (group, its count)."""
    command = [sys.executable, "-m", "headgate.dashboards.cli", "up", "topology.json", "--models", "models"]
    command += ["--rates", "steps.txt", "--seconds", "33", "--vms", "4,4", "-o", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert len(summary["plans"]) >= 3, summary["plans"]
    assert summary["state"]["lost_ranges"] == 0
    return summary, Counter(
        tuple(json.loads(line)) for line in (folder / "stored.txt").read_text().splitlines()
    )


def counted_once(emitted: int) -> Counter[tuple[int, int]]:
    return Counter((g, n) for g in range(20) for n in range(1, len(range(g, emitted, 20)) + 1))


def test_counts_stay_exact_while_ranges_move(tmp_path: Path) -> None:
    write_work(tmp_path)
    summary, rows = run(tmp_path)
    assert not any(plan["rolled_back"] for plan in summary["plans"])
    assert rows == counted_once(summary["tuples"]["emitted"])


def test_a_long_legal_call_during_a_re_plan_loses_no_state(tmp_path: Path) -> None:
    """Rows are replayed meanwhile and come out again; no state counts them twice, or begins anew."""
    write_work(
        tmp_path, "SlowTally", "0,30\n4,110\n17,200\n60,200\n"
    )  # a plan that waits for the call is lowered late
    summary, rows = run(tmp_path)
    assert (tmp_path / "slept").exists()
    assert max(plan["pause_ms"] for plan in summary["plans"]) > 2000, "a re-plan waited for the call"
    assert set(rows) == set(counted_once(summary["tuples"]["emitted"]))
