"""What docs/how-to/batch-rows.md shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from topology_runtime.worker.batches import call_of, rows_read

GUIDE = Path(__file__).parents[2].joinpath("docs", "how-to", "batch-rows.md").read_text("utf-8")


def blocks() -> list[str]:
    """Its Python: rows, then columns."""
    return re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def names(block: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(block, found)
    return found


def test_the_score_of_each_row_is_that_of_the_row_alone() -> None:
    score = names(blocks()[0])["score"]
    rows = [{"speed": n / 7, "load": n % 3, "age": 1 / (n + 1)} for n in range(20)]
    alone = [score([row])[0] for row in rows]
    assert [row["score"] for row in score(rows)] == pytest.approx([row["score"] for row in alone])
    assert all(0 < row["score"] < 1 for row in score(rows))


def test_columns_go_through_the_tasks_of_the_guide() -> None:
    found = names(blocks()[1])
    rows = rows_read(found["Sensors"](), 100, 200)
    task = call_of(found["mean"])
    assert task is not None and len(rows) == 200
    means = task(rows)
    assert [row["sensor"] for row in means] == [n % 50 for n in range(100, 300)]
    kept = means.where(list(call_of(found["unusual"])(means)))
    graded = list(call_of(found["Graded"]())(kept))
    assert 0 < len(graded) < 200 and [row["mean"] for row in graded] == [row["mean"] for row in kept]
    assert {row["grade"] for row in graded} == {"high", "low"}
    assert all((row["grade"] == "high") == (abs(row["mean"]) > 0.1) for row in graded)
    assert task.one({"sensor": 3, "waves": [1.0, 2.0]}) == {"sensor": 3, "mean": 1.5}
