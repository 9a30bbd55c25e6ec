"""What following a run decides, without Spark: which run, whose checkpoint, when it is over, how far behind."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics import curate, follow
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.judging import JudgedFiles, Segment, judged
from headgate.dashboards.analytics.manifest import SCHEMA, Manifest, TracePart
from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.analytics.trace_runs import TraceRun, run_of
from headgate.topology_runtime.arrow_schema import arrow_schema
from headgate.topology_runtime.errors import Conflict, UsageError

NOW_S = 1_800_000_000.0


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    folder = tmp_path / "traces" / "demo" / "one"
    (folder / "rates").mkdir(parents=True)
    return run_of(place(folder), {"started": "2027-01-15T08:00:00Z"})


def put(run: TraceRun, name: str, content: bytes, ago_s: float) -> None:
    path = Path(run.place.path, name)
    path.write_bytes(content)
    os.utime(path, (NOW_S - ago_s, NOW_S - ago_s))


def rates(path: Path, begin_s: int) -> None:
    schema = arrow_schema("rates")
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 2.0}
    columns = {f.name: [begin_s * 1_000_000] if f.name == "time" else [fill[f.type]] for f in schema}
    pq.write_table(pa.table({f.name: pa.array(columns[f.name], f.type) for f in schema}), path)


def test_one_run_is_followed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "demo" / name / "samples").mkdir(parents=True)
    assert follow.only_run([str(tmp_path / "demo" / "one")]).key == "demo/one"
    with pytest.raises(UsageError, match="2 runs"):
        follow.only_run([str(tmp_path / "demo")])


def test_the_checkpoint_of_another_trace_is_refused_by_name(tmp_path: Path, run: TraceRun) -> None:
    to = place(tmp_path / "out")
    follow.claim(to, run)
    follow.claim(to, run)
    other = run_of(place(tmp_path / "traces" / "demo" / "two"), {})
    with pytest.raises(Conflict) as refused:
        follow.claim(to, other)
    assert refused.value.exit_code == 6 and "demo/two" in refused.value.what
    assert f"demo/one in {run.place.uri}" in (refused.value.cause or "")
    again = run_of(run.place, {"started": "2027-01-15T09:00:00Z"})
    with pytest.raises(Conflict) as refused:
        follow.claim(to, again)
    assert "begun at another time" in (refused.value.cause or "")
    (tmp_path / "out" / "follow" / "trace.json").write_text("torn")
    with pytest.raises(Conflict):
        follow.claim(to, run)


def test_a_run_is_over_when_it_says_so_or_is_quiet_for_long(run: TraceRun) -> None:
    assert not follow.is_over(run, NOW_S), "nothing is there yet"
    put(run, "rates/1.parquet", b"x", 30.0)
    assert not follow.is_over(run, NOW_S)
    assert follow.is_over(run, NOW_S + 31)
    running = b'{"patch":{"stage":"running"}}\n'
    put(run, "views.jsonl", running, 10.0)
    assert not follow.is_over(run, NOW_S)
    put(run, "views.jsonl", running + b'{"patch":{"stage":"over"}}\n{"patch":{}}\n', 2.0)
    assert not follow.is_over(run, NOW_S), "its last segments may be written now"
    assert follow.is_over(run, NOW_S + 2)
    put(run, "rates/2.parquet", b"x", 0.0)
    assert not follow.is_over(run, NOW_S + 2)


def test_lag_counts_finished_segments_of_the_table_that_has_most(run: TraceRun) -> None:
    Path(run.place.path, "slots").mkdir()
    for name in ("rates/1.parquet", "rates/2.parquet", "rates/_3.parquet", "slots/1.parquet"):
        put(run, name, b"x", 0.0)
    assert follow.lag(run, set()) == 2
    assert follow.lag(run, {(run.place / "rates" / name).uri for name in ("1.parquet", "2.parquet")}) == 1


def test_a_file_that_has_changed_is_judged_again_and_no_other(
    run: TraceRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    read = pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda stream: looked.append(1) or read(stream))
    folder, files = Path(run.place.path, "rates"), JudgedFiles()
    for n in range(2):
        rates(folder / f"{n}.parquet", 100 + n)
    first = judged(run, files)
    assert judged(run, files) == first and len(looked) == 2
    rates(folder / "1.parquet", 200)
    os.utime(folder / "1.parquet", (NOW_S, NOW_S))
    assert [segment.begin_us for segment in judged(run, files)[0]] == [100_000_000, 200_000_000]
    assert len(looked) == 3


def test_rows_whose_clock_is_no_longer_believed_are_taken_out_again(run: TraceRun) -> None:
    """What was known of a run when they were curated was less."""
    digests = {"good": "1.parquet", "doubted": "2.parquet"}
    parts = [
        TracePart("rates", "2027-01-15", "p", 2, 2, digests),
        TracePart("rates", "2027-01-16", "q", 1, 1, {}),
    ]
    manifest = Manifest(SCHEMA, None, parts, {})
    left = [LeftOut((run.place / "rates" / "2.parquet").uri, "clock", "its clock jumped", 1)]
    good = Segment(run.place / "rates" / "1.parquet", "rates", 1, 0, 1, "good")
    assert curate.without(manifest, run, [good], left).parts == parts[1:]
    assert curate.without(manifest, run, [good], []).parts == parts
    assert curate.without(manifest, run, [], left).parts == parts, "nothing is there to make it of again"
