"""Dead letters of a real run: listed, shown and dropped while it goes on, known to a controller that was killed,
and listed from its trace afterwards; replayed once the cause is mended, in this run or in another."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from watched_runs.user_project import UserProject, user_project

pytestmark = pytest.mark.live

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

MENDED = """
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
def project(tmp_path: Path) -> Iterator[UserProject]:
    with user_project(tmp_path, "", {"work": 100.0, "store": 100.0}, 0.2) as made:
        yield made


def begin(project: UserProject, flow: str, *words: str, state: str = "state") -> None:
    (project.home / "flow.py").write_text(flow)
    project.up("--state-dir", state, *words)


def letters(project: UserProject, *words: str) -> dict[str, Any]:
    found = project.asked("deadletter", "list", *(words or ("--controller", "state")))
    return found or {"dead_lettered": 0, "letters": []}


def test_letters_outlive_their_controller_and_their_run(project: UserProject) -> None:
    begin(project, FLOW.format(every=10), "--rates", "40")
    project.until(lambda: letters(project)["dead_lettered"] >= 5)
    first = letters(project)["letters"][0]
    assert (first["id"], first["task"], first["position"], first["error"]) == (
        1,
        "work",
        0,
        "ValueError: no 0",
    )
    shown = json.loads(
        project.headgate("deadletter", "show", "1", "--controller", "state", "-o", "json").stdout
    )
    assert shown["row"] == "0" and 'raise ValueError(f"no {row}")' in shown["traceback"]
    dropped = project.headgate("deadletter", "drop", "2", "--controller", "state")
    assert dropped.returncode == 0 and dropped.stdout.startswith("1 dead letters are forgotten")
    assert project.headgate("deadletter", "show", "2", "--controller", "state").returncode == 3
    time.sleep(1.5)  # they are on the disk within a second
    before = letters(project)
    pid = json.loads((project.home / "state/controller/endpoint").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    project.until(lambda: letters(project)["dead_lettered"] > before["dead_lettered"] + 3)
    after = letters(project)
    assert [x["id"] for x in after["letters"]][: len(before["letters"])] == [
        x["id"] for x in before["letters"]
    ]
    assert after["dropped"] == 1 and len({x["position"] for x in after["letters"]}) == len(after["letters"])
    summary = project.ended()
    tuples = summary["tuples"]
    assert tuples["lost"] == 0 and tuples["dead_lettered"] == len(range(0, tuples["emitted"], 10))
    traced = letters(project, "--trace", summary["trace"])
    assert traced["dead_lettered"] == tuples["dead_lettered"] and traced["dropped"] == 1
    assert len(traced["letters"]) == tuples["dead_lettered"] - 1


def test_a_run_of_nothing_but_dead_rows_ends_8_and_says_so(project: UserProject) -> None:
    begin(project, FLOW.format(every=1), "--rates", "8", "--seconds", "3")
    (run,) = project.started
    out = run.stdout.read() if run.stdout is not None else ""
    run.wait(80.0)
    said = project.log()
    assert run.returncode == 8, said[-3000:]
    assert json.loads(out)["tuples"]["lost"] == 0
    assert "error[HG-CHECK]: every row became a dead letter" in said and "headgate deadletter list" in said


def sunk(project: UserProject) -> list[int]:
    return sorted(map(int, (project.home / "sink.txt").read_text().split()))


def test_letters_replayed_once_their_cause_is_mended_reach_the_sink(project: UserProject) -> None:
    begin(project, MENDED.format(home=project.home), "--rates", "40", state="state")
    project.until(lambda: len(letters(project, "--controller", "state")["letters"]) >= 20)
    where = ("--controller", "state", "--yes")
    still = project.headgate("deadletter", "replay", "1", "2", *where, "-o", "json")
    assert still.returncode == 8 and json.loads(still.stdout)["died_again"] == [1, 2], still.stderr
    assert project.headgate("deadletter", "replay", "1", "99999", *where).returncode == 3
    (project.home / "mended").touch()
    time.sleep(1.0)  # rows that failed just before are letters by then
    done = project.headgate("deadletter", "replay", "--all", *where)
    assert done.returncode == 0 and done.stdout.endswith("dead letters are done\n"), done.stderr
    assert letters(project, "--controller", "state")["letters"] == []
    summary = project.ended()
    tuples = summary["tuples"]
    assert sunk(project) == list(range(tuples["emitted"])), "each row once, those of the letters too"
    assert (tuples["lost"], tuples["duplicates"], tuples["in_flight"]) == (0, 0, 0)
    assert tuples["acked"] + tuples["dead_lettered"] == tuples["emitted"]
    assert summary["letters"] == {
        "replayed": tuples["dead_lettered"],
        "mended": tuples["dead_lettered"],
        "keys": 0,
    }


def test_letters_of_a_run_that_is_over_are_processed_by_another(project: UserProject) -> None:
    begin(project, MENDED.format(home=project.home), "--rates", "40", state="first")
    project.until(lambda: len(letters(project, "--controller", "first")["letters"]) >= 20)
    trace = project.ended()["trace"]
    died = [x["position"] for x in json.loads(
        project.headgate("deadletter", "list", "--trace", trace, "-o", "json").stdout
    )["letters"]]  # fmt: skip
    (project.home / "sink.txt").unlink()
    (project.home / "mended").touch()
    begin(project, MENDED.format(home=project.home), "--rates", "40", state="second")
    project.until(lambda: (project.home / "sink.txt").exists())
    where = ("--trace", trace, "--controller", "second", "--yes")
    done = project.headgate("deadletter", "replay", *where, "-o", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["done"] == len(died), done.stderr
    tuples = project.ended()["tuples"]
    assert sunk(project) == sorted([*range(tuples["emitted"]), *died])
    assert (tuples["lost"], tuples["dead_lettered"], tuples["duplicates"]) == (0, 0, 0)
    gone = project.headgate("deadletter", "replay", "--all", "--controller", "second", "--yes")
    assert gone.returncode == 5, "the run is over"
