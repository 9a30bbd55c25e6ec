"""`headgate new`, `flow.run` and the pytest fixture."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.dashboards.headgate_command import main
from headgate.topology_runtime.commands.connected_project import SINKS, SOURCES, connected_files
from headgate.topology_runtime.commands.new_project import EXAMPLES

ROOT = str(Path(__file__).parents[2] / ".editable")


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.live
@pytest.mark.parametrize("options", [["--example", example] for example in EXAMPLES] + [["--source", "nats"]])
def test_a_new_project_passes_its_tests_and_types_beside_packages_of_the_users(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-flow", *options]) == 0
    project = tmp_path / "my-flow"
    for name in ("controller", "agent"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise ImportError('this is not headgate')\n")
    tests = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    types = in_project(project, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "my_flow", "tests")
    assert types.returncode == 0, types.stdout
    if options[0] == "--source":
        return
    shown = in_project(project, "-c", "from my_flow.flow import flow; flow.run(rows=50)")
    assert shown.returncode == 0 and shown.stderr == ""


@pytest.mark.parametrize(("source", "sink"), list(zip(cycle(SOURCES), SINKS, strict=False)))
def test_a_connected_project_is_whole(
    source: str, sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tests pass, the parameters of its flow are right, and each file that its README names is there."""
    monkeypatch.chdir(tmp_path)
    name = f"{source}_{sink}_project"
    assert main(["new", name, "--source", source, "--sink", sink]) == 0
    project = tmp_path / name
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.setenv("POSTGRES_PASSWORD", "secret")
    monkeypatch.setenv("AMQP_PASSWORD", "secret")
    assert main(["topology", "validate", f"{name}.flow:flow", "--runs"]) == 0
    for check, test in runpy.run_path(str(project / "tests/test_flow.py")).items():
        if check.startswith("test_"):
            test()
    readme = (project / "README.md").read_text()
    for path in re.findall(r"services/\w+\.\w+", readme):
        text = (project / path).read_text()
        if path.endswith(".py"):
            compile(text, path, "exec")
        else:
            assert set(yaml.safe_load(text)) <= {"services", "volumes"}
    left = re.findall(r"\b[A-Z]+_(?:NAME|PARAMS)\b|\b(?:PACKAGE|PROJECT|ADDRESSES|NEEDS|START|LOOK)\b",
                      "".join(file.read_text() for file in project.rglob("*.*") if file.suffix != ".pyc"))  # fmt: skip
    assert left == []


def test_compose_files_ask_for_what_flows_connect_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port of each default address is published on loopback, and passwords have one name."""
    for name, system in {**SOURCES, **SINKS}.items():
        if not system.compose:
            continue
        made = connected_files("x", "x", *((name, "sqlite") if name in SOURCES else ("folder", name)))
        (service,) = yaml.safe_load(made["services/compose.yaml"])["services"].values()
        (address,) = [text for text in system.variables.values() if text and ":" in text]
        port = re.findall(r":(\d+)", address)[0]
        assert [port_of for port_of in service["ports"] if port_of.startswith(f"127.0.0.1:{port}:")], name
        for variable, default in system.variables.items():
            if default is None:
                assert f"${{{variable}:?}}" in service["environment"].values()


def test_an_example_has_its_own_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine", "--example", "words", "--sink", "sqlite"]) == 2
    assert "leave out --example" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("kept")
    assert main(["new", "mine"]) == 6
    assert "mine is there already" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize("name", ["class", "json", "1x", "a b", "../x", "headgate", "", "ä", "x-"])
def test_names_that_are_none_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    assert "invalid project name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_fixture_shows_why_rows_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_flow: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "shown"]) == 0
    monkeypatch.syspath_prepend(str(tmp_path / "shown"))
    from shown.flow import made  # type: ignore[import-not-found]

    run_flow(made(str(tmp_path / "means.jsonl")), {"lines": ["0,s1,warm"]})
    assert "task 'parse' failed on '0,s1,warm': ValueError" in capsys.readouterr().out
    made(str(tmp_path / "means.jsonl")).run(rows=2)
    assert capsys.readouterr().out == (
        "store: {'room': 'kitchen', 'time_s': 0, 'mean': 18.0}\n"
        "store: {'room': 'office', 'time_s': 1, 'mean': 18.7}\n"
    )
