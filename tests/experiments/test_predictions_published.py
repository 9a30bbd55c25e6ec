"""The table of predictions in the docs is what its data and its models give."""

from __future__ import annotations

import json
import re
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


def rows_of(text: str) -> list[str]:
    """Of tables, without bold and without room around the bars."""
    return [re.sub(r" *\| *", "|", line.replace("**", "")) for line in text.splitlines()]


DOCS = rows_of((ROOT / "docs" / "lab-notebook.md").read_text("utf-8"))


@pytest.mark.parametrize("name", SETS)
def test_each_row_of_the_docs_is_in_the_table_of_the_data(name: str) -> None:
    models = read_models(DATA / SETS[name])
    lines = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]
    module = ROOT / "scripts" / "experiments" / "trial_shapes.py"
    shapes = {shape: tp.bare(load(f"{module}:{shape}", runs=True).topology) for shape in tp.SHAPES}
    found = table([scored(line, shapes[line["shape"]], models) for line in lines], 0)
    rows = [
        row for row in rows_of(found) if row.startswith(tuple(f"|{shape}|" for shape in (*tp.SHAPES, "all")))
    ]
    assert len(rows) == 4
    assert [row for row in rows if row not in DOCS] == []


def test_no_other_row_is_in_the_docs() -> None:
    for name, count in {**dict.fromkeys(tp.SHAPES, 16), "all": 48}.items():
        assert sum(line.startswith(f"|{name}|{count}|") for line in DOCS) == len(SETS)
