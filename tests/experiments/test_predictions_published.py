"""The table of predictions in the docs is what its data and its models give."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import trial_predictions as tp  # noqa: E402
from prediction_scores import scored, table  # noqa: E402

from controller.knowledge.model_files import read_models  # noqa: E402
from topology_runtime.loading import load  # noqa: E402

DATA = ROOT / "docs" / "experiments"


def test_each_row_of_the_docs_is_in_the_table_of_the_data() -> None:
    models = read_models(DATA / "models-waits")
    lines = [json.loads(line) for line in (DATA / "predictions.jsonl").read_text("utf-8").splitlines()]
    module = ROOT / "scripts" / "trial_shapes.py"
    shapes = {name: tp.bare(load(f"{module}:{name}", runs=True).topology) for name in tp.SHAPES}
    found = table([scored(line, shapes[line["shape"]], models) for line in lines], 0).replace("**", "")
    docs = (ROOT / "docs" / "measured-models.md").read_text("utf-8").replace("**", "").splitlines()
    for name in (*tp.SHAPES, "all"):
        rows = [line for line in docs if line.startswith(f"| {name} | {48 if name == 'all' else 16} |")]
        assert len(rows) == 1 and rows[0] in found.splitlines(), name
