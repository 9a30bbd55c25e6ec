"""An analysis that is disturbed: by a second one, by Ctrl-C, by a disk that is full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from small_disk import SmallDisk

from made_traces.generate_trace import Wanted, generate

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[3]
LIMIT_S = 200
ON_SPARK = ("--master", "local[2]")  # it takes so long there that it can be disturbed


def command(*words: object) -> list[str]:
    return [sys.executable, "-P", "-m", "headgate", "analyze", *map(str, words), "-o", "json"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disturbed") / "traces"
    generate(folder, Wanted(12_000, threads=20, slots=8))
    return folder


@pytest.fixture
def begun(spark: None, traces: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """(an analysis whose Spark works, what it has said)."""
    out = tmp_path / "out"
    for name, content in (("analysis.json", "{}"), ("models/stale.json", "{}"), ("results/old.json", "[]")):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(content)
    process = subprocess.Popen(
        command(traces, "--output", out, *ON_SPARK), stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    said: list[str] = []
    assert process.stderr is not None
    while not any("adding up" in line for line in said):
        said.append(process.stderr.readline())
        assert said[-1], said
    yield process, said
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)


def test_a_second_one_is_refused_and_ctrl_c_ends_the_first_with_nothing_left(
    begun: tuple[subprocess.Popen[str], list[str]], traces: Path, tmp_path: Path
) -> None:
    process, _ = begun
    out = tmp_path / "out"
    second = subprocess.run(
        command(traces, "--output", out), capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S
    )
    assert (second.returncode, second.stdout) == (6, "")
    assert f"process {process.pid} on " in second.stderr and "try:" in second.stderr
    below = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in below)
    os.killpg(process.pid, signal.SIGINT)
    words, errors = process.communicate(timeout=60)
    assert (process.returncode, words) == (130, "")
    assert all(line.startswith("analyze: ") for line in errors.splitlines() if line), errors
    assert psutil.wait_procs(below, 5)[1] == []
    kept = {path.name for path in out.iterdir()}
    assert kept <= {"analysis.json", "models", "results"}
    assert (out / "models" / "stale.json").exists() and (out / "results" / "old.json").exists()


def test_once_it_has_ended_nothing_of_an_earlier_one_is_left(
    begun: tuple[subprocess.Popen[str], list[str]], traces: Path, tmp_path: Path
) -> None:
    process, _ = begun
    words, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    out = tmp_path / "out"
    assert json.loads(words)["runs"] == ["made/run-1"]
    assert not (out / "models" / "stale.json").exists() and not (out / "results" / "old.json").exists()
    assert not (out / ".lock").exists() and not (out / "_draft").exists()


def test_a_full_disk_is_named_and_leaves_nothing_half(traces: Path, tmp_path: Path) -> None:
    try:
        disk = SmallDisk(tmp_path / "small", 3 << 20, 500)
    except OSError as error:
        pytest.skip(f"no disk may be mounted here: {error}")
    try:
        out = disk.path / "out"
        out.mkdir()
        with (disk.path / "ballast").open("wb") as file:
            file.write(b"x" * (2900 << 10))
        done = subprocess.run(
            command(traces, "--output", out), capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S
        )
        assert done.returncode == 1, done.stderr
        assert str(out) in done.stderr and "No space left on device" in done.stderr and "try:" in done.stderr
        assert not (out / "analysis.json").exists() and not (out / ".lock").exists()
    finally:
        disk.close()
