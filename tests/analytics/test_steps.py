"""Steps of a run that was led up a stair of rates: what of it needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.dashboards.analytics.analyses.load_steps import judged, marks_of
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.trace_runs import run_of


def test_a_latency_that_grows_by_more_than_the_limit_is_not_stable() -> None:
    assert judged([(n, 0.2 + 0.05 * n) for n in range(6)]) == (pytest.approx(0.05), False)
    assert judged([(n, 0.2 + 0.01 * (n % 2)) for n in range(6)])[1] is True


def test_two_seconds_are_too_short_to_tell() -> None:
    assert judged([(n, 0.2) for n in range(2)]) == (None, None)
    assert judged([]) == (None, None)


def written(folder: Path, text: str) -> tuple[list[object], list[object]]:
    (folder / "steps.json").write_text(text)
    marks, left = marks_of(run_of(place(folder), {}))
    return list(marks), list(left)


def test_a_run_without_steps_has_none(tmp_path: Path) -> None:
    assert marks_of(run_of(place(tmp_path), {})) == ([], [])


def test_steps_are_numbered_in_their_order(tmp_path: Path) -> None:
    steps = [{"from_s": 10, "to_s": 15, "offered_tps": 50}, {"from_s": 15, "to_s": 20, "offered_tps": 60}]
    marks, left = written(tmp_path, json.dumps({"schema": "headgate/steps/v1", "steps": steps}))
    assert [mark[1:] for mark in marks] == [(0, 10, 15, 50), (1, 15, 20, 60)]  # type: ignore[index]
    assert left == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": "headgate/steps/v9", "steps": []}', '{"schema": "headgate/steps/v1"}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1}]}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1, "to_s": 2, "offered_tps": "many"}]}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1, "to_s": NaN, "offered_tps": 3}]}'],
)  # fmt: skip
def test_a_file_that_is_none_is_listed_and_not_fatal(tmp_path: Path, text: str) -> None:
    marks, left = written(tmp_path, text)
    assert marks == []
    assert [(row.kind, row.file.endswith("steps.json")) for row in left] == [("foreign", True)]  # type: ignore[attr-defined]
