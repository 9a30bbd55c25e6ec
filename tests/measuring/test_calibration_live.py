"""A calibration in real workers: what it measures, and that nothing is left of it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology, document_of
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.background_profile import FAILED, ProfileOrder
from headgate.topology_runtime.measuring.calibrate import models_for
from headgate.topology_runtime.measuring.collected_rows import TEMPORARY
from headgate.topology_runtime.measuring.measuring_slots import RUN
from headgate.topology_runtime.measuring.model_store import Shelf
from headgate.topology_runtime.measuring.profile_steps import DELAYED
from headgate.topology_runtime.platform import cgroups
from headgate.topology_runtime.worker.meters import sample_rows
from headgate.topology_runtime.worker.meters.row_copies import FOLDER

CORES = 0.06  # a small slot is soon full, so few points are needed
MEMORY_BYTES = 256 * 1024 * 1024
pytestmark = pytest.mark.live


def topology(*tasks: Task) -> Topology:
    """source → each task in turn."""
    source = Task("source", "source", "headgate.topology_runtime.tasks.row_sources:Counter", static=Static())
    chain = [source, *tasks]
    edges = [Edge(a.name, b.name) for a, b in zip(chain, chain[1:], strict=False)]
    return Topology("t", tuple(chain), tuple(edges))


SPIN = Task(
    "spin", run="headgate.topology_runtime.tasks.computing:Spin", params={"cpu_ms": 2.0}, side_effects=False
)
WAIT = Task(
    "wait", run="headgate.topology_runtime.tasks.waiting:Wait", params={"ms": 20.0}, side_effects=False
)


def measured_now(
    t: Topology, paths: tuple[str, ...], cores: float, memory_bytes: int, cache: Path, **more: Any
) -> tuple[Path, list[str]]:
    """The folder of models, and which were measured."""
    folder = cache / "of-run"
    return folder, models_for(Shelf(t, paths, cores, memory_bytes, cache=cache / "kept"), folder, **more)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything a calibration starts has a path below it on its command line."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left_over(temporary: Path) -> list[str]:
    """Processes, folders and cgroups of the calibrations of a test."""
    found = [path.name for path in temporary.glob(f"{TEMPORARY}*")]
    for path in cgroups.parents_of(f"{RUN}*"):
        if not Path("/proc", path.name.rpartition("-")[2]).exists():
            found.append(str(path))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(temporary) in command:
            found.append(command)
    return found


def wait_until_nothing_is_left(temporary: Path, seconds: float = 1.0) -> None:
    deadline_s = time.monotonic() + seconds
    while left := left_over(temporary):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.02)


@pytest.mark.alone
def test_computing_is_flat_and_waiting_rises_and_all_is_kept(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int, int]] = []
    t = topology(SPIN, WAIT)
    folder, fresh = measured_now(
        t, (), CORES, MEMORY_BYTES, seconds=0.6, tell=lambda *line: heard.append(line), cache=tmp_path
    )
    assert fresh
    models = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("spin", "wait")}
    spin, wait = ([p["rate_tps"] for p in models[name]["points"]] for name in ("spin", "wait"))
    assert not models["spin"]["waiting"] and models["wait"]["waiting"]
    assert max(spin) <= 1.5 * spin[0]
    assert wait[2] > 2.5 * wait[0]
    assert wait[0] <= 50.0 and (spin[0] <= 33.0 or models["spin"]["binding"] == "affinity")
    assert models["spin"]["slot"]["cores"] == CORES and heard[-1][2] == heard[-1][3] > 0
    assert measured_now(t, (), CORES, MEMORY_BYTES, cache=tmp_path) == (folder, [])
    wait_until_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def work(row):\n    raise ConnectionRefusedError('no service')\n", "no service"),
        ("import missing_module\n", "missing_module"),
        ("import os\ndef work(row):\n    os._exit(3)\n", "'source'|'work'|sample"),
    ],
)
def test_a_task_that_fails_is_one_error_and_nothing_is_left(tmp_path: Path, code: str, words: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    t = topology(Task("work", run="mine:work"), SPIN)
    with pytest.raises(HeadgateError) as caught:
        measured_now(t, (str(tmp_path),), 0.2, MEMORY_BYTES, seconds=0.3, cache=tmp_path)
    assert any(word in " ".join(caught.value.lines()) for word in words.split("|"))
    wait_until_nothing_is_left(tmp_path)


@pytest.mark.parametrize("victim", ["collect_rows", "topology_runtime.worker"])
def test_a_process_that_is_killed_costs_what_it_measured_and_is_told_of(tmp_path: Path, victim: str) -> None:
    """At once when it is seen, and again every time: whatever it is at, the rest is measured, or nothing is."""
    said: list[str] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    command = path.read_bytes().replace(b"\0", b" ").decode()
                    if victim in command and str(tmp_path) in command:
                        os.kill(int(path.parent.name), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        folder, fresh = measured_now(topology(SPIN, WAIT), (), CORES, MEMORY_BYTES, tmp_path, say=said.append)
    finally:
        over.set()
        killer.join()
    assert fresh == [] and said and all("killed" in line and "signal 9" in line for line in said)
    assert all(json.loads((folder / f"{name}.json").read_text())["unmeasured"] for name in ("spin", "wait"))
    wait_until_nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_calibration_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(document_of(topology(SPIN, WAIT))))
    command = [sys.executable, "-P", "-m", "headgate", "up", str(tmp_path / "t.json"), "--rates", "1"]
    command += ["--measure", "first"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, cwd=tmp_path, env={**os.environ, "XDG_CACHE_HOME": "."}
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith(b"measuring spin"):
        assert process.poll() is None
    time.sleep(0.8)  # into the measurement, by which the slots are bound
    process.send_signal(number)
    process.wait(5.0)
    process.stderr.close()
    if number == signal.SIGKILL:  # the next one sweeps what no process could remove any more
        measured_now(topology(SPIN), (), 0.2, MEMORY_BYTES, seconds=0.2, cache=tmp_path)
    wait_until_nothing_is_left(tmp_path)


def test_a_sink_is_run_on_no_sample_unless_asked(tmp_path: Path) -> None:
    written = tmp_path / "rows.jsonl"
    store = Task(
        "store",
        run="headgate.topology_runtime.tasks.sinks:CollectToFile",
        params={"path": str(written)},
    )
    t = topology(SPIN, store)
    folder, fresh = measured_now(t, (), CORES, MEMORY_BYTES, seconds=0.3, cache=tmp_path / "cache")
    assert fresh and not written.exists()
    stand_in = json.loads((folder / "store.json").read_text())
    assert stand_in["unmeasured"] and len(json.loads((folder / "spin.json").read_text())["points"]) >= 1
    again = measured_now(t, (), CORES, MEMORY_BYTES, seconds=0.3, cache=tmp_path / "cache")
    assert again == (folder, []) and not written.exists()
    asked = measured_now(
        t, (), CORES, MEMORY_BYTES, seconds=0.3, cache=tmp_path / "cache", measure_side_effects=True
    )
    assert asked == (folder, ["store"]) and written.stat().st_size > 0
    measured = json.loads((folder / "store.json").read_text())
    assert "unmeasured" not in measured and measured["points"][0]["rate_tps"] < 1e6
    wait_until_nothing_is_left(tmp_path)


# ── A profile beside a run as a process: it goes on where it was killed, and says why it fails ──────────

TASKS = "headgate.topology_runtime.tasks"
TOPOLOGY = Topology(
    "line",
    (
        Task("source", "source", f"{TASKS}.row_sources:Counter", static=Static()),
        Task("work", run=f"{TASKS}.waiting:Wait", params={"ms": 5.0}),
        Task("store", run=f"{TASKS}.sinks:CollectToFile", static=Static()),
    ),
    (Edge("source", "work"), Edge("work", "store")),
)


def begin(folder: Path, rows: int = 50, budget_s: float = 60.0) -> subprocess.Popen[bytes]:
    """The process, as an agent starts it; outside of any slot."""
    for name in (FOLDER, "own"):
        (folder / name).mkdir(exist_ok=True)
    if rows:
        sample_rows.write(folder / FOLDER / "7-0.rows", [("source", number) for number in range(rows)])
    own, output = str(folder / "own"), str(folder / "out")
    order = ProfileOrder(
        TOPOLOGY, "work", 7, (), str(folder), own, output, (), "test", 0.2, 1 << 28, budget_s, os.getpid()
    )
    (folder / "order.json").write_bytes(msgspec.json.encode(order))
    command = [sys.executable, "-P", "-m", "headgate.topology_runtime.measuring.background_profile"]
    with (folder / "order.json").open("rb") as given:
        return subprocess.Popen(command, stdin=given, start_new_session=True)


def test_a_profile_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    record = tmp_path / "out" / ".profile" / "work.jsonl"
    first = begin(tmp_path)
    try:
        end_s = time.monotonic() + 40.0
        while not record.exists() or len(record.read_bytes().splitlines()) < 2:
            assert first.poll() is None and time.monotonic() < end_s
            time.sleep(0.05)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    known = json.loads(record.read_bytes().splitlines()[1])

    assert begin(tmp_path).wait(60.0) == 0
    model = json.loads((tmp_path / "out" / "work.json").read_text())
    assert model["complete"] and model["waiting"] and [p["threads"] for p in model["points"]][:3] == [1, 2, 4]
    if known["delayed"] <= DELAYED:  # else the machine was busy then, and it is measured again
        assert model["points"][0]["closed_loop_tps"] == pytest.approx(known["rate_tps"], rel=0.001)
    assert not record.exists()  # the next profile is a new one


def test_a_profile_without_rows_says_so(tmp_path: Path) -> None:
    assert begin(tmp_path, rows=0, budget_s=1.0).wait(30.0) == 1
    assert "no rows of task 'work' came" in (tmp_path / "own" / FAILED).read_text()
