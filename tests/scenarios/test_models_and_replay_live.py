"""A real run with a model that promises three times the rate: it is named and corrected, and the next run knows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.controller.replay.replay_command import replay
from headgate.topology_runtime.rates.offered_rates import read
from watched_runs.trials import trial
from watched_runs.user_project import HEADGATE

pytestmark = pytest.mark.live

SLOT_CORES, ROW_S = 0.2, 0.004  # of CPU, whatever machine it is
TRUE_TPS = 0.95 * SLOT_CORES / ROW_S  # of a slot; the rest is what a process needs besides

FLOW = f"""
from time import thread_time

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter

def work(row):
    until = thread_time() + {ROW_S}
    while thread_time() < until:
        pass
    return row

flow = topology("works")
flow.source("numbers", Counter) >> flow.task("work", work)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "models").mkdir()
    points = [{"threads": n, "rate_tps": 3 * TRUE_TPS, "cpu": 0.95, "memory": 0.1} for n in (1, 2)]
    said = {"schema": "headgate/model/v1", "task": "work", "points": points}
    (tmp_path / "models" / "work.json").write_text(json.dumps(said))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> tuple[dict[str, Any], str]:
    """(summary, what it said) of `headgate up` to its end."""
    command = ["up", "flow.py:flow", "--models", "models", "--slot-cores", str(SLOT_CORES), "--vms", "2"]
    ended = subprocess.run(
        [*HEADGATE, *command, *words, "-o", "json"], capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout), ended.stderr


def test_a_model_that_promises_three_times_the_rate_is_named_and_corrected(project: Path) -> None:
    given = (project / "models" / "work.json").read_bytes()
    summary, said = run("--rates", "30", "--seconds", "62")
    assert "the model of work is off: a row costs" in said and "headgate model import" in said
    kept = json.loads((project / summary["trace"] / "corrected" / "work.json").read_text())
    assert kept["corrected"]["time"] == pytest.approx(3.0, rel=0.2)
    assert kept["points"][0]["rate_tps"] == pytest.approx(TRUE_TPS, rel=0.2)
    assert summary["plans"][0]["slots"] == 1
    assert (project / "models" / "work.json").read_bytes() == given, "what was given is never written to"
    listed = subprocess.run(
        [*HEADGATE, "history", "--model-errors", "-o", "json"], capture_output=True, check=True
    )
    (row,) = json.loads(listed.stdout)["learned"]
    assert row["name"] == "work" and row["off"] and row["runs"] == 1
    with open(project / "traces" / "works" / "ledger.jsonl", "ab") as file:
        file.write(b'{"schema":"headgate/led')  # what a machine that went down left of a line
    again, said = run("--rates", "60", "--seconds", "8")
    assert "the model of work is corrected" in said and "the prediction ledger is spoiled" in said
    assert again["plans"][0]["slots"] == 2, "by the model that was given one would do"
    assert again["tuples"]["lost"] == summary["tuples"]["lost"] == 0


# ── Every decision is replayable: the recorded inputs of a real run give the same decisions (promise P10) ───


def test_recorded_inputs_give_the_same_decisions(tmp_path: Path) -> None:
    (tmp_path / "steps.txt").write_text("0,30\n6,90\n")
    with trial(tmp_path, "steps.txt", 14, ["--vms", "4,4"]) as running:
        summary = running.finish()
    trace = tmp_path / "traces" / "trial" / summary["run"]
    recorded = [json.loads(text) for text in (trace / "decisions.jsonl").read_text().splitlines()]
    assert {decision["action"] for decision in recorded} >= {"none", "plan"}

    result = CliRunner().invoke(replay, [str(trace), "--policy", "static", "-o", "json"])
    assert result.exception is None, result.output
    answer = json.loads(result.stdout)
    assert (answer["decisions"], answer["equal"]) == (len(recorded), True), answer["first_difference"]
    assert answer["recorded"]["offered"] == pytest.approx(summary["tuples"]["offered"], rel=0.02)
    assert answer["policies"][0]["replans"] == 0

    offered = read(str(trace / "rates"))  # what was offered can be offered again, as means of ten seconds
    assert offered.min_tps == pytest.approx(30, rel=0.1) and 60 < offered.max_tps <= 91
