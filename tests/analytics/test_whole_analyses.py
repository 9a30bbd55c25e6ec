"""Whole analyses by DuckDB of small traces that something is the matter with."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings, run
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import TABLES
from made_traces.generate_trace import Wanted, generate

SETTINGS = AnalysisSettings(memory="1g")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    generate(
        tmp_path / "traces", Wanted(rows=2_000, threads=10, slots=8, epochs=2, segment_rows=500, planted=())
    )
    return tmp_path / "traces" / "made" / "run-1"


def files(traces: Path, table: str) -> list[Path]:
    return sorted((traces / table).glob("[0-9]*.parquet"))


def rows_of(traces: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files(traces, "samples"))


def test_a_file_whose_pages_are_damaged_is_named_and_costs_itself_alone(traces: Path, tmp_path: Path) -> None:
    bad = files(traces, "samples")[1]
    good = rows_of(traces) - pq.read_metadata(bad).num_rows
    content = bytearray(bad.read_bytes())
    content[4:3000] = b"\xff" * 2996
    bad.write_bytes(bytes(content))
    found = run([traces], tmp_path / "out", SETTINGS)
    assert [(row["file"], row["kind"]) for row in found["left_out"] if row["kind"] == "unreadable"] == [
        (str(bad), "unreadable")
    ]
    assert found["rows"] == good and found["cpu"]["n"] > 0
    assert not (tmp_path / "out" / "_draft").exists()
    with pytest.raises(InvalidInput, match="strict"):
        run([traces], tmp_path / "strict", AnalysisSettings(memory="1g", strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_end_nothing(traces: Path, tmp_path: Path, value: float) -> None:
    for table, columns in TABLES.items():
        for file in files(traces, table):
            rows = pq.read_table(file)
            for name in (name for name, kind in columns.items() if kind == "number"):
                bad = pa.array([value] * len(rows), pa.float64())
                rows = rows.set_column(rows.column_names.index(name), name, bad)
            pq.write_table(rows, file)
    found = run([traces], tmp_path / "out", SETTINGS)
    assert found["rows"] == rows_of(traces) and found["cpu"]["n"] == 0 and found["latency_ms"]["p50"] is None
    text = (tmp_path / "out" / "analysis.json").read_text("utf-8")
    assert "NaN" not in text and "Infinity" not in text


def test_of_one_sample_there_is_an_analysis(traces: Path, tmp_path: Path) -> None:
    for table in TABLES:
        for n, file in enumerate(files(traces, table)):
            if n == 0 and table == "samples":
                pq.write_table(pq.read_table(file).slice(0, 1), file)
            else:
                file.unlink()
    found = run([traces], tmp_path / "out", SETTINGS)
    assert found["rows"] == 1 and found["stability"] == []
    assert found["cost"] == [], "no window of a slot was recorded"


def test_what_was_analysed_is_not_analysed_again(traces: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = run([traces], tmp_path / "out", SETTINGS)
    assert run([traces], tmp_path / "out", SETTINGS, said.append) == first
    assert said[-1] == "nothing has changed since it was analysed"
    files(traces, "slots")[-1].unlink()
    again = run([traces], tmp_path / "out", SETTINGS)
    assert again["rows_by_table"]["slots"] < first["rows_by_table"]["slots"]
    kept = list((tmp_path / "out" / "curated" / "slots").rglob("*.parquet"))
    assert len(kept) == len(files(traces, "slots")), "what is gone is in it no longer"
    assert json.loads((tmp_path / "out" / "analysis.json").read_text("utf-8")) == again


def test_two_runs_are_told_apart(tmp_path: Path) -> None:
    generate(tmp_path / "traces", Wanted(rows=4_000, threads=10, slots=8, epochs=2, runs=2, segment_rows=500))
    found = run([tmp_path / "traces"], tmp_path / "out", SETTINGS)
    assert found["runs"] == ["made/run-1", "made/run-2"]
    assert found["rows"] == sum(rows_of(tmp_path / "traces" / run) for run in found["runs"])
    assert {row["run"] for row in found["cost"]} == set(found["runs"])
