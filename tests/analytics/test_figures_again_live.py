"""Figures of an analysis, worked out once more from the files by NumPy, by what the docs say they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from generate_trace import Wanted, generate

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
LIMIT_S = 400
NULLS, NO_NUMBERS = 0.05, 0.02  # shares of predictions that a recorder leaves out, in either way
EPOCH_WITHOUT = 2  # nothing was predicted in it


def spoiled(table: pa.Table, names: tuple[str, ...], chance: np.random.Generator) -> pa.Table:
    for name in names:
        values = table[name].to_numpy(zero_copy_only=False).copy()
        drawn = chance.random(len(values))
        values[drawn < NO_NUMBERS] = np.nan
        null = (drawn > 1 - NULLS) | (table["epoch"].to_numpy() == EPOCH_WITHOUT)
        column = pa.array(values, mask=null)
        table = table.set_column(table.column_names.index(name), name, column)
    return table


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run some of whose rows have no prediction."""
    folder = tmp_path_factory.mktemp("again") / "traces"
    generate(folder, Wanted(rows=24_000, threads=40, epochs=4, segment_rows=8_000))
    chance = np.random.default_rng(7)
    for file in sorted((folder / "made" / "run-1" / "slots").glob("*.parquet")):
        pq.write_table(
            spoiled(pq.read_table(file), ("predicted_cpu", "predicted_memory", "cpu"), chance), file
        )
    for file in sorted((folder / "made" / "run-1" / "links").glob("*.parquet")):
        pq.write_table(short_lived(pq.read_table(file)), file)
    for file in sorted((folder / "made" / "run-1" / "samples").glob("*.parquet")):
        pq.write_table(with_leavers(pq.read_table(file)), file)
    return folder


def short_lived(table: pa.Table) -> pa.Table:
    """Receiving threads are others after each minute, as where plans follow each other."""
    minute = table["time"].cast(pa.int64()).to_numpy() // 60_000_000
    renamed = table["to_thread"].to_numpy() + 1000 * (minute - minute.min())
    return table.set_column(table.column_names.index("to_thread"), "to_thread", pa.array(renamed))


def with_leavers(table: pa.Table) -> pa.Table:
    """In every slot one thread more of a task that is not there, which does nothing any more."""
    rows = [row for row in table.to_pylist() if row["thread"] < 8]
    counts = ("tuples_in", "tuples_out", "queue", "bytes_in", "bytes_out", "cpu_s", "busy_s")
    gone = [
        {**row, "task": "gone", "thread": 900 + row["thread"], **dict.fromkeys(counts, 0)} for row in rows
    ]
    return pa.concat_tables([table, pa.Table.from_pylist(gone, schema=table.schema)])


@pytest.fixture(scope="module")
def analysis(java: dict[str, str], traces: Path) -> Any:
    command = [sys.executable, "-P", "-m", "dashboards.cli", "analyze", str(traces), "-o", "json"]
    command += ["--output", str(traces.parent / "out"), "--master", "local[2]"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT, env={**os.environ, **java}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(traces: Path, table: str, *names: str) -> list[np.ndarray[Any, Any]]:
    """Columns of one table of all segments, `time_us` among them; null is NaN."""
    files = sorted((traces / "made" / "run-1" / table).glob("*.parquet"))
    found = pa.concat_tables([pq.read_table(file) for file in files])
    at_us = found["time"].cast(pa.int64())
    return [_plain(at_us if name == "time_us" else found[name]) for name in names]


def _plain(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.array([np.nan if value is None else value for value in column.to_pylist()], float)


def fit(actual: np.ndarray[Any, Any], predicted: np.ndarray[Any, Any]) -> dict[str, float]:
    both = np.isfinite(actual) & np.isfinite(predicted)
    a, p = actual[both], predicted[both]
    r2 = 1 - ((a - p) ** 2).sum() / ((a - a.mean()) ** 2).sum()
    return {"n": int(both.sum()), "r2": r2, "mae": np.abs(a - p).mean()}


@pytest.mark.parametrize("of", ["cpu", "memory"])
def test_use_of_slots_against_what_was_predicted(analysis: Any, traces: Path, of: str) -> None:
    actual, predicted = rows(traces, "slots", of, f"predicted_{of}")
    assert np.isnan(predicted).mean() > 0.2, "else nothing is tried here"
    expected = fit(actual, predicted)
    for name, value in expected.items():
        assert analysis[of][name] == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("of", ["cpu", "memory"])
def test_of_each_epoch_too(analysis: Any, traces: Path, of: str) -> None:
    epoch, actual, predicted = rows(traces, "slots", "epoch", of, f"predicted_{of}")
    rows_of = json.loads((traces.parent / "out" / "results" / "residuals.json").read_text())
    found = {row["name"]: row for row in rows_of if row["of"] == of and row["by"] == "epoch"}
    assert sorted(found) == [f"made/run-1 {n}" for n in sorted(set(epoch.astype(int)) - {EPOCH_WITHOUT})]
    for name, row in found.items():
        here = epoch == int(name.split()[-1])
        expected = fit(actual[here], predicted[here])
        assert (row["n"], row["r2"]) == (expected["n"], pytest.approx(expected["r2"], rel=1e-6))


def test_traffic_is_what_went_however_short_lived_the_pairs(analysis: Any, traces: Path) -> None:
    files = sorted((traces / "made" / "run-1" / "links").glob("*.parquet"))
    links = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()
    seconds: dict[int, set[Any]] = {}
    tuples: dict[tuple[int, str, str], int] = {}
    for row in links:
        seconds.setdefault(row["epoch"], set()).add(row["time"])
        key = row["epoch"], row["from_task"], row["to_task"]
        tuples[key] = tuples.get(key, 0) + row["tuples"]
    expected = {key: count / len(seconds[key[0]]) for key, count in tuples.items()}
    found = {
        (row["epoch"], row["from_task"], row["to_task"]): row["tuples_tps"]
        for row in json.loads((traces.parent / "out" / "results" / "pairs.json").read_text())
    }
    assert found == {key: pytest.approx(tps, rel=1e-9) for key, tps in expected.items()}


def test_no_thread_that_does_nothing_is_a_bottleneck(analysis: Any) -> None:
    assert analysis["bottlenecks"] and "gone" not in {row["task"] for row in analysis["bottlenecks"]}


def windows_of_rates(traces: Path) -> list[dict[str, float]]:
    """Means over windows of 5 s of each epoch, the run's first second apart: since when it counts nobody knows."""
    names = ("epoch", "offered", "emitted", "acked", "predicted_tps")
    at_us, *columns = rows(traces, "rates", "time_us", *names)
    order = np.argsort(at_us)
    at_us, columns = at_us[order], [column[order] for column in columns]
    since_s = np.diff(at_us, prepend=np.nan) / 1e6
    found: dict[tuple[int, int], list[Any]] = {}
    for n, epoch in enumerate(columns[0]):
        found.setdefault((int(epoch), int(at_us[n] // 5_000_000)), []).append(n)
    means = []
    for (epoch, w), inside in sorted(found.items()):
        counts = {
            name: np.nanmean(columns[k][inside] / since_s[inside])
            for k, name in enumerate(names)
            if k in (1, 2, 3)
        }
        means.append({"epoch": epoch, "w": w, **counts, "predicted": np.nanmean(columns[4][inside])})
    return means


def test_a_predicted_rate_is_judged_where_it_was_tried(analysis: Any, traces: Path) -> None:
    """More was offered than predicted, or rows waited for long; never by what a plan could carry easily."""
    begin_us = rows(traces, "samples", "time_us")[0].min()
    slow = [(e["from_s"] * 1e6 + begin_us, e["to_s"] * 1e6 + begin_us) for e in analysis["episodes"]]
    assert slow, "else only half of it is tried"
    tried, all_of = [], windows_of_rates(traces)
    first = {
        epoch: min(w["w"] for w in all_of if w["epoch"] == epoch) for epoch in {w["epoch"] for w in all_of}
    }
    for window in all_of:
        begin, end = window["w"] * 5e6, (window["w"] + 1) * 5e6
        waits = any(begin >= a and end <= b for a, b in slow)
        if window["w"] > first[window["epoch"]] and (waits or window["offered"] > window["predicted"]):
            tried.append(window)
    assert 10 < len(tried) < 0.6 * len(all_of)
    expected = fit(*(np.array([window[name] for window in tried]) for name in ("acked", "predicted")))
    assert len({window["predicted"] for window in tried}) == 1 and analysis["rate"]["r2"] is None
    for name in ("n", "mae"):
        assert analysis["rate"][name] == pytest.approx(expected[name], rel=1e-6), name
    errors = [abs(w["acked"] - w["predicted"]) / w["acked"] for w in tried]
    assert analysis["rate"]["worst_error"] == pytest.approx(max(errors), rel=1e-6)


def test_what_was_finished_is_counted(analysis: Any, traces: Path) -> None:
    whole = next(row for row in analysis["cost"] if row["epoch"] is None)
    assert whole["tuples_acked"] == rows(traces, "rates", "acked")[0].sum()
