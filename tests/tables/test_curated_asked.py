"""The folder of an analysis is asked like the traces that it was made of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from generate_trace import Wanted, generate
from headgate.dashboards import cli
from headgate.dashboards.analytics import manifest, trace_runs
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.manifest import Manifest, TracePart
from headgate.topology_runtime.trace_tables import TABLES

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

DAY = "2027-01-15"
QUESTIONS = (
    "select run, count(*) as n, sum(tuples_in) as tuples from samples group by run order by run",
    "select run, source, second, at_s, acked, behind from fct_rates_per_second order by run, second",
    "select run, seconds, acked, p95_s, round(slot_hours, 9) as slot_hours from mart_runs order by run",
)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Traces, and what an analysis has curated of them: here each segment is a part."""
    generate(
        tmp_path / "traces", Wanted(rows=4_000, threads=20, slots=8, epochs=2, runs=2, segment_rows=1_000)
    )
    curated = place(tmp_path / "out" / "curated")
    for run in trace_runs.find([str(tmp_path / "traces")])[0]:
        parts = []
        for table in TABLES:
            to = Path(manifest.folder_of(curated, table, run).path) / f"date={DAY}"
            to.mkdir(parents=True)
            for file in sorted(Path((run.place / table).path).glob("*.parquet")):
                shutil.copy(file, to / file.name)
                parts.append(TracePart(table, DAY, file.name, 0, 0, {file.name: file.name}))
            shutil.copy(file, to / "unnamed.parquet")  # no manifest knows it
        manifest.write(curated, run, Manifest(manifest.SCHEMA, run.started_us, parts, {}))
    return tmp_path / "traces", tmp_path / "out"


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_as_its_traces_do(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], question: str
) -> None:
    answers = []
    for folder in folders:
        assert cli.main(["sql", str(folder), question, "-o", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1] and answers[0]


def test_what_it_does_not_know_is_said(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sql", str(folders[1]), "select count(*) as n from models", "-o", "csv"]) == 0
    said = capsys.readouterr()
    assert said.out == "n\n0\n" and said.err.count("an analysis keeps no heads of runs") == 2


def test_a_folder_without_manifests_is_no_analysis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "curated" / "_manifests" / "made").mkdir(parents=True)
    assert cli.main(["sql", str(tmp_path), "select 1"]) == 3
    (tmp_path / "curated" / "_manifests" / "made" / "run-1.json").write_text("{")
    assert cli.main(["sql", str(tmp_path), "select 1"]) == 3
    assert "names no run" in capsys.readouterr().err
