"""Which run is compared with: found beside the one that is analysed, analysed if it has to be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from test_run_figures import FIRST

from generate_trace import Wanted, generate
from headgate.dashboards.analytics import earlier
from headgate.dashboards.analytics.earlier import compared_with
from headgate.dashboards.analytics.results import SCHEMA
from headgate.topology_runtime.errors import HeadgateError, UsageError


class Traces:
    """Runs of one topology, begun a minute after each other, and what was said and analysed."""

    def __init__(self, folder: Path) -> None:
        generate(folder, Wanted(rows=600, threads=10, slots=4, epochs=1, runs=3))
        self.folder = folder / "made"
        for number in (1, 2, 3):
            self.head(number, started=f"2027-01-15T08:0{number}:00Z")
        self.said: list[str] = []
        self.analysed: list[str] = []

    def run(self, number: int) -> Path:
        return self.folder / f"run-{number}"

    def head(self, number: int, **more: Any) -> None:
        file = self.run(number) / "run.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | more))

    def analyse(self, run: Any, folder: str) -> None:
        self.analysed.append(run.key)
        self.write(run.key, Path(folder))

    def write(self, key: str, folder: Path, schema: str = SCHEMA, **more: Any) -> None:
        (folder / "results").mkdir(parents=True, exist_ok=True)
        figures = to_builtins(FIRST) | {"run": key, "topology": "made"} | more
        (folder / "results" / "run_figures.json").write_text(json.dumps([figures]))
        (folder / "analysis.json").write_text(json.dumps({"schema": schema, "runs": [key]}))

    def ask(self, number: int, against: object = None) -> list[str]:
        given = None if against is None else str(against)
        found = compared_with([str(self.run(number))], given, self.analyse, self.said.append)
        assert found.named == (bool(found.figures) and against is not None)
        return [figures.run for figures in found.figures]


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    return Traces(tmp_path / "traces")


def test_the_run_before_is_analysed_once(traces: Traces) -> None:
    assert traces.ask(3) == ["made/run-2"] == traces.analysed
    assert traces.said == ["analysing made/run-2 first, to compare with"]
    assert traces.ask(3) == ["made/run-2"] == traces.analysed


def test_the_first_run_is_compared_with_nothing(traces: Traces) -> None:
    assert traces.ask(1) == [] == traces.analysed == traces.said


def test_a_run_of_another_topology_is_none_before_it(traces: Traces) -> None:
    other = json.loads((traces.run(2) / "run.json").read_text())["topology"] | {"name": "other"}
    traces.head(2, topology=other)
    assert traces.ask(3) == ["made/run-1"]


def test_nothing_is_compared_with_several_runs_or_if_nobody_wants(traces: Traces) -> None:
    found = compared_with([str(traces.folder)], None, traces.analyse, traces.said.append)
    assert found.figures == () and traces.ask(3, "none") == [] == traces.analysed


def test_a_run_that_is_named_is_the_one(traces: Traces) -> None:
    assert traces.ask(2, traces.run(3)) == ["made/run-3"]
    with pytest.raises(UsageError, match="3 runs can be read"):
        traces.ask(2, traces.folder)


def test_an_analysis_that_is_older_than_its_trace_is_made_again(traces: Traces) -> None:
    folder = traces.folder / "analysis" / "run-2"
    traces.write("made/run-2", folder)
    assert traces.ask(3) == ["made/run-2"] and traces.analysed == []
    segment = next((traces.run(2) / "samples").iterdir())
    later_ns = (folder / "analysis.json").stat().st_mtime_ns + 1_000_000
    os.utime(segment, ns=(later_ns, later_ns))
    assert traces.ask(3) == ["made/run-2"] == traces.analysed


@pytest.mark.parametrize("wrong", [{"schema": "headgate/analysis/v9"}, {"p50_s": "late"}])
def test_an_analysis_that_cannot_be_read_is_made_again(traces: Traces, wrong: dict[str, Any]) -> None:
    traces.write("made/run-2", traces.folder / "analysis" / "run-2", **wrong)
    assert traces.ask(3) == ["made/run-2"] == traces.analysed


def test_a_large_run_is_analysed_only_if_it_is_named(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "QUICK_ROWS", 100)
    assert traces.ask(3) == [] == traces.analysed
    assert traces.said == [
        "not compared with made/run-2, the run before: it was not analysed (--against does it)"
    ]
    assert traces.ask(3, traces.run(2)) == ["made/run-2"] == traces.analysed


def test_a_run_before_that_cannot_be_analysed_is_told_and_one_that_was_named_refused(traces: Traces) -> None:
    def fail(run: Any, folder: str) -> None:
        raise HeadgateError("the disk is full")

    assert compared_with([str(traces.run(3))], None, fail, traces.said.append).figures == ()
    assert traces.said[-1] == "not compared with made/run-2, the run before: the disk is full"
    with pytest.raises(HeadgateError, match="the disk is full"):
        compared_with([str(traces.run(3))], str(traces.run(2)), fail, traces.said.append)


def test_what_it_is_compared_with_changes_the_mark(traces: Traces) -> None:
    marks = set()
    for number, against in ((1, None), (2, None), (3, None), (3, traces.run(2))):
        given = None if against is None else str(against)
        marks.add(compared_with([str(traces.run(number))], given, traces.analyse, traces.said.append).mark)
    assert len(marks) == 4 and "" in marks
