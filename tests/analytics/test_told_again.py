"""What has not changed is told again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headgate.dashboards.analytics import unchanged
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.judging import Segment
from headgate.dashboards.analytics.results import SCHEMA, TABLES, LeftOut
from headgate.dashboards.analytics.trace_runs import TraceRun, run_of


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    folder = tmp_path / "demo" / "one"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "decisions.jsonl").write_text("")
    return run_of(place(folder), {})


def segment(name: str, digest: str = "d") -> Segment:
    return Segment(place(f"/x/{name}"), "rates", 1, 0, 1, digest)


def test_whatever_counts_changes_the_mark(run: TraceRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(*segments: Segment, left: tuple[LeftOut, ...] = ()) -> str:
        return unchanged.mark_of([(run, segments)], left)

    first = mark(segment("1"))
    assert mark(segment("1")) == first
    marks = {first, mark(segment("1"), segment("2")), mark(segment("1", "e")), mark(segment("2"))}
    marks.add(mark(segment("1"), left=(LeftOut("f", "empty", "why", 0),)))
    lines = Path(run.place.path, "decisions.jsonl")
    lines.write_text("a line\n")
    marks.add(mark(segment("1")))
    os.utime(lines, (0, 0))
    marks.add(mark(segment("1")))
    monkeypatch.setattr(unchanged, "code_mark", lambda: "other code")
    marks.add(mark(segment("1")))
    assert len(marks) == 8


def test_only_a_whole_analysis_of_the_same_is_told(tmp_path: Path) -> None:
    to = place(tmp_path)
    assert unchanged.told_again(to, "m", False) is None
    (tmp_path / "results").mkdir()
    for name in TABLES:
        (tmp_path / "results" / f"{name}.json").write_text("[]")
    analysis = {"schema": SCHEMA, unchanged.MARK: "m", "left_out": [{"file": "f"}]}
    (tmp_path / "analysis.json").write_text(json.dumps(analysis))
    assert unchanged.told_again(to, "m", False) == analysis
    assert unchanged.told_again(to, "other", False) is None
    assert unchanged.told_again(to, "m", True) is None, "--strict says what was left out"
    (tmp_path / "results" / "cost.json").unlink()
    assert unchanged.told_again(to, "m", False) is None
    (tmp_path / "analysis.json").write_text("torn")
    assert unchanged.told_again(to, "m", False) is None
