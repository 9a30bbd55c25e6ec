"""The table of predictions in the docs is what its data and its models give."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from headgate.controller.files.planning_inputs import read_models
from headgate.lab.predictions import trial_predictions as tp
from headgate.lab.predictions.prediction_scores import scored, table
from headgate.lab.predictions.trial_predictions import CLOSE, SURE, TRIALS, Bracket
from headgate.topology_runtime.api.loading import load

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
    module = ROOT / "scripts" / "lab" / "predictions" / "trial_shapes.py"
    shapes = {shape: tp.bare(load(f"{module}:{shape}", runs=True).topology) for shape in tp.SHAPES}
    found = table([scored(line, shapes[line["shape"]], models) for line in lines], 0)
    begins = tuple(f"|{shape}|" for shape in (*tp.SHAPES, "all"))
    rows = [row for row in rows_of(found) if row.startswith(begins)]
    assert len(rows) == 4
    assert [row for row in rows if row not in DOCS] == []


def test_no_other_row_is_in_the_docs() -> None:
    for name, count in {**dict.fromkeys(tp.SHAPES, 16), "all": 48}.items():
        assert sum(line.startswith(f"|{name}|{count}|") for line in DOCS) == len(SETS)


# ── How the rate that a placement carries is closed in on, from verdicts alone ──────────────────────────


@pytest.mark.parametrize("capacity", [70.0, 97.0, 103.0, 118.0])
def test_sure_verdicts_close_the_bracket_round_the_capacity(capacity: float) -> None:
    bracket, trials = Bracket(100.0), 0
    while not bracket.closed:
        bracket.judge(bracket.rate_tps <= capacity, SURE)
        trials += 1
    assert bracket.low <= capacity < bracket.high <= CLOSE * bracket.low
    assert trials <= TRIALS


def test_an_unstable_rate_that_is_not_sure_is_tried_once_more() -> None:
    bracket = Bracket(100.0)
    bracket.judge(True, 1.0)
    second = bracket.rate_tps
    bracket.judge(False, SURE - 0.1)
    assert (bracket.rate_tps, bracket.high, bracket.closed) == (second, math.inf, False)
    bracket.judge(True, 1.0)  # it was a hiccup
    assert bracket.low == second < bracket.rate_tps


@pytest.mark.parametrize("again", [SURE - 0.1, 1.0])
def test_unstable_twice_is_unstable(again: float) -> None:
    bracket = Bracket(100.0)
    bracket.judge(False, SURE - 0.1)
    bracket.judge(False, again)
    assert bracket.high == 100.0 > bracket.rate_tps


def test_a_sure_verdict_is_taken_at_once() -> None:
    bracket = Bracket(100.0)
    bracket.judge(False, SURE)
    assert bracket.high == 100.0 > bracket.rate_tps
