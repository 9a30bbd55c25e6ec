"""`--rates TRACE`: what a recorded run offered is offered again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates import read
from headgate.topology_runtime.utc import utc_iso

T0_US = 1_790_000_000_000_000


def segment(folder: Path, name: str, *rows: tuple[float, str, float]) -> Path:
    """A segment of `rates`: (seconds, source, offered_tps)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "time": pa.array([T0_US + int(at_s * 1e6) for at_s, _, _ in rows], pa.timestamp("us", tz="UTC")),
        "source": pa.array([source for _, source, _ in rows], pa.string()),
        "offered_tps": pa.array([rate for _, _, rate in rows], pa.float64()),
        "planned_tps": pa.array([0.0] * len(rows), pa.float64()),
    }
    pq.write_table(pa.table(columns), folder / name)
    return folder


def test_segments_are_put_in_order_of_time(tmp_path: Path) -> None:
    segment(tmp_path / "rates", "b.parquet", (12.0, "in", 30.0), (13.0, "in", 40.0))
    segment(tmp_path / "rates", "a.parquet", (14.0, "in", 50.0), (11.0, "in", 20.0))
    segment(tmp_path / "rates", "_c.parquet", (15.0, "in", 99.0))
    got = read(str(tmp_path))
    assert got.steps == ((0.0, 20.0), (1.0, 30.0), (2.0, 40.0), (3.0, 50.0))
    assert got.period_s == 4.0
    assert read(str(tmp_path / "rates")) == got


def decision(at_s: float, rate_tps: float | None) -> str:
    demand = {} if rate_tps is None else {"offered_tps": rate_tps, "rise_tps": 0.0}
    time = utc_iso(T0_US * 1000 + int(at_s * 1e9))
    return json.dumps({"schema": "headgate/decision/v1", "time": time, "evidence": {"demand": demand}})


def test_the_rate_of_the_last_second_counts_where_a_decision_tells_it(tmp_path: Path) -> None:
    rows = [(at_s, "in", 10.0 + at_s) for at_s in (0.123456, 1.2, 2.3, 3.4, 4.5)]
    segment(tmp_path / "rates", "a.parquet", *rows)
    lines = [decision(0.123456, None), "{}", decision(1.2, 10.0), decision(2.3, 90.0), decision(3.4, -1.0)]
    (tmp_path / "decisions.jsonl").write_text("\n".join([*lines, decision(9.9, 7.0), '{"half']))
    got = [rate for _, rate in read(str(tmp_path)).steps]
    assert got == pytest.approx([10.123456, 10.0, 90.0, 13.4, 14.5])
    assert read(str(tmp_path / "rates")) == read(str(tmp_path))


def test_what_was_before_the_first_tuple_is_left_out(tmp_path: Path) -> None:
    segment(tmp_path, "a.parquet", (0.0, "in", 0.0), (1.0, "in", 8.0), (2.0, "in", 0.0))
    assert read(str(tmp_path)).steps == ((0.0, 8.0), (1.0, 0.0))


def test_of_several_sources_one_tells_and_doubled_segments_count_once(tmp_path: Path) -> None:
    rows = ((1.0, "a", 5.0), (1.0, "b", 5.0), (2.0, "a", 6.0), (2.0, "b", 6.0))
    segment(tmp_path, "a.parquet", *rows)
    segment(tmp_path, "b.parquet", *rows)
    assert read(str(tmp_path)).steps == ((0.0, 5.0), (1.0, 6.0))


def test_scales_count_for_recorded_rates_too(tmp_path: Path) -> None:
    segment(tmp_path, "a.parquet", (0.0, "in", 10.0), (4.0, "in", 20.0))
    assert read(str(tmp_path), 3.0, 2.0).steps == ((0.0, 30.0), (2.0, 60.0))
    assert read(str(tmp_path), "auto", capacity_tps=lambda: 100.0).max_tps == pytest.approx(80.0)


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(str(folder))
    return "\n".join(caught.value.lines())


def test_every_segment_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    segment(tmp_path, "a.parquet", (0.0, "in", 1.0))
    segment(tmp_path, "b.parquet", (0.0, "in", -1.0))
    (tmp_path / "c.parquet").write_bytes(b"PAR1 torn")
    pq.write_table(pa.table({"time": [1]}), tmp_path / "d.parquet")
    text = refusal(tmp_path)
    assert "b.parquet: row 0" in text and "c.parquet: " in text and "d.parquet: " in text
    assert "a.parquet" not in text


def test_a_folder_without_rates_and_a_run_that_offered_nothing_are_refused(tmp_path: Path) -> None:
    assert "no recorded rates" in refusal(tmp_path)
    segment(tmp_path, "a.parquet", (0.0, "in", 0.0))
    assert "nothing was offered" in refusal(tmp_path)
