"""Which files of a trace are used, and why the others are not."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics import trace_runs
from headgate.dashboards.analytics.judging import judged
from headgate.topology_runtime.arrow_schema import arrow_schema
from headgate.topology_runtime.errors import InvalidInput

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


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (b"time,value\n1,2\n", "foreign"),
        (b"PAR1", "truncated"),
        (b"PAR1" + b"\xff" * 40 + b"PAR1", "truncated"),
        (b"PAR1" + b"\x00" * 40 + b"\x04\x00\x00\x00PAR1", "unreadable"),
    ],
)
def test_a_file_that_is_no_parquet_is_listed_by_kind(run, content, kind):
    (run / "rates" / "8-000000.parquet").write_bytes(content)
    used, left = outcome(run)
    assert len(used) == 4
    assert left["8-000000.parquet"][0] == kind


def test_a_truncated_segment_is_listed(run):
    good = (run / "rates" / "7-000001.parquet").read_bytes()
    (run / "rates" / "7-000001.parquet").write_bytes(good[: len(good) // 2])
    used, left = outcome(run)
    assert len(used) == 3
    assert left["7-000001.parquet"] == ("truncated", "ends before its footer")


def test_an_unfinished_segment_is_listed_and_not_read(run):
    (run / "rates" / "_7-000009.parquet").write_bytes(b"PAR1")
    assert outcome(run)[1]["_7-000009.parquet"][0] == "unfinished"


def test_a_column_of_another_type_is_said_with_its_name(run):
    other = table().set_column(2, "epoch", pa.array(["1"] * 5))
    pq.write_table(other, run / "rates" / "8-000000.parquet")
    assert outcome(run)[1]["8-000000.parquet"] == ("schema", "column 'epoch' is string, not count")


def test_a_missing_column_leaves_the_segment_out(run):
    pq.write_table(table().drop_columns(["acked_tps"]), run / "rates" / "8-000000.parquet")
    assert outcome(run)[1]["8-000000.parquet"] == ("schema", "column 'acked_tps' is missing")


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


def test_rows_of_something_else_are_foreign(run):
    pq.write_table(pa.table({"city": ["Oslo"]}), run / "rates" / "8-000000.parquet")
    assert outcome(run)[1]["8-000000.parquet"][0] == "foreign"


def test_no_rows_is_empty(run):
    pq.write_table(table([]), run / "rates" / "8-000000.parquet")
    assert outcome(run)[1]["8-000000.parquet"][0] == "empty"


def test_a_second_copy_is_a_duplicate(run):
    (run / "rates" / "9-copy.parquet").write_bytes((run / "rates" / "7-000002.parquet").read_bytes())
    used, left = outcome(run)
    assert len(used) == 4
    assert left["9-copy.parquet"] == ("duplicate", "has the same bytes as 7-000002.parquet")


def test_a_segment_from_years_ago_is_out(run):
    pq.write_table(table(range(-90_000_000, -89_999_995)), run / "rates" / "8-000000.parquet")
    used, left = outcome(run)
    assert left["8-000000.parquet"][0] == "clock" and len(used) == 4


def test_a_run_of_a_later_version_is_not_read(run):
    (run / "run.json").write_text(json.dumps({"schema": "headgate/trace/v2"}))
    found, left = trace_runs.find([str(run)])
    assert found == []
    assert [each.kind for each in left] == ["future-version"]


@pytest.mark.parametrize(
    "head",
    ["[]", '"text"', '{"schema": "x"}', '{"schema": "headgate/trace/v1", "vms": [1]}',
     '{"schema": "headgate/trace/v1", "started": "yesterday"}'],
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
