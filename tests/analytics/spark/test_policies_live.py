"""`headgate analyze --policies` on a recorded run of the demo: what it ranks is what `headgate replay` says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[3]
POLICIES = "mba+sam,lsa+rsm,static-max"
CARRIES = 0.01  # of what was offered: a policy that falls short of more is ranked behind
LIMIT_S = 300


def headgate(*words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "headgate", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, env={**os.environ, **(env or {})}
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "rates.txt").write_text("0,40\n8,90\n")
    words = ["--rates", tmp_path / "rates.txt", "--seconds", "18", "-o", "json"]
    done = headgate("up", *words, "--trace-dir", tmp_path / "traces", "--state-dir", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    [found] = (tmp_path / "traces" / "demo").glob("2*")
    return found


def test_policies_are_ranked_by_what_a_replay_says_of_them(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["analyze", run, "--output", out, "-o", "json", "--policy"]
    unknown = headgate(*command, "nobody+knows")
    assert unknown.returncode != 0 and "nobody" in unknown.stderr and not (out / "analysis.json").exists()
    done = headgate(*command, POLICIES)
    assert done.returncode == 0, done.stderr
    tried: list[dict[str, Any]] = json.loads(done.stdout)["policies_tried"]
    said = headgate("replay", run, "--policy", POLICIES, "-o", "json")
    assert said.returncode in (0, 8), said.stderr
    answer = json.loads(said.stdout)

    assert [row["policy"] for row in tried if row["rank"] is None] == ["recorded"]
    assert {row["policy"] for row in tried} == {"recorded", *POLICIES.split(",")}
    of = {row["policy"]: row for row in answer["policies"]} | {"recorded": answer["recorded"]}
    for row in tried:
        for name in ("slot_hours", "violations_s", "violated_tuples", "offered", "replans", "moves"):
            assert row[name] == pytest.approx(of[row["policy"]][name]), (row["policy"], name)
    assert of["recorded"]["offered"] == pytest.approx(8 * 40 + 10 * 90, rel=0.1)

    def order(row: dict[str, Any]) -> tuple[bool, float]:
        short = row["violated_tuples"] > CARRIES * row["offered"]
        return short, row["violated_tuples"] if short else row["slot_hours"]

    ranked = sorted((row for row in tried if row["rank"] is not None), key=lambda row: row["rank"])
    assert [row["rank"] for row in ranked] == [1, 2, 3] and ranked == sorted(ranked, key=order)
    page = (out / "report.html").read_text("utf-8")
    assert all(
        policy in re.sub(r"<script.*?</script>", "", page, flags=re.S) for policy in POLICIES.split(",")
    )

    again = headgate(*command, POLICIES)
    assert again.returncode == 0 and "nothing has changed" in again.stderr
    assert json.loads(again.stdout)["policies_tried"] == tried
