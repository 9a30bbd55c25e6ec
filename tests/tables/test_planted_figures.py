"""Answers of the views to runs written by hand: who belongs to a plan, what is no reading, gaps, and one clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from planted_trace import BEGAN, BUSY_S, COST_S, PLACES, ROWS, SECONDS, SWITCH_S, Planted, planted

from headgate.dashboards.analytics import analysis_pipeline
from headgate.dashboards.analytics.analysis_pipeline import AnalysisSettings
from headgate.dashboards.tables.recorded_time import recorded_time
from headgate.dashboards.tables.table_catalogue import tables
from headgate.dashboards.terminal.history_commands import history

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'headgate[sql]'")

GAP_FROM, GAP_TO = 8, 16  # seconds of which no window was recorded
SHORT = 0.0145


def asked(folder: Path, *queries: str) -> list[list[dict[str, Any]]]:
    from headgate.dashboards.tables.duckdb_tables import Traces

    traces = Traces(str(folder))
    return [list(traces.ask(query)) for query in queries]


def disturbed() -> Planted:
    """The same run with what must change nothing: threads that begin and leave, first windows of plans, short windows,
    and a last reading of processes that are gone."""
    run = planted()
    for row in run.tables["samples"]:
        second = row["time"] - 0.2
        if second <= 2 or SWITCH_S < second <= SWITCH_S + 2:  # before the plan is in force, or just then
            row.update(cpu_s=5.0, tuples_in=7 * row["tuples_in"] if row["thread"] == 1 else 0)
        if row["thread"] == 4 and second == SWITCH_S + 4:  # its first window
            row.update(cpu_s=3.0, tuples_in=1)
    for second in range(SWITCH_S + 1, SWITCH_S + 5):  # by the new plan it is not there any more
        run.sample(second + 0.2, 2, 2, PLACES[1][2], 2)
        run.sample(second + 0.2, 9, 2, PLACES[2][1], 500)  # one too many in a slot of the new plan
        run.slot(second + 0.2, 2, PLACES[1][2])
    run.sample(31.2 + SHORT, 4, 2, PLACES[2][4], 400, window_s=SHORT)
    run.slot(31.2 + SHORT, 2, PLACES[2][4], window_s=SHORT, cpu=70.0)
    for thread, place in PLACES[2].items():
        run.sample(SECONDS + 0.2 + SHORT, thread, 2, place, 0, window_s=SHORT, memory_bytes=0)
    return run


def test_threads_are_compared_while_their_plan_is_in_force(tmp_path: Path) -> None:
    plain, found = (
        asked(
            run.write(tmp_path / name), "select * from mart_skew where task = 'work' order by epoch, thread"
        )[0]
        for name, run in (("plain", planted()), ("disturbed", disturbed()))
    )
    seconds = [SWITCH_S - 2, SWITCH_S - 2, SECONDS - SWITCH_S - 3, SECONDS - SWITCH_S - 4]
    assert [(row["epoch"], row["thread"]) for row in found] == [(1, 1), (1, 2), (2, 1), (2, 4)]
    assert [(row["seconds"], row["tuples_in"]) for row in found] == [(s, s * ROWS) for s in seconds]
    for row in found:
        told = [row[name] for name in ("threads", "share", "planned_share", "skew", "busy_share")]
        assert told == pytest.approx([2, 0.5, 0.5, 1.0, ROWS * BUSY_S], rel=1e-9)
    assert found == plain


def test_a_thread_is_skewed_against_what_its_plan_gives_it(tmp_path: Path) -> None:
    query = "select thread, skew from mart_skew where task = 'work' and epoch = 2 order by thread"
    (even,) = asked(planted(rows={4: 2 * ROWS}).write(tmp_path / "even"), query)
    assert [row["skew"] for row in even] == pytest.approx([2 / 3, 4 / 3], rel=1e-9)
    weighted = planted(rows={4: 2 * ROWS}, shares={1: 1 / 3, 4: 2 / 3})
    (found,) = asked(weighted.write(tmp_path / "weighted"), query)
    assert [row["skew"] for row in found] == pytest.approx([1.0, 1.0], rel=1e-9)


def test_needs_and_bottlenecks_are_those_of_settled_threads(tmp_path: Path) -> None:
    run = disturbed()
    run.tables["rates"] = [row for row in run.tables["rates"] if not 30 < row["time"] < 34]
    next(row for row in run.tables["rates"] if row["time"] > 34)["offered"] *= 5  # nobody counted for so long
    needs, held = asked(
        run.write(tmp_path),
        "select * from mart_needs where task = 'work' order by epoch",
        "select * from mart_bottlenecks where task = 'work' order by epoch, vm, slot",
    )
    assert [row["cpu_s_per_tuple"] for row in needs] == pytest.approx([COST_S, COST_S], rel=1e-9)
    assert [row["busy_s_per_tuple"] for row in needs] == pytest.approx([BUSY_S, BUSY_S], rel=1e-9)
    assert [row["peak_tps"] for row in needs] == pytest.approx([100, 100 * 33 / 34], rel=1e-9)
    assert [(row["epoch"], row["vm"], row["slot"], row["threads"]) for row in held] == [
        (1, "vm1", 0, 1), (1, "vm1", 1, 1), (2, "vm1", 0, 1), (2, "vm2", 0, 1),
    ]  # fmt: skip
    assert [row["own_cpu"] for row in held] == pytest.approx([ROWS * COST_S / 0.5] * 4, rel=1e-9)
    assert [row["load"] for row in held] == pytest.approx([0.5] * 4, rel=1e-9)


def test_an_analysis_says_what_the_marts_say(tmp_path: Path) -> None:
    """Of threads that come and go nothing is said."""
    run = disturbed()
    trace = run.write(tmp_path / "traces")
    analysis = analysed(trace, tmp_path / "analysis")
    skew, held = asked(
        trace,
        "select * from mart_skew where skewed",
        "select * from mart_bottlenecks where rank <= 3 order by epoch, rank",
    )
    assert analysis["skewed_threads"] == skew == []
    assert len(held) == len(analysis["bottlenecks"]) > 0
    for row, its in zip(held, analysis["bottlenecks"], strict=True):
        assert {name: row[name] for name in its} == its


def analysed(trace: Path, output: Path) -> dict[str, Any]:
    return analysis_pipeline.run([trace], output, AnalysisSettings(memory="1g"))


def test_ratios_are_weighted_by_windows_and_short_ones_have_none(tmp_path: Path) -> None:
    (run,), short = asked(
        disturbed().write(tmp_path),
        "select * from mart_runs",
        f"select * from fct_slot_seconds where window_s < {2 * SHORT}",
    )
    assert run["cpu_error"] == pytest.approx(0.1, rel=1e-9)
    assert [row["cpu"] for row in short] == [70.0]
    assert [short[0][name] for name in ("cpu_residual", "thread_cpu", "unexplained_cpu")] == [None] * 3


def test_a_process_that_ends_is_no_reading(tmp_path: Path) -> None:
    run = planted()
    last = [row for row in run.tables["slots"] if row["time"] == SECONDS + 0.2]
    last[0].update(cpu=0.0, memory=0.0)
    for row in run.tables["slots"]:
        if (row["vm"], row["slot"]) == ("vm2", 0):
            row.update(memory=0.0)  # nobody can read it there
    slots, threads = asked(
        run.write(tmp_path / "slots"),
        f"select vm, slot, cpu, memory from fct_slot_seconds where at_s = {SECONDS + 0.2} order by vm, slot",
        "select count(*) as n from fct_thread_windows where cpu_s is null or memory_bytes is null",
    )
    assert [tuple(row.values()) for row in slots] == [
        ("vm1", 0, None, None),
        ("vm1", 1, 0.5, 0.1),
        ("vm2", 0, 0.5, 0.0),
    ]
    assert threads == [{"n": 0}]
    (ended,) = asked(
        disturbed().write(tmp_path / "threads"),
        "select cpu_s, memory_bytes, in_plan from fct_thread_windows where cpu_s is null or memory_bytes is null",
    )
    assert [tuple(row.values()) for row in ended] == [(None, None, False)] * len(PLACES[2])


def test_a_plan_is_told_by_its_own_decision_and_not_by_that_of_the_one_before(tmp_path: Path) -> None:
    (plans,) = asked(
        planted().write(tmp_path), "select rate_tps, slots_planned, enacted_s from fct_plans order by epoch"
    )
    assert [tuple(row.values()) for row in plans] == [(2.0 * ROWS, 2, 1.0), (2.0 * ROWS, 3, 1.0)]


# ── Gaps of the record ──────────────────────────────────────────────────────────────────────────────────


def with_gap() -> Planted:
    """Killed at GAP_FROM, begun again before GAP_TO: rates of a new life begin with a row that has no counts."""
    run = planted()
    for name, rows in run.tables.items():
        run.tables[name] = [row for row in rows if not GAP_FROM + 0.5 < row["time"] <= GAP_TO + 0.5]
    first = next(row for row in run.tables["rates"] if row["time"] > GAP_TO)
    first.update(offered=None, emitted=None, acked=None)
    run.views = [line for line in run.views if not GAP_FROM + 0.5 < line["now"] <= GAP_TO + 0.5]
    return run


def test_a_gap_is_named_and_counted_and_no_silence(tmp_path: Path) -> None:
    queries = (
        "select * from fct_gaps",
        "select * from mart_runs",
        "select * from mart_cost order by epoch nulls first",
        "select * from mart_epochs order by epoch",
    )
    gaps, (run,), (whole, first, second), epochs = asked(with_gap().write(tmp_path / "gap"), *queries)
    none, (plain,), (all_of_it, *_), _ = asked(planted().write(tmp_path / "plain"), *queries)
    missing_s = GAP_TO - GAP_FROM
    assert none == [] and plain["recorded_s"] == pytest.approx(SECONDS) and all_of_it["usd"] > 0
    assert [(row["from_s"], row["to_s"], row["epoch"]) for row in gaps] == [(GAP_FROM + 0.2, GAP_TO + 0.2, 1)]
    assert gaps[0]["acked"] == gaps[0]["offered"] == 100 * (missing_s + 1)  # to the first word after it
    assert gaps[0]["text"] == "8 s were not recorded; their counts come from the journal"
    for name in ("seconds", "acked", "lost", "slots_held", "slot_hours", "usd"):
        assert run[name] == pytest.approx(plain[name], rel=1e-9), name
    assert run["offered_tps"] == pytest.approx(100, rel=0.02)
    assert run["recorded_s"] == pytest.approx(SECONDS - missing_s, rel=1e-9)
    assert run["coverage"] == pytest.approx((SECONDS - missing_s) / (SECONDS + 0.3), rel=1e-6)
    for name in ("seconds", "recorded_s", "coverage", "usd", "acked", "slot_hours"):
        assert whole[name] == run[name], name
    assert (first["coverage"], second["coverage"]) == (pytest.approx(1 - missing_s / SWITCH_S), 1.0)
    assert [(row["offered"], row["acked"], row["fell_behind"]) for row in epochs] == [(2000, 2000, 0)] * 2
    assert [row["coverage"] for row in epochs] == [first["coverage"], 1.0]


def test_how_much_of_a_run_was_recorded_is_told_to_reports(tmp_path: Path) -> None:
    with_gap().write(tmp_path / "traces")
    (found,) = recorded_time(tmp_path / "traces").values()
    missing_s = GAP_TO - GAP_FROM
    assert (found.missing_s, len(found.gaps), found.gaps[0].counted) == (pytest.approx(missing_s), 1, True)
    assert found.seconds == pytest.approx(SECONDS + 0.3, abs=0.2)


def test_history_says_of_a_plan_how_much_of_its_run_was_recorded(tmp_path: Path) -> None:
    for name, run in (("whole", planted()), ("gap", with_gap())):
        run.write(tmp_path / name)
    whole, gap = (
        CliRunner().invoke(history, ["--traces", str(tmp_path / name), "plan1"]).stdout
        for name in ("whole", "gap")
    )
    assert "run run of flow\n" in whole
    told = "run run of flow, 40 s long: 8 s were not recorded; their counts come from the journal\n"
    assert told in gap
    (row,) = json.loads(
        CliRunner().invoke(history, ["--traces", str(tmp_path / "gap"), "plan1", "-o", "json"]).stdout
    )["plans"]
    assert row["recorded"]["missing_s"] == pytest.approx(8.0)
    assert [part["seconds"] for part in row["recorded"]["gaps"]] == [pytest.approx(8.0)]


def test_of_a_gap_that_nobody_counted_it_says_so(tmp_path: Path) -> None:
    run = with_gap()
    run.views = []
    (gaps, (row,)) = asked(run.write(tmp_path), "select * from fct_gaps", "select * from mart_runs")
    assert gaps[0]["text"] == "8 s were not recorded; what was counted meanwhile is not known"
    assert gaps[0]["acked"] is None and row["acked"] == 100 * (SECONDS - (GAP_TO - GAP_FROM) - 1)


# ── One clock ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "began",
    [BEGAN + timedelta(seconds=2.3), datetime(2026, 3, 29, 0, 59, 50, 100_000, UTC)],
    ids=["2.3 s later", "as summer time begins"],
)
def test_every_answer_is_the_same_at_another_time(tmp_path: Path, began: datetime) -> None:
    # those that the analysis stands on are of stretches of the wall clock
    names = [name for name in tables() if not name.startswith("sum_")]
    queries = [f"select * from {name} order by all" for name in names]
    run = disturbed()
    before = asked(run.write(tmp_path / "before" / "traces"), *queries)
    run.began = began
    after = asked(run.write(tmp_path / "after" / "traces"), *queries)
    rows = 0
    for name, one, other in zip(names, before, after, strict=True):
        times = {column.name for column in tables()[name].columns if column.type == "timestamp"} | {"file"}
        assert len(one) == len(other)
        for row, its in zip(one, other, strict=True):
            for column in row.keys() - times:
                here = row[column]
                expected = pytest.approx(here, rel=1e-9, abs=1e-12) if isinstance(here, float) else here
                assert its[column] == expected, (name, column)
        rows += len(one)
    assert rows > 1_000


def test_all_times_of_a_run_count_from_its_begin(tmp_path: Path) -> None:
    run = with_gap()
    folder = run.write(tmp_path)
    timed = [
        name
        for name, table in tables().items()
        if table.sql is not None and {"at_s", "second"} & {column.name for column in table.columns}
    ]
    assert len(timed) > 5
    for name in timed:
        columns = {column.name for column in tables()[name].columns if column.type == "timestamp"}
        (column,) = columns & {"second", "time", "decided"}
        (rows,) = asked(folder, f"select {column} as t, at_s from {name}")
        for row in rows:
            since = (datetime.fromisoformat(row["t"]) - run.began).total_seconds()
            assert row["at_s"] == pytest.approx(since, abs=1e-9), name
        whole = column == "second"
        assert not whole or all(float(row["at_s"]).is_integer() for row in rows), name
