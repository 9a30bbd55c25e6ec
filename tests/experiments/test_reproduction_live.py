"""`scripts/reproduce --short`: real runs, real Spark, a page."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.controller.files.model_files import read_models

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.full,
]  # it offers real rates and judges what is carried
LIMIT_S = 240
MODELS = ROOT / "docs" / "experiments" / "models-fresh"
MODELLED = min(float(model.more["reference_speed"]) for model in read_models(MODELS).values())


def test_the_short_form_runs_two_pairs_and_writes_a_page(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-P",
        str(ROOT / "scripts" / "experiments" / "reproduce.py"),
        "--short",
        "--work",
        str(tmp_path),
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == tmp_path / "reproduction.md"
    data = json.loads((tmp_path / "reproduction.json").read_text("utf-8"))
    assert [(cell["pair"], bool(cell["steps"])) for cell in data["cells"]] == [
        ("lsa+rsm", True),
        ("mba+sam", True),
    ]
    for cell in data["cells"]:
        assert cell["tuples"]["lost"] == 0
        assert cell["steps"]
        # A slow machine may keep up in no step: then what it carried at its speed is judged.
        for step in cell["steps"]:
            share = min(1.0, step["speed"] / MODELLED)
            assert step["achieved_tps"] > 0.4 * min(step["offered_tps"], share * cell["predicted_tps"]), step
        if cell["actual_tps"] is not None:
            assert cell["actual_tps"] > 0.4 * cell["predicted_at_speed_tps"]
            assert len(cell["slots_used"]) == cell["slots"]["used"]
    print(f"{time.monotonic() - began:.0f} s")
