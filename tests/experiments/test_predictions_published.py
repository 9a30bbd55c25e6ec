"""The table of predictions in the docs is what its data and its models give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import trial_predictions as tp
from experiments.prediction_scores import scored, table
from headgate.controller.files.model_files import read_models
from headgate.topology_runtime.loading import load

ROOT = Path(__file__).resolve().parents[2]

DATA = ROOT / "docs" / "experiments"


SETS = {
    "predictions": "models-waits",
    "predictions-others": "models-others",
    "predictions-fresh": "models-fresh",
}


@pytest.mark.parametrize("name", SETS)
def test_each_row_of_the_docs_is_in_the_table_of_the_data(name: str) -> None:
    models = read_models(DATA / SETS[name])
    lines = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]
    module = ROOT / "scripts" / "experiments" / "trial_shapes.py"
    shapes = {shape: tp.bare(load(f"{module}:{shape}", runs=True).topology) for shape in tp.SHAPES}
    found = table([scored(line, shapes[line["shape"]], models) for line in lines], 0).splitlines()
    docs = (ROOT / "docs" / "measured-models.md").read_text("utf-8").replace("**", "").splitlines()
    for row in (line.replace("**", "") for line in found):
        if row.startswith(tuple(f"| {shape} |" for shape in (*tp.SHAPES, "all"))):
            assert row in docs


def test_no_other_row_is_in_the_docs() -> None:
    docs = (ROOT / "docs" / "measured-models.md").read_text("utf-8").replace("**", "").splitlines()
    for name, count in {**dict.fromkeys(tp.SHAPES, 16), "all": 48}.items():
        assert sum(line.startswith(f"| {name} | {count} |") for line in docs) == len(SETS)
