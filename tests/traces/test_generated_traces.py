"""Generated traces look like recorded ones, and their truth is the truth."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from generate_trace import generate
from headgate.controller.knowledge.model_data import model_of
from headgate.topology_runtime.arrow_schema import arrow_schema
from headgate.topology_runtime.trace_tables import TABLES
from headgate.topology_runtime.validate import topology_of
from made_runs import BESIDE, COST_S, TASKS, Wanted

SMALL = Wanted(24_000, threads=20, slots=8, runs=2, segment_rows=5_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("made")
    return folder, generate(folder, SMALL, bad=True)


def rows_of(run: Path, table: str) -> dict[str, Any]:
    good = sorted((run / table).glob("1*.parquet"))
    return {
        name: np.concatenate([pq.ParquetFile(f).read([name])[name].to_numpy() for f in good])
        for name in TABLES[table]
    }


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_those_that_the_recorder_writes(made: tuple[Path, dict[str, Any]], table: str) -> None:
    for file in (made[0] / "made" / "run-1" / table).glob("1*.parquet"):
        assert pq.read_schema(file).equals(arrow_schema(table)), file.name


def test_as_many_rows_as_desired_in_segments_of_the_desired_size(made: tuple[Path, dict[str, Any]]) -> None:
    folder, truth = made
    files = sorted(folder.glob("made/run-?/samples/1*.parquet"))
    counts = [pq.read_metadata(file).num_rows for file in files]
    leaving = 2 * (
        2 * 5 * 20 + 20
    )  # of each run: for 2 s after five plans those of the one before, and a last row each
    assert sum(counts) == truth["rows"] == 24_000 + leaving
    assert max(counts) <= 5_000 + 3 * 20 and len(files) > 6


def test_the_costs_of_rows_can_be_found_again(made: tuple[Path, dict[str, Any]]) -> None:
    samples = rows_of(made[0] / "made" / "run-1", "samples")
    place = [
        f"{e}/{vm}/{s}" for e, vm, s in zip(samples["epoch"], samples["vm"], samples["slot"], strict=True)
    ]
    tasks_in: dict[str, set[str]] = {}
    for at, task in zip(place, samples["task"], strict=True):
        tasks_in.setdefault(at, set()).add(task)
    beside = np.array([len(tasks_in[at]) > 1 for at in place])
    for number, task in enumerate(TASKS[1:], 1):
        for shared, factor in ((False, 1.0), (True, BESIDE[number])):
            mine = (samples["task"] == task) & (beside == shared)
            if mine.any():
                cost_s = samples["cpu_s"][mine].sum() / samples["tuples_in"][mine].sum()
                assert cost_s == pytest.approx(COST_S[number] * factor, rel=0.02)


def test_the_r2_that_it_tells_is_that_of_its_rows(made: tuple[Path, dict[str, Any]]) -> None:
    folder, truth = made
    slots = rows_of(folder / "made" / "run-2", "slots")
    expected = {of: r2(slots[of], slots[f"predicted_{of}"]) for of in ("cpu", "memory")}
    assert truth["runs"][1]["r2"] == pytest.approx(expected)
    assert all(0.8 < value < 1 for value in expected.values())


def r2(actual: Any, predicted: Any) -> float:
    known = np.isfinite(predicted)
    assert not known.all(), "a plan's first second has no prediction"
    actual, predicted = actual[known], predicted[known]
    return float(1 - ((actual - predicted) ** 2).sum() / ((actual - actual.mean()) ** 2).sum())


def test_queues_grow_where_it_says_so_and_nowhere_else(made: tuple[Path, dict[str, Any]]) -> None:
    folder, truth = made
    run = folder / "made" / "run-1"
    samples, latency = rows_of(run, "samples"), rows_of(run, "latency")
    growing = [epoch["epoch"] for epoch in truth["runs"][0]["epochs"] if epoch["growing"]]
    assert growing == [3, 6]
    for number in range(1, SMALL.epochs + 1):
        queue = samples["queue"][(samples["epoch"] == number) & (samples["task"] == "score")]
        later = np.median(latency["latency_s"][latency["epoch"] == number][-400:])
        assert (queue.max() > 1000) == (later > 1) == (number in growing)


def test_threads_are_never_used_again_and_slots_are_not_too_full(made: tuple[Path, dict[str, Any]]) -> None:
    samples, slots = (rows_of(made[0] / "made" / "run-1", table) for table in ("samples", "slots"))
    epoch_of = {thread: set(samples["epoch"][samples["thread"] == thread]) for thread in samples["thread"]}
    assert all(len(epochs) == 1 for epochs in epoch_of.values())
    assert 0.5 < slots["cpu"][np.isfinite(slots["predicted_cpu"])].max() < 1.05


def test_a_run_says_its_topology_models_and_decisions(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run = made[0] / "made" / "run-1"
    head = json.loads((run / "run.json").read_text("utf-8"))
    assert [task.name for task in topology_of(head["topology"], "made")[0].tasks] == list(TASKS)
    for data in head["models"]:
        assert model_of(data)[1] == []
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text("utf-8").splitlines()]
    assert [d["epoch"] for d in decisions] == [1, 2, 3, 4, 5, 6]
    assert [d["trigger"] for d in decisions][3] == "overloaded"


def test_what_is_planted_is_listed_and_is_as_bad_as_it_says(made: tuple[Path, dict[str, Any]]) -> None:
    folder, truth = made
    kinds = [planted["kind"] for planted in truth["planted"]]
    assert kinds == [
        "truncated", "foreign", "foreign", "empty", "schema", "clock", "duplicate", "unfinished",
        "future-version", "models",
    ]  # fmt: skip
    for planted in truth["planted"]:
        path = folder / planted["file"]
        assert path.exists()
        if planted["kind"] in ("truncated", "empty", "unfinished"):
            with pytest.raises((OSError, pa.ArrowInvalid)):
                pq.read_table(path)


def test_the_same_seed_makes_the_same_files(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    generate(tmp_path / "again", SMALL)
    for file in sorted((tmp_path / "again").rglob("*.parquet")):
        twin = made[0] / file.relative_to(tmp_path / "again")
        assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(twin.read_bytes()).digest()


def test_however_many_vms_there_are_each_samples_once_a_second(tmp_path: Path) -> None:
    """A second's rows lie within a second, as of agents that do not wait for each other."""
    generate(tmp_path, Wanted(600, threads=200, slots=800, epochs=1, segment_rows=200))
    for table in ("samples", "slots"):
        for file in (tmp_path / "made" / "run-1" / table).glob("*.parquet"):
            times = pq.read_table(file, columns=["time", "window_s"]).to_pandas()
            whole = times["time"][times["window_s"] > 0.5]  # the last window ends with the run
            assert (whole.max() - whole.min()).total_seconds() < 1.0, file
