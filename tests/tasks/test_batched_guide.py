"""What docs/tasks.md shows of batched tasks runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2].joinpath("docs", "tasks.md").read_text("utf-8")


def blocks() -> list[str]:
    """The Python in its part about batched tasks."""
    part = GUIDE.split("\n## Batched tasks\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


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
