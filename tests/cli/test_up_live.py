"""`headgate up` as a user sees it: a project of their own, run, stopped, killed; nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
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
CGROUPS = Path("/sys/fs/cgroup")

FLOW = """
import controller                       # the user's own, not headgate's
from agent import LETTERS
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.sinks import CollectToFile

def double(row):
    if row == 13:
        raise ValueError("unlucky")
    return controller.twice(row)

flow = topology("doubles")
numbers = flow.source("numbers", Counter)
numbers >> flow.task("double", double) >> flow.task("store", CollectToFile, path={path!r})
"""


def model(task: str, rate_tps: float) -> str:
    points = [{"threads": n, "rate_tps": rate_tps, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
    return json.dumps({"schema": "headgate/model/v1", "task": task, "points": points})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project, with modules of the same names as headgate's packages."""
    (tmp_path / "controller.py").write_text("def twice(row):\n    return row * 2\n")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text("LETTERS = 'ab'\n")
    (tmp_path / "flow.py").write_text(FLOW.format(path=str(tmp_path / "rows.jsonl")))
    (tmp_path / "models").mkdir()
    for task in ("double", "store"):
        (tmp_path / "models" / f"{task}.json").write_text(model(task, 400.0))
    monkeypatch.chdir(tmp_path)
    return tmp_path


Start = Callable[..., "Up"]


class Up:
    """One `headgate up` that was started."""

    def __init__(self, *words: str) -> None:
        command = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--slot-cores", "0.2", "-o", "json"]
        self.folder = Path.cwd()
        self.log = Path("err.txt").open("w+")  # noqa: SIM115 - closed by `end`
        self.process = subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, stderr=self.log, text=True, process_group=0
        )

    def says(self) -> str:
        return Path("err.txt").read_text()

    def until(self, text: str) -> None:
        until(lambda: text in self.says(), self.says, self.process)

    def end(self, number: signal.Signals | None = None) -> dict[str, Any]:
        """Its summary, after a signal if one is given."""
        if number is not None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, self.says()
        summary: dict[str, Any] = json.loads(out)
        return summary

    def children(self, what: str) -> list[int]:
        """Processes of the run, by a word of their command line."""
        there = processes(self.folder)
        return [pid for pid, line in there if what in line and pid != self.process.pid]

    def is_gone(self) -> bool:
        """No process works in the project, and no control group has the id of a run that was traced there."""
        return self.children("") == [] and cgroups(self.folder) == []


def processes(folder: Path) -> Iterator[tuple[int, str]]:
    """Others that work in a folder, with their command lines."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                place = (entry / "cwd").readlink()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if place == folder:
                yield int(entry.name), line


def cgroups(project: Path) -> list[Path]:
    ids = {path.name for place in ("traces/*/*", ".headgate/*") for path in project.glob(place)}
    return [
        path for place in ("", "*/") for path in CGROUPS.glob(f"{place}headgate-*") if path.name[9:] in ids
    ]


@pytest.fixture
def up(project: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(*words: str) -> Up:
        started.append(Up(*words))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
        one.log.close()


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADGATE, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_a_users_project_runs_to_its_end_and_leaves_a_trace_only(up: Start, project: Path) -> None:
    began_s = time.monotonic()
    one = up("--rates", "100", "--seconds", "3")
    summary = one.end()
    assert one.is_gone()
    tuples = summary["tuples"]
    assert summary["schema"] == "headgate/run/v1" and summary["topology"] == "doubles"
    assert tuples["lost"] == 0 and tuples["in_flight"] == 0 and tuples["dead_lettered"] == 1
    assert tuples["emitted"] == tuples["acked"] + 1 and tuples["offered"] >= 250
    assert tuples["offered"] <= tuples["emitted"] <= 100 * (time.monotonic() - began_s)
    assert [plan["reason"] for plan in summary["plans"]] == ["start"]
    rows = {json.loads(line) for line in (project / "rows.jsonl").read_text().splitlines()}
    assert rows == {2 * n for n in range(tuples["emitted"]) if n != 13}
    assert (project / summary["trace"] / "decisions.jsonl").exists()
    assert not (project / ".headgate").exists()
    said = [line for line in one.says().splitlines() if "dead letter" in line and "unlucky" in line]
    assert len(said) == 1 and "row 13 of" in said[0], "the dead letter is shown, once"
    assert re.search(r"the first rows are through, \d+\.\d s after the start", one.says())


def test_commands_speak_to_a_run(up: Start) -> None:
    one = up("--rates", "50")
    one.until("the first rows are through")
    status = json.loads(ask("status", "-o", "json").stdout)
    assert status["schema"] == "headgate/status/v1" and status["topology"] == "doubles"
    assert "doubles" in ask("status").stdout
    assert ask("status", "-o", "csv").stdout.startswith("vm,vm_state,slot,")
    assert ask("rate", "set", "20").stdout == "the input rate is 20 rows/s; it was 50\n"
    until(lambda: json.loads(ask("status", "-o", "json").stdout)["rates"]["offered_now_tps"] == 20)
    refused = ask("rate", "set", "1e12")
    assert refused.returncode == 2 and refused.stderr.startswith("error[HG-USAGE]")
    lines = ask("status", "--watch", "--every", "0.1", "--seconds", "3", "-o", "jsonl").stdout.splitlines()
    assert 2 <= len(lines) <= 31 and all(json.loads(line)["run"] == status["run"] for line in lines)
    kinds = [event["kind"] for event in json.loads(ask("events", "-o", "json").stdout)["events"]]
    assert {"vm_joined", "plan", "rate_set"} <= set(kinds)
    assert "→ plan: 50 rows/s are offered" in ask("explain").stdout
    second = ask("submit", "flow.py:flow", "--models", "models", "--rates", "5")
    assert second.returncode == 6 and "runs doubles already" in second.stderr
    stopped = ask("stop", "-o", "json")
    assert json.loads(stopped.stdout)["run"] == status["run"]
    assert one.end()["tuples"]["lost"] == 0
    assert one.is_gone()
    gone = ask("status")
    assert gone.returncode == 5 and gone.stderr.startswith("error[HG-UNREACHABLE]")
    assert "→ plan: 50 rows/s are offered" in ask("explain").stdout  # now from the trace


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_ends(up: Start, number: signal.Signals) -> None:
    one = up("--rates", "100")
    one.until("the first rows are through")
    (agent,) = one.children("agent run")
    maps = Path(f"/proc/{agent}/maps").read_text()
    assert "zmq" in maps and "numpy" not in maps, "an agent does without what measures"
    summary = one.end(number)
    assert summary["tuples"]["lost"] == 0 and summary["tuples"]["in_flight"] == 0
    assert one.is_gone()


def test_two_signals_end_at_once(up: Start) -> None:
    one = up("--rates", "100")
    one.until("the first rows are through")
    one.process.send_signal(signal.SIGINT)
    one.until("stopping")
    one.process.send_signal(signal.SIGINT)
    one.process.communicate(timeout=PATIENCE_S)
    assert one.process.returncode == 130
    until(one.is_gone)
    assert "state and the logs of this run are kept" in one.says()


def test_a_killed_up_leaves_nothing_running(up: Start) -> None:
    one = up("--rates", "100")
    one.until("the first rows are through")
    one.process.kill()
    until(one.is_gone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_controller_is_begun_while_the_topology_loads_and_ends_with_up(
    project: Path, up: Start, number: int
) -> None:
    (project / "flow.py").write_text("open('loads', 'w').close()\nimport time\ntime.sleep(60)\n")
    one = up("--rates", "5")
    until(lambda: Path("loads").exists() and one.children("controller run") != [])
    one.process.send_signal(number)
    one.process.communicate(timeout=PATIENCE_S)
    until(one.is_gone)
    if number == signal.SIGINT:
        assert one.process.returncode == 130 and not Path(".headgate").exists()
        assert "Traceback" not in one.says()


@pytest.mark.parametrize("what", ["controller run", "agent run"])
def test_what_is_killed_is_started_again_and_nothing_is_lost(up: Start, what: str) -> None:
    one = up("--rates", "100")
    one.until("the first rows are through")
    (before,) = one.children(what)
    os.kill(before, signal.SIGKILL)
    one.until("was killed by SIGKILL; started again")
    until(lambda: one.children(what) not in ([], [before]))
    state = str(next(Path(".headgate").glob("*")))

    def acked() -> int:
        found = ask("status", "--controller", state, "-o", "json")
        return json.loads(found.stdout)["tuples"]["acked"] if found.returncode == 0 else 0

    seen = acked()
    until(lambda: acked() > seen + 100)
    assert one.end(signal.SIGINT)["tuples"]["lost"] == 0
    assert one.is_gone()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--rates", "5", "--models", "nowhere"], 3, "error[HG-INVALID]"),
        (["--rates", "5", "--models", "faulty"], 3, "double.json: points[0].rate_tps"),
        (["--rates", "nothing.csv"], 3, "error[HG-INVALID]"),
        (["--rates", "5", "--input", "nothing.txt"], 3, "cannot read the events nothing.txt"),
        (["--rates", "5", "--input", "flow.py"], 3, "--input cannot be used"),
        (["--rates", "5", "--allocator", "magic"], 3, "magic"),
        (["--rates", "5", "--vms", "4,x"], 2, "error[HG-USAGE]: --vms"),
        (["--rates", "5", "--set", "port=BUSY"], 5, "cannot listen on"),
    ],
)
def test_bad_input_says_what_and_leaves_nothing(
    project: Path, up: Start, words: list[str], code: int, said: str
) -> None:
    (project / "faulty").mkdir()
    (project / "faulty" / "double.json").write_text(model("double", -1.0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        one = up(*(word.replace("BUSY", port) for word in words))
        out, _ = one.process.communicate(timeout=PATIENCE_S)
    assert (one.process.returncode, out) == (code, ""), one.says()
    assert said in one.says()
    assert "Traceback" not in one.says()
    assert one.is_gone()


def test_every_fault_of_a_topology_is_listed(project: Path) -> None:
    tasks = [{"name": "a", "run": "x:y"}, {"name": "b", "run": "headgate.tasks:tag"}]
    edges = [{"from": "a", "to": "bb"}, {"from": "b", "to": "b"}]
    bad = {"schema": "headgate/topology/v1", "name": "bad", "tasks": tasks, "edges": edges}
    (project / "bad.json").write_text(json.dumps(bad))
    done = ask("up", "bad.json", "--rates", "5")
    assert done.returncode == 3 and done.stdout == ""
    assert len([line for line in done.stderr.splitlines() if line.startswith("  - ")]) >= 2
    assert not (project / ".headgate").exists()
