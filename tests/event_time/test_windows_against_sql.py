"""Windows and joins over random streams, row for row as DuckDB has them over the same rows as tables."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from windows_world import (
    SavedAsOf,
    SavedInterval,
    SavedWindowJoin,
    counted,
    joined,
    rows_of,
    stream,
)

from headgate import windows as w

SEEDS = range(4)
AGGREGATES = w.several(
    n=w.count(),
    total=w.sum_of("v"),
    low=w.min_of("v"),
    high=w.max_of("v"),
    mean=w.mean_of("v"),
    kinds=w.distinct("v"),
)
SQL_AGGREGATES = "count(*), sum(v)::bigint, min(v), max(v), avg(v), count(distinct v)"


def asked(sql: str, **tables: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What a query gives over these rows, sorted."""
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, rows in tables.items():
            database.register(name, pa.Table.from_pylist(rows))
        return sorted(database.execute(sql).fetchall(), key=repr)


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [
        (row["key"], row["start"], row["end"], *row["value"].values())
        for row in rows
        if row["timing"] == "on time"
    ]
    return sorted(found, key=repr)


@pytest.mark.parametrize("seed", SEEDS)
def test_tumbling_windows(seed):
    rows, offset = stream(seed, 150), (0, 700)[seed % 2]
    found = rows_of(rows, lateness=5.0, unit="ms", windows=w.tumbling(3, offset / 1000), aggregate=AGGREGATES)
    start = f"(floor((t - {offset}) / 3000.0)::bigint * 3000 + {offset})"
    sql = f"select k, {start} s, {start} + 3000, {SQL_AGGREGATES} from e group by k, s"
    assert values(found) == asked(sql, e=rows)
    assert all(row["pane"] == 0 for row in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_sliding_windows(seed):
    rows, (size, every) = stream(seed, 100), [(6000, 2000), (5000, 3000), (4000, 4000)][seed % 3]
    found = rows_of(
        rows, lateness=5.0, unit="ms", windows=w.sliding(size / 1000, every / 1000), aggregate=AGGREGATES
    )
    sql = f"""
        with s as (select unnest(generate_series(
            (floor(min(t) / {every}.0)::bigint - 3) * {every}, max(t), {every})) as s from e)
        select k, s, s + {size}, {SQL_AGGREGATES} from e join s on t >= s and t < s + {size} group by k, s
    """
    assert values(found) == asked(sql, e=rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions(seed):
    rows, gap = stream(seed, 150, span=120_000), 2_000
    found = rows_of(rows, lateness=5.0, unit="ms", windows=w.session(gap / 1000), aggregate=AGGREGATES)
    sql = f"""
        with b as (select *, coalesce(t - lag(t) over (partition by k order by t) >= {gap}, true)::int new from e),
        s as (select *, sum(new) over (partition by k order by t rows unbounded preceding) number from b)
        select k, min(t), max(t) + {gap}, {SQL_AGGREGATES} from s group by k, number
    """
    assert values(found) == asked(sql, e=rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("windows", [w.tumbling(2), w.session(0.5)], ids=["tumbling", "session"])
def test_rows_out_of_order_beyond_the_lateness_are_in_a_window_or_counted(seed, windows):
    rows = stream(seed, 200, late=20_000)
    found = rows_of(rows, lateness=2.0, unit="ms", windows=windows, late={"within_s": 3, "emit": True})
    last = {(row["key"], row["start"], row["end"]): row for row in found if row["timing"] != "too late"}
    marked = [row for row in found if row["timing"] == "too late"]
    assert len(marked) == counted("too_late_rows") > 0
    assert counted("late_rows") > 0
    if "tumbling" in windows:
        assert sum(row["value"] for row in last.values()) + len(marked) == len(rows)
        gone = {(row["key"], row["row"]["n"]) for row in marked}
        kept = [row for row in rows if (row["k"], row["n"]) not in gone]
        sql = "select k, floor(t / 2000.0)::bigint * 2000 s, s + 2000, count(*) from e group by k, s"
        assert sorted(((*key, row["value"]) for key, row in last.items()), key=repr) == asked(sql, e=kept)


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_that_take_results_back_end_as_if_all_rows_had_come_in_order(seed):
    """What was given and not taken back is what SQL gives over the rows that were not too late."""
    rows, gap = stream(seed, 200, span=200_000, late=20_000), 1_000
    given = rows_of(
        rows, lateness=2.0, unit="ms", windows=w.session(gap / 1000), emit="retractions", early={"rows": 2},
        late={"within_s": 4, "emit": True},
    )  # fmt: skip
    held: dict[Any, int] = {}
    for row in given:
        if row["timing"] == "too late":
            continue
        name = row["key"], row["start"], row["end"], row["value"]
        held[name] = held.get(name, 0) + (-1 if row["retract"] else 1)
        assert held[name] in (0, 1), "a result is taken back before it was given, or given twice"
    gone = {row["row"]["n"] for row in given if row["timing"] == "too late"}
    kept = [row for row in rows if row["n"] not in gone]
    sql = f"""
        with b as (select *, coalesce(t - lag(t) over (partition by k order by t) >= {gap}, true)::int new from e),
        s as (select *, sum(new) over (partition by k order by t rows unbounded preceding) number from b)
        select k, min(t), max(t) + {gap}, count(*) from s group by k, number
    """
    assert sorted((name for name, times in held.items() if times), key=repr) == asked(sql, e=kept)


def numbers(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = []
    for row in rows:
        left, right = row["left"], row["right"]
        found.append((row["key"], left and left["n"], right and right["n"]))
    return sorted(found, key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
@pytest.mark.parametrize("within", [[-1, 2], [0.5, 3], [-4, -1], [0, 0]])
def test_interval_joins(how, within):
    for seed in range(2):
        left, right = stream(seed, 60, span=20_000), stream(seed, 60, span=20_001)
        found = joined(left, right, SavedInterval, within_s=within, how=how, unit="ms", lateness=5.0)
        low, high = (int(bound * 1000) for bound in within)
        kind = "full" if how == "outer" else how
        near = f"r.t - l.t between {low} and {high}"
        sql = f"select coalesce(l.k, r.k), l.n, r.n from l {kind} join r on l.k = r.k and {near}"
        assert numbers(found) == asked(sql, l=left, r=right), (seed, how)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_window_joins(how):
    for seed in range(2):
        left, right = stream(seed, 60, span=40_000), stream(seed, 60, span=40_001)
        found = joined(left, right, SavedWindowJoin, windows=w.tumbling(2), how=how, unit="ms", lateness=5.0)
        kind = "full" if how == "outer" else how
        same = "floor(l.t / 2000.0) = floor(r.t / 2000.0)"
        sql = f"select coalesce(l.k, r.k), l.n, r.n from l {kind} join r on l.k = r.k and {same}"
        assert numbers(found) == asked(sql, l=left, r=right), (seed, how)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_as_of_joins(how):
    for seed in range(2):
        left = stream(seed, 80, span=30_000)
        right = list({(row["k"], row["t"]): row for row in stream(seed, 60, span=30_001)}.values())
        found = joined(left, right, SavedAsOf, how=how, unit="ms", lateness=5.0)
        kind = "" if how == "inner" else "left"
        sql = f"select l.k, l.n, r.n from l asof {kind} join r on l.k = r.k and l.t >= r.t"
        assert numbers(found) == asked(sql, l=left, r=right), seed


@pytest.mark.parametrize("longest", [0, 700])
def test_as_of_joins_look_back_only_so_far(longest):
    for seed in range(2):
        left = stream(seed, 80, span=30_000)
        right = list({(row["k"], row["t"]): row for row in stream(seed, 60, span=30_001)}.values())
        found = joined(left, right, SavedAsOf, how="inner", longest_s=longest / 1000, unit="ms", lateness=5.0)
        sql = f"select l.k, l.n, r.n from l asof join r on l.k = r.k and l.t >= r.t where l.t - r.t <= {longest}"
        assert numbers(found) == asked(sql, l=left, r=right), seed


def test_rows_of_joins_that_come_within_late_seconds_meet_all_of_theirs():
    for seed in range(2):
        left, right = stream(seed, 60, span=20_000), stream(seed, 60, span=20_001)
        found = joined(left, right, SavedInterval, within_s=1, unit="ms", lateness=1.0, late=4)
        sql = "select l.k, l.n, r.n from l join r on l.k = r.k and r.t - l.t between -1000 and 1000"
        assert numbers(found) == asked(sql, l=left, r=right)
        assert counted("late_rows") > 0 and counted("too_late_rows") == 0
        found = joined(left, right, SavedWindowJoin, windows=w.sliding(2, 1), unit="ms", lateness=1.0, late=4)
        sql = """
            select l.k, l.n, r.n from l join r on l.k = r.k
            join (select unnest(generate_series(0, 1)) b) on
            floor(l.t / 1000.0) - b <= floor(r.t / 1000.0) and floor(r.t / 1000.0) <= floor(l.t / 1000.0) - b + 1
        """
        assert numbers(found) == asked(sql, l=left, r=right)
