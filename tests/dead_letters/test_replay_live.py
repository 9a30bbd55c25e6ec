"""Rows that fail until the cause is mended, in a real run: replayed, they reach the sink, each once; those of a run
that is over reach the sink of another."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]

FLOW = """
import os
from pathlib import Path
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter

def work(row):
    if row % 5 == 0 and not Path("{home}/mended").exists():
        raise LookupError(f"the service does not know {{row}}")
    return (row, "looked up")

def store(row):
    with open("{home}/sink.txt", "a") as file:
        file.write(f"{{row[0]}}\\n")
    return row

flow = topology("numbers")
flow.source("count", Counter) >> flow.task("work", work) >> flow.task("store", store)
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "flow.py").write_text(FLOW.format(home=tmp_path))
    (tmp_path / "models").mkdir()
    points = [{"threads": n, "rate_tps": 100.0 * n, "cpu": 0.4, "memory": 0.1} for n in (1, 2)]
    for task in ("work", "store"):
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (tmp_path / "models" / f"{task}.json").write_text(json.dumps(model))

    def start(state: str) -> subprocess.Popen[str]:
        command = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--slot-cores", "0.2", "-o", "json"]
        command += ["--rates", "40", "--state-dir", state]
        with (tmp_path / "err.txt").open("w") as err:
            started.append(
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=err, text=True, process_group=0, cwd=tmp_path
                )
            )
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.communicate()


def headgate(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADGATE, *words], cwd=home, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def letters(home: Path, state: str) -> dict[str, Any]:
    done = headgate(home, "deadletter", "list", "-o", "json", "--controller", state)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"letters": []}
    return found


def end(run: subprocess.Popen[str], home: Path) -> dict[str, Any]:
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, (home / "err.txt").read_text()[-3000:]
    found: dict[str, Any] = json.loads(out)
    return found


def sunk(home: Path) -> list[int]:
    return sorted(map(int, (home / "sink.txt").read_text().split()))


def test_letters_replayed_once_their_cause_is_mended_reach_the_sink(
    up: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    run = up("state")
    until(lambda: len(letters(tmp_path, "state")["letters"]) >= 20, (tmp_path / "err.txt").read_text)
    where = ("--controller", "state", "--yes")
    still = headgate(tmp_path, "deadletter", "replay", "1", "2", *where, "-o", "json")
    assert still.returncode == 8 and json.loads(still.stdout)["died_again"] == [1, 2], still.stderr
    assert headgate(tmp_path, "deadletter", "replay", "1", "99999", *where).returncode == 3
    (tmp_path / "mended").touch()
    time.sleep(1.0)  # rows that failed just before are letters by then
    done = headgate(tmp_path, "deadletter", "replay", "--all", *where)
    assert done.returncode == 0 and done.stdout.endswith("dead letters are done\n"), done.stderr
    assert letters(tmp_path, "state")["letters"] == []
    summary = end(run, tmp_path)
    tuples = summary["tuples"]
    assert sunk(tmp_path) == list(range(tuples["emitted"])), "each row once, those of the letters too"
    assert (tuples["lost"], tuples["duplicates"], tuples["in_flight"]) == (0, 0, 0)
    assert tuples["acked"] + tuples["dead_lettered"] == tuples["emitted"]
    assert summary["letters"] == {key: tuples["dead_lettered"] for key in ("replayed", "mended")}


def test_letters_of_a_run_that_is_over_are_processed_by_another(
    up: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    first = up("first")
    until(lambda: len(letters(tmp_path, "first")["letters"]) >= 20, (tmp_path / "err.txt").read_text)
    trace = end(first, tmp_path)["trace"]
    died = [x["position"] for x in json.loads(
        headgate(tmp_path, "deadletter", "list", "--trace", trace, "-o", "json").stdout
    )["letters"]]  # fmt: skip
    (tmp_path / "sink.txt").unlink()
    (tmp_path / "mended").touch()
    second = up("second")
    until(lambda: (tmp_path / "sink.txt").exists(), (tmp_path / "err.txt").read_text)
    where = ("--trace", trace, "--controller", "second", "--yes")
    done = headgate(tmp_path, "deadletter", "replay", *where, "-o", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["done"] == len(died), done.stderr
    tuples = end(second, tmp_path)["tuples"]
    assert sunk(tmp_path) == sorted([*range(tuples["emitted"]), *died])
    assert (tuples["lost"], tuples["dead_lettered"], tuples["duplicates"]) == (0, 0, 0)
    gone = headgate(tmp_path, "deadletter", "replay", "--all", "--controller", "second", "--yes")
    assert gone.returncode == 5, "the run is over"
