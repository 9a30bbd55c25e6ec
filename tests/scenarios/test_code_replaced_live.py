"""A running topology gets other code: every row once, every count goes on, and code that fails never gets a row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live
HEADGATE = [sys.executable, "-P", "-m", "headgate"]
GROUPS = 7
FLOW = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.tasks.sinks import CollectToFile
from headgate.topology_runtime.tasks.row_sources import Counter

VERSION = {version}


def mark(number):
    return number % {groups}, number, VERSION


class Tally(Keyed):
    def __init__(self):
        {begin}

    def new(self, key):
        return 0

    def process(self, key, row, state):
        return state + 1, [(*row, state + 1, VERSION)]


flow = topology("versions")
marked = flow.source("numbers", Counter) >> flow.task("mark", mark)
marked >> flow.task("tally", Tally).by(0) >> flow.task("store", CollectToFile, path={path!r})
"""


class RunOfVersions:
    """`headgate up` in a folder; its rows as (number, version of mark, count, version of tally)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows_file = folder, folder / "stored.txt"
        (folder / "models").mkdir()
        for task in ("mark", "tally", "store"):
            points = [{"threads": 1, "rate_tps": 40.0, "cpu": 0.9, "memory": 0.05}]
            slot = {"cores": 0.3, "memory_bytes": 536870912, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (folder / "models" / f"{task}.json").write_text(json.dumps(model))
        self.write(1)
        words = [
            "up",
            "flow.py:flow",
            "--models",
            "models",
            "--rates",
            "60",
            "--vms",
            "4,4",
            "--slot-cores",
            "0.3",
        ]
        with (folder / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*HEADGATE, *words, "-o", "json"], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def write(self, version: int, begin: str = "pass") -> None:
        text = FLOW.format(version=version, groups=GROUPS, begin=begin, path=str(self.rows_file))
        (self.folder / "flow.py").write_text(text)

    def headgate(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*HEADGATE, *words], cwd=self.folder, capture_output=True, text=True, timeout=150
        )
        assert done.returncode == code, f"{words} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def rows(self) -> list[tuple[int, int, int, int]]:
        lines = self.rows_file.read_text().splitlines(True) if self.rows_file.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(number, marked, count, tallied) for _, number, marked, count, tallied in whole]

    def slots(self) -> set[str]:
        """With threads."""
        found = json.loads(self.headgate("status", "-o", "json"))
        return {
            f"{vm['vm']}/{slot['slot']}" for vm in found["vms"] for slot in vm["slots"] if slot["threads"]
        }

    def until(self, what: Callable[[], bool], words: str) -> None:
        until(what, lambda: f"{words}\n{(self.folder / 'up.log').read_text()[-3000:]}", self.process)

    def more(self, number: int) -> None:
        before = len(self.rows())
        self.until(lambda: len(self.rows()) > before + number, f"{number} more rows")

    def stopped(self) -> dict[str, Any]:
        self.headgate("stop")
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        summary: dict[str, Any] = json.loads(out)
        return summary


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunOfVersions]:
    made = RunOfVersions(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.terminate()
        made.process.wait(PATIENCE_S)


def test_every_row_is_counted_once_through_new_code_bad_code_and_the_code_before(run: RunOfVersions) -> None:
    run.until(lambda: len(run.rows()) > 100, "rows")
    slots = run.slots()
    assert len(slots) >= 4, "else nothing is tried here"
    run.write(2)
    assert "have the new code" in run.headgate("replace", "flow.py:flow")
    began_2 = len(run.rows())
    run.more(120)
    assert {(marked, tallied) for _, marked, _, tallied in run.rows()[began_2 + 60 :]} == {(2, 2)}

    run.write(3, begin="raise ValueError('cannot be built')")
    said = run.headgate("replace", "flow.py:flow", code=8)
    assert "the code before came back" in said and "Tally() raised ValueError" in said, said
    run.write(2)
    run.more(60)
    assert all(marked < 3 and tallied < 3 for _, marked, _, tallied in run.rows())

    summary = run.stopped()
    rows = run.rows()
    tuples = summary["tuples"]
    assert Counter(number for number, *_ in rows) == Counter(range(tuples["emitted"]))
    assert (tuples["lost"], tuples["replayed"], tuples["duplicates"]) == (0, 0, 0)
    expected = Counter((n % GROUPS, 1 + n // GROUPS) for n in range(tuples["emitted"]))
    assert Counter((number % GROUPS, count) for number, _, count, _ in rows) == expected, "counts began anew"
    assert {plan["reason"] for plan in summary["plans"]} >= {"start", "code_replaced"}
