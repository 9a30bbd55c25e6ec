"""`headgate sql` as people type it: queries, what is refused, what cannot be read, how answers are printed."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.tables.sql_queries import TABLE_ROWS
from made_traces.generate_trace import Wanted, generate

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql") / "traces"
    generate(folder, Wanted(rows=4_000, threads=20, slots=8, epochs=2, runs=2, segment_rows=1_000))
    return folder


@pytest.fixture
def ask(traces: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str, trace: Path = traces) -> tuple[int, str, str]:
        code = cli.main(["sql", str(trace), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return asked


def test_all_runs_of_a_folder_are_asked_at_once(ask: Ask, traces: Path) -> None:
    code, out, _ = ask("select run, count(*) as n from samples group by run order by run", "-o", "json")
    assert code == 0
    rows = {
        folder.name: sum(pq.read_metadata(file).num_rows for file in (folder / "samples").iterdir())
        for folder in sorted((traces / "made").iterdir())
    }
    assert json.loads(out) == [{"run": f"made/{name}", "n": n} for name, n in rows.items()] and len(rows) == 2


def test_a_single_run_is_asked_alone(ask: Ask, traces: Path) -> None:
    _, out, _ = ask("select distinct run from rates", "-o", "json", trace=traces / "made" / "run-2")
    assert json.loads(out) == [{"run": "made/run-2"}]


def test_values_are_exact_in_json_and_what_is_no_number_is_null(ask: Ask) -> None:
    query = (
        "select 9007199254740993 as big, 170141183460469231731687303715884105727::hugeint as huge, "
        "'nan'::double as nan, '-inf'::double as inf, null as nothing, 1.5::decimal(4, 1) as half, "
        "timestamptz '2026-01-02 03:04:05+02' as at, [1, 2] as list, {'a': 'nan'::double} as part, "
        "'ü\"' as text, true as yes, interval 2 hours as long"
    )
    _, out, _ = ask(query, "-o", "json")
    assert json.loads(out) == [
        {
            "big": 9007199254740993, "huge": 2**127 - 1, "nan": None, "inf": None, "nothing": None, "half": 1.5,
            "at": "2026-01-02T01:04:05.000000Z", "list": [1, 2], "part": {"a": None}, "text": 'ü"', "yes": True,
            "long": 7200.0,
        }
    ]  # fmt: skip


def test_columns_of_one_name_are_all_there(ask: Ask) -> None:
    _, out, _ = ask("select 1 as n, 2 as n, 3 as n", "-o", "jsonl")
    assert list(json.loads(out).values()) == [1, 2, 3]


def test_csv_has_a_head_even_without_rows_and_json_a_list(ask: Ask) -> None:
    none = "select vm, slot from slots where false"
    assert ask(none, "-o", "csv")[1] == "vm,slot\n"
    assert json.loads(ask(none, "-o", "json")[1]) == []
    assert ask(none, "-o", "jsonl")[1] == ""
    assert ask(none)[1:] == ("", "no rows\n")


def test_csv_quotes_what_must_be(ask: Ask) -> None:
    _, out, _ = ask("""select 'a,"b' as t, null as n, 0.1 as d, 'nan'::double as x""", "-o", "csv")
    assert list(csv.reader(io.StringIO(out))) == [["t", "n", "d", "x"], ['a,"b', "", "0.1", ""]]


def test_a_long_table_says_that_there_is_more(ask: Ask) -> None:
    _, out, err = ask(f"select range as n from range({TABLE_ROWS + 1})")
    assert len(out.splitlines()) == TABLE_ROWS + 1  # with its head
    assert err == "the first 1,000 rows of more: -o csv, json or jsonl has all\n"
    assert ask(f"select range as n from range({TABLE_ROWS})")[2] == ""


def test_a_few_wide_rows_are_shown_on_their_side(ask: Ask) -> None:
    lines = ask("select * from mart_runs order by run")[1].splitlines()
    assert lines[0].split() == ["column", "1", "2"] and lines[1].split() == [
        "run",
        "made/run-1",
        "made/run-2",
    ]
    assert ask("select run, seconds from mart_runs order by run")[1].splitlines()[0].split() == [
        "run",
        "seconds",
    ]


@pytest.mark.parametrize("tail", [";", "  ; ", " -- so", "\n"])
def test_a_query_may_end_as_queries_do(ask: Ask, tail: str) -> None:
    assert ask(f"select 1 as n{tail}", "-o", "csv")[1] == "n\n1\n"


@pytest.mark.parametrize("query", ["describe samples", "summarize rates", "from dim_run", "show tables"])
def test_other_ways_to_look(ask: Ask, query: str) -> None:
    code, out, _ = ask(query, "-o", "json")
    assert code == 0 and json.loads(out)


def test_a_query_comes_from_a_file(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_text("-- how many\nselect count(*) as n\nfrom dim_run;\n")
    assert ask("--file", str(file), "-o", "csv")[1] == "n\n2\n"
    code, _, err = ask("--file", str(tmp_path / "no.sql"))
    assert code == 3 and "no.sql cannot be read" in err


def test_without_a_query_it_says_how(ask: Ask) -> None:
    code, out, err = ask()
    assert (code, out) == (2, "")
    assert "no query is given" in err and "--tables" in err and "--file" in err
    assert ask("select 1", "--file", "x")[0] == 2


@pytest.mark.parametrize(
    ("query", "cause", "near"),
    [
        ("selec 1", "syntax error", "--tables"),
        ("select tasc from samples", '"tasc"', "did you mean 'task'?"),
        ("select s.quue from samples s", "quue", "did you mean 'queue'?"),
        ("select * from mart_run", "mart_run", "did you mean 'mart_runs'?"),
        ("select sums(cpu) from slots", "sums", "--tables"),
        ("select cast('x' as integer) as n", "'x'", "--tables"),
        ("", "", "begin with `select`"),
        (" /* nothing */ ", "", "begin with `select`"),
    ],
)
def test_a_bad_query_is_told_with_what_is_near(ask: Ask, query: str, cause: str, near: str) -> None:
    code, out, err = ask(query, "-o", "json")
    assert (code, out) == (3, "")
    assert cause in err and near in err.splitlines()[-1]
    assert err.startswith("error[HG-INVALID]: ")


def test_a_fault_in_a_later_row_is_told_too(ask: Ask) -> None:
    query = "select cast(case when range = 20000 then 'x' else '1' end as integer) as n from range(30000)"
    code, _, err = ask(query, "-o", "csv")
    assert code == 3 and "'x'" in err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize(
    "query",
    [
        "insert into runs values (1)", "update runs set run = 'x'", "delete from samples", "drop view samples",
        "create table t as select 1", "create view v as select 1", "attach 'x.db'", "set threads = 1", "load httpfs",
        "install httpfs", "pragma database_list", "copy runs to 'out.csv'", "export database 'out'",
        "copy runs to '{segment}'", "explain analyze copy runs to 'out.csv'", "select 1; drop view samples", "vacuum",
        "with t as (insert into runs select * from runs returning *) select * from t",
        "select * from (copy runs to 'out.csv')", "select 1) answer; drop view samples; select * from (select 1",
        "call enable_logging()",
    ],
)  # fmt: skip
def test_nothing_is_ever_written(
    ask: Ask, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.chdir(tmp_path)
    segment = next((traces / "made" / "run-1" / "rates").glob("*.parquet"))
    before = contents(traces)
    code, out, err = ask(query.format(segment=segment), "-o", "json")
    assert (code, out) == (3, ""), err
    assert contents(traces) == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{file}')", "select * from read_csv('{file}')", "select * from '{file}'",
        "select * from read_blob('{file}')", "select * from glob('{folder}/*')", "select * from read_json('{file}')",
        "select * from read_parquet('{folder}/*.parquet')", "select * from sniff_csv('{file}')",
        "select * from query('select * from read_text(''{file}'')')", "select * from 'https://localhost/x.csv'",
        "select * from parquet_metadata('{file}')",
    ],
)  # fmt: skip
def test_no_other_file_is_read(ask: Ask, tmp_path: Path, query: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1\n")
    code, out, err = ask(query.format(file=file, folder=tmp_path), "-o", "json")
    assert (code, out) == (3, "")
    assert "secret\n" not in err


def test_what_cannot_be_used_is_left_out_and_said(ask: Ask, tmp_path: Path) -> None:
    generate(tmp_path / "traces", Wanted(rows=4_000, threads=20, slots=8, epochs=2, segment_rows=1_000))
    run = tmp_path / "traces" / "made" / "run-1"
    first, second, third, *good = sorted((run / "samples").glob("*.parquet"))
    first.rename(first.with_name(f"_{first.name}"))
    second.write_bytes(second.read_bytes()[:-20])
    content = bytearray(third.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4:-footer] = bytes(len(content) - footer - 4)  # every page, not the footer
    third.write_bytes(content)
    (run / "decisions.jsonl").write_bytes((run / "decisions.jsonl").read_bytes()[:-30])
    code, out, err = ask("select sum(tuples_in) as n from samples", "-o", "csv", trace=run)
    assert code == 0, err
    said = {line.split(": ")[1].rpartition("/")[2]: line.split(": ")[2] for line in err.splitlines()}
    assert said == {f"_{first.name}": "unfinished", second.name: "truncated", third.name: "unreadable"}
    left = sum(pq.read_table(file, columns=["tuples_in"])["tuples_in"].to_numpy().sum() for file in good)
    assert out == f"n\n{left}\n" and left > 0
    _, out, _ = ask(
        "select kind, count(*) as n from left_out, decisions group by 1 order by 1", "-o", "csv", trace=run
    )
    assert "truncated,2" in out.splitlines()  # a segment, and a line of decisions (one is left to join with)


def test_where_there_is_no_trace_it_says_so(ask: Ask, tmp_path: Path) -> None:
    assert ask("select 1", trace=tmp_path / "no")[0] == 3
    code, _, err = ask("select 1", trace=tmp_path)
    assert code == 3 and "no run is in it" in err


def test_a_run_of_which_next_to_nothing_is_there_has_every_table(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "run" / "samples").mkdir(parents=True)
    for name in cli_tables(ask):
        code, _, err = ask(f"select * from {name}", "-o", "json", trace=tmp_path / "run")
        assert code == 0, err


def cli_tables(ask: Ask) -> list[str]:
    code, out, _ = ask("--tables", "-o", "json")
    rows = json.loads(out)["tables"]
    assert code == 0 and set(rows[0]) == {"table", "column", "type", "unit", "meaning"}
    return list(dict.fromkeys(row["table"] for row in rows))


def test_rows_come_as_they_are_worked_out_and_whoever_reads_may_go(traces: Path) -> None:
    command = [sys.executable, "-P", "-m", "headgate", "sql", str(traces)]
    query = "select range as n from range(1000000000000)"
    with subprocess.Popen(
        [*command, query, "-o", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None and done.stderr is not None
        assert [done.stdout.readline() for _ in range(3)] == [b"n\n", b"0\n", b"1\n"]
        done.stdout.close()
        done.wait(30)  # at once
        assert done.stderr.read() == b""


def test_help_needs_no_duckdb() -> None:
    for words in (["--help"], ["sql", "--help"]):
        code = f"import sys\nfrom headgate.dashboards.headgate_command import main\nmain({words})\n"
        code += "assert 'duckdb' not in sys.modules"
        subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=30, capture_output=True)


def delta_files(folder: Path) -> tuple[list[Path], Any]:
    """By its log alone, and what deltalake reads."""
    deltalake = pytest.importorskip("deltalake", reason="pip install 'headgate[delta]'")
    log = [json.loads(line) for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    added = [folder / line["add"]["path"] for line in log if "add" in line]
    assert sorted(added) == sorted(folder.glob("*.parquet"))
    return added, pa.concat_tables(map(pq.read_table, deltalake.DeltaTable(folder).file_uris()))


def iceberg_files(folder: Path) -> tuple[list[Path], Any]:
    """That its metadata names, and what pyiceberg's own reader reads from the folder alone."""
    reading = pytest.importorskip("pyiceberg.table", reason="pip install 'headgate[iceberg]'")
    scan = reading.StaticTable.from_metadata(str(folder)).scan()
    files = [Path(task.file.file_path.removeprefix("file://")) for task in scan.plan_files()]
    assert sorted(files) == sorted((folder / "data").rglob("*.parquet"))
    return files, scan.to_arrow()


@pytest.mark.parametrize(("kind", "read"), [("Delta", delta_files), ("Iceberg", iceberg_files)])
def test_an_answer_becomes_a_table_of_others(
    ask: Ask, tmp_path: Path, kind: str, read: Callable[[Path], tuple[list[Path], Any]]
) -> None:
    option, folder = f"--{kind.lower()}", tmp_path / "table"
    query = "select run, time, task, thread, tuples_in, cpu_s from samples"
    code, out, err = ask(query, option, str(folder))
    rows = json.loads(ask(f"{query} order by all", "-o", "json")[1])
    assert (code, out) == (0, "") and f"{len(rows):,} rows in the {kind} table" in err
    files, whole = read(folder)
    for found in (whole.to_pylist(), [row for file in files for row in pq.read_table(file).to_pylist()]):
        for row in found:
            row["time"] = row["time"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert sorted(found, key=lambda row: [*row.values()]) == rows
    assert ask(query, option, str(folder))[0] == 3  # it is not written into again
    assert ask("select 1 as n where false", option, str(tmp_path / "none"))[0] == 3
    assert ask("select 1 as n", option, str(tmp_path / "x"), "--spark")[0] == 2


def test_what_is_no_table_of_others_leaves_nothing(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg.table", reason="pip install 'headgate[iceberg]'")
    assert ask("select interval 1 day as n", "--iceberg", str(tmp_path / "unknown"))[0] == 3
    assert not (tmp_path / "unknown").exists()
    assert ask("select 1 as n", "--iceberg", str(tmp_path / "x"), "--delta", str(tmp_path / "y"))[0] == 2
