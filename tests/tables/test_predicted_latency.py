"""mart_latency: what rows were predicted to take beside what they took, on runs written by hand. Expected figures are
worked out from the planted rows alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from planted_trace import SINKS, Planted, Row, with_latencies

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

FIRST = range(10, 20)  # seconds of the first prediction: settled at 9.5 s, the next plan is decided at 20.5 s
SECOND = range(28, 33)  # settled at 28 s, the next prediction is of 33.5 s


def asked(folder: Path, query: str) -> list[dict[str, Any]]:
    from headgate.dashboards.tables.duckdb_tables import Traces

    return list(Traces(str(folder)).ask(query))


def quantile_s(rows: Iterable[Row], share: float) -> float:
    """The least latency that this share of the rows is not above."""
    ordered = sorted((row["latency_s"], row["tuples"]) for row in rows)
    every = [latency_s for latency_s, many in ordered for _ in range(int(many))]
    return float(every[math.ceil(share * len(every)) - 1])


def within(run: Planted, sink: str, seconds: Iterable[int]) -> list[Row]:
    return [row for row in run.tables["latency"] if row["sink"] == sink and int(row["time"]) in set(seconds)]


def test_predicted_stands_beside_what_rows_took_in_the_seconds_that_it_is_of(tmp_path: Path) -> None:
    """A row that is told with the plan before it does not count."""
    run = with_latencies()
    late = {"time": 30.2, "epoch": 1, "source": "src", "sink": "alerts", "latency_s": 9.0, "tuples": 90.0}
    run.tables["latency"].append(late)
    found = asked(run.write(tmp_path), "select * from mart_latency order by number, sink desc")
    run.tables["latency"].remove(late)
    assert [(row["number"], row["epoch"], row["plan"], row["sink"]) for row in found] == [
        (number, number, f"plan{number}", sink) for number in (1, 2) for sink in SINKS
    ]
    for row, seconds in zip(found, (FIRST, FIRST, SECOND, SECOND), strict=True):
        mine = within(run, row["sink"], seconds)
        assert (row["from_s"], row["to_s"]) == (seconds[0], seconds[-1])
        assert row["tuples"] == sum(one["tuples"] for one in mine)
        told = next(s for s in run.predicted_latency[row["number"] - 1]["sinks"] if s["sink"] == row["sink"])
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            measured_s = quantile_s(mine, share)
            assert row[f"{name}_s"] == pytest.approx(measured_s, rel=0.011), "bins are 1.1 % wide"
            assert row[f"predicted_{name}_s"] == pytest.approx(told[f"{name}_ms"] / 1e3)
            error = row[f"predicted_{name}_s"] / row[f"{name}_s"] - 1
            assert row[f"{name}_error"] == pytest.approx(error)


def test_seconds_of_another_rate_do_not_count(tmp_path: Path) -> None:
    run = with_latencies()
    for row in run.tables["rates"]:
        if row["time"] >= 14:
            row["offered"] *= 4
    found = asked(run.write(tmp_path), "select number, sink, from_s, to_s from mart_latency order by number")
    assert {(row["number"], row["from_s"], row["to_s"]) for row in found} == {(1, 10.0, 14.0)}


def test_a_gap_is_not_compared(tmp_path: Path) -> None:
    """Of a second before which nobody counted the rate is not known."""
    run = with_latencies()
    run.tables["rates"] = [row for row in run.tables["rates"] if not 12 < row["time"] < 16]
    next(row for row in run.tables["rates"] if row["time"] > 16)["offered"] *= 5  # since the row before
    found = asked(run.write(tmp_path), "select tuples from mart_latency where number = 1 and sink = 'alerts'")
    known = [n for n in FIRST if n not in (13, 14, 15, 16)]
    assert [row["tuples"] for row in found] == [sum(row["tuples"] for row in within(run, "alerts", known))]


def test_few_rows_have_no_error_of_their_tail(tmp_path: Path) -> None:
    run = with_latencies()
    for row in run.tables["latency"]:
        row["tuples"] = 0.2 if row["sink"] == "alerts" else 0.03
    query = "select p50_error, p95_error, p99_error from mart_latency where number = 1 order by tuples"
    few, some = ([v is not None for v in row.values()] for row in asked(run.write(tmp_path), query))
    assert (few, some) == ([True, False, False], [True, True, False])


def test_a_run_without_predictions_has_none_and_misses_nothing(tmp_path: Path) -> None:
    folder = with_latencies().write(tmp_path)
    (folder / "predicted_latency.jsonl").unlink()
    assert asked(folder, "select * from mart_latency") == []
    assert asked(folder, "select * from left_out where kind = 'missing'") == []


def test_a_torn_line_is_named_and_left_out(tmp_path: Path) -> None:
    folder = with_latencies().write(tmp_path)
    file = folder / "predicted_latency.jsonl"
    file.write_text(file.read_text() + '{"time": "2026-03-27T11:00:3')
    assert len(asked(folder, "select * from mart_latency")) == 4
    found = asked(folder, "select l.file, l.kind from left_out l left join predicted_latency p on false")
    assert [(row["file"].rsplit("/", 1)[1], row["kind"]) for row in found] == [
        ("predicted_latency.jsonl", "truncated")
    ]
