"""Segments of a run that is over become few; who reads meanwhile has each row once, whatever ends the compaction."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.analytics.curation.trace_segments import judged
from headgate.dashboards.analytics.storage.trace_runs import find
from headgate.dashboards.traces import compaction
from headgate.topology_runtime.traces.arrow_schema import arrow_schema
from headgate.topology_runtime.traces.old_traces import BUSY_S, alone, recorded
from headgate.topology_runtime.traces.trace_tables import TABLES, TEXT, TIME

START_US = 1_767_225_600_000_000  # 2026
SEGMENTS, ROWS = 6, 10
LONG_AGO_S = 1_767_230_000
LIVES = (1_767_225_600_000_000_000, 1_767_225_660_000_000_000)
USED = ("samples", "rates")


def columns(table: str, first: int, rows: int = ROWS) -> dict[str, Any]:
    """So many rows, a second each; `epoch` tells each from all others."""
    numbers = np.arange(first, first + rows)
    of = {TIME: START_US + numbers * 1_000_000, TEXT: ["x"] * rows}
    return {name: of.get(kind, numbers) for name, kind in TABLES[table].items()}


def write_segment(run: Path, table: str, name: str, first: int, rows: int = ROWS) -> None:
    (run / table).mkdir(exist_ok=True)
    made, schema = columns(table, first, rows), arrow_schema(table)
    arrays = [pa.array(made[field.name], field.type) for field in schema]
    pq.write_table(pa.table(arrays, schema=schema), run / table / f"{name}.parquet")


def write_life(run: Path, life: int, first: int, segments: int = SEGMENTS) -> None:
    for table in USED:
        for n in range(segments):
            write_segment(run, table, f"{life}-{n:06d}", first + n * ROWS)


def aged(run: Path) -> None:
    for file in run.rglob("*"):
        os.utime(file, (LONG_AGO_S, LONG_AGO_S))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two lives of a controller, six segments each, of two tables; over since long."""
    folder = tmp_path / "flow" / "run-1"
    folder.mkdir(parents=True)
    head = {"schema": "headgate/trace/v1", "topology": {"name": "flow"}, "started": "2026-01-01T00:00:00Z"}
    (folder / "run.json").write_text(json.dumps(head))
    for n, life in enumerate(LIVES):
        write_life(folder, life, n * SEGMENTS * ROWS)
    aged(folder)
    return folder


def epochs(run: Path, table: str) -> list[int]:
    """Of all rows, as pyarrow finds them."""
    return sorted(ds.dataset(run / table, format="parquet").to_table()["epoch"].to_pylist())


ALL = list(range(2 * SEGMENTS * ROWS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def compacted(run: Path, tell: Callable[[int, int], None] = lambda read, of: None) -> compaction.Compacted:
    (found,), _ = find([str(run)])
    return compaction.compact(found, time.time(), tell)


def test_one_file_of_each_life_has_all_rows_in_their_order(run: Path) -> None:
    steps: list[tuple[int, int]] = []
    done = compacted(run, lambda read, of: steps.append((read, of)))
    assert (done.files_before, done.files_after, done.why, done.left) == (24, 4, None, [])
    assert done.bytes_after < done.bytes_before and steps[-1] == (24, 24)
    for table in USED:
        assert names(run / table) == [f"{life}-000006.parquet" for life in LIVES]
        first = pq.read_table(run / table / f"{LIVES[0]}-000006.parquet")
        assert first["epoch"].to_pylist() == ALL[: SEGMENTS * ROWS]
        assert epochs(run, table) == ALL
    assert names(run) == ["rates", "run.json", "samples"]


def test_an_analysis_uses_the_same_rows(run: Path) -> None:
    compacted(run)
    (found,), _ = find([str(run)])
    segments, left = judged(found)
    assert sum(segment.rows for segment in segments) == 2 * len(ALL) and left == []


def test_the_run_is_as_old_as_it_was_and_there_is_nothing_left_to_do(run: Path) -> None:
    compacted(run)
    assert {file.stat().st_mtime for file in run.rglob("*.parquet")} == {LONG_AGO_S}
    before = {file: file.stat().st_ino for file in run.rglob("*")}
    assert compacted(run).files_after == 4
    assert {file: file.stat().st_ino for file in run.rglob("*")} == before


def test_duckdb_counts_each_row_once_at_every_step(run: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")
    seen = set()

    def look(read: int, of: int) -> None:
        for pattern in (f"{run}/samples/*.parquet", f"{run.parent.parent}/**/samples/*.parquet"):
            seen.add(duckdb.sql(f"select count(*), count(distinct epoch) from '{pattern}'").fetchall()[0])

    compacted(run, look)
    look(0, 0)
    assert seen == {(len(ALL), len(ALL))}


def test_a_run_that_records_is_left_alone(run: Path) -> None:
    os.utime(run / "run.json", None)
    before = names(run / "samples")
    why = compacted(run).why
    assert why is not None and f"left alone for {BUSY_S:.0f} s" in why
    assert names(run / "samples") == before


@pytest.mark.parametrize("held", [True, False])
def test_a_controller_that_comes_back_meanwhile_is_left_alone(run: Path, held: bool) -> None:
    """It holds the trace, or, of an older version, has written to it."""
    inside = recorded(run)

    def come_back(read: int, of: int) -> None:
        if read == 1 and held:
            inside.__enter__()
        elif read == 1:
            write_segment(run, "samples", f"{LIVES[1] + 10**9}-000000", len(ALL))

    why = compacted(run, come_back).why
    assert why is not None and why.startswith("something began to write to it")
    assert len(names(run / "samples")) == 2 * SEGMENTS + (not held) and ".compacting" not in names(run)
    if held:
        with alone(run) as nobody_writes:
            assert not nobody_writes
        inside.__exit__(None, None, None)
    with alone(run) as nobody_writes:
        assert nobody_writes


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 11, 12, 13, 23, 24])
def test_interrupted_anywhere_every_row_is_there_and_nothing_is_left(run: Path, at: int) -> None:
    def end(read: int, of: int) -> None:
        if read == at:
            raise Killed

    with pytest.raises(Killed):
        compacted(run, end)
    assert all(epochs(run, table) == ALL for table in USED)
    assert names(run) == ["rates", "run.json", "samples"]
    assert compacted(run).files_after == 4


def test_what_a_kill_left_is_removed(run: Path) -> None:
    left = run / ".compacting" / "new-samples"
    left.mkdir(parents=True)
    (left / "1-000001.parquet").write_bytes(b"half")
    assert compacted(run).files_after == 4
    assert names(run) == ["rates", "run.json", "samples"]


def test_foreign_and_torn_files_are_named_and_stay(run: Path) -> None:
    good = next((run / "samples").glob("*.parquet"))
    torn = f"{LIVES[0]}-000099.parquet"
    (run / "samples" / torn).write_bytes(good.read_bytes()[:-20])
    (run / "samples" / "notes.txt").write_text("mine")
    (run / "samples" / "_1-000001.parquet").write_bytes(b"unfinished")
    aged(run)
    done = compacted(run)
    assert sorted(row.kind for row in done.left) == ["foreign", "truncated", "unfinished"]
    expected = [
        f"{LIVES[0]}-000100.parquet",
        f"{LIVES[1]}-000006.parquet",
        torn,
        "_1-000001.parquet",
        "notes.txt",
    ]
    assert names(run / "samples") == sorted(expected)


def rows_in(folder: Path) -> list[int]:
    """Of each file, by name."""
    return [pq.read_metadata(file).num_rows for file in sorted(folder.iterdir())]


def test_a_segment_whose_pages_cannot_be_read_stays_between_those_before_and_after_it(run: Path) -> None:
    bad = run / "samples" / f"{LIVES[0]}-000002.parquet"
    content = bytearray(bad.read_bytes())
    content[4:60] = b"\xff" * 56  # pages of the first column; the footer is as it was
    bad.write_bytes(content)
    aged(run)
    done = compacted(run)
    assert [(row.kind, Path(row.file).name) for row in done.left] == [("unreadable", bad.name)]
    kept = run / "samples" / f"{LIVES[0]}-000007.parquet"
    assert kept.read_bytes() == content
    assert rows_in(run / "samples") == [20, 10, 30, 60]


def test_a_run_whose_clock_jumped_stays_as_it_is(run: Path) -> None:
    write_segment(run, "samples", f"{LIVES[0]}-000099", -(10**8))
    aged(run)
    before = names(run / "samples")
    why = compacted(run).why
    assert why is not None and "its clock jumped" in why and names(run / "samples") == before


def test_segments_of_other_columns_are_not_merged(run: Path) -> None:
    odd = run / "samples" / f"{LIVES[0]}-000003.parquet"
    pq.write_table(pq.ParquetFile(odd).read().append_column("more", [[1] * ROWS]), odd)
    aged(run)
    compacted(run)
    assert rows_in(run / "samples") == [30, 10, 20, 60]


def test_a_file_is_no_longer_than_a_clock_may_stand_still(run: Path) -> None:
    for n in range(SEGMENTS):
        write_segment(run, "samples", f"{LIVES[1]}-{SEGMENTS + n:06d}", 6 * 3600 + 40 + n * ROWS)
    aged(run)
    assert compacted(run).why is None
    rows = rows_in(run / "samples")
    assert len(rows) == 3 and sum(rows) == 3 * SEGMENTS * ROWS
    (found,), _ = find([str(run)])
    assert judged(found)[1] == []


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_tells_of_each_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = run.with_name("run-2")
    busy.mkdir()
    (busy / "run.json").write_text('{"schema": "headgate/trace/v1", "topology": {"name": "flow"}}')
    write_life(busy, LIVES[0], 0)
    assert cli.main(["traces", "compact", str(run.parent), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "headgate/compact/v1"
    assert [(row["run"], row["files_before"], row["files"]) for row in told["runs"]] == [
        ("flow/run-1", 24, 4),
        ("flow/run-2", 12, 12),
    ]
    assert told["runs"][0]["left_alone"] is None and "left alone for" in told["runs"][1]["left_alone"]


def test_one_at_a_time(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []

    def once_more(read: int, of: int) -> None:
        if read == 1:
            codes.append(cli.main(["traces", "compact", str(run)]))

    assert compacted(run, once_more).files_after == 4
    assert codes == [1] and "another compaction is at work" in capsys.readouterr().err


def test_a_disk_that_takes_nothing_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", refused)
    assert cli.main(["traces", "compact", str(run)]) == 1
    told = capsys.readouterr().err
    assert "1 run could not be compacted" in told and "Read-only file system" in told


@pytest.mark.parametrize(
    ("trace", "said"),
    [("s3://bucket/traces", "is not on this machine"), ("nowhere", "there is nothing to compact")],
)
def test_what_cannot_be_compacted_is_refused(
    trace: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["traces", "compact", trace]) == 3
    assert said in capsys.readouterr().err
