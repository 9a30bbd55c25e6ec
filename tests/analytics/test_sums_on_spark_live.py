"""What Spark makes of a handful of rows whose sums are known: aggregates of stretches, fused parts, and the answers
that depend on which rows count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboards.analytics import aggregates, aggregating, manifest
from dashboards.analytics.aggregate_parts import AggregatedPart, FusedParts
from dashboards.analytics.analyses import episodes, residuals, stability
from dashboards.analytics.asked import AnalysisInput
from dashboards.analytics.curate import Curated
from dashboards.analytics.data_places import place
from dashboards.analytics.results import Episode
from dashboards.analytics.trace_runs import TraceRun, run_of
from topology_runtime.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live
MINUTE = 30_000_000  # stretch at which the made times begin
BEGIN_S = 60 * MINUTE
RUN = "demo/one"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def session(spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from dashboards.analytics.spark import QUICK, session

    with session("local[2]", "1g", tmp_path_factory.mktemp("spark") / "spark.log", QUICK) as found:
        yield found


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    return run_of(place(tmp_path / "traces" / "demo" / "one"), {})


def curated(
    session: SparkSession,
    folder: Path,
    run: TraceRun,
    table: str,
    rows: Sequence[Row],
    *parts: tuple[int, int],
) -> aggregates.CuratedTables:
    """These rows, `at_s` in seconds since the begin; parts: (from, to) in minutes since it, of which sums are made."""
    schema = arrow_schema(table)
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 1.0}
    columns = {
        field.name: [
            round((BEGIN_S + row["at_s"]) * 1e6)
            if field.name == "time"
            else row.get(field.name, fill.get(field.type))
            for row in rows
        ]
        for field in schema
    }
    to = manifest.folder_of(place(folder), table, run) / "date=2027-01-15"
    Path(to.path).mkdir(parents=True)
    pq.write_table(
        pa.table({n: pa.array(v, schema.field(n).type) for n, v in columns.items()}), f"{to.path}/p.parquet"
    )
    known = manifest.empty(run)
    known.parts.append(manifest.TracePart(table, "2027-01-15", "p.parquet", len(rows), 1, {}))
    made = [AggregatedPart(run.key, 1000 + n, MINUTE + a, MINUTE + b, "") for n, (a, b) in enumerate(parts)]
    done = Curated({run.key: known}, [])
    return aggregates.CuratedTables(session, place(folder), [run], done, 300.0, made or [
        AggregatedPart(run.key, 1000, MINUTE, MINUTE + 60, "")], bool(made))  # fmt: skip


def found(frame: DataFrame, *by: str) -> list[Row]:
    return [row.asDict() for row in frame.orderBy(*by).collect()]


def rate(at_s: float, **values: Any) -> Row:
    return {"at_s": at_s, "source": "s", "epoch": 1, **values}


def test_a_stretch_has_its_own_rows_and_no_others(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "tuples_in": n}
        for at_s, n in ((59.999999, 1), (60.0, 10), (119.999999, 100), (120.0, 1000))
    ]
    tables = curated(session, tmp_path, run, "samples", rows, (1, 2))
    [thread] = found(aggregates.threads(tables), "thread")
    assert (thread["tuples_in"], thread["part"], thread["run"]) == (110, 1000, RUN)


def test_rates_of_a_stretch_look_back_and_count_what_is_theirs(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [rate(at_s, offered=30, emitted=20, acked=10) for at_s in (56.0, 58.0, 60.0, 61.0)]
    windows = found(aggregates.rate_windows(curated(session, tmp_path, run, "rates", rows, (1, 2))), "w")
    counted = [
        (row["n"], row["acked"], row["offered_tps"], row["acked_tps"]) for row in windows if row["part"]
    ]
    assert counted == [(2, 20, pytest.approx(22.5), pytest.approx(7.5))], (
        "15 a second after 2 s, 30 after 1 s"
    )


def test_a_rate_is_not_told_across_an_absence(session: SparkSession, tmp_path: Path, run: TraceRun) -> None:
    rows = [rate(at_s, offered=10, emitted=10, acked=10) for at_s in (0.0, 1.0, 70.0, 71.0)]
    windows = found(aggregates.rate_windows(curated(session, tmp_path, run, "rates", rows)), "w")
    assert [row["acked_tps"] for row in windows] == [10.0, 10.0] and [row["n"] for row in windows] == [2, 2]


def test_rows_without_a_prediction_are_in_no_sum(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    values = [(0.5, 0.4), (0.9, None), (0.7, float("nan")), (None, 0.3), (0.2, 0.4)]
    rows = [{"at_s": n / 2, "slot": 0, "cpu": cpu, "predicted_cpu": p} for n, (cpu, p) in enumerate(values)]
    [slot] = found(aggregates.slot_windows(curated(session, tmp_path, run, "slots", rows)), "w")
    assert (slot["cpu_n"], slot["cpu_sum"]) == (2, pytest.approx(0.7))
    assert slot["cpu_squares"] == pytest.approx(0.29) and slot["cpu_ss"] == pytest.approx(0.05)
    assert slot["cpu_residual"] == pytest.approx(-0.1) and slot["cpu_absolute"] == pytest.approx(0.3)
    assert slot["cpu"] == pytest.approx(2.3 / 4), "the mean is of all that is known"


def test_a_bundle_covers_the_time_from_its_first_row_on(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "thread": thread, "window_s": 1.0} for at_s in (0.0, 1.0, 2.0) for thread in (1, 2)
    ]
    [bundle] = found(aggregates.bundles(curated(session, tmp_path, run, "samples", rows)), "w")
    assert (bundle["n"], bundle["seconds"], bundle["threads"]) == (6, pytest.approx(3.0), 2.0)


def test_a_second_counts_once_however_many_links_there_were(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "to_thread": thread, "window_s": 1.0} for at_s in (0.0, 1.0) for thread in (1, 2, 3)
    ]
    [epoch] = found(aggregates.link_seconds(curated(session, tmp_path, run, "links", rows)), "epoch")
    assert epoch["seconds"] == 2.0


@pytest.mark.parametrize("small", [True, False])
def test_fused_parts_say_what_they_said_apart(
    session: SparkSession, tmp_path: Path, run: TraceRun, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Sums of what has no time are added up, the highest is the highest; the rest stands beside each other."""
    if not small:
        monkeypatch.setattr(aggregating, "SMALL_BYTES", -1)
    rows = [
        {"at_s": at_s, "source": "s", "sink": "k", "epoch": 1, "latency_s": latency_s, "tuples": tuples}
        for at_s, latency_s, tuples in ((1.0, 1.00, 3.0), (30.0, 1.01, 4.0), (61.0, 1.02, 5.0))
    ]
    tables = curated(session, tmp_path / "curated", run, "latency", rows, (0, 1), (1, 2))
    makers = {name: aggregating.makers(tables)[name] for name in ("latency_histogram", "latency_windows")}
    monkeypatch.setattr(aggregating, "makers", lambda tables: makers)
    to = place(tmp_path / "aggregates")
    for name, make in makers.items():
        make().write.parquet((to / name / "pass-1").uri)
    whole = AggregatedPart(run.key, 2000, MINUTE, MINUTE + 2, "")
    aggregating.fuse(tables, to, [FusedParts(whole, tuple(tables.parts))], lambda step: None)
    histogram, windows = (
        found(aggregating.read_aggregate(session, to / name, name, parts), *by)
        for name, parts, by in (
            ("latency_histogram", [whole], ["bucket"]),
            ("latency_windows", [whole], ["w"]),
        )
    )
    [one] = histogram
    assert (one["tuples"], one["max_s"], one["weighted_s"]) == (12.0, 1.02, pytest.approx(12.14))
    assert [row["tuples"] for row in windows] == [3.0, 4.0, 5.0]
    apart = found(
        aggregating.read_aggregate(session, to / "latency_windows", "latency_windows", tables.parts), "w"
    )
    assert apart == windows


# ── what answers count ──────────────────────────────────────────────────────────────────────────────────


def given(session: SparkSession, run: TraceRun, **frames: DataFrame) -> AnalysisInput:
    return AnalysisInput(session, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, 5, 1, frames)


def test_a_predicted_rate_is_judged_where_it_was_tried_and_not_in_a_plans_first_window(
    session: SparkSession, run: TraceRun
) -> None:
    at = BEGIN_S // 5
    windows = [  # offered, acked, predicted
        (at, 200.0, 90.0, 100.0), (at + 1, 150.0, 95.0, 100.0), (at + 2, 50.0, 50.0, 100.0),
        (at + 3, 50.0, 97.0, 100.0),
    ]  # fmt: skip
    frame = session.createDataFrame(
        [(RUN, 1, *window) for window in windows],
        "run string, epoch long, w long, offered_tps double, acked_tps double, predicted_tps double",
    )
    asked = given(session, run, rate_windows=frame)
    waited = [Episode(RUN, "s", "k", 1, 15.0, 20.0, 3.0, 16.0, 0.1, 10.0)]
    tried = found(residuals.tried(asked, waited), "w")
    assert [row["acked_tps"] for row in tried] == [95.0, 97.0]
    assert [row["acked_tps"] for row in found(residuals.tried(asked, []), "w")] == [95.0]


def bundle(task: str, at_s: int, queue: float, taken: int) -> tuple[Any, ...]:
    first_us = (BEGIN_S + at_s) * 1_000_000
    times = ((BEGIN_S + at_s) // 5, 5, first_us, first_us + 4_000_000)
    return (RUN, 1, "vm1", 0, task, *times, 5 * queue, taken, taken, 1.0, 5.0, 5.0, 1.0)


BUNDLE = (
    "run string, epoch long, vm string, slot long, task string, w long, n long, first_us long, last_us long,"
    " queue double, tuples_in long, tuples_out long, busy_s double, window_s double, seconds double, threads double"
)


def slow_seconds() -> list[tuple[Any, ...]]:
    """Latency by seconds: 0.1 s, and 2 s from second 40 to 60."""
    return [
        (RUN, 1, "s", "k", BEGIN_S + n, 10, 10.0, 2.0 if 40 <= n < 60 else 0.1, 2.0 if 40 <= n < 60 else 0.1)
        for n in range(100)
    ]


def test_who_held_rows_up_is_looked_for_while_they_waited(session: SparkSession, run: TraceRun) -> None:
    bins = session.createDataFrame(
        slow_seconds(), "run string, epoch long, source string, sink string, w long, n long, tuples double,"
        " p90_s double, max_s double"
    )  # fmt: skip
    of = [bundle("before", 10, 900.0, 50), bundle("held", 45, 300.0, 50), bundle("quick", 45, 1.0, 50)]
    asked = given(session, run, latency_bins=bins, bundles=session.createDataFrame(of, BUNDLE))
    [one] = episodes.episodes(asked)
    assert one.to_s == 60.0 and one.from_s == pytest.approx(39.1, abs=2.0)
    assert (one.task, one.held_s) == ("held", pytest.approx(30.0)), "300 rows at 10 a second"


def test_a_plan_whose_rows_waited_for_long_did_not_keep_up(session: SparkSession, run: TraceRun) -> None:
    rows = [(*row[:6], row[-1]) for row in slow_seconds()]
    bins = session.createDataFrame(
        rows, "run string, epoch long, source string, sink string, w long, n long, p50_s double"
    )
    rates = session.createDataFrame([], "run string, epoch long, w long, offered_tps double")
    asked = given(
        session, run, latency_bins=bins, rate_windows=rates, bundles=session.createDataFrame([], BUNDLE)
    )
    waited = [Episode(RUN, "s", "k", 1, 40.0, 60.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(asked, waited)] == [False]
    short = [Episode(RUN, "s", "k", 1, 40.0, 52.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(asked, short)] != [False]
