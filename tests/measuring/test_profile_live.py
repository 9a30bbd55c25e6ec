"""`headgate model profile` on real workers in real slots: good tasks, bad ones, Ctrl-C, going on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.controller.files.planning_inputs import read_models
from headgate.topology_runtime.measuring.measuring_slots import Awake
from headgate.topology_runtime.wire.run_options import FRAME_ROWS, cap_at

pytestmark = pytest.mark.live

TASKS = '''
import os
import sys
import time
from headgate.topology_runtime.api.logic import batched

def spin(event):
    end = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < end:
        pass
    return event

def broken(event):
    raise RuntimeError("no such column: wind")

class Sulks:
    """Works on sample events, and fails once it is measured."""
    def __init__(self):
        self.left = 300
    def __call__(self, event):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("I have had enough")
        return event

def hangs(event):
    time.sleep(3600)

def slow(event):
    time.sleep(1.5)

def quick(event):
    return event

@batched
def asks_for_many(events):
    time.sleep(0.005)
    return events

kept = []

def leaks(event):
    kept.append(bytearray(20_000))
    time.sleep(0.001)

class NoService:
    def open(self, context):
        raise ConnectionRefusedError("nobody listens on 127.0.0.1:1")
    def __call__(self, event):
        return event
'''


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(TASKS)
    return file


def command(tmp_path: Path, *words: str) -> list[str]:
    headgate = [sys.executable, "-P", "-m", "headgate", "model", "profile"]
    return [*headgate, "--output", str(tmp_path / "models"), "--slot-cores", "0.2", "-o", "json", *words]


def profile(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any] | None, str]:
    """(exit code, the document, stderr); nothing may be left behind."""
    done = subprocess.run(command(tmp_path, *words), capture_output=True, text=True, timeout=110, check=False)
    assert_nothing_is_left(tmp_path)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def assert_nothing_is_left(tmp_path: Path) -> None:
    """An orphan of another test that runs beside this one is gone within a moment."""
    until_s = time.monotonic() + 1.0
    while left := left_over(tmp_path):
        assert time.monotonic() < until_s, left
        time.sleep(0.02)


def left_over(tmp_path: Path) -> list[str]:
    """Processes of the profile, and workers and collectors that nobody owns any more."""
    found = []
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = " ".join(process.info["cmdline"] or ())
        ours = "headgate.topology_runtime.worker" in words or "headgate.topology_runtime.measuring" in words
        if str(tmp_path) in words or (ours and process.info["ppid"] == 1):
            found.append(words)
    return found


@pytest.mark.alone
def test_a_users_function_gets_a_model_that_can_be_read(tmp_path, tasks):
    quick = ("--set", "quick=yes", "--set", "probe-seconds=1", "--threads", "1,2")
    code, document, _ = profile(tmp_path, f"{tasks}:spin", *quick)
    assert code == 0
    assert document is not None and document["schema"] == "headgate/profile/v1"
    model = read_models(tmp_path / "models")["spin"]
    with Awake() as awake:
        assert model.more["awake"] is awake.so
    assert [point.threads for point in model.points] == [1, 2]
    assert 40 < model.points[0].rate_tps < 220  # 1 ms of CPU a row in a fifth of a core
    assert model.points[0].cpu > 0.7
    again, document, stderr = profile(tmp_path, f"{tasks}:spin", *quick)
    assert again == 0 and document is not None
    assert "probe" not in stderr  # everything is known already
    assert read_models(tmp_path / "models")["spin"].points == model.points


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "no such column: wind"),
        ("hangs", "hangs"),
        ("NoService", "nobody listens on 127.0.0.1:1"),
    ],
)
def test_a_task_that_cannot_work_is_said_in_words(tmp_path, tasks, name, words):
    code, document, stderr = profile(
        tmp_path, f"{tasks}:{name}", "--set", "quick=yes", "--set", "probe-seconds=1"
    )
    assert code == 1
    assert document is None
    assert words in stderr
    assert "Traceback" not in stderr


@pytest.mark.full
def test_one_task_that_fails_stops_no_other_and_keeps_what_was_measured(tmp_path, tasks):
    words = ("--set", "probe-seconds=1", "--threads", "1", "--set", "repeats=2", "--budget", "1")
    code, document, stderr = profile(tmp_path, f"{tasks}:Sulks", f"{tasks}:spin", *words)
    assert code == 1
    assert document is not None
    assert [failed["task"] for failed in document["failed"]] == ["Sulks"]
    assert "I have had enough" in stderr
    assert "spin" in [model["task"] for model in document["models"]]


def test_slow_and_leaking_tasks_get_a_model_and_a_word(tmp_path, tasks):
    words = ("--set", "quick=yes", "--set", "probe-seconds=2", "--threads", "1")
    code, document, stderr = profile(tmp_path, f"{tasks}:slow", f"{tasks}:leaks", *words)
    assert code == 0
    assert document is not None and len(document["models"]) == 2
    assert "slow: does not reach one row per second" in stderr
    assert "leaks: keeps" in stderr


def test_a_batched_task_is_measured_with_calls_as_large_as_a_run_makes_them(tmp_path, tasks):
    """Five ms a call, whatever is in it: 190 rows/s one by one."""
    words = ("--set", "quick=yes", "--set", "probe-seconds=1", "--threads", "1")
    code, document, _ = profile(tmp_path, f"{tasks}:asks_for_many", *words)
    assert code == 0 and document is not None
    (point,) = document["models"][0]["points"]
    assert point["rate_tps"] > 1000 and point["frame_rows"] > 10


@pytest.mark.alone
def test_a_quick_task_is_measured_with_frames_that_it_gets_at_its_rate(tmp_path, tasks, monkeypatch):
    """As large as a run makes them at that rate. What crossing costs is measured once, and kept in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("--set", "quick=yes", "--set", "probe-seconds=1", "--threads", "1", "--slot-cores", "1")
    code, document, _ = profile(tmp_path, f"{tasks}:quick", *words)
    assert code == 0 and document is not None
    (point,) = document["models"][0]["points"]
    assert point["frame_rows"] == cap_at(FRAME_ROWS, point["rate_tps"]) > 16, "as a run has them"
    model, (kept,) = tmp_path / "models" / "quick.json", list(tmp_path.glob("cache/headgate/machine/*.json"))
    crossing = json.loads(kept.read_text())["crossing_s"]
    assert json.loads(model.read_text())["crossing_cpu"] == pytest.approx(crossing)
    assert profile(tmp_path, f"{tasks}:quick", *words)[0] == 0
    assert json.loads(model.read_text())["crossing_cpu"] == pytest.approx(crossing), "also where it goes on"


def probes_in(lines):
    """Without the short looks at frames."""
    return [found for line in lines if (found := json.loads(line))["type"] == "probe"]


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_that_is_stopped_leaves_no_process_and_the_next_profile_goes_on(tmp_path, tasks, number, ends):
    words = command(
        tmp_path, f"{tasks}:spin", "--set", "probe-seconds=1", "--threads", "1,2", "--budget", "1"
    )
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    record = tmp_path / "models" / ".profile" / "spin.jsonl"
    deadline_s = time.monotonic() + 60
    while not (record.exists() and len(record.read_bytes().splitlines()) >= 2):
        assert time.monotonic() < deadline_s and started.poll() is None
        time.sleep(0.05)
    started.send_signal(number)
    _, stderr = started.communicate(timeout=30)
    assert started.returncode == ends
    assert "Traceback" not in stderr
    assert_nothing_is_left(tmp_path)
    before = record.read_bytes().splitlines()
    code, _, _ = profile(
        tmp_path, f"{tasks}:spin", "--set", "probe-seconds=1", "--threads", "1,2", "--set", "quick=yes"
    )
    assert code == 0
    after = record.read_bytes().splitlines()
    assert after[: len(before)] == before
    known, new = probes_in(after[1 : len(before)]), probes_in(after[len(before) :])
    probes = known + new
    full = 0.95 * max(probe["cpu"] for probe in probes)  # below it a task that computes was kept from the CPU
    sound = {probe["threads"] for probe in known if probe["cpu"] >= full}
    assert {probe["threads"] for probe in new} <= {1, 2} - sound
    assert {probe["threads"] for probe in probes} == {1, 2} and len(probes) <= 2 * 3  # two repeats of such
