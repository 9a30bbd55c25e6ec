"""What of a run differs from another one: with which it is compared, and by how much two of the same differ."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from headgate.dashboards.analytics.analyses import earlier_run as earlier
from headgate.dashboards.analytics.analyses.earlier_run import compared_with
from headgate.dashboards.analytics.storage.result_tables import NOISE, SCHEMA, RunFigures, changes, waited_s
from headgate.topology_runtime.errors import HeadgateError, UsageError
from made_traces.generate_trace import Wanted, generate

FIRST = RunFigures(
    run="demo/a", topology="demo", started_us=1_000, seconds=120.0, offered_tps=100.0, acked_tps=99.0, p50_s=0.2,
    p95_s=0.4, p99_s=0.6, waited_s=0.0, slots=6.0, slot_hours=0.2, usd=0.01, replans=2, lost=0, dead_lettered=0,
    replayed=0, duplicates=0,
)  # fmt: skip
SECOND = replace(FIRST, run="demo/b", started_us=2_000)


def differing(now: RunFigures, before: RunFigures) -> set[str]:
    return {row.figure for row in changes([now], [before]) if row.differs}


def test_a_run_is_compared_with_the_last_of_its_topology_before_it() -> None:
    third = replace(FIRST, run="demo/c", started_us=3_000)
    other = replace(FIRST, run="else/x", topology="else", started_us=2_900)
    rows = list(changes([third, FIRST, SECOND, other], []))
    assert {(row.run, row.against) for row in rows} == {("demo/c", "demo/b"), ("demo/b", "demo/a")}
    assert len(rows) == 2 * len(NOISE)


def test_a_run_that_is_analysed_alone_is_compared_with_the_one_that_is_given() -> None:
    assert {row.against for row in changes([SECOND], [FIRST])} == {"demo/a"}
    assert list(changes([FIRST], [SECOND])) == [] == list(changes([SECOND], []))


def test_a_run_that_was_named_is_compared_with_whatever_it_is_of() -> None:
    other = replace(FIRST, run="else/x", topology="else", started_us=9_000)
    assert {row.against for row in changes([FIRST, SECOND], [other], named=True)} == {"else/x"}
    assert list(changes([other], [other], named=True)) == [], "not with itself"


@pytest.mark.parametrize(
    "than",
    [
        {"offered_tps": 101.9, "acked_tps": 103.5, "seconds": 122.3},
        {"p50_s": 0.219, "p95_s": 0.449, "p99_s": 0.69, "waited_s": 3.0},
        {"p50_s": 0.266, "p95_s": 0.53, "p99_s": 0.89, "slots": 6.18, "slot_hours": 0.206, "usd": 0.0103},
    ],
)
def test_what_two_runs_of_the_same_differ_by_is_no_change(than: dict[str, Any]) -> None:
    assert differing(replace(SECOND, **than), FIRST) == set()


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("offered_tps", 102.1), ("offered_tps", 97.9), ("acked_tps", 93.9), ("seconds", 123.0), ("p50_s", 0.27),
        ("p95_s", 0.54),
        ("p99_s", 0.91), ("p99_s", 0.39), ("waited_s", 3.1), ("slots", 5.8), ("slot_hours", 0.207), ("usd", 0.0),
        ("replans", 3), ("lost", 1), ("dead_lettered", 1), ("replayed", 5), ("duplicates", 1),
    ],
)  # fmt: skip
def test_what_is_more_is_one(figure: str, value: float) -> None:
    assert differing(replace(SECOND, **{figure: value}), FIRST) == {figure}


def test_what_is_not_known_of_one_neither_differs_nor_is_the_same() -> None:
    rows = {row.figure: row for row in changes([replace(SECOND, lost=None)], [FIRST])}
    assert (rows["lost"].value, rows["lost"].before, rows["lost"].differs) == (None, 0, None)


def test_stretches_that_lie_over_each_other_count_once() -> None:
    assert waited_s([(5.0, 9.0), (1.0, 2.0), (6.0, 7.0), (8.0, 11.0)]) == pytest.approx(7.0)
    assert waited_s([]) == 0.0


def test_every_figure_has_its_noise() -> None:
    assert set(NOISE) == set(RunFigures.__struct_fields__) - {"run", "topology", "started_us"}


# ── Which run is compared with: found beside the one that is analysed, analysed if it has to be ─────────


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


def test_a_run_whose_head_is_wrong_is_compared_with_nothing(traces: Traces) -> None:
    (traces.run(1) / "run.json").write_text("[]")
    assert compared_with([str(traces.run(1))], None, traces.analyse, traces.said.append).figures == ()


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
    monkeypatch.setattr(earlier, "SMALL_ROWS", 100)
    assert traces.ask(3) == [] == traces.analysed
    assert traces.said == [
        "not compared with made/run-2, the run before: it was not analysed (--set against does it)"
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
