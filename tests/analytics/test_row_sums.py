"""Rows of samples put together by a task, and which task has which rows, beside pandas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.dashboards.analytics import held, row_jobs, row_sums
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.row_jobs import RowGroup
from headgate.topology_runtime.arrow_schema import arrow_schema

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
        to = [str(tmp_path / kind / f"{n}.parquet") for kind in ("bundles", "threads")]
        row_sums.summed("demo/one", 7, inputs, from_us, to_us, WIDTH_S * 1_000_000, *to)
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
