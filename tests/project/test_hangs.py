"""A test that hangs says where, and ends: nobody waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HANGS = {
    "itself": "def test_shown(): hangs()",
    "in what is given back after it failed": """
import pytest

@pytest.fixture
def made():
    yield
    hangs()

def test_shown(made): assert False
""",
    "as the process ends": """
import threading

def test_shown(): threading.Thread(target=hangs).start()
""",
}


@pytest.mark.parametrize("where", HANGS)
def test_a_test_that_hangs_ends_with_its_stack(where: str, tmp_path: Path) -> None:
    for name in ("conftest.py", "examples.py"):
        (tmp_path / name).write_bytes((TESTS / name).read_bytes())
    source = f"{HANGS[where]}\ndef hangs():\n    import threading\n    threading.Event().wait()\n"
    (tmp_path / "test_shown.py").write_text(source)
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(TESTS.parent / "pyproject.toml"),
        "--rootdir",
        str(tmp_path),
    ]
    command = [sys.executable, "-P", "-m", "pytest", *words, "-o", "faulthandler_timeout=0.5", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and " in hangs\n" in done.stderr, done.stdout[-2000:] + done.stderr[-2000:]
