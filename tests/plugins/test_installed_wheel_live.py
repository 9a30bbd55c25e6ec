"""The wheel, installed beside a user's package with a `controller.py` and an `agent/` of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("hatchling==1.27.0", "build==1.2.2")
THEIRS = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "theirs"
version = "1"
[tool.hatch.build.targets.wheel]
include = ["controller.py", "agent/"]
"""
LOOK = """
import agent, controller, headgate.agent, headgate.controller, headgate.lab
from headgate import Keyed, Source, topology
print(agent.OURS, controller.OURS, topology("t").name)
print(Keyed.__module__, *(len(list(part.__path__)) for part in (headgate.agent, headgate.controller, headgate.lab)))
"""


def called(*words: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that builds and installs; it sees what is installed here, but for headgate."""
    place = tmp_path_factory.mktemp("wheel")
    called(sys.executable, "-m", "venv", "env", cwd=place)
    pip = [place / "env/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [str(w) for w in (*pip, *TOOLS, "msgspec")], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        pytest.skip(f"no package index is reached: {done.stderr.splitlines()[-1:]}")
    return place


def built(venv: Path, source: Path, out: str, *what: str) -> Path:
    called(
        venv / "env/bin/python",
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        venv / out,
        *what,
        source,
        cwd=venv,
    )
    (wheel,) = (venv / out).glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            info.filename: info.CRC for info in archive.infolist() if not info.filename.endswith("RECORD")
        }


def test_ours_stays_whole_beside_theirs(venv: Path) -> None:
    ours = built(venv, ROOT, "tree", "--wheel")
    assert contents(built(venv, ROOT, "archive")) == contents(ours), "the archive makes another wheel"
    there = set(contents(ours))
    assert {name.split("/")[0] for name in there} == {"headgate", "headgate-0.1.0.dist-info"}
    assert {"headgate/py.typed", "headgate/tasks.py", "headgate/lab/__init__.py"} <= there
    theirs = venv / "theirs"
    (theirs / "agent").mkdir(parents=True)
    (theirs / "pyproject.toml").write_text(THEIRS)
    (theirs / "controller.py").write_text("OURS = 'their controller'\n")
    (theirs / "agent" / "__init__.py").write_text("OURS = 'their agent'\n")
    python = venv / "env/bin/python"
    install = (python, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check")
    called(*install, ours, built(venv, theirs, "user", "--wheel"), cwd=venv)
    assert called(python, "-c", LOOK, cwd=theirs).splitlines() == [
        "their agent their controller t", "headgate.topology_runtime.api.logic 1 1 1",
    ]  # fmt: skip
    called(python, "-m", "pip", "uninstall", "-q", "-y", "theirs", cwd=venv)
    (site,) = (venv / "env/lib").glob("python*/site-packages")
    assert [name for name in there if not (site / name).is_file()] == []
    assert not (site / "controller.py").exists() and not (site / "agent").exists()
