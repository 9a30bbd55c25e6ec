"""The README's pipeline, as it stands there: its test passes, and it runs to its end."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

README = Path(__file__).resolve().parents[2] / "README.md"


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the README's files, and what its shell lines make before `headgate`."""
    section = README.read_text("utf-8").split("## A pipeline")[1].split("\n## ")[0]
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        (tmp_path / code.split()[1]).write_text(code)
    (made,) = re.findall(r"^printf .*$", section, re.MULTILINE)
    assert run(tmp_path, "sh", "-c", made).returncode == 0
    return tmp_path


def test_its_test_passes(project: Path) -> None:
    done = run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rooms.py")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.live
def test_it_runs_to_its_end_and_says_what_it_does(project: Path) -> None:
    done = run(project, sys.executable, "-m", "headgate", "up", "rooms.py:flow")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^mean/\d+ \| hall: 21\.0 °C$", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^room/\d+ \| error: LookupError: no room for s9$", done.stderr, re.MULTILINE)
    found = sqlite3.connect(project / "means.db").execute("select * from means order by room")
    assert found.fetchall() == [("attic", 1, 1, 18.0), ("hall", 0, 2, 21.0)]
