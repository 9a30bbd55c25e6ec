"""Which files of a trace are used, and why the others are not."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.dashboards.analytics.curation.clock_jumps import SKEW_S, backwards, outside
from headgate.dashboards.analytics.curation.trace_segments import judged
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.arrow_schema import arrow_schema

BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def table(seconds=range(5), name="rates"):
    schema = arrow_schema(name)
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 1.0}
    columns = [
        [(BEGIN + s) * 1_000_000 for s in seconds] if f.name == "time" else [fill[f.type]] * len(seconds)
        for f in schema
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "demo" / "one"
    (folder / "rates").mkdir(parents=True)
    head = {"schema": "headgate/trace/v1", "run": "one", "topology": {"name": "demo"}, "models": [{}]}
    (folder / "run.json").write_text(json.dumps(head | {"started": "2026-01-01T00:00:00Z"}))
    for n in range(4):
        pq.write_table(table(range(5 * n, 5 * n + 5)), folder / "rates" / f"7-{n:06d}.parquet")
    return folder


def outcome(folder):
    """(names used, name → (kind, reason) of the others)."""
    found, left = trace_runs.find([str(folder)])
    segments, more = judged(found[0])
    names = {each.file.rpartition("/")[2]: (each.kind, each.reason) for each in left + more}
    return [s.place.name for s in segments], names


def test_a_good_trace_is_used_whole(run):
    used, left = outcome(run)
    assert used == [f"7-00000{n}.parquet" for n in range(4)]
    assert left == {}


def test_a_run_is_found_from_every_folder_above_it(run):
    for folder in (run, run.parent, run.parent.parent):
        assert [each.key for each in trace_runs.find([str(folder)])[0]] == ["demo/one"]


def test_what_an_analysis_wrote_beside_runs_is_no_run(run):
    (run.parent / "analysis" / "curated" / "samples").mkdir(parents=True)
    assert len(trace_runs.find([str(run.parent)])[0]) == 1


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="nothing to analyse"):
        trace_runs.find([str(tmp_path)])


NEW = "8-000000.parquet"
UNUSED = [  # file, what is in it, kind, part of the reason
    (NEW, b"", "empty", ""),
    (NEW, b"time,value\n1,2\n", "foreign", ""),
    (NEW, b"PAR1", "truncated", ""),
    (NEW, b"PAR1" + b"\xff" * 40 + b"PAR1", "truncated", ""),
    (NEW, b"PAR1" + b"\x00" * 40 + b"\x04\x00\x00\x00PAR1", "unreadable", ""),
    (
        NEW,
        table().set_column(2, "epoch", pa.array(["1"] * 5)),
        "schema",
        "column 'epoch' is string, not count",
    ),
    (NEW, table().drop_columns(["acked_tps"]), "schema", "column 'acked_tps' is missing"),
    (NEW, pa.table({"city": ["Oslo"]}), "foreign", ""),
    (NEW, table([]), "empty", ""),
    (NEW, table(range(-90_000_000, -89_999_995)), "clock", ""),
    ("_7-000009.parquet", b"PAR1", "unfinished", ""),
]


@pytest.mark.parametrize(("name", "content", "kind", "reason"), UNUSED)
def test_a_file_that_cannot_be_used_is_listed_with_its_kind(run, name, content, kind, reason):
    if isinstance(content, bytes):
        (run / "rates" / name).write_bytes(content)
    else:
        pq.write_table(content, run / "rates" / name)
    used, left = outcome(run)
    assert len(used) == 4
    assert left[name][0] == kind and reason in left[name][1]


def test_a_truncated_segment_is_listed(run):
    good = (run / "rates" / "7-000001.parquet").read_bytes()
    (run / "rates" / "7-000001.parquet").write_bytes(good[: len(good) // 2])
    used, left = outcome(run)
    assert len(used) == 3
    assert left["7-000001.parquet"] == ("truncated", "ends before its footer")


def test_an_unknown_column_is_listed_and_the_rows_are_used(run):
    pq.write_table(table().append_column("colour", pa.array(["red"] * 5)), run / "rates" / "8-000000.parquet")
    used, left = outcome(run)
    assert "8-000000.parquet" in used
    assert "'colour'" in left["8-000000.parquet"][1]


def test_narrower_numbers_and_words_by_number_are_the_same_columns(run):
    narrow = table(range(20, 25)).set_column(2, "epoch", pa.array([1] * 5, pa.int32()))
    narrow = narrow.set_column(3, "source", narrow["source"].dictionary_encode())
    pq.write_table(narrow, run / "rates" / "7-000004.parquet")
    used, left = outcome(run)
    assert "7-000004.parquet" in used
    assert left == {}


def test_a_second_copy_is_a_duplicate(run):
    (run / "rates" / "9-copy.parquet").write_bytes((run / "rates" / "7-000002.parquet").read_bytes())
    used, left = outcome(run)
    assert len(used) == 4
    assert left["9-copy.parquet"] == ("duplicate", "has the same bytes as 7-000002.parquet")


def test_a_run_of_a_later_version_is_not_read(run):
    (run / "run.json").write_text(json.dumps({"schema": "headgate/trace/v2"}))
    found, left = trace_runs.find([str(run)])
    assert found == []
    assert [each.kind for each in left] == ["future-version"]


@pytest.mark.parametrize(
    "head",
    ["[]", '"text"', '{"schema": "x"}', '{"schema": "headgate/trace/v1", "vms": [1]}',
     '{"schema": "headgate/trace/v1", "started": "yesterday"}',
     '{"schema": "headgate/trace/v1", "vms": [{"vm": "vm1", "slots": "many"}]}',
     '{"schema": "headgate/trace/v1", "vms": [{"vm": "vm1", "usd_per_hour": "x"}]}',
     '{"schema": "headgate/trace/v1", "settings": {"spare": {"usd_per_hour": "x"}}}',
     '{"schema": "headgate/trace/v1", "topology": {"tasks": [{"name": "a", "static": "x"}]}}',
     '{"schema": "headgate/trace/v1", "topology": {"tasks": [{"name": "a", "static": {"cpu": "much"}}]}}'],
)  # fmt: skip
def test_a_head_that_is_something_else_is_foreign(run, head):
    (run / "run.json").write_text(head)
    assert [each.kind for each in trace_runs.find([str(run)])[1]] == ["foreign"]


def test_a_torn_head_costs_only_what_it_says(run):
    (run / "run.json").write_text('{"schema": "headgate/tr')
    found, left = trace_runs.find([str(run)])
    assert [each.key for each in found] == ["demo/one"]
    assert [each.kind for each in left] == ["unreadable"]


def test_a_run_without_models_says_so(run):
    head = json.loads((run / "run.json").read_text()) | {"models": []}
    (run / "run.json").write_text(json.dumps(head))
    used, left = outcome(run)
    assert len(used) == 4
    assert left["run.json"][0] == "models"


def test_rates_of_tasks_follow_from_selectivities():
    tasks = [{"name": name} for name in ("a", "b", "c", "d")]
    edges = [
        {"from": "a", "to": "b", "selectivity": 0.5},
        {"from": "a", "to": "c"},
        {"from": "b", "to": "d", "selectivity": 4.0},
        {"from": "c", "to": "d"},
    ]
    sources, weights = trace_runs.weights_of({"tasks": tasks, "edges": edges})
    assert sources == ("a",)
    assert weights == {"a": 1.0, "b": 0.5, "c": 1.0, "d": 3.0}


# ── Segments whose times do not fit to the rest of their run ────────────────────────────────────────────

S = 1_000_000
DAY = 86_400 * S


def spans(*begins, each=10):
    return [(begin * S, (begin + each) * S) for begin in begins]


NAMES = [f"5-{n:06d}.parquet" for n in range(5)]
LATE = [(9 * DAY + n * S, 9 * DAY + (n + 1) * S) for n in range(5)]
MONTH = [(n * 3 * DAY, (n + 1) * 3 * DAY) for n in range(10)]
OUTSIDE = [  # (segments, start of the run, which of them are out)
    pytest.param(spans(*range(0, 1000, 10)), [], id="all follow each other"),
    pytest.param(MONTH, [], id="a month in a few segments"),
    pytest.param([*spans(0, 10, 20), (400 * DAY, 400 * DAY + S)], [3], id="one is years away"),
    pytest.param([*spans(0, 10, 20), (30 * S, 30 * S + 300 * DAY)], [3], id="a clock jumped meanwhile"),
    pytest.param(spans(0, 10) + LATE, [2, 3, 4, 5, 6], id="the stretch at the start of the run counts"),
    pytest.param(spans(-600, 0, 10, 20), [0], id="one begins before the run"),
    pytest.param(spans(-600, -590, -580), [], id="most begin before it: the run's own clock is wrong"),
]


@pytest.mark.parametrize(("its", "out"), OUTSIDE)
def test_what_lies_far_from_the_rest_of_its_run_is_out(its, out):
    assert list(outside(its, 0)) == out


def test_the_distance_is_said():
    assert "400 days after" in outside([*spans(0, 10, 20), (400 * DAY, 400 * DAY + S)], 0)[3]


@pytest.mark.parametrize(
    ("names", "begins", "out"),
    [
        pytest.param(NAMES, (0, 1000, 2000, 500, 3000), [3], id="back, in the order of writing"),
        pytest.param(NAMES, (0, 1000, 9000, 2000, 3000), [2], id="a forward jump costs itself alone"),
        pytest.param(["b.parquet", "a.parquet"], (1000, 0), [], id="names without a number have no order"),
    ],
)
def test_a_clock_that_went_back_is_seen(names, begins, out):
    assert list(backwards(names, spans(*begins))) == out


@examples(100)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40))
def test_what_is_kept_never_goes_back_by_more_than_clocks_differ(begins):
    names = [f"5-{n:06d}.parquet" for n in range(len(begins))]
    out = backwards(names, spans(*begins))
    kept = [begin for n, begin in enumerate(begins) if n not in out]
    assert kept
    assert all(later >= earlier - SKEW_S for earlier, later in zip(kept, kept[1:], strict=False))


# ── Paths and URIs name the same kind of place ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("s3a://bucket/traces/demo", "bucket/traces/demo"),
        ("abfss://box@account.dfs.core.windows.net/traces", "box/traces"),
        ("hdfs://name:9000/traces", "/traces"),
        ("gs://bucket/traces/", "bucket/traces"),
    ],
)
def test_a_uri_is_kept_for_spark_and_split_for_the_file_system(text, path):
    found = place(text)
    assert (found.uri, found.path, found.local) == (text.rstrip("/"), path, False)
    assert (found / "a").uri == f"{text.rstrip('/')}/a"
    assert (found / "a").parent == found


def test_a_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place("traces").path == place(f"file://{tmp_path}/traces").path == str(tmp_path / "traces")


def test_what_is_written_is_there_whole_and_nothing_else(tmp_path):
    file = place(tmp_path) / "deep" / "a.json"
    file.write(b"1")
    file.write(b"22")
    assert file.read() == b"22"
    assert [child.name for child, _ in file.parent.children()] == ["a.json"]


def test_a_folder_that_is_not_there_has_no_children(tmp_path):
    assert (place(tmp_path) / "nowhere").children() == []
