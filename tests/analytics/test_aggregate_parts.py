"""Which stretches of a run are aggregated, and which were already."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics.aggregation import aggregate_parts as ap
from headgate.dashboards.analytics.aggregation import aggregate_steps as row_jobs
from headgate.dashboards.analytics.aggregation import row_sums
from headgate.dashboards.analytics.aggregation import row_sums as held
from headgate.dashboards.analytics.aggregation.aggregate_steps import RowGroup
from headgate.dashboards.analytics.curation.trace_segments import SCHEMA as CURATED
from headgate.dashboards.analytics.curation.trace_segments import Manifest, Segment, TracePart
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.topology_runtime.traces.arrow_schema import arrow_schema

MINUTE_US = 60_000_000


def spans(*minutes: tuple[float, float]) -> ap.Spans:
    """One segment for each (from, to)."""
    return {f"{n}": (round(a * MINUTE_US), round(b * MINUTE_US) - 1) for n, (a, b) in enumerate(minutes)}


def planned(
    known: ap.AggregateManifest, its: dict[str, ap.Spans], apart: bool, table: str = "rates"
) -> ap.Planned:
    """Of one table, by default the one that looks back; a stretch is a minute."""
    return ap.planned(known, {run: {table: of} for run, of in its.items()}, 60, apart)


def passed(
    known: ap.AggregateManifest, its: dict[str, ap.Spans], apart: bool, table: str = "rates"
) -> ap.AggregateManifest:
    """After a pass, and what it made; without fusing."""
    plan = planned(known, its, apart, table)
    number = ap.pass_of(plan.fresh[0]) if plan.fresh else known.passes
    spans = {run: {table: of} for run, of in its.items()}
    return ap.AggregateManifest(known.schema, known.of, number, spans, [*plan.kept, *plan.fresh])


def fused(known: ap.AggregateManifest, its: dict[str, ap.Spans]) -> ap.AggregateManifest:
    """After the same pass has fused what could be."""
    manifest, found = passed(known, its, apart=True), planned(known, its, apart=True).fused
    gone = {part for each in found for part in each.of}
    parts = [p for p in manifest.parts if p not in gone] + [each.part for each in found]
    assert all(ap.pass_of(each.part) == manifest.passes + 1 for each in found)
    return ap.AggregateManifest(
        manifest.schema, manifest.of, manifest.passes + bool(found), manifest.spans, parts
    )


def minutes_of(parts: list[ap.AggregatedPart]) -> list[int]:
    return sorted(minute for part in parts for minute in range(part.begin, part.end))


def ranges(manifest: ap.AggregateManifest, number: int) -> list[tuple[str, int, int]]:
    return [(p.run, p.begin, p.end) for p in manifest.parts if ap.pass_of(p) == number]


def test_runs_that_nobody_aggregated_are_a_part_each_of_one_number() -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 25)), "b": spans((3, 4), (41, 42))}, apart=False)
    assert ranges(found, 1) == [("a", 0, 26), ("b", 3, 43)]
    assert len({part.number for part in found.parts}) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_made_of_the_same_is_not_made_again(apart: bool) -> None:
    its = {"a": spans((0, 25)), "b": spans((3, 4), (41, 42))}
    found = passed(ap.empty("x"), its, apart)
    assert passed(found, its, False) == passed(found, its, True) == found


def test_of_a_run_that_goes_on_only_its_end_is_made_again_and_the_rest_is_fused() -> None:
    minutes = [(n / 6, n / 6 + 1 / 6) for n in range(1500)]  # of ten seconds each
    found, fusions = ap.empty("x"), 0
    its: ap.Spans = {}
    for count, one in enumerate(minutes):
        before = found
        its = its | {f"{count}": spans(one)["0"]}
        mine = ranges(passed(before, {"a": its}, apart=True), before.passes + 1)
        assert 1 <= sum(end - begin for _, begin, end in mine) <= 2
        found = fused(before, {"a": its})
        fusions += found.passes - before.passes - 1
        covered = minutes_of(found.parts)
        assert covered == list(range(max(covered) + 1)), "each minute once"
        assert len(found.parts) <= 2 + 10 + 10 + 11
    assert fusions == 24, "once for each ten that closed, the hundreds with the last of theirs"
    assert [(p.begin, p.end) for p in sorted(found.parts, key=lambda p: p.begin)][:4] == [
        (0, 100), (100, 200), (200, 210), (210, 220),
    ]  # fmt: skip


def test_what_has_to_be_made_again_is_not_fused_before_it_was() -> None:
    minutes = [(n + 0.0, n + 0.9) for n in range(14)]
    first = ap.empty("x")
    for count in range(1, 13):
        first = passed(first, {"a": spans(*minutes[:count])}, apart=True)
    late = {"a": spans(*minutes[:12]) | {"late": spans((3.2, 3.4))["0"]}}
    again = passed(first, late, apart=True)
    assert ranges(again, again.passes) == [("a", 3, 5)]
    assert fused(first, late) == again
    then = fused(again, late)
    assert [(p.begin, p.end) for p in then.parts if p.end - p.begin > 2] == [(0, 10)]
    assert passed(then, late, apart=True) == then, "what is fused counts as what it was made of"
    later = {"a": late["a"] | {"later": spans((5.2, 5.4))["0"]}}
    once_more = passed(then, later, apart=True)
    assert ranges(once_more, once_more.passes) == [("a", 0, 10)], "and costs as much when it is late"


def test_one_part_of_a_run_that_has_others_is_not_all_of_it() -> None:
    its = {"a": spans((0, 5), (12, 18)), "b": spans((0, 5))}
    first = passed(ap.empty("x"), its, apart=False)
    assert not ap.is_cut([], first.parts)
    more = its | {"a": spans((0, 5), (12, 18), (19.2, 19.5))}
    plan = planned(passed(ap.empty("x"), its, apart=True), more, False)
    assert len(plan.fresh) == 1 and ap.is_cut(plan.kept, plan.fresh)
    plan = planned(first, its | {"c": spans((0, 5))}, False)
    assert len(plan.kept) == 2 and [part.run for part in plan.fresh] == ["c"]
    assert not ap.is_cut(plan.kept, plan.fresh)


def test_each_table_has_parts_of_its_own() -> None:
    """What comes of one does not make another again; of rates alone a row counts from the one before."""
    its = {"a": {"samples": spans((0, 2.9)), "rates": spans((0, 2.9))}}
    plan = ap.planned(ap.empty("x"), its, 60, apart=True)
    assert [(p.table, p.begin, p.end) for p in plan.fresh] == [
        ("samples", 0, 1), ("samples", 1, 2), ("samples", 2, 3), ("rates", 0, 2), ("rates", 2, 3), ("rates", 3, 4),
    ]  # fmt: skip
    assert len({part.number for part in plan.fresh}) == 6
    known = ap.AggregateManifest(ap.SCHEMA, "x", 1, its, plan.fresh)
    its = {"a": its["a"] | {"samples": its["a"]["samples"] | {"new": spans((2.9, 3.1))["0"]}}}
    again = ap.planned(known, its, 60, apart=True)
    assert [(p.table, p.begin, p.end) for p in again.fresh] == [("samples", 2, 3), ("samples", 3, 4)]
    assert {part.table for part in again.kept} == {"samples", "rates"}


def test_tables_of_runs_that_are_begun_anew_have_a_number_each() -> None:
    its = {run: {"samples": spans((0, 9)), "slots": spans((0, 9))} for run in "ab"}
    plan = ap.planned(ap.empty("x"), its, 60, apart=False)
    assert sorted((p.table, p.number % ap.PARTS_MOST) for p in plan.fresh) == [
        ("samples", 0), ("samples", 0), ("slots", 1), ("slots", 1),
    ]  # fmt: skip


def test_a_segment_that_comes_late_costs_its_stretch() -> None:
    early, late = [(0.0, 0.5), (0.5, 1.0), (1.2, 2.0), (2.2, 2.9), (3.2, 3.9)], (1.0, 1.2)
    found = ap.empty("x")
    for count in range(1, 6):
        found = passed(found, {"a": spans(*early[:count])}, apart=True)
    found = passed(found, {"a": spans(*early, late)}, apart=True)
    assert minutes_of([p for p in found.parts if ap.pass_of(p) == found.passes]) == [1, 2]


def test_what_ends_within_a_minute_before_a_stretch_is_seen_from_it() -> None:
    """Rates look back so far."""
    first = passed(ap.empty("x"), {"a": spans((0, 0.9), (2.1, 4.9))}, apart=True)
    again = passed(first, {"a": spans((0, 0.9), (2.1, 4.9), (1.0, 1.5))}, apart=True)
    fresh = [part for part in again.parts if ap.pass_of(part) == again.passes]
    assert 2 in minutes_of(fresh), "what it sees of the minute before has changed"


def test_a_segment_whose_rows_are_gone_is_not_in_it_any_more() -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 5), (15, 18))}, apart=True)
    less = passed(found, {"a": spans((0, 5))}, apart=True)
    assert minutes_of(less.parts) == [0, 1, 2, 3, 4, 5]


def test_parts_are_read_back_and_those_of_other_code_are_not(tmp_path: Path) -> None:
    found = passed(ap.empty("x"), {"a": spans((0, 25))}, apart=True)
    ap.write(place(tmp_path), found)
    assert ap.read(place(tmp_path), "x") == found
    assert ap.read(place(tmp_path), "y") == ap.empty("y")
    (tmp_path / "_manifest.json").write_text("torn")
    assert ap.read(place(tmp_path), "x") == ap.empty("x")


def test_a_segment_that_retention_deleted_is_where_it_was_seen() -> None:
    part = TracePart("rates", "1970-01-01", "p", 2, 2, {"there": "1", "gone": "2", "never seen": "3"})
    there = Segment(place("/x/1"), "rates", 1, 5, 6, "there")
    known = {"rates": {"gone": (7, 8), "merged no more": (1, 2)}, "samples": {"there": (1, 2)}}
    found = ap.spans_of(known, Manifest(CURATED, None, [part], {}), [there])
    assert found == {"rates": {"there": (5, 6), "gone": (7, 8), "never seen": (0, ap.DAY_US - 1)}}


def test_too_many_parts_are_one() -> None:
    holes = {"a": spans(*((20 * n, 20 * n + 1) for n in range(ap.PARTS_MOST + 5)))}
    found = passed(ap.empty("x"), holes, apart=True)
    assert len(found.parts) == 1
    assert passed(found, {"a": holes["a"] | {"new": (0, 1)}}, apart=True).passes == 2


# ── Rows of samples put together by a task, and which task has which rows, beside pandas ────────────────

WIDTH_S = 5
BEGIN_S = 1_800_000_000
CUT_S = 20  # between two tasks, and the time of a row


def samples(rows: int, seed: int) -> pa.Table:
    """A minute of some threads in three slots; some values are not known, and the last row has no time."""
    chance = np.random.default_rng(seed)
    thread = chance.integers(1, 9, rows)
    columns: dict[str, Any] = {
        "time": pa.array(
            sorted(
                (
                    BEGIN_S * 1_000_000
                    + np.append(chance.integers(0, 60_000_000, rows - 1), CUT_S * 1_000_000)
                ).tolist()
            )
        ),
        "epoch": chance.integers(1, 3, rows),
        "vm": [f"vm{n % 2}" for n in thread],
        "slot": thread % 3,
        "task": [f"task{n % 4}" for n in thread],
        "thread": thread,
    }
    schema = arrow_schema("samples")
    for field in schema:
        if field.name not in columns:
            values = chance.integers(0, 100, rows)
            columns[field.name] = pa.array(values, field.type, mask=chance.random(rows) < 0.02)
    times = [*columns["time"].to_pylist()[:-1], None]
    return pa.table({**columns, "time": pa.array(times, pa.int64())}).select(schema.names).cast(schema)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "curated.parquet"
    pq.write_table(samples(5_000, 3), path, row_group_size=500)
    return path


def test_windows_and_threads_are_those_of_pandas(file: Path, tmp_path: Path) -> None:
    """Whatever the tasks, their windows are whole."""
    groups = list(row_jobs.row_groups(place(file)))
    cut = [(None, (BEGIN_S + CUT_S) * 1_000_000), ((BEGIN_S + CUT_S) * 1_000_000, None)]
    for n, (from_us, to_us) in enumerate(cut):
        inputs = [(str(file), [g.number for g in groups if g.meets(from_us, to_us)])]
        to = [place(tmp_path / kind / f"{n}.parquet") for kind in ("bundles", "threads")]
        width_us = WIDTH_S * 1_000_000
        row_sums.summed(row_sums.SumJob("demo/one", 7, tuple(inputs), from_us, to_us, width_us, *to))
    bundles = pq.read_table(tmp_path / "bundles", partitioning=None).to_pandas()
    threads = row_jobs.merged(place(tmp_path / "threads" / f"{n}.parquet") for n in range(2)).to_pandas()

    rows = pq.read_table(file, partitioning=None).to_pandas()
    us = rows["time"].astype("int64") // (1 if rows["time"].dtype == "datetime64[us, UTC]" else 1_000)
    rows["us"] = us.where(rows["time"].notna())
    rows["w"] = (rows["us"] // (WIDTH_S * 1_000_000)).where(rows["time"].notna())
    keys = ["epoch", "vm", "slot", "task", "w"]
    of = rows.groupby(keys, dropna=False)
    expected = of[list(row_sums.SUMS)].sum(min_count=1).assign(n=of.size(), first_us=of["us"].min())
    expected["seconds"] = (of["us"].max() - of["us"].min()) / 1e6 + expected["window_s"] / expected["n"]
    many = np.floor(expected["window_s"] / expected["seconds"] + 0.5)
    expected["threads"] = many.clip(lower=1).fillna(1)
    same(bundles.set_index(keys), expected)
    assert set(bundles["part"]) == {7} and set(bundles["run"]) == {"demo/one"}

    keys = ["epoch", "task", "vm", "slot", "thread"]
    same(threads.set_index(keys), rows.groupby(keys)[["tuples_in", "window_s"]].sum())


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert len(found) == len(expected)
    for name in expected.columns:
        ours, theirs = found[name].sort_index().astype(float), expected[name].sort_index().astype(float)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, err_msg=name)


def test_a_row_group_meets_the_stretch_that_begins_with_its_last_row() -> None:
    group = RowGroup("f", 0, 1, 10, 20)
    assert [group.meets(*ends) for ends in ((20, 30), (21, 30), (0, 11), (0, 10), (None, None))] == [
        True, False, True, False, True,
    ]  # fmt: skip


def test_half_a_thread_is_rounded_up() -> None:
    """Five rows of half a second in one second: 2.5."""
    times = [0, 200_000, 400_000, 500_000, 500_000]
    row: dict[str, Any] = {
        "epoch": 1,
        "vm": "v",
        "slot": 0,
        "task": "t",
        "thread": 1,
        **dict.fromkeys(row_sums.SUMS, 0),
    }
    rows = pa.Table.from_pylist([{**row, "time": us, "window_s": 0.5} for us in times])
    [bundle] = row_sums.bundles(rows, 1_000_000).to_pylist()
    assert (bundle["seconds"], bundle["threads"]) == (1.0, 3.0)


def test_what_many_tasks_say_of_one_thread_is_added_up(tmp_path: Path) -> None:
    keys = held.KEYS["threads"]
    for n in range(30):
        row = {"run": "r", "part": n % 2, **dict.fromkeys(keys[1:], "1"), "tuples_in": n, "window_s": 1.0}
        held.write(pa.Table.from_pylist([row]), place(tmp_path / f"{n}.parquet"))
    found = row_jobs.merged(place(tmp_path / f"{n}.parquet") for n in range(30)).to_pylist()
    assert [(row["part"], row["tuples_in"], row["window_s"]) for row in found] == [
        (0, 210, 15.0),
        (1, 225, 15.0),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_every_row_is_in_one_task_and_no_window_in_two(seed: int) -> None:
    chance = random.Random(seed)
    width_us = chance.choice((5, 10, 60)) * 1_000_000
    groups, at_us = [], BEGIN_S * 1_000_000
    for number in range(chance.randrange(1, 60)):
        length_us = chance.randrange(1, 30_000_000)
        groups.append(RowGroup("f", number, chance.randrange(1, 1_000_000), at_us, at_us + length_us))
        at_us += chance.randrange(length_us + 1)
    ends = chance.choice(
        [(None, None), (BEGIN_S * 1_000_000 // width_us * width_us, at_us // width_us * width_us)]
    )
    found = row_jobs.stretches(groups, *ends, width_us)
    assert (found[0][0], found[-1][1]) == ends
    assert [to for _, to in found[:-1]] == [from_ for from_, _ in found[1:]]
    edges = [to for _, to in found[:-1] if to is not None]
    assert edges == sorted(set(edges)) and all(edge % width_us == 0 for edge in edges)
    rows = sum(group.rows for group in groups)
    assert len(found) <= rows / row_jobs.TASK_ROWS + 1
