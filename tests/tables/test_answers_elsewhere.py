"""Answers in other tools: tables of Arrow, pandas and polars, a file of DuckDB, and what an incomplete trace says."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from IPython.core.formatters import HTMLFormatter
from planted_trace import ROWS, Planted, planted

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.tables.table_catalogue import tables
from headgate.topology_runtime.errors import InvalidInput

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

QUERY = "select time, task, tuples_in, cpu_s from samples order by time, task, thread"


def traces(folder: Path, run: Planted | None = None, **more: Any) -> Any:
    from headgate.dashboards.tables.duckdb_tables import Traces

    return Traces(str((run or planted()).write(folder)), **more)


def test_an_answer_is_rows_columns_and_a_table_of_arrow(tmp_path: Path) -> None:
    rows = traces(tmp_path).ask(QUERY)
    table = rows.arrow()
    assert table == rows.to_arrow() == pa.table(rows)
    assert table.column_names == rows.columns == ["time", "task", "tuples_in", "cpu_s"]
    assert [str(kind) for kind in table.schema.types] == [
        "timestamp[us, tz=UTC]",
        "string",
        "int64",
        "double",
    ]
    assert table["tuples_in"].to_pylist() == rows["tuples_in"] == [row["tuples_in"] for row in rows]
    assert len(rows) == table.num_rows > 100 and ROWS in rows["tuples_in"]
    assert rows["time"][0] == "2026-03-27T11:00:01.450000Z"
    assert HTMLFormatter()(rows).count("<tr>") == 1 + min(200, len(rows)), "as a notebook shows it"


def test_an_answer_without_rows_keeps_its_types(tmp_path: Path) -> None:
    rows = traces(tmp_path).ask("select time, tuples_in, tuples_in from samples where false;")
    assert [str(kind) for kind in rows.arrow().schema.types] == ["timestamp[us, tz=UTC]", "int64", "int64"]
    assert rows.columns == ["time", "tuples_in", "tuples_in_1"] and list(rows) == [] and rows["time"] == []


def test_pandas_takes_an_answer(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    rows = traces(tmp_path).ask(QUERY)
    frame = rows.df()
    assert frame.equals(rows.to_pandas()) and list(frame.columns) == rows.columns
    assert frame["time"].iloc[0] == datetime(2026, 3, 27, 11, 0, 1, 450_000, UTC)
    assert frame["tuples_in"].sum() == sum(rows["tuples_in"])


def test_polars_takes_an_answer(tmp_path: Path) -> None:
    import polars

    rows = traces(tmp_path).ask(QUERY)
    assert rows.pl().equals(rows.to_polars()) and rows.pl().equals(polars.DataFrame(rows))
    assert rows.pl()["tuples_in"].sum() == sum(rows["tuples_in"])


def test_a_file_of_duckdb_has_every_table_for_any_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planted().write(Path("traces"))
    assert cli.main(["sql", "traces", "--attach", "figures.duckdb"]) == 0
    assert f"{len(tables())} tables in figures.duckdb" in capsys.readouterr().err
    asked = {}
    for name in tables():
        assert cli.main(["sql", "traces", f"select * from {name} order by all", "-o", "json"]) == 0
        asked[name] = json.loads(capsys.readouterr().out)
    monkeypatch.chdir("/")
    with duckdb.connect() as client:
        client.execute("set timezone = 'America/New_York'")
        client.execute(f"attach '{tmp_path / 'figures.duckdb'}' as figures (read_only)")
        for name, rows in asked.items():
            found = client.sql(f"select * from figures.{name} order by all").to_arrow_table().to_pylist()
            assert len(found) == len(rows)
            for one, other in zip(found, rows, strict=True):
                for column, value in one.items():
                    if isinstance(value, float):
                        assert other[column] == pytest.approx(value, rel=1e-9, abs=1e-12), (name, column)
                    elif isinstance(value, datetime):
                        assert datetime.fromisoformat(other[column]) == value
                    else:
                        assert other[column] == value, (name, column)
    monkeypatch.chdir(tmp_path)
    before = Path("figures.duckdb").read_bytes()
    assert cli.main(["sql", "traces", "--attach", "figures.duckdb"]) == 3
    assert cli.main(["sql", "traces", "select 1", "--attach", "other.duckdb"]) == 2
    assert cli.main(["sql", "traces", "--attach", "no/other.duckdb"]) == 3
    assert Path("figures.duckdb").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["figures.duckdb", "traces"]


# ── What is missing is said, and refused if asked for ───────────────────────────────────────────────────


def spoiled() -> Planted:
    run = planted()
    first, second, *_, last = run.tables["slots"]
    first.update(cpu=math.nan, memory=math.inf)
    second.update(cpu=-math.inf)
    last.update(cpu=None)
    return run


def test_values_that_are_no_numbers_are_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = spoiled().write(tmp_path)
    query = "select column_name, kind, rows from left_out where column_name is not null order by 1"
    assert cli.main(["sql", str(run), query, "-o", "csv"]) == 0
    said = capsys.readouterr()
    assert said.out == "column_name,kind,rows\ncpu,not-finite,2\nmemory,not-finite,1\n"
    assert cli.main(["sql", str(run), "select count(cpu) as n from fct_slot_seconds", "-o", "csv"]) == 0
    said = capsys.readouterr()
    whole = len(spoiled().tables["slots"])
    assert said.out == f"n\n{whole - 3}\n"
    assert f"not-finite: 2 of {whole} values of cpu are NaN or infinite" in said.err
    assert cli.main(["sql", str(run), "select count(*) as n from rates", "-o", "csv"]) == 0
    assert "not-finite" not in capsys.readouterr().err
    asked = traces(tmp_path, spoiled())
    assert list(asked.ask("select * from left_out where column_name is not null")) and asked.left_out


def test_strict_answers_nothing_of_a_trace_that_is_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def strict(query: str) -> int:
        return cli.main(["sql", str(tmp_path / "flow" / "run"), query, "--set", "strict=yes", "-o", "csv"])

    run = planted().write(tmp_path)
    assert strict("select count(*) as n from runs") == 0 and capsys.readouterr().out == "n\n1\n"
    (run / "decisions.jsonl").write_bytes((run / "decisions.jsonl").read_bytes()[:-9])
    assert strict("select count(*) as n from fct_plans") == 3
    said = capsys.readouterr()
    assert said.out == "" and "decisions.jsonl: truncated" in said.err and "error[HG-INVALID]" in said.err
    spoiled().write(tmp_path)
    assert strict("select max(cpu) as n from slots") == 3 and capsys.readouterr().out == ""
    assert strict("select count(*) as n from rates") == 0
    segment = run / "rates" / "1-000000.parquet"
    segment.rename(segment.with_name("_1-000000.parquet"))
    assert strict("select count(*) as n from runs") == 3
    assert "unfinished" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="left out"):
        traces(tmp_path, spoiled(), strict=True).ask("select max(cpu) as n from slots")
