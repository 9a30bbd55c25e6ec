"""`headgate new`, `flow.run` and the pytest fixture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.dashboards.headgate_command import main
from headgate.topology_runtime.commands.new_project import EXAMPLES

ROOT = str(Path(__file__).parents[2] / ".editable")


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.live
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_new_project_passes_its_tests_and_types_beside_packages_of_the_users(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-flow", "--example", example]) == 0
    project = tmp_path / "my-flow"
    for name in ("controller", "agent"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise ImportError('this is not headgate')\n")
    tests = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    types = in_project(project, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "my_flow", "tests")
    assert types.returncode == 0, types.stdout
    shown = in_project(project, "-c", "from my_flow.flow import flow; flow.run(rows=50)")
    assert shown.returncode == 0 and shown.stderr == ""


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
