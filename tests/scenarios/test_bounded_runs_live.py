"""A run whose input ends: by itself, exit code 0, everything done; also when processes are killed all the while."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live_runs.bench_bounded import bounded

pytestmark = pytest.mark.live


def test_it_ends_by_itself_with_every_result() -> None:
    found = bounded(rows=6000, kills=0, rate=3000)
    assert found["exit_code"] == 0 and found["ended"] == "every source has ended", found
    assert found["whole"] and found["results"] > 200, found
    assert found["tuples"] == {"emitted": 6000, "acked": 6000, "lost": 0, "left": 0, "replayed": 0}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_while_it_ends_changes_no_result(seed: int) -> None:
    found = bounded(rows=6000, kills=2, rate=1000, seed=seed)
    assert found["exit_code"] == 0 and found["whole"], found


@pytest.mark.full
@pytest.mark.alone
def test_a_million_rows_under_ten_kills_give_what_duckdb_gives() -> None:
    found = bounded()
    assert found["exit_code"] == 0 and found["whole"] and len(found["kills"]) == 10, found


SLOW_FLOW = """
import time
from headgate import topology
from headgate.tasks import CollectToFile, FilesSource

def slow(line):
    time.sleep(0.05)
    return line

flow = topology("slow")
lines = flow.source("lines", FilesSource, path="{folder}/lines", format="text")
lines >> flow.task("slow", slow) >> flow.task("store", CollectToFile, path="{folder}/stored")
"""
ROWS = 300


def up(folder: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-P", "-m", "headgate", "up", *words, "--state-dir", "state", "-o", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, json.loads(done.stdout)["tuples"], done.stderr


def test_rows_that_a_time_limit_gave_up_are_left_and_a_resumed_run_does_them(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(SLOW_FLOW.format(folder=tmp_path))
    (tmp_path / "lines").write_text("".join(f"{n}\n" for n in range(ROWS)))
    code, tuples, said = up(tmp_path, "flow.py:flow", "--rates", "1000", "--vms", "2", "--drain-timeout", "3")
    assert code == 8 and f"{tuples['left']} rows left" in said, said
    assert tuples["acked"] + tuples["left"] == tuples["emitted"] == ROWS and tuples["lost"] == 0
    code, tuples, said = up(tmp_path, "--resume", "--drain-timeout", "0")
    assert code == 0, said
    assert (tuples["acked"], tuples["left"], tuples["lost"]) == (ROWS, 0, 0)
    stored = Counter(json.loads(line) for line in (tmp_path / "stored").read_text().splitlines())
    assert stored.keys() == {str(n) for n in range(ROWS)}
    assert stored.total() - ROWS == tuples["duplicates"]
