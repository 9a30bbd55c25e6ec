"""A key that becomes hot in a running topology is named: in `status`, in `explain`, in an alarm."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.alone]
HEADGATE = [sys.executable, "-P", "-m", "headgate.dashboards.cli"]
LIMIT_S = 60.0
FLOW = """
import os

from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.tasks.collect_to_file import CollectToFile
from headgate.topology_runtime.tasks.count import CountByKey
from headgate.topology_runtime.tasks.counter import Counter


def mark(number):
    hot = number % 5 and os.path.exists({hot!r})
    return "customer-X" if hot else f"customer-{{number % 997}}", number


flow = topology("skewed")
marked = flow.source("numbers", Counter) >> flow.task("mark", mark)
marked >> flow.task("tally", CountByKey).by(0) >> flow.task("store", CollectToFile, path={path!r})
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "flow.py").write_text(
        FLOW.format(hot=str(tmp_path / "hot"), path=str(tmp_path / "stored.txt"))
    )
    (tmp_path / "models").mkdir()
    for task in ("mark", "tally", "store"):
        points = [{"threads": 1, "rate_tps": 400.0, "cpu": 0.9, "memory": 0.05}]
        slot = {"cores": 0.3, "memory_bytes": 536870912, "machine": "any"}
        model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
        (tmp_path / "models" / f"{task}.json").write_text(json.dumps(model))
    words = [
        "up",
        "flow.py:flow",
        "--models",
        "models",
        "--rates",
        "300",
        "--vms",
        "4",
        "--slot-cores",
        "0.3",
    ]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*HEADGATE, *words, "-o", "json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    yield process
    process.terminate()
    process.communicate(timeout=60)


def asked(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [*HEADGATE, *words, "-o", "json"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def alarms(status: dict[str, Any]) -> dict[str, str]:
    return {alarm["what"]: alarm["text"] for alarm in status.get("alarms", ())}


def until(folder: Path, hot: bool) -> tuple[float, dict[str, Any]]:
    """How long until the alarm is there, or is not, and the status that says so."""
    begin = time.monotonic()
    while time.monotonic() - begin < LIMIT_S:
        asked_at = time.monotonic()
        status = asked(folder, "status")
        if status and ("hot key tally" in alarms(status)) == hot:
            return asked_at - begin, status
    raise AssertionError(f"the hot key is {'not ' * hot}named\n{(folder / 'up.log').read_text()[-3000:]}")


def test_a_hot_key_is_named_within_five_seconds(tmp_path: Path, run: subprocess.Popen[str]) -> None:
    stored = tmp_path / "stored.txt"
    begin = time.monotonic()
    while not stored.exists() or stored.read_text().count("\n") < 900:
        assert time.monotonic() - begin < LIMIT_S and run.poll() is None, (tmp_path / "up.log").read_text()[
            -3000:
        ]
        time.sleep(0.1)
    assert alarms(asked(tmp_path, "status")) == {}, "no key of 997 is hot"
    (tmp_path / "hot").touch()
    took_s, status = until(tmp_path, hot=True)
    assert "of the rows of tally are of key 'customer-X' (range" in alarms(status)["hot key tally"]
    time.sleep(2.0)  # the second in which it began is over
    hottest = asked(tmp_path, "status")["hot_keys"][0]
    assert (hottest["task"], hottest["key"]) == ("tally", "'customer-X'")
    assert hottest["share"] == pytest.approx(0.8, abs=0.06)
    assert asked(tmp_path, "explain")["hot_keys"][0].endswith(
        f"key 'customer-X' (range {hottest['key_range']})"
    )
    (tmp_path / "hot").unlink()
    until(tmp_path, hot=False)
    assert took_s <= 5.0
