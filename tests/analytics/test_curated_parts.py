"""What is curated once is not curated again, and what comes to it is merged."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics.curation import curated_tables as curate
from headgate.dashboards.analytics.curation import trace_segments as manifest
from headgate.dashboards.analytics.curation.compaction import DAY_US, Done, Job, compact
from headgate.dashboards.analytics.curation.trace_segments import Manifest, Segment, TracePart
from headgate.dashboards.analytics.storage import spark_session as spark
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.trace_runs import run_of
from headgate.topology_runtime.traces.arrow_schema import arrow_schema


def rows(begin_s, count, table="rates", drop=()):
    schema = arrow_schema(table)
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 2.0}
    columns = {
        f.name: pa.array(
            [(begin_s + n) * 1_000_000 for n in range(count)] if f.name == "time" else [fill[f.type]] * count,
            f.type,
        )
        for f in schema
        if f.name not in drop
    }
    return pa.table(columns)


def segment(tmp_path, name, begin_s, count):
    path = tmp_path / name
    pq.write_table(rows(begin_s, count), path)
    last = begin_s + count - 1
    return Segment(place(path), "rates", count, begin_s * 1_000_000, last * 1_000_000, f"digest of {name}")


@pytest.fixture
def run(tmp_path):
    return run_of(place(tmp_path / "demo" / "one"), {})


def done(curated, run, known, desired, there=()):
    """What `curate` does, without Spark; `there`: segments that are on disk."""
    digests = {each.digest for each in there}
    return curate.entered(known, [(each, compact(each.job)) for each in desired], digests)


def begun(tmp_path, run, found, there=()):
    """The first pass over these segments: where it is curated, and what is known then."""
    curated, nothing = place(tmp_path / "c"), manifest.empty(run)
    return curated, done(curated, run, nothing, curate.plan(curated, run, found, nothing), there)


def test_segments_of_a_day_become_one_part_and_again_are_nothing_to_do(tmp_path, run):
    found = [segment(tmp_path, f"{n}.parquet", 10 * n, 10) for n in range(3)]
    curated, known = begun(tmp_path, run, found)
    assert [(part.date, part.rows, len(part.segments)) for part in known.parts] == [("1970-01-01", 30, 3)]
    assert curate.plan(curated, run, found, known) == []


def test_a_new_segment_is_merged_with_the_small_part_that_is_there(tmp_path, run):
    first, second = (segment(tmp_path, f"{n}.parquet", 10 * n, 10) for n in range(2))
    curated, known = begun(tmp_path, run, [first])
    first.place.delete()  # retention
    desired = curate.plan(curated, run, [second], known)
    known = done(curated, run, known, desired)
    assert [(part.rows, sorted(part.segments.values())) for part in known.parts] == [
        (20, ["0.parquet", "1.parquet"])
    ]


def test_a_row_is_merged_a_few_times_and_not_with_every_segment_that_comes(tmp_path, run):
    """A run that goes on for 500 segments of equal size; nothing is written, so only what is planned counts."""
    known, turns, merged = manifest.empty(run), 500, 0
    for n in range(turns):
        span = (n * 10_000_000, n * 10_000_000 + 9_999_999)
        new = Segment(place(tmp_path / f"{n}.parquet"), "rates", 10, *span, f"digest of {n}")
        (desired,) = curate.plan(place(tmp_path / "c"), run, [new], known)
        rows = 10 + sum(part.rows for part in desired.replaces)
        merged += rows - 10
        known = curate.entered(known, [(desired, Done(rows, rows, ()))], {new.digest})
        assert len(known.parts) <= 9
        assert sum(part.rows for part in known.parts) == 10 * (n + 1)
        assert sum(len(part.segments) for part in known.parts) == n + 1
    assert merged <= 10 * turns * 9, "each row at most as often as a number can be doubled to 500"


def test_a_segment_over_midnight_is_cut_at_it(tmp_path, run):
    _, known = begun(tmp_path, run, [segment(tmp_path, "0.parquet", DAY_US // 1_000_000 - 4, 10)])
    assert [(part.date, part.rows) for part in known.parts] == [("1970-01-01", 4), ("1970-01-02", 6)]


def test_large_days_are_cut_into_parts(tmp_path, run, monkeypatch):
    monkeypatch.setattr(curate, "PART_ROWS", 25)
    found = [segment(tmp_path, f"{n}.parquet", 10 * n, 10) for n in range(5)]
    desired = curate.plan(place(tmp_path / "c"), run, found, manifest.empty(run))
    assert [len(each.segments) for each in desired] == [2, 2, 1]


def test_a_file_whose_pages_are_damaged_costs_itself_alone(tmp_path, run):
    found = [segment(tmp_path, f"{n}.parquet", 1000 * n, 1000) for n in range(3)]
    damaged = bytearray((tmp_path / "1.parquet").read_bytes())
    damaged[4:400] = b"\xff" * 396
    (tmp_path / "1.parquet").write_bytes(bytes(damaged))
    curated, known = begun(tmp_path, run, found, found)
    assert [part.rows for part in known.parts] == [2000]
    assert [why.file for why in known.unreadable.values()] == [str(tmp_path / "1.parquet")]
    assert curate.plan(curated, run, found, known) == []


def after_a_damaged_part(tmp_path, run, there):
    """(manifest, what is desired next) once the part of the first two segments proved damaged as a third came."""
    *old, new = (segment(tmp_path, f"{n}.parquet", 1000 * n, 1000) for n in range(3))
    curated, known = begun(tmp_path, run, old, old)
    part = tmp_path / "c" / "rates" / "topology=demo" / "run=one" / "date=1970-01-01" / known.parts[0].file
    part.write_bytes(b"PAR1 and nothing else")
    on_disk = [*old[:there], new]
    known = done(curated, run, known, curate.plan(curated, run, on_disk, known), on_disk)
    return known, part, curate.plan(curated, run, on_disk, known)


def test_a_damaged_part_whose_segments_are_gone_is_left_out_and_said(tmp_path, run):
    known, part, desired = after_a_damaged_part(tmp_path, run, there=0)
    assert [(p.rows, list(p.segments.values())) for p in known.parts] == [(1000, ["2.parquet"])]
    assert {(why.file, why.kind) for why in known.unreadable.values()} == {(str(part), "unreadable")}
    assert desired == []


def test_a_damaged_part_is_made_again_of_the_segments_that_are_there(tmp_path, run):
    known, _, desired = after_a_damaged_part(tmp_path, run, there=1)
    assert list(known.unreadable) == ["digest of 1.parquet"]
    known = done(place(tmp_path / "c"), run, known, desired)
    assert [(p.rows, sorted(p.segments.values())) for p in known.parts] == [
        (2000, ["0.parquet", "2.parquet"])
    ]


def test_what_spark_is_sent_is_all_that_its_tasks_import(tmp_path):
    words = [
        sys.executable,
        "-c",
        "import headgate.dashboards.analytics.curation.compaction as c; print(c.__file__)",
    ]
    packed = spark.packed(tmp_path)
    said = subprocess.run(
        words, env={"PYTHONPATH": str(packed)}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.stdout.startswith(str(packed)), said.stderr


def test_a_column_that_older_traces_lack_is_one_for_each_row(tmp_path):
    pq.write_table(rows(0, 3, "latency", drop=("tuples",)), tmp_path / "a.parquet")
    job = Job("latency", place(tmp_path / "out" / "part.parquet"), (place(tmp_path / "a.parquet"),), 0, False)
    assert compact(job).rows == 3
    assert pq.read_table(tmp_path / "out" / "part.parquet")["tuples"].to_pylist() == [1.0, 1.0, 1.0]


def test_a_part_that_no_manifest_names_is_deleted(tmp_path, run):
    curated = place(tmp_path / "c")
    folder = manifest.folder_of(curated, "rates", run) / "date=1970-01-01"
    for name in ("part-known.parquet", "part-stranger.parquet", "_part-half.parquet"):
        (folder / name).write(b"x")
    part = TracePart("rates", "1970-01-01", "part-known.parquet", 1, 1, {"d": "0.parquet"})
    curate.delete_strangers(curated, run, Manifest(manifest.SCHEMA, None, [part], {}))
    assert [child.name for child, _ in folder.children()] == ["part-known.parquet"]


def test_files_of_the_same_names_with_other_rows_begin_anew(tmp_path, run):
    curated = place(tmp_path / "c")
    known = Manifest(
        manifest.SCHEMA, None, [TracePart("rates", "1970-01-01", "p", 1, 1, {"old": "0.parquet"})], {}
    )
    manifest.write(curated, run, known)
    assert curate.known_parts(curated, run, [segment(tmp_path, "0.parquet", 0, 5)]).parts == []
    assert curate.known_parts(curated, run, [segment(tmp_path, "1.parquet", 0, 5)]).parts == known.parts
