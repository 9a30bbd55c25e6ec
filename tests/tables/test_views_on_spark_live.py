"""Every table has the same rows in DuckDB and in Spark, of recorded runs and of made ones."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted_trace import with_gap, with_latencies
from runs_to_ask import HEADGATE, recorded

from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.sql_queries import lines_of, plain
from headgate.dashboards.tables.table_catalogue import tables
from made_traces.generate_trace import Wanted, generate

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'headgate[spark]'")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        shutil.which("java") is None and "JAVA_HOME" not in os.environ, reason="Spark needs Java"
    ),
]
ROOT = Path(__file__).parents[2]
LIMIT_S = 900
ON_SPARK = """
import json, sys
from pathlib import Path
from headgate.dashboards.analytics.analysis_pipeline import KEPT
from headgate.dashboards.analytics.storage.spark_session import MEMORY, QUICK, session
from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.sql_queries import plain
from headgate.dashboards.tables.table_catalogue import shared, tables
from headgate.dashboards.tables.spark_tables import SparkEngine, answered
from headgate.dashboards.tables.table_engines import fill

log, *traces = sys.argv[1:]
with session("local[2]", MEMORY, Path(log), QUICK) as spark:
    for trace in traces:
        runs, left = trace_files.found(trace)
        fill(SparkEngine(spark, shared(tables())), runs, left, set(tables()), KEPT)
        for name in tables():
            names, lines = answered(spark, f"select * from {name}")
            rows = [[plain(value) for value in line] for line in lines]
            print(json.dumps([trace, name, names, rows], allow_nan=False))
"""
Table = tuple[list[str], list[list[Any]]]


def made(folder: Path) -> Path:
    """Two runs with an overload, in one of which values are missing or no numbers, and of an older recorder."""
    generate(folder, Wanted(rows=16_000, threads=20, slots=8, epochs=4, runs=2, segment_rows=4_000))
    for file in sorted((folder / "made" / "run-2" / "slots").glob("*.parquet")):
        table = pq.read_table(file)
        values = [math.nan if n % 7 == 0 else None if n % 5 == 0 else 0.5 for n in range(len(table))]
        pq.write_table(
            table.set_column(table.column_names.index("predicted_cpu"), "predicted_cpu", pa.array(values)),
            file,
        )
    for file in sorted((folder / "made" / "run-2" / "rates").glob("*.parquet")):
        pq.write_table(pq.read_table(file).drop_columns(["offered", "emitted", "acked"]), file)
    return folder


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("both")
    recorded(folder)
    with_gap(with_latencies()).write(folder / "planted")
    return [folder / "traces", made(folder / "made"), folder / "planted"]


@pytest.fixture(scope="module")
def of_spark(traces: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Table]:
    log = tmp_path_factory.mktemp("log") / "spark.log"
    done = subprocess.run(
        [sys.executable, "-P", "-c", ON_SPARK, str(log), *map(str, traces)],
        capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    lines = map(json.loads, done.stdout.splitlines())
    return {(trace, name): (names, rows) for trace, name, names, rows in lines}


def of_duckdb(trace: Path) -> dict[str, Table]:
    from headgate.dashboards.tables.duckdb_tables import connected
    from headgate.dashboards.tables.sql_queries import answer

    runs, left = trace_files.found(str(trace))
    connection = connected(runs, left, set(tables()))
    found = {}
    for name in tables():
        names, batches = answer(connection, f"select * from {name}")
        found[name] = names, [[plain(value) for value in line] for line in lines_of(batches)]
    connection.close()
    return found


def ordered(rows: list[list[Any]]) -> list[list[Any]]:
    """By what is no fraction first: fractions may differ in their last digits."""

    def key(row: list[Any]) -> tuple[Any, ...]:
        exact = [str(value) for value in row if not isinstance(value, float)]
        return exact, [value for value in row if isinstance(value, float)]

    return sorted(rows, key=key)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return type(one) is type(other) and bool(one == other)


def test_every_row_of_every_table_is_the_same(
    traces: list[Path], of_spark: dict[tuple[str, str], Table]
) -> None:
    compared = 0
    for trace in traces:
        for name, (names, rows) in of_duckdb(trace).items():
            other_names, other_rows = of_spark[str(trace), name]
            assert names == other_names == [column.name for column in tables()[name].columns]
            assert len(rows) == len(other_rows), (trace, name)
            for one, other in zip(ordered(rows), ordered(other_rows), strict=True):
                apart = [n for n, a, b in zip(names, one, other, strict=True) if not alike(a, b)]
                assert apart == [], (name, one, other)
                compared += 1
    assert compared > 10_000
    assert {name for (_, name), (_, rows) in of_spark.items() if rows} >= set(tables()) - {
        "left_out",
        "sum_peaks",
    }


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select tasc from samples", "`task`"),
        ("insert into runs select * from runs", "only one query that reads is answered"),
        (
            "select reflect('java.lang.System', 'getenv', 'HOME') as x",
            "only one query that reads is answered",
        ),
        ("select * from parquet.`{traces}`", "cannot be found"),
    ],
)
def test_the_command_asks_spark_and_reads_only(traces: list[Path], query: str, said: str) -> None:
    command = [
        *HEADGATE,
        "sql",
        str(traces[1]),
        query.format(traces=traces[1]),
        "--spark",
        "--master",
        "local[2]",
    ]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (3, "") and said in done.stderr
    assert done.stderr.startswith("left out: " if "left out" in done.stderr else "error[HG-INVALID]: ")


def test_the_command_prints_what_spark_answers(traces: list[Path]) -> None:
    query = "select run, max(time) as last, cast('nan' as double) as nan, 9007199254740993 as big "
    query += "from samples group by run"
    answers = []
    for more in ([], ["--spark", "--master", "local[2]"]):
        command = [*HEADGATE, "sql", str(traces[1]), f"{query} order by run -- so\n;", "-o", "json", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1] and len(answers[0]) == 2 and answers[0][0]["nan"] is None
