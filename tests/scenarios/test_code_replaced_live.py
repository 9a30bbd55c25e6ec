"""A running topology gets other code: every row once, every count goes on, and code that fails never gets a row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from watched_runs.user_project import UserProject, user_project

pytestmark = pytest.mark.live
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


class Versions:
    """A run of flows that say their version; its rows as (number, version of mark, count, version of tally)."""

    def __init__(self, project: UserProject) -> None:
        self.project, self.rows_file = project, project.home / "stored.txt"
        self.write(1)
        project.up("--rates", "60", "--vms", "4,4")

    def write(self, version: int, begin: str = "pass") -> None:
        text = FLOW.format(version=version, groups=GROUPS, begin=begin, path=str(self.rows_file))
        (self.project.home / "flow.py").write_text(text)

    def replace(self, code: int = 0) -> str:
        done = self.project.headgate("replace", "flow.py:flow")
        assert done.returncode == code, f"ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def rows(self) -> list[tuple[int, int, int, int]]:
        lines = self.rows_file.read_text().splitlines(True) if self.rows_file.exists() else []
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(number, marked, count, tallied) for _, number, marked, count, tallied in whole]

    def slots(self) -> set[str]:
        """With threads."""
        vms = self.project.asked("status")["vms"]
        return {f"{vm['vm']}/{slot['slot']}" for vm in vms for slot in vm["slots"] if slot["threads"]}

    def more(self, number: int) -> None:
        before = len(self.rows())
        self.project.until(lambda: len(self.rows()) > before + number, f"{number} more rows")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Versions]:
    with user_project(tmp_path, "", dict.fromkeys(("mark", "tally", "store"), 40.0)) as project:
        yield Versions(project)


def test_every_row_is_counted_once_through_new_code_bad_code_and_the_code_before(run: Versions) -> None:
    run.more(100)
    slots = run.slots()
    assert len(slots) >= 4, "else nothing is tried here"
    run.write(2)
    assert "have the new code" in run.replace()
    began_2 = len(run.rows())
    run.more(120)
    assert {(marked, tallied) for _, marked, _, tallied in run.rows()[began_2 + 60 :]} == {(2, 2)}

    run.write(3, begin="raise ValueError('cannot be built')")
    said = run.replace(code=8)
    assert "the code before came back" in said and "Tally() raised ValueError" in said, said
    run.write(2)
    run.more(60)
    assert all(marked < 3 and tallied < 3 for _, marked, _, tallied in run.rows())

    summary = run.project.ended()
    rows = run.rows()
    tuples = summary["tuples"]
    assert Counter(number for number, *_ in rows) == Counter(range(tuples["emitted"]))
    assert (tuples["lost"], tuples["replayed"], tuples["duplicates"]) == (0, 0, 0)
    expected = Counter((n % GROUPS, 1 + n // GROUPS) for n in range(tuples["emitted"]))
    assert Counter((number % GROUPS, count) for number, _, count, _ in rows) == expected, "counts began anew"
    assert {plan["reason"] for plan in summary["plans"]} >= {"start", "code_replaced"}
