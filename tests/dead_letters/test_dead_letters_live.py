"""Dead letters of a real run: listed, shown and dropped while it goes on, known to a controller that was killed,
and listed from its trace afterwards."""

from __future__ import annotations

import json
import os
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
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.computing import tag

def work(row):
    if row % {every} == 0:
        raise ValueError(f"no {{row}}")
    return row

flow = topology("numbers")
flow.source("count", Counter) >> flow.task("work", work)
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(every: int, *words: str) -> subprocess.Popen[str]:
        (tmp_path / "flow.py").write_text(FLOW.format(every=every))
        (tmp_path / "models").mkdir()
        points = [{"threads": n, "rate_tps": 100.0 * n, "cpu": 0.4, "memory": 0.1} for n in (1, 2)]
        model = {"schema": "headgate/model/v1", "task": "work", "points": points}
        (tmp_path / "models" / "work.json").write_text(json.dumps(model))
        command = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--slot-cores", "0.2", "-o", "json"]
        err = (tmp_path / "err.txt").open("w")
        started.append(
            subprocess.Popen(
                [*command, "--state-dir", "state", *words],
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                process_group=0,
                cwd=tmp_path,
            )
        )
        err.close()
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


def letters(home: Path, *words: str) -> dict[str, Any]:
    done = headgate(home, "deadletter", "list", "-o", "json", *(words or ("--controller", "state")))
    if done.returncode != 0:
        return {"dead_lettered": 0, "letters": []}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_letters_outlive_their_controller_and_their_run(
    up: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    run = up(10, "--rates", "40")
    until(lambda: letters(tmp_path)["dead_lettered"] >= 5, (tmp_path / "err.txt").read_text)
    first = letters(tmp_path)["letters"][0]
    assert (first["id"], first["task"], first["position"], first["error"]) == (
        1,
        "work",
        0,
        "ValueError: no 0",
    )
    shown = json.loads(
        headgate(tmp_path, "deadletter", "show", "1", "--controller", "state", "-o", "json").stdout
    )
    assert shown["row"] == "0" and 'raise ValueError(f"no {row}")' in shown["traceback"]
    dropped = headgate(tmp_path, "deadletter", "drop", "2", "--controller", "state")
    assert dropped.returncode == 0 and dropped.stdout.startswith("1 dead letters are forgotten")
    assert headgate(tmp_path, "deadletter", "show", "2", "--controller", "state").returncode == 3
    time.sleep(1.5)  # they are on the disk within a second
    before = letters(tmp_path)
    pid = json.loads((tmp_path / "state/controller/endpoint").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: letters(tmp_path)["dead_lettered"] > before["dead_lettered"] + 3,
        (tmp_path / "err.txt").read_text,
    )
    after = letters(tmp_path)
    assert [x["id"] for x in after["letters"]][: len(before["letters"])] == [
        x["id"] for x in before["letters"]
    ]
    assert after["dropped"] == 1 and len({x["position"] for x in after["letters"]}) == len(after["letters"])
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, (tmp_path / "err.txt").read_text()[-3000:]
    summary = json.loads(out)
    tuples = summary["tuples"]
    assert tuples["lost"] == 0 and tuples["dead_lettered"] == len(range(0, tuples["emitted"], 10))
    traced = letters(tmp_path, "--trace", summary["trace"])
    assert traced["dead_lettered"] == tuples["dead_lettered"] and traced["dropped"] == 1
    assert len(traced["letters"]) == tuples["dead_lettered"] - 1


def test_a_run_of_nothing_but_dead_rows_ends_8_and_says_so(
    up: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    run = up(1, "--rates", "8", "--seconds", "3")
    out, _ = run.communicate(timeout=PATIENCE_S)
    said = (tmp_path / "err.txt").read_text()
    assert run.returncode == 8, said[-3000:]
    assert json.loads(out)["tuples"]["lost"] == 0
    assert "error[HG-CHECK]: every row became a dead letter" in said and "headgate deadletter list" in said
