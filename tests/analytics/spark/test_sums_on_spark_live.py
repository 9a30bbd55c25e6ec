"""What Spark makes of a handful of rows whose sums are known: aggregates of stretches, what is put together of those,
fused parts, and the answers that depend on which rows count."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics.aggregation import aggregate_steps as aggregating
from headgate.dashboards.analytics.aggregation import aggregate_tables as aggregates
from headgate.dashboards.analytics.aggregation import time_sums as sums
from headgate.dashboards.analytics.aggregation.aggregate_parts import AggregatedPart, FusedParts
from headgate.dashboards.analytics.aggregation.analysis_input import AnalysisInput
from headgate.dashboards.analytics.analyses import latency_analyses as episodes
from headgate.dashboards.analytics.analyses import load_analyses as stability
from headgate.dashboards.analytics.analyses import prediction_analyses as residuals
from headgate.dashboards.analytics.curation import trace_segments as manifest
from headgate.dashboards.analytics.curation.curated_tables import Curated
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.result_tables import Episode
from headgate.dashboards.analytics.storage.trace_runs import TraceRun, run_of
from headgate.topology_runtime.traces.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.live
MINUTE = 30_000_000  # stretch at which the made times begin
BEGIN_S = 60 * MINUTE
RUN = "demo/one"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def session(spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from headgate.dashboards.analytics.storage.spark_session import QUICK, session

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
    minutes = [(4 * (MINUTE + a), 4 * (MINUTE + b)) for a, b in parts or [(0, 60)]]
    made = [AggregatedPart(run.key, table, 1000 + n, *ends, "") for n, ends in enumerate(minutes)]
    others = [AggregatedPart(run.key, table, 1, 0, 1, "")] if parts else []
    done = Curated({run.key: known}, [])
    found = aggregates.CuratedTables(session, place(folder), [run], done, 300.0, others, made)
    assert found.stretch_s == 15
    return found


def found(frame: DataFrame, *by: str) -> list[Row]:
    return [row.asDict() for row in frame.orderBy(*by).collect()]


def rate(at_s: float, **values: Any) -> Row:
    return {"at_s": at_s, "source": "s", "epoch": 1, **values}


def test_a_stretch_has_its_own_rows_and_no_others(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "tuples_in": n, "tuples": n}
        for at_s, n in ((59.999999, 1), (60.0, 10), (119.999999, 100), (120.0, 1000))
    ]
    [link] = found(
        aggregates.link_sums(curated(session, tmp_path, run, "links", rows, (1, 2))).where("part = 1000"),
        "epoch",
    )
    assert link["tuples"] == 110
    tables = curated(session, tmp_path, run, "samples", rows, (1, 2))
    aggregating.make(tables, place(tmp_path / "a"), 1, lambda step: None)
    [thread] = pq.read_table(tmp_path / "a" / "threads" / "pass-1.parquet").to_pylist()
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


def test_a_slot_is_as_busy_as_it_was_while_threads_were_there(session: SparkSession) -> None:
    """However busy it was before they came, and by how long they were there in each window."""
    key = "run string, epoch int, vm string, slot int, w int"
    there = session.createDataFrame(
        [
            (RUN, 1, "a", 0, 2, "came", 1.0),
            (RUN, 1, "a", 0, 3, "came", 3.0),
            (RUN, 1, "a", 0, 4, "came", 9.0),
        ],
        f"{key}, task string, seconds double",
    )
    slots = session.createDataFrame(
        [(RUN, 1, "a", 0, 1, 1.0, 1.0), (RUN, 1, "a", 0, 2, 0.4, 0.3), (RUN, 1, "a", 0, 3, 0.8, None),
         (RUN, 1, "a", 0, 4, None, None), (RUN, 1, "a", 1, 2, 1.0, 1.0)],
        f"{key}, cpu double, cpu_predicted double",
    )  # fmt: skip
    [row] = found(sums.slots_of_groups(there, slots), "task")
    assert (row["task"], row["vm"], row["slot"]) == ("came", "a", 0)
    assert row["cpu_share"] == pytest.approx(0.7) and row["predicted_share"] == pytest.approx(0.3)


def test_a_bundle_covers_the_time_from_its_first_row_on(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "thread": thread, "window_s": 1.0} for at_s in (0.0, 1.0, 2.0) for thread in (1, 2)
    ]
    tables = curated(session, tmp_path, run, "samples", rows)
    aggregating.make(tables, place(tmp_path / "a"), 1, lambda step: None)
    [bundle] = found(aggregating.read_windows(session, place(tmp_path / "a"), "bundles", tables.fresh), "w")
    assert (bundle["n"], bundle["seconds"], bundle["threads"]) == (6, pytest.approx(3.0), 2.0)


def test_a_second_counts_once_however_many_links_there_were(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    rows = [
        {"at_s": at_s, "to_thread": thread, "window_s": 1.0} for at_s in (0.0, 1.0) for thread in (1, 2, 3)
    ]
    [epoch] = found(aggregates.link_seconds(curated(session, tmp_path, run, "links", rows)), "epoch")
    assert epoch["seconds"] == 2.0


@pytest.fixture
def queued(session: SparkSession, tmp_path: Path, run: TraceRun) -> aggregates.CuratedTables:
    """A task beside another in the first minute and alone in the second; its queue grows by a row a second."""
    rows = [
        {
            "at_s": float(at_s),
            "task": "grows",
            "slot": 0,
            "queue": at_s,
            "tuples_in": 30,
            "cpu_s": 0.5,
            "busy_s": 0.5,
        }
        for at_s in range(120)
    ]
    rows += [
        {"at_s": float(at_s), "task": "near", "slot": 0, "queue": 0, "tuples_in": 1} for at_s in range(60)
    ]
    return curated(session, tmp_path / "c", run, "samples", rows, (0, 1), (1, 2))


def test_sums_of_parts_are_those_of_the_whole(
    queued: aggregates.CuratedTables, tmp_path: Path, run: TraceRun
) -> None:
    """Fused, or added up when they are asked for."""
    to = place(tmp_path / "aggregates")
    aggregating.make(queued, to, 1, lambda step: None)
    apart = {
        name: aggregating.read_held(to, name, queued.fresh) for name in ("groups", "task_windows", "threads")
    }
    whole = AggregatedPart(run.key, "samples", 2000, 4 * MINUTE, 4 * (MINUTE + 2), "")
    aggregating.fuse(to, 2, [FusedParts(whole, tuple(queued.fresh))])
    for name, table in apart.items():
        assert aggregating.read_held(to, name, [whole]).to_pylist() == table.to_pylist(), name
    bundles = [
        found(aggregating.read_windows(queued.spark, to, "bundles", of), "w", "task")
        for of in ([whole], queued.fresh)
    ]
    assert bundles[0] == bundles[1] and len(bundles[0]) == 24 + 12
    asked = AnalysisInput(queued.spark, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, 5, 1, {}, apart)
    [grows, near] = asked.sums("groups", "run", "epoch", "task", "vm", "slot")
    assert (grows["windows"], grows["n"], grows["tuples_in"], grows["live_windows"]) == (24, 120, 3600, 24)
    slope = (grows["xy"] - grows["x"] * grows["y"] / 24) / (grows["xx"] - grows["x"] ** 2 / 24) / 5
    assert slope == pytest.approx(1.0, rel=1e-12), "a row a second, whichever part a window lies in"
    by_beside = {
        row["beside"]: row for row in asked.sums("groups", "task", "beside") if row["task"] == "grows"
    }
    assert {name: row["windows"] for name, row in by_beside.items()} == {"": 12, "near": 12}
    assert by_beside[""]["costed_windows"] == 12 and by_beside[""]["costed_squares"] == pytest.approx(
        12 * math.log(0.5 / 30) ** 2
    )
    assert near["costed_windows"] == 0, "few rows say little of what a row costs"


def test_a_latency_histogram_of_parts_is_added_up(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    """Sums of what has no time are added up, the highest is the highest; the rest stands beside each other."""
    rows = [
        {"at_s": at_s, "source": "s", "sink": "k", "epoch": 1, "latency_s": latency_s, "tuples": tuples}
        for at_s, latency_s, tuples in ((1.0, 1.00, 3.0), (30.0, 1.01, 4.0), (61.0, 1.02, 5.0))
    ]
    tables = curated(session, tmp_path / "curated", run, "latency", rows, (0, 1), (1, 2))
    to = place(tmp_path / "aggregates")
    aggregating.make(tables, to, 1, lambda step: None)
    [one] = aggregating.read_held(to, "latency_histogram", tables.fresh).to_pylist()
    assert (one["tuples"], one["max_s"], one["weighted_s"]) == (12.0, 1.02, pytest.approx(12.14))
    windows = aggregating.read_held(to, "latency_windows", tables.fresh).sort_by("w").to_pylist()
    assert [row["tuples"] for row in windows] == [3.0, 4.0, 5.0]
    [late] = aggregating.read_held(to, "latency_histogram", tables.fresh[1:]).to_pylist()
    assert late["tuples"] == 5.0, "what is not asked for does not count"


@pytest.mark.parametrize("minutes", [((0, 8),), ((0, 3), (3, 4), (4, 8))])
def test_memory_of_a_slot_has_the_same_blocks_however_it_was_made(
    session: SparkSession, tmp_path: Path, run: TraceRun, minutes: tuple[tuple[int, int], ...]
) -> None:
    rows = [{"at_s": float(at_s), "slot": 0, "memory": 0.1 + at_s / 1e4} for at_s in range(7, 473)]
    tables = curated(session, tmp_path / "c", run, "slots", rows, *minutes)
    aggregating.make(tables, place(tmp_path / "a"), 1, lambda step: None)
    blocks = aggregating.read_held(place(tmp_path / "a"), "memory_blocks", tables.fresh).sort_by("block")
    assert blocks["level"].unique().to_pylist() == [1], "two windows each: 94 of 5 s are more than 48"
    middles = [row["at"] / row["n"] * 5 - BEGIN_S for row in blocks.to_pylist()]
    assert len(middles) == 48 and middles[:3] == [7.5, 15.0, 25.0]
    assert blocks["memory"].to_pylist()[1] / 2 == pytest.approx(0.1 + 14.5 / 1e4)


def test_quantiles_of_errors_lie_within_half_a_bin(
    session: SparkSession, tmp_path: Path, run: TraceRun
) -> None:
    errors = [0.001 * 1.1**n for n in range(60)]
    rows = [
        {"at_s": 5.0 * n, "slot": 0, "cpu": 0.5 + error, "predicted_cpu": 0.5, "memory": 0.2, "predicted_memory": 0.2}
        for n, error in enumerate(errors)
    ]  # fmt: skip
    tables = curated(session, tmp_path / "c", run, "slots", rows)
    aggregating.make(tables, place(tmp_path / "a"), 1, lambda step: None)
    held = {
        name: aggregating.read_held(place(tmp_path / "a"), name, tables.fresh)
        for name in ("slot_sums", "slot_errors")
    }
    asked = AnalysisInput(session, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, 5, 1, {}, held)
    cpu, memory = (residuals.of_slots(asked, of)[0] for of in ("cpu", "memory"))
    assert cpu.median_error == pytest.approx(errors[29], rel=0.0055)
    assert cpu.p95_error == pytest.approx(errors[56], rel=0.0055)
    assert cpu.worst_error == pytest.approx(errors[-1])
    assert (memory.median_error, memory.p95_error, memory.n) == (0.0, 0.0, 60)


# ── what answers count ──────────────────────────────────────────────────────────────────────────────────


def given(
    session: SparkSession, run: TraceRun, bundles: DataFrame | None = None, **held: list[Row]
) -> AnalysisInput:
    frames = {} if bundles is None else {"bundles": lambda: bundles}
    tables = {name: pa.Table.from_pylist(rows) for name, rows in held.items()}
    return AnalysisInput(session, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, 5, 1, frames, tables)


def test_a_predicted_rate_is_judged_where_it_was_tried_and_not_in_a_plans_first_window(
    session: SparkSession, run: TraceRun
) -> None:
    names = ("w", "offered_tps", "acked_tps", "predicted_tps")
    values = [
        (0, 200.0, 90.0, 100.0),
        (1, 150.0, 95.0, 100.0),
        (2, 50.0, 50.0, 100.0),
        (3, 50.0, 97.0, 100.0),
    ]
    windows = [
        {"run": RUN, "epoch": 1} | dict(zip(names, (BEGIN_S // 5 + w, *rest), strict=True))
        for w, *rest in values
    ]
    asked = given(session, run, rate_windows=windows)
    waited = [Episode(RUN, "s", "k", 1, 15.0, 20.0, 3.0, 16.0, 0.1, 10.0)]
    assert [row["acked_tps"] for row in residuals.tried(asked, waited)] == [95.0, 97.0]
    assert [row["acked_tps"] for row in residuals.tried(asked, [])] == [95.0]


def bundle(task: str, at_s: int, queue: float, taken: int) -> tuple[Any, ...]:
    first_us = (BEGIN_S + at_s) * 1_000_000
    times = ((BEGIN_S + at_s) // 5, 5, first_us, first_us + 4_000_000)
    return (RUN, 1, "vm1", 0, task, *times, 5 * queue, taken, taken, 1.0, 5.0, 5.0, 1.0)


BUNDLE = (
    "run string, epoch long, vm string, slot long, task string, w long, n long, first_us long, last_us long,"
    " queue double, tuples_in long, tuples_out long, busy_s double, window_s double, seconds double, threads double"
)


def slow_seconds() -> list[Row]:
    """Latency by seconds: 0.1 s, and 2 s from second 40 to 60."""
    found = []
    for n in range(100):
        high_s = 2.0 if 40 <= n < 60 else 0.1
        latencies = {"p50_s": high_s, "p90_s": high_s, "max_s": high_s, "n": 10, "tuples": 10.0}
        found.append({"run": RUN, "epoch": 1, "source": "s", "sink": "k", "w": BEGIN_S + n, **latencies})
    return found


def test_who_held_rows_up_is_looked_for_while_they_waited(session: SparkSession, run: TraceRun) -> None:
    of = [bundle("before", 10, 900.0, 50), bundle("held", 45, 300.0, 50), bundle("quick", 45, 1.0, 50)]
    asked = given(session, run, session.createDataFrame(of, BUNDLE), latency_bins=slow_seconds())
    [one] = episodes.episodes(asked)
    assert one.to_s == 60.0 and one.from_s == pytest.approx(39.1, abs=2.0)
    assert (one.task, one.held_s) == ("held", pytest.approx(30.0)), "300 rows at 10 a second"


def test_a_plan_whose_rows_waited_for_long_did_not_keep_up(session: SparkSession, run: TraceRun) -> None:
    asked = given(session, run, latency_bins=slow_seconds(), rate_windows=[], task_windows=[])
    waited = [Episode(RUN, "s", "k", 1, 40.0, 60.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(asked, waited)] == [False]
    short = [Episode(RUN, "s", "k", 1, 40.0, 52.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(asked, short)] != [False]
