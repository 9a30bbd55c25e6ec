"""User code is imported in a process of its own, which ends, whatever that code does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from patience import PATIENCE_S, until

from headgate.topology_runtime.api.loading import check_runs, load
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import InvalidInput

pytestmark = pytest.mark.live

WORDS = """
    from collections.abc import Sequence
    from headgate.topology_runtime.api.builder import topology
    from headgate.topology_runtime.api.logic import Source, flat_map

    class Lines(Source):
        def read(self, position: int, limit: int) -> Sequence[str]:
            return ["a b"] * limit

    @flat_map
    def split(line: str) -> list[str]:
        return line.split()

    flow = topology("words")
    flow.source("lines", Lines) >> flow.task("split", split)
    TOPOLOGY = flow.build()

    def either():
        return flow
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project, which is the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def refused(reference: str, **options: float) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load(reference, **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    "reference", ["words.py:flow", "words.py:TOPOLOGY", "words.py:either", "words:flow", "./words.py:flow"]
)
def test_every_way_to_name_a_topology(project: Path, reference: str) -> None:
    write(project, "words.py", WORDS)
    loaded = load(reference)
    assert [(task.name, task.kind, task.run) for task in loaded.topology.tasks] == [
        ("lines", "source", "words:Lines"),
        ("split", "flat_map", "words:split"),
    ]
    assert loaded.user_paths == (str(project),)


def test_a_file_elsewhere_is_found_from_anywhere(project: Path, tmp_path: Path) -> None:
    """Its folder comes first, so that its tasks are its own and not those of a namesake in the cwd."""
    write(project, "words.py", "flow = 'another'")
    write(tmp_path, "there/words.py", WORDS)
    loaded = load(str(tmp_path / "there" / "words.py") + ":flow")
    assert loaded.user_paths == (str(tmp_path / "there"), str(project))
    assert loaded.topology.tasks[0].run == "words:Lines"


def test_a_file_in_a_package_is_imported_as_part_of_it(project: Path) -> None:
    write(project, "jobs/__init__.py", "")
    write(project, "jobs/names.py", "NAME = 'relative'")
    write(
        project,
        "jobs/words.py",
        WORDS.replace('topology("words")', "topology(NAME)").replace(
            "from collections", "from .names import NAME\n    from collections"
        ),
    )
    loaded = load("jobs/words.py:flow")
    assert loaded.topology.name == "relative"
    assert loaded.topology.tasks[0].run == "jobs.words:Lines"
    assert loaded.user_paths == (str(project), str(project / "jobs"))


def test_a_project_with_its_own_controller_and_agent(project: Path) -> None:
    """Also where `agent` is a plain folder; nothing of ours but topology_runtime is imported."""
    write(project, "controller.py", "def steer(row: str) -> str:\n    return row")
    write(project, "agent/voice.py", "def speak(row: str) -> str:\n    return row")
    write(project, "dashboards/__init__.py", "TITLE = 'theirs'")
    write(
        project,
        "flow.py",
        WORDS
        + """
    import controller, dashboards, os, sys
    from agent.voice import speak

    theirs = [sys.modules[name] for name in ("controller", "agent", "dashboards")]
    assert all(os.getcwd() in str(getattr(module, "__path__", module.__file__)) for module in theirs)
    ours = [name for name in sys.modules if name.partition(".")[0] in ("controller", "agent", "dashboards")]
    assert sorted(ours) == ["agent", "agent.voice", "controller", "dashboards"], ours

    flow = topology("own")
    flow.source("lines", Lines) >> flow.task("steer", controller.steer) >> flow.task("speak", speak)
    """,
    )
    loaded = load("flow.py:flow")
    assert [task.run for task in loaded.topology.tasks] == [
        "flow:Lines",
        "controller:steer",
        "agent.voice:speak",
    ]
    assert check_runs(loaded.topology, loaded.user_paths) == loaded.topology


def test_the_answer_is_the_last_line_and_prints_go_to_stderr(project: Path) -> None:
    write(
        project,
        "words.py",
        WORDS
        + """
    import os, sys, atexit, threading, time
    print("from python")
    os.system("echo from a child")
    sys.stdout.write("no line end")
    atexit.register(print, "at exit")
    threading.Thread(target=time.sleep, args=(60,)).start()
    """,
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate.topology_runtime.api.loading", "words.py:flow", str(project)],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert time.monotonic() - began < 60, "a thread of user code kept the loader"
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["topology"]["schema"] == "headgate/topology/v1"
    assert {b"from python", b"from a child"} <= set(done.stderr.splitlines())


def test_faults_come_out_as_json(project: Path) -> None:
    write(project, "words.py", WORDS + "\n    flow.task('apart', 'words:nothing')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate.topology_runtime.api.loading", "words:flow", str(project)],
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["faults"] == [
        "edges: the tasks are in 2 pieces that no edge joins: {lines, split}, {apart}"
    ]


def test_an_exception_in_user_code_is_the_cause_not_our_crash(project: Path) -> None:
    write(project, "words.py", "def deep():\n    return 1 / 0\n\n\ndeep()\n")
    error = refused("words.py:flow")
    assert error.what == "importing 'words' raised ZeroDivisionError"
    assert error.cause is not None
    assert f"{project}/words.py, line 2, in deep: return 1 / 0" in error.cause
    assert error.cause.splitlines()[-1].strip() == "ZeroDivisionError: division by zero"
    assert "topology_runtime" not in error.cause


@pytest.mark.parametrize(
    ("text", "what", "cause"),
    [
        ("def broken(:\n", "importing 'words' raised SyntaxError", "line 1"),
        ("import no_such_thing", "importing 'words' raised ModuleNotFoundError", "no_such_thing"),
        ("import sys; sys.exit(5)", "importing 'words' raised SystemExit", "5"),
        ("import os; os._exit(7)", "ended without an answer", "exit code"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended without an answer", "exit code"),
        ("flow = 3", "is of type int, not a topology", ""),
        ("def flow(): raise KeyError('x')", "raised KeyError", "KeyError: 'x'"),
        ("flows = 3", "has no 'flow'; did you mean 'flows'?", ""),
    ],
)
def test_whatever_user_code_does(project: Path, text: str, what: str, cause: str) -> None:
    write(project, "words.py", text)
    error = refused("words.py:flow")
    assert what in error.what
    assert cause in (error.cause or "")


def test_an_import_that_hangs_is_told_where(project: Path) -> None:
    write(project, "words.py", "import time\n\n\ndef wait():\n    time.sleep(600)\n\n\nwait()\n")
    began = time.monotonic()
    error = refused("words.py:flow", limit_s=0.5)
    assert time.monotonic() - began < 600
    assert "took more than 0.5 s" in error.what
    assert "words.py, line 5, in wait: time.sleep(600)" in str(error.cause)


def test_nothing_that_user_code_started_is_left(project: Path) -> None:
    started = "import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
    write(project, "words.py", started + "open('pid', 'w').write(str(child.pid))\n" + dedent(WORDS))
    load("words.py:flow")
    child = int((project / "pid").read_text())
    until(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_name_that_another_module_has(project: Path) -> None:
    write(project, "msgspec.py", "flow = 1")
    error = refused("msgspec.py:flow")
    assert "another module has its name" in error.what


def test_the_runs_of_a_file_are_tried_only_when_it_is_to_run(project: Path) -> None:
    write(project, "words.py", WORDS)
    write(
        project,
        "words.json",
        """
        {"name": "words",
         "tasks": [{"name": "lines", "run": "words:Lines"}, {"name": "split", "run": "words:split"},
                   {"name": "skip", "run": "words:splitt"}, {"name": "store"}],
         "edges": [{"from": "lines", "to": "split"}, {"from": "split", "to": "skip"},
                   {"from": "skip", "to": "store", "selectivity": 0}]}
    """,
    )
    with pytest.raises(InvalidInput) as caught:
        load("words.json", runs=True)
    assert list(caught.value.faults) == [
        "edges[2].selectivity: 0 must be above 0 and at most 1,000",
        f"tasks[2].run 'words:splitt': {project}/words.py has no 'splitt'; did you mean 'split'?",
    ]
    text = (project / "words.json").read_text().replace("words:splitt", "words:split").replace(": 0}", ": 1}")
    (project / "words.json").write_text(text)
    assert [task.kind for task in load("words.json").topology.tasks] == ["map"] * 4
    with pytest.raises(InvalidInput) as caught:
        load("words.json", runs=True)
    assert list(caught.value.faults) == ["tasks[3].run: missing; task 'store' can be planned, not run"]
    (project / "words.json").write_text(
        text.replace('{"name": "store"}', '{"name": "store", "run": "words:split"}')
    )
    kinds = [task.kind for task in load("words.json", runs=True).topology.tasks]
    assert kinds == ["source", "flat_map", "flat_map", "flat_map"]


def test_kinds_found_in_the_code_obey_the_rules(project: Path) -> None:
    """In the file it looked like a map; it is a source with an edge to it."""
    write(project, "words.py", WORDS)
    topology = Topology("t", (Task("a", run="words:Lines"), Task("b", run="words:Lines")), (Edge("a", "b"),))
    with pytest.raises(InvalidInput) as caught:
        check_runs(topology, [str(project)])
    assert list(caught.value.faults) == ["tasks[1] 'b': a source, but edges[0] leads to it"]


def test_a_topology_written_as_a_script(project: Path) -> None:
    """Run as a program, its own functions are named by the file, not `__main__`."""
    write(project, "words.py", WORDS + "\n    print(TOPOLOGY.tasks[0].run)")
    done = subprocess.run(
        [sys.executable, "words.py"], capture_output=True, timeout=PATIENCE_S, check=True, cwd=os.getcwd()
    )
    assert done.stdout == b"words:Lines\n"


ONE = """
    from headgate import topology
    from headgate.tasks import CollectToFile, Counter

    words = topology("words")
    words.source("in", Counter) >> words.task("out", CollectToFile, path="out.jsonl")
"""


def test_a_file_with_one_topology_names_it(project: Path) -> None:
    write(project, "one.py", ONE + "    flow = words\n")
    assert load("one.py").topology.name == "words"
    write(project, "two.py", ONE + "    other = topology('other')\n")
    assert "say which one: two.py:words, two.py:other" in "\n".join(refused("two.py").lines())
    write(project, "none.py", "topology = 1")
    assert "name one at its top level" in "\n".join(refused("none.py").lines())
    assert "no such file; did you mean 'one.py'?" in str(refused("onee.py"))


def test_folders_that_a_module_puts_on_the_import_path_are_told(tmp_path: Path) -> None:
    """As many do: other processes import the tasks by their own modules, not through this one."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "cleaning.py").write_text("def clean(row):\n    return row\n")
    (tmp_path / "flow.py").write_text(
        "import os, sys\n"
        "sys.path.append(os.path.join(os.path.dirname(__file__), 'lib'))\n"
        "from cleaning import clean\n"
        "from headgate import topology\n"
        "from headgate.tasks import Counter\n"
        "flow = topology('t')\n"
        "flow.source('s', Counter) >> flow.task('clean', clean)\n"
    )
    found = load(f"{tmp_path / 'flow.py'}:flow")
    assert found.user_paths[-1] == str(tmp_path / "lib")


def test_a_flow_that_its_file_runs_is_not_run_where_the_file_is_imported(project: Path) -> None:
    """As scripts end; every process that takes a task from it would run it all."""
    write(project, "words.py", WORDS + "\n    result = flow.run({'lines': ['a b']})\n    print(result)\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headgate.topology_runtime.api.loading", "words:flow", str(project)],
        capture_output=True,
        timeout=PATIENCE_S,
        text=True,
    )
    assert done.returncode == 0 and "run() is left out" in done.stderr
    assert done.stderr.splitlines()[1:] == ["<result: ; 0 dead letters>"]
