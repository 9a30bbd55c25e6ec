"""What a handful of rows whose sums are known becomes: the sums, and the answers that depend on which rows count."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

from headgate.dashboards.analytics.analyses import latency_analyses as episodes
from headgate.dashboards.analytics.analyses import load_analyses as stability
from headgate.dashboards.analytics.analyses import prediction_analyses as residuals
from headgate.dashboards.analytics.analyses import run_analyses, slot_analyses
from headgate.dashboards.analytics.analyses.analysis_input import HELD, AnalysisInput
from headgate.dashboards.analytics.analysis_pipeline import ASKED
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.result_tables import Cost, Episode, StabilityAnswer
from headgate.dashboards.analytics.storage.trace_runs import TraceRun, run_of
from headgate.dashboards.tables.duckdb_tables import DuckdbEngine, bytes_of
from headgate.dashboards.tables.table_catalogue import tables
from headgate.dashboards.tables.table_engines import fill
from headgate.dashboards.tables.trace_files import StretchWidths
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.traces.arrow_schema import arrow_schema
from headgate.topology_runtime.traces.trace_tables import TABLES

BEGIN_S = 1_800_000_000
RUN = "demo/one"
Row = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> TraceRun:
    return run_of(place(tmp_path / "traces" / "demo" / "one"), {})


def rows_of(table: str, rows: Sequence[Row]) -> pa.Table:
    """`at_s` in seconds since the begin; what is not said is 1, or "a"."""
    schema = arrow_schema(table)
    fill = {pa.string(): "a", pa.int64(): 1, pa.float64(): 1.0}
    columns: dict[str, Any] = {"run": pa.array([RUN] * len(rows), pa.string())}
    for field in schema:
        values = [
            round((BEGIN_S + row["at_s"]) * 1e6)
            if field.name == "time"
            else row.get(field.name, fill.get(field.type))
            for row in rows
        ]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns)


def engine(**rows: Sequence[Row]) -> DuckdbEngine:
    """One that knows all sums of these rows, in windows of 5 s."""
    found = DuckdbEngine()
    for table in TABLES:
        found.put(f"given_{table}", rows_of(table, rows.get(table, ())))
        found.define(table, f"select * from given_{table}")
    widths = {"window_s": [5], "bin_s": [1], "judged_s": [15]}
    found.put("widths", pa.table({"run": [RUN], **widths}))
    found.put("runs", head("runs", run=RUN, begun=BEGIN_S * 1_000_000, ended=(BEGIN_S + 600) * 1_000_000))
    found.put("vms", head("vms", run=RUN, vm="vm1", slots=2, slot_cores=0.5, usd_per_hour=0.5))
    fill(found, (), (), ASKED - {*TABLES, "widths", "runs", "vms"})
    return found


def head(table: str, **values: Any) -> pa.Table:
    """One row of what a run's head says; the rest of it is null."""
    kinds = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
    kinds["timestamp"] = pa.timestamp("us", "UTC")
    columns = tables()[table].columns
    return pa.table({of.name: pa.array([values.get(of.name)], kinds[of.type]) for of in columns})


def asked(run: TraceRun, **rows: Sequence[Row]) -> AnalysisInput:
    of = engine(**rows)
    held = {name: of.ask(f"select * from sum_{name}") for name in HELD}
    return AnalysisInput(of, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, StretchWidths(5, 1, 15), held)


def found(of: DuckdbEngine, table: str, by: str) -> list[Row]:
    return list(of.ask(f"select * from sum_{table} order by {by}").to_pylist())


def rate(at_s: float, **values: Any) -> Row:
    return {"at_s": at_s, "source": "s", "epoch": 1, **values}


def test_a_rate_is_counted_from_the_row_before_it() -> None:
    rows = [rate(at_s, offered=30, emitted=20, acked=10) for at_s in (56.0, 58.0, 60.0, 61.0)]
    before, after = found(engine(rates=rows), "rate_windows", "w")
    assert (before["n"], before["acked"], before["offered_tps"]) == (2, 20, 15.0), "the first says nothing"
    assert (after["offered_tps"], after["acked_tps"]) == (pytest.approx(22.5), pytest.approx(7.5))


def test_a_rate_is_not_told_across_an_absence() -> None:
    rows = [rate(at_s, offered=10, emitted=10, acked=10) for at_s in (0.0, 1.0, 70.0, 71.0)]
    windows = found(engine(rates=rows), "rate_windows", "w")
    assert [row["acked_tps"] for row in windows] == [10.0, 10.0] and [row["n"] for row in windows] == [2, 2]


def test_rows_without_a_prediction_are_in_no_sum() -> None:
    values = [(0.5, 0.4), (0.9, None), (None, 0.3), (0.2, 0.4)]
    rows = [{"at_s": n / 2, "slot": 0, "cpu": cpu, "predicted_cpu": p} for n, (cpu, p) in enumerate(values)]
    [slot] = found(engine(slots=rows), "slot_windows", "w")
    assert (slot["cpu_n"], slot["cpu_sum"]) == (2, pytest.approx(0.7))
    assert slot["cpu_squares"] == pytest.approx(0.29) and slot["cpu_ss"] == pytest.approx(0.05)
    assert slot["cpu_residual"] == pytest.approx(-0.1) and slot["cpu_absolute"] == pytest.approx(0.3)
    assert slot["cpu_predicted"] == pytest.approx(0.4)
    assert slot["cpu"] == pytest.approx(1.6 / 3), "the mean is of all that is known"


def test_a_bundle_covers_the_time_from_its_first_row_on() -> None:
    rows = [{"at_s": at_s, "thread": thread} for at_s in (0.0, 1.0, 2.0) for thread in (1, 2)]
    [bundle] = found(engine(samples=rows), "bundles", "w")
    assert (bundle["n"], bundle["seconds"], bundle["threads"]) == (6, pytest.approx(3.0), 2.0)


def test_threads_are_rounded_up_from_the_half() -> None:
    rows = [{"at_s": at_s, "window_s": w} for at_s, w in ((0.0, 2.0), (0.5, 1.0), (0.5, 2.0))]
    [bundle] = found(engine(samples=rows), "bundles", "w")
    assert (
        bundle["window_s"] / bundle["seconds"] == pytest.approx(2.307, abs=0.001) and bundle["threads"] == 2.0
    )
    rows = [{"at_s": 0.0, "window_s": 1.0}, {"at_s": 0.0, "window_s": 1.0}, {"at_s": 0.2, "window_s": 1.0}]
    [bundle] = found(engine(samples=rows), "bundles", "w")
    assert bundle["window_s"] / bundle["seconds"] == pytest.approx(2.5) and bundle["threads"] == 3.0
    [bundle] = found(engine(samples=[{"at_s": 0.0, "window_s": 0.0}]), "bundles", "w")
    assert (bundle["seconds"], bundle["threads"]) == (0.0, 1.0), "at least one, also where nobody knows"


def test_a_second_counts_once_however_many_links_there_were() -> None:
    rows = [{"at_s": at_s, "to_thread": thread} for at_s in (0.0, 1.0) for thread in (1, 2, 3)]
    [epoch] = found(engine(links=rows), "link_seconds", "epoch")
    assert epoch["seconds"] == 2.0


def test_a_latency_that_stands_still_has_no_slope_and_one_that_grows_has_its_own() -> None:
    rows = [
        {"at_s": at_s, "epoch": epoch, "latency_s": latency_s}
        for epoch, at_s, latency_s in (
            (1, 0.0, 1.0),
            (1, 4.0, 2.0),
            (1, 8.0, 3.0),
            (2, 3.0, 1.0),
            (2, 3.0, 2.0),
        )
    ]
    grows, still = (
        row for row in found(engine(latency=rows), "latency_windows", "epoch") if row["width_s"] == 15
    )
    assert grows["slope"] == pytest.approx(0.25) and still["slope"] is None
    assert (grows["p50_s"], grows["p90_s"], grows["max_s"]) == (2.0, 3.0, 3.0)
    assert still["p50_s"] == 1.0, "a latency that there was"


def test_what_is_no_number_is_in_no_sum_and_ends_nothing(run: TraceRun) -> None:
    """Raw tables have null for it."""
    numbers = {
        table: {name: None for name, kind in columns.items() if kind == "number"}
        for table, columns in TABLES.items()
    }
    rows = {
        table: [{"at_s": float(n), **(numbers[table] if n % 2 or all_of else {})} for n in range(4)]
        for all_of in (True,)
        for table in TABLES
    }
    of = asked(run, **rows)
    assert stability.epochs(of, episodes.episodes(of)) == []
    assert stability.bottlenecks(of) == [] and stability.skewed(of) == []
    assert residuals.tasks(of)[0].cpu_cores is None
    assert [row["n"] for row in of.rows("rate_windows")] == [4]


@pytest.fixture
def queued() -> list[Row]:
    """A task beside another in the first minute and alone in the second; its queue grows by a row a second."""
    task = {"task": "grows", "slot": 0, "tuples_in": 30, "cpu_s": 0.5, "busy_s": 0.5}
    rows = [{"at_s": float(at_s), "queue": at_s, **task} for at_s in range(120)]
    near = {"task": "near", "slot": 0, "queue": 0, "tuples_in": 1, "thread": 2}
    return [*rows, *({"at_s": float(at_s), **near} for at_s in range(60))]


def test_groups_are_sums_over_their_windows(run: TraceRun, queued: list[Row]) -> None:
    of = asked(run, samples=queued)
    [grows, near] = of.sums("groups", "run", "epoch", "task", "vm", "slot")
    assert (grows["windows"], grows["n"], grows["tuples_in"], grows["live_windows"]) == (24, 120, 3600, 24)
    by_beside = {row["beside"]: row for row in of.sums("groups", "task", "beside") if row["task"] == "grows"}
    assert {name: row["windows"] for name, row in by_beside.items()} == {"": 12, "near": 12}
    assert by_beside[""]["costed_windows"] == 12
    assert by_beside[""]["costed_squares"] == pytest.approx(12 * math.log(0.5 / 30) ** 2)
    assert near["costed_windows"] == 0, "few rows say little of what a row costs"


def test_peaks_are_windows_of_a_task_that_was_alone_and_busy_with_rows_waiting() -> None:
    busy = {"slot": 0, "busy_s": 0.95, "queue": 3, "tuples_in": 10}
    rows = [{"at_s": float(at_s), "task": "peak", **busy} for at_s in range(20)]
    rows += [
        {"at_s": float(at_s), "task": "near", **busy} for at_s in range(5)
    ]  # not alone in the first window
    for n in range(5, 10):
        rows[n] = {**rows[n], "queue": 0}  # nothing waits in the second
    for n in range(10, 15):
        rows[n] = {**rows[n], "busy_s": 0.8}
    [peak] = found(engine(samples=rows), "peaks", "w")
    assert (peak["w"] * 5 - BEGIN_S, peak["task"], peak["rate"]) == (15, "peak", pytest.approx(10.0))


def costed(run: TraceRun, seconds: Sequence[int], idle: Collection[int] = ()) -> dict[int | None, Cost]:
    """Two slots of a VM of half a dollar an hour, the first with a thread under plan 1 until 30 s, then both under plan
    3; 100 rows a second, and 58 under a plan 2 that was never sampled. idle: seconds in which no thread was there."""
    epochs = {at_s: 1 if at_s <= 30 else 3 for at_s in seconds}
    held = [(at_s, slot) for at_s in seconds for slot in ((0,) if at_s <= 30 else (0, 1))]
    slots = [
        {
            "at_s": float(at_s),
            "vm": "vm1",
            "slot": slot,
            "epoch": epochs[at_s],
            "window_s": 1.0,
            "memory": 0.2,
        }
        for at_s in seconds
        for slot in (0, 1)
    ]
    samples = [
        {
            "at_s": float(at_s),
            "vm": "vm1",
            "slot": slot,
            "epoch": epochs[at_s],
            "thread": slot,
            "window_s": 1.0,
        }
        for at_s, slot in held
        if at_s not in idle
    ]
    rates = [
        {"at_s": float(s), "source": "s", "epoch": epochs[s], "offered": 100, "acked": 100} for s in seconds
    ]
    rates.append({"at_s": 30.5, "source": "s", "epoch": 2, "offered": 58, "acked": 58})
    found = run_analyses.cost(asked(run, slots=slots, samples=samples, rates=rates))
    return {row.epoch: row for row in found}


def test_a_run_costs_what_its_slots_were_held_for_and_has_the_rows_of_a_plan_that_was_never_sampled(
    run: TraceRun,
) -> None:
    found = costed(run, range(1, 61))
    assert {epoch: row.tuples_acked for epoch, row in found.items()} == {1: 3000, 3: 3000, None: 6058}
    assert [found[n].slot_hours * 3600 for n in (1, 3, None)] == pytest.approx([30, 60, 90])
    assert [found[n].seconds for n in (1, 3)] == pytest.approx([30, 30])
    assert found[None].usd == pytest.approx(0.5 * 60 / 3600)
    assert found[None].usd_per_million_tuples == pytest.approx(0.5 * 60 / 3600 / 6058 * 1e6)


def test_a_slot_whose_worker_is_begun_again_is_held_meanwhile(run: TraceRun) -> None:
    found = costed(run, range(1, 61), idle=range(10, 14))
    assert [found[n].slot_hours * 3600 for n in (1, 3, None)] == pytest.approx([30, 60, 90])


@pytest.mark.parametrize("missing", [range(41, 51), range(41, 44)], ids=["two stretches", "within one"])
def test_what_was_not_recorded_costs_as_much_as_the_rest_of_its_epoch(run: TraceRun, missing: range) -> None:
    found, recorded_s = costed(run, [n for n in range(1, 61) if n not in missing]), 30 - len(missing)
    assert (found[3].seconds, found[3].recorded_s) == pytest.approx((30, recorded_s))
    assert found[3].coverage == pytest.approx(recorded_s / 30)
    assert [found[n].slot_hours * 3600 for n in (1, 3, None)] == pytest.approx([30, 60, 90])
    assert found[None].usd == pytest.approx(0.5 * 60 / 3600)


def test_memory_of_a_slot_has_at_most_48_blocks_of_one_length() -> None:
    rows = [{"at_s": float(at_s), "slot": 0, "memory": 0.1 + at_s / 1e4} for at_s in range(7, 473)]
    blocks = found(engine(slots=rows), "memory_blocks", "block")
    assert {row["level"] for row in blocks} == {1}, "two windows each: 88 of 5 s are more than 48"
    middles = [row["at"] / row["n"] * 5 - BEGIN_S for row in blocks]
    assert len(middles) == 45 and middles[:3] == [37.5, 45.0, 55.0], "not the first 30 s of the plan"
    assert blocks[1]["memory"] / 2 == pytest.approx(0.1 + 44.5 / 1e4)


Curve = Callable[[int], float]


def slot_rows(memory: Curve, cpu: Curve = lambda _: 0.5, plans: tuple[int, ...] = (0,)) -> list[Row]:
    """Of ten minutes, a row a second; `plans` came into force then."""
    rows = []
    for at_s in range(600):
        epoch = sum(at_s >= plan for plan in plans)
        rows.append(
            {"at_s": float(at_s), "slot": 0, "epoch": epoch, "memory": memory(at_s), "cpu": cpu(at_s)}
        )
    return rows


def leaks_in(run: TraceRun, rows: list[Row], behind: Sequence[int] = ()) -> list[float]:
    """Fractions of the slot per second. behind: plans that did not keep up."""
    stability = [
        StabilityAnswer(RUN, epoch, "epoch", "s", "k", 0.0, 1.0, 0.1, 0.0, 0.2, None, False, 9)
        for epoch in behind
    ]
    return [
        (1 - leak.held) / leak.full_in_s for leak in slot_analyses.leaks(asked(run, slots=rows), stability)
    ]


PLANS = (0, 100, 200, 300, 400, 500)


def by_plan(at_s: int) -> float:
    return float(sum(at_s >= plan for plan in PLANS))


def test_memory_that_grows_under_every_plan_is_a_leak_whatever_the_plans_bring(run: TraceRun) -> None:
    [pace] = leaks_in(run, slot_rows(lambda at_s: 0.2 + 0.0005 * at_s + 0.05 * by_plan(at_s), plans=PLANS))
    assert pace == pytest.approx(0.0005, rel=0.02), "what plans brought is no part of it"
    [pace] = leaks_in(run, slot_rows(lambda at_s: 0.2 + 0.0005 * at_s))
    assert pace == pytest.approx(0.0005, rel=0.01)


def test_steps_between_plans_are_no_leak(run: TraceRun) -> None:
    assert leaks_in(run, slot_rows(lambda at_s: 0.2 + 0.05 * by_plan(at_s), plans=PLANS)) == []


def test_memory_that_goes_with_load_is_no_leak(run: TraceRun) -> None:
    def load(at_s: int) -> float:
        return 0.3 + 0.0005 * at_s + 0.2 * math.sin(at_s / 40)

    assert leaks_in(run, slot_rows(lambda at_s: 0.1 + load(at_s), load)) == []
    assert leaks_in(run, slot_rows(lambda at_s: 0.1 + 0.0005 * at_s, lambda at_s: 0.1 + 0.0005 * at_s)) == []


def test_queues_that_fill_under_a_plan_that_does_not_keep_up_are_no_leak(run: TraceRun) -> None:
    rows = slot_rows(lambda at_s: 0.1 + 0.001 * max(0, at_s - 100), plans=(0, 100))
    assert leaks_in(run, rows) and not leaks_in(run, rows, behind=[2])


def test_a_worker_that_was_begun_anew_by_a_plan_grows_from_there(run: TraceRun) -> None:
    rows = slot_rows(lambda at_s: 0.6 if at_s < 200 else 0.2 + 0.0005 * (at_s - 200), plans=(0, 200))
    [pace] = leaks_in(run, rows)
    assert pace == pytest.approx(0.0005, rel=0.05)


def test_quantiles_of_errors_lie_within_half_a_bin(run: TraceRun) -> None:
    errors = [0.001 * 1.1**n for n in range(60)]
    rows = [
        {"at_s": 5.0 * n, "slot": 0, "cpu": 0.5 + error, "predicted_cpu": 0.5, "memory": 0.2, "predicted_memory": 0.2}
        for n, error in enumerate(errors)
    ]  # fmt: skip
    of = asked(run, slots=rows)
    cpu, memory = (residuals.of_slots(of, name)[0] for name in ("cpu", "memory"))
    assert cpu.median_error == pytest.approx(errors[29], rel=0.0055)
    assert cpu.p95_error == pytest.approx(errors[56], rel=0.0055)
    assert cpu.worst_error == pytest.approx(errors[-1])
    assert (memory.median_error, memory.p95_error, memory.n) == (0.0, 0.0, 60)


# ── what answers count ──────────────────────────────────────────────────────────────────────────────────


def given(run: TraceRun, of: DuckdbEngine | None = None, **held: list[Row]) -> AnalysisInput:
    sums = {name: pa.Table.from_pylist(rows) for name, rows in held.items()}
    engine = of or cast(Any, None)
    return AnalysisInput(engine, {RUN: run}, {RUN: BEGIN_S * 1_000_000}, StretchWidths(5, 1, 15), sums)


def test_a_predicted_rate_is_judged_where_it_was_tried_and_not_in_a_plans_first_window(run: TraceRun) -> None:
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
    of = given(run, rate_windows=windows)
    waited = [Episode(RUN, "s", "k", 1, 15.0, 20.0, 3.0, 16.0, 0.1, 10.0)]
    assert [row["acked_tps"] for row in residuals.tried(of, waited)] == [95.0, 97.0]
    assert [row["acked_tps"] for row in residuals.tried(of, [])] == [95.0]


def slow_seconds() -> list[Row]:
    """Latency by seconds: 0.1 s, and 2 s from second 40 to 60."""
    found = []
    for n in range(100):
        high_s = 2.0 if 40 <= n < 60 else 0.1
        latencies = {"p50_s": high_s, "p90_s": high_s, "max_s": high_s, "n": 10, "tuples": 10.0}
        found.append(
            {"run": RUN, "epoch": 1, "source": "s", "sink": "k", "width_s": 1, "w": BEGIN_S + n, **latencies}
        )
    return found


def test_who_held_rows_up_is_looked_for_while_they_waited(run: TraceRun) -> None:
    samples = [
        {"at_s": at_s + n, "task": task, "slot": 0, "queue": queue, "tuples_in": 10, "tuples_out": 10}
        for task, at_s, queue in (("before", 10, 900), ("held", 45, 300), ("quick", 45, 1))
        for n in range(5)
    ]
    of = given(run, engine(samples=samples), latency_windows=slow_seconds())
    [one] = episodes.episodes(of)
    assert one.to_s == 60.0 and one.from_s == pytest.approx(39.1, abs=2.0)
    assert (one.task, one.held_s) == ("held", pytest.approx(30.0)), "300 rows at 10 a second"


def test_a_plan_whose_rows_waited_for_long_did_not_keep_up(run: TraceRun) -> None:
    of = given(run, latency_windows=slow_seconds(), rate_windows=[], task_windows=[])
    waited = [Episode(RUN, "s", "k", 1, 40.0, 60.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(of, waited)] == [False]
    short = [Episode(RUN, "s", "k", 1, 40.0, 52.0, 2.0, 41.0, 0.1, 200.0)]
    assert [row.stable for row in stability.epochs(of, short)] != [False]


# ── the engine ──────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_ends_a_query_that_would_take_for_ever() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    of, before = DuckdbEngine(), signal.signal(signal.SIGALRM, interrupted)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            of.ask(
                "select count(*) as n from range(1000000000) a, range(1000000000) b where a.range + b.range = 1"
            )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert of.ask("select 1 as n").to_pylist() == [{"n": 1}], "and it answers again"


@pytest.mark.parametrize(("memory", "found"), [("2g", 2 << 30), ("512M", 512 << 20), ("64k", 64 << 10)])
def test_memory_is_said_as_spark_is_told_it(memory: str, found: int) -> None:
    assert bytes_of(memory) == found


@pytest.mark.parametrize("memory", ["", "2", "g", "0g", "1.5g", "-2g"])
def test_memory_that_is_none_is_refused(memory: str) -> None:
    with pytest.raises(UsageError, match="invalid memory"):
        bytes_of(memory)
