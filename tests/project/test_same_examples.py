"""The property tests of the gate try the same examples each time, whatever else their process has imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SHOWN = """
from hypothesis import given, strategies as st

@given(st.integers(), st.floats(), st.text())
def test_shown(whole, number, text):
    with open("examples.txt", "a") as file:
        print(repr((whole, number, text)), file=file)
"""
IMPORTING = "import headgate.topology_runtime.api.validate, headgate.controller.analyze.demand\n"


def examples(folder: Path, source: str) -> str:
    folder.mkdir()
    for name in ("conftest.py", "examples.py"):
        (folder / name).write_bytes((TESTS / name).read_bytes())
    (folder / "test_shown.py").write_text(source)
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        ".",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return (folder / "examples.txt").read_text()


def test_what_is_imported_besides_changes_no_example(tmp_path: Path) -> None:
    alone = examples(tmp_path / "alone", SHOWN)
    assert len(set(alone.splitlines())) > 10
    assert examples(tmp_path / "beside", IMPORTING + SHOWN) == alone
