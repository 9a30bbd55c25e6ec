"""Every decision is replayable: the recorded inputs of a real run give the same decisions (promise P10)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.controller.replay_cli import replay
from headgate.topology_runtime.rates import read
from watched_runs.trials import trial

pytestmark = pytest.mark.live


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
