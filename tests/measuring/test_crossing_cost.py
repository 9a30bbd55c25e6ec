"""What crossing from slot to slot costs, as an earlier profile kept it: a file of the user's cache, from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.topology_runtime.measuring.crossing_cost import SCHEMA, crossing_of, read_crossing


def test_one_task_and_two_tell_the_crossing_apart_from_the_task() -> None:
    task_s, crossing_s = 3e-7, 5e-7
    assert crossing_of(task_s + crossing_s, 2 * task_s + crossing_s) == pytest.approx(crossing_s)
    assert crossing_of(1e-6, 2.1e-6) == 0.0, "no less than nothing, whatever noise says"


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    file.write_text(json.dumps({"schema": SCHEMA, "crossing_s": 4e-7}))
    assert read_crossing(file) == 4e-7


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        json.dumps({"schema": SCHEMA}),
        json.dumps({"schema": "another", "crossing_s": 4e-7}),
        *(
            json.dumps({"schema": SCHEMA, "crossing_s": n})
            for n in (-1e-7, 1.0, float("nan"), float("inf"), None, "x")
        ),
    ],
)
def test_what_cannot_be_used_is_measured_again(tmp_path: Path, text: str) -> None:
    file = tmp_path / "here.json"
    assert read_crossing(file) is None
    file.write_text(text)
    assert read_crossing(file) is None
