"""Every figure of an analysis against the same from the files by NumPy: of eleven made runs, and of three real ones.
What was planted into one of the made ones is found, and nothing in the ten others."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from figures_again import Row, RunFiles, fit, grouped, mean
from followed import HEADGATE, command
from results_compared import differences, results

from headgate.dashboards.analytics.analyze_command import lines_of
from made_traces.generate_trace import Wanted, generate

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[3]
LIMIT_S = 500
NULLS, NO_NUMBERS = 0.05, 0.02  # shares of predictions that a recorder leaves out, in either way
EPOCH_WITHOUT = 2  # nothing was predicted in it
PLANTED = ("overload", "slow_slot", "pair", "leak", "skew", "faults")
CLEAN = 10
SHAPE: Row = {"threads": 40, "slots": 16, "epochs": 4, "segment_rows": 20_000}
WINDOW_S = 10  # where a run takes more than ten minutes
QUANTILES = 0.044  # a bin of latencies
RECORDED = {
    "steady": ("0,60\n", ["--seconds", "20"]),
    "rising": ("0,40\n15,100\n", ["--seconds", "35"]),
    "overloaded": ("0,40\n8,300\n", ["--seconds", "25", "--mode", "advise"]),
}  # rates, and options of `up`


def recorded(folder: Path) -> None:
    """Three runs of the demo, at once: they disturb each other, which is as well."""
    running = {name: started(folder, name) for name in RECORDED}
    try:
        for name, process in running.items():
            assert process.wait(LIMIT_S) == 0, (folder / f"{name}.log").read_text("utf-8")[-2000:]
    finally:
        for process in running.values():
            if process.poll() is None:
                process.terminate()
                process.wait(60)


def started(folder: Path, name: str) -> subprocess.Popen[bytes]:
    rates, options = RECORDED[name]
    (folder / f"{name}.txt").write_text(rates, "utf-8")
    words = [*HEADGATE, "up", "--rates", str(folder / f"{name}.txt"), *options]
    words += ["--trace-dir", str(folder / name), "--state-dir", str(folder / f"state-{name}"), "-o", "json"]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, cwd=ROOT)


def spoiled(table: pa.Table, names: tuple[str, ...], chance: np.random.Generator) -> pa.Table:
    for name in names:
        values = table[name].to_numpy(zero_copy_only=False).copy()
        drawn = chance.random(len(values))
        values[drawn < NO_NUMBERS] = np.nan
        null = (drawn > 1 - NULLS) | (table["epoch"].to_numpy() == EPOCH_WITHOUT) | np.isnan(values)
        null[drawn < NO_NUMBERS / 2] = False
        column = pa.array(values, mask=null)
        table = table.set_column(table.column_names.index(name), name, column)
    return table


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


def made(folder: Path) -> Row:
    """A run into which much was planted, and ten clean ones, the first two of them badly recorded; what was planted."""
    truth = generate(folder / "one", Wanted(rows=48_000, planted=PLANTED, **SHAPE))
    generate(folder / "ten", Wanted(rows=CLEAN * 20_000, runs=CLEAN, seed=2, planted=(), **SHAPE))
    (folder / "made").mkdir()
    rename(folder / "one" / "made" / "run-1", folder / "made" / "planted")
    for run in sorted((folder / "ten" / "made").iterdir()):
        rename(run, folder / "made" / run.name.replace("run", "clean"))
    chance = np.random.default_rng(7)
    for name in ("clean-1", "clean-2"):
        for file in sorted((folder / "made" / name / "slots").glob("*.parquet")):
            names = ("predicted_cpu", "predicted_memory", "cpu")
            pq.write_table(spoiled(pq.read_table(file), names, chance), file)
    for file in sorted((folder / "made" / "clean-1" / "links").glob("*.parquet")):
        pq.write_table(short_lived(pq.read_table(file)), file)
    for file in sorted((folder / "made" / "clean-1" / "samples").glob("*.parquet")):
        pq.write_table(with_leavers(pq.read_table(file)), file)
    planted: Row = truth["runs"][0]["planted"]
    return planted


def rename(run: Path, to: Path) -> None:
    head = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps(head | {"run": to.name}), "utf-8")
    run.rename(to)


class Analysed:
    """The analysis, its result tables, and the runs as their files have them."""

    def __init__(self, traces: Path, output: Path, more: tuple[str, ...], planted: Row) -> None:
        self.planted = planted
        folders = [traces / "made", *(traces / name for name in RECORDED)]
        words = command(*folders, "--output", output, *more)
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        self.told, self._results = json.loads(done.stdout), output / "results"
        heads = [head.parent for folder in folders for head in sorted(folder.rglob("run.json"))]
        self.runs = {run.key: run for run in (RunFiles(head, WINDOW_S) for head in heads)}

    def rows(self, table: str, run: str | None = None) -> list[Row]:
        found: list[Row] = json.loads((self._results / f"{table}.json").read_text("utf-8"))
        return [row for row in found if run is None or row["run"] == run]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row]:
    """(folder, what was planted)."""
    folder = tmp_path_factory.mktemp("again")
    planted = made(folder)
    recorded(folder)
    return folder, planted


@pytest.fixture(scope="module")
def analysed(traces: tuple[Path, Row]) -> Analysed:
    folder, planted = traces
    return Analysed(folder, folder / "out", (), planted)


def test_spark_finds_the_same(spark: None, traces: tuple[Path, Row], analysed: Analysed) -> None:
    folder, planted = traces
    Analysed(folder, folder / "on-spark", ("--master", "local[2]"), planted)
    assert list(differences(results(folder / "on-spark"), results(folder / "out"))) == []


def same(found: Row, expected: Row, about: object) -> None:
    for name, value in expected.items():
        wanted = (
            value if value is None or isinstance(value, str) else pytest.approx(value, rel=1e-6, abs=1e-9)
        )
        assert found[name] == wanted, (about, name)


def test_all_runs_were_analysed(analysed: Analysed) -> None:
    assert sorted(analysed.told["runs"]) == sorted(analysed.runs) and len(analysed.runs) == 11 + len(RECORDED)
    rows = {
        name: sum(len(getattr(run, name)) for run in analysed.runs.values())
        for name in ("samples", "slots", "rates")
    }
    assert {name: analysed.told["rows_by_table"][name] for name in rows} == rows


@pytest.mark.parametrize("of", ["cpu", "memory"])
def test_use_of_slots_against_what_was_predicted(analysed: Analysed, of: str) -> None:
    compared = [(run, *each) for run in analysed.runs.values() for each in run.compared(of)]
    keys = {
        "all": lambda run, row: "",
        "epoch": lambda run, row: f"{run.key} {row['epoch']}",
        "slot": lambda run, row: f"{row['vm']}/{row['slot']}",
        "vm": lambda run, row: row["vm"],
    }
    found = {(row["by"], row["name"]): row for row in analysed.rows("residuals") if row["of"] == of}
    for by, name in keys.items():
        for key, rows in grouped(
            ({"k": name(r, row), "a": a, "p": p} for r, row, a, p in compared), lambda x: x["k"]
        ).items():
            expected = fit(np.array([row["a"] for row in rows]), np.array([row["p"] for row in rows]))
            same(found.pop((by, key)), expected, (by, key))
    assert {by for by, _ in found} == {"pair"}
    errors = [error for run in analysed.runs.values() for error in run.window_errors(of).values()]
    assert analysed.told[of]["worst_error"] == pytest.approx(max(errors), rel=1e-6)
    assert analysed.told[of]["median_error"] == pytest.approx(
        np.quantile(errors, 0.5, method="inverted_cdf"), rel=1e-2
    )
    epochs = grouped(
        ({"k": (r.key, row["epoch"], row["vm"], row["slot"]), "a": a, "p": p} for r, row, a, p in compared),
        lambda x: x["k"],
    ).values()
    means = [np.array([mean(row[name] for row in rows) for rows in epochs]) for name in ("a", "p")]
    assert analysed.told[of]["r2_epochs"] == pytest.approx(fit(*means)["r2"], rel=1e-6)


def test_a_predicted_rate_is_judged_where_it_was_tried(analysed: Analysed) -> None:
    """More was offered than predicted, or rows waited for long; never by what a plan could carry easily."""
    tried, windows = [], 0
    for key, run in analysed.runs.items():
        mine = run.tried([e for e in analysed.told["episodes"] if e["run"] == key])
        marked = [row for row in analysed.rows("rate_windows", key) if row["tried"]]
        assert len(marked) == len(mine), key
        tried += list(mine.values())
        windows += len(run.rate_windows())
    assert 0.005 * windows < len(tried) < 0.6 * windows
    expected = fit(*(np.array([window[name] for window in tried]) for name in ("acked_tps", "predicted_tps")))
    same(analysed.told["rate"], expected, "rate")
    errors = [abs(w["acked_tps"] - w["predicted_tps"]) / w["acked_tps"] for w in tried if w["acked_tps"]]
    assert analysed.told["rate"]["worst_error"] == pytest.approx(max(errors), rel=1e-6)


def test_rates_over_time(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        expected = list(sorted(run.rate_windows().items(), key=lambda item: (item[0][1], item[0][0])))
        found = analysed.rows("rate_windows", key)
        assert len(found) == len(expected)
        for row, ((epoch, _), means) in zip(found, expected, strict=True):
            names = ("offered_tps", "emitted_tps", "acked_tps", "planned_tps", "predicted_tps")
            same(row, {name: means[name] for name in names} | {"epoch": epoch}, (key, row["at_s"]))


def test_latency_of_each_path(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        found = {(r["epoch"], r["source"], r["sink"]): r for r in analysed.rows("latency_epochs", key)}
        expected = run.latency_epochs()
        assert set(found) == set(expected)
        for path, figures in expected.items():
            exact = {name: figures[name] for name in ("tuples", "mean_s", "max_s")}
            same(found[path], exact, (key, path))
            for name in ("p50_s", "p95_s", "p99_s"):
                assert found[path][name] == pytest.approx(figures[name], rel=QUANTILES), (key, path, name)


def test_how_fast_latency_grows(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        epochs = [row for row in analysed.rows("stability", key) if row["scope"] == "epoch"]
        expected = run.latency_slopes()
        assert len(epochs) == len(expected)
        for row in epochs:
            path = row["epoch"], row["source"], row["sink"]
            same(row, {"slope": expected[path]}, (key, path))
            assert row["slope"] is None or row["slope_low"] <= row["slope"] <= row["slope_high"]


AGAIN: dict[str, tuple[tuple[str, ...], Callable[[RunFiles], dict[Any, Row]]]] = {  # result table → its keys
    "pairs": (("epoch", "from_task", "to_task"), RunFiles.pairs),  # however short-lived they are
    "interference": (("task",), RunFiles.interference),
    "tasks_residuals": (("epoch", "task"), RunFiles.tasks),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_worked_out_again_is_the_same(analysed: Analysed, name: str) -> None:
    keys, again = AGAIN[name]
    for key, run in analysed.runs.items():
        rows = analysed.rows(name, key)
        found = {row[keys[0]] if len(keys) == 1 else tuple(row[k] for k in keys): row for row in rows}
        expected = again(run)
        assert set(found) == set(expected)
        for of, figures in expected.items():
            same(found[of], figures, (key, of))


def test_who_was_nearest_to_a_limit(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        found = grouped(analysed.rows("bottlenecks", key), lambda row: row["epoch"])
        expected = run.bottlenecks()
        assert set(found) == {epoch for epoch, rows in expected.items() if rows}
        for epoch, rows in found.items():
            for row, figures in zip(sorted(rows, key=lambda r: r["rank"]), expected[epoch], strict=True):
                names = (
                    "task",
                    "vm",
                    "slot",
                    "threads",
                    "busy_share",
                    "cpu_share",
                    "queue_mean",
                    "load",
                    "queue_growth_tps",
                )
                same(row, {name: figures[name] for name in names}, (key, epoch, row["rank"]))
        assert "gone" not in {row["task"] for rows in found.values() for row in rows}


def test_hours_and_money_and_what_was_finished(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        found = {row["epoch"]: row for row in analysed.rows("cost", key)}
        expected = run.cost()
        assert set(found) == {None, *expected}
        for epoch, figures in expected.items():
            same(found[epoch], figures, (key, epoch))
        for name in ("slot_hours", "vm_hours"):
            assert found[None][name] == pytest.approx(sum(figures[name] for figures in expected.values()))
        assert found[None]["tuples_acked"] == sum(row["acked"] for row in run.rates)


def test_when_plans_were_made_and_what_they_cost_the_others(analysed: Analysed) -> None:
    for key, run in analysed.runs.items():
        found, expected = analysed.rows("replans", key), run.replans()
        assert len(found) == len(expected) > 0
        for row, figures in zip(found, expected, strict=True):
            assert row["at_s"] == pytest.approx(figures.pop("at_s"), abs=0.0015), "in milliseconds"
            same(row, figures, (key, row["epoch"]))


def test_every_run_in_one_row(analysed: Analysed) -> None:
    """Also what the summary and the answer to what has changed are made of."""
    counts = ("lost", "dead_lettered", "replayed", "duplicates")
    for key, run in analysed.runs.items():
        [row], [told] = analysed.rows("run_figures", key), analysed.rows("tuples_told", key)
        same(told, run.counted(), key)
        episodes = [one for one in analysed.told["episodes"] if one["run"] == key]
        expected = run.whole({"episodes": episodes, "counted": {name: told[name] for name in counts}})
        for name in ("p50_s", "p95_s", "p99_s"):
            assert row[name] == pytest.approx(expected.pop(name), rel=QUANTILES), (key, name)
        assert row["waited_s"] == pytest.approx(expected.pop("waited_s"), abs=0.01), key
        same(row, expected, key)


def test_what_changed_is_what_differs_from_the_run_before(analysed: Analysed) -> None:
    """Those of the same topology, one after the other. Two clean runs hardly differ, and the planted one does."""
    rows = {row["run"]: row for row in analysed.rows("run_figures")}
    began = {
        key: (run.head["topology"]["name"], run.head["started"], key) for key, run in analysed.runs.items()
    }
    order = [key for key, _ in sorted(began.items(), key=lambda item: item[1])]
    before = {b: a for a, b in zip(order, order[1:], strict=False) if began[a][0] == began[b][0]}
    found = analysed.rows("run_changes")
    assert {row["run"]: row["against"] for row in found} == before
    for row in found:
        now, then = (rows[row[name]][row["figure"]] for name in ("run", "against"))
        assert (row["value"], row["before"]) == (now, then)
        assert (row["differs"] is None) == (now is None or then is None)
        if row["differs"] is not None and row["figure"] in ("slots", "slot_hours", "usd", "acked_tps"):
            share = 0.05 if row["figure"] == "acked_tps" else 0.03
            assert row["differs"] == (abs(now - then) > share * max(now, then)), row
    clean = [row for row in found if "clean" in row["run"] and "clean" in row["against"]]
    assert {row["figure"] for row in clean if row["differs"]} == set()
    planted = {row["figure"] for row in found if "planted" in row["run"] and row["differs"]}
    assert planted >= {"seconds", "p99_s", "waited_s", "slot_hours", "lost", "replayed", "duplicates"}


def test_how_long_rows_waited(analysed: Analysed) -> None:
    for episode in analysed.told["episodes"]:
        run = analysed.runs[episode["run"]]
        begin, end = (episode[name] * 1e6 + run.begin_us for name in ("from_s", "to_s"))
        inside = [row["latency_s"] for row in run.latency if begin <= row["us"] < end]
        assert episode["peak_s"] == pytest.approx(max(inside), rel=1e-9), episode
        groups = {(one["task"], one["vm"], one["slot"]) for one in run.samples}
        assert episode["task"] is None or (episode["task"], episode["vm"], episode["slot"]) in groups


def test_of_the_real_runs_the_one_that_was_overloaded_did_not_keep_up(analysed: Analysed) -> None:
    """That the others did is not said here: the machine may be slow."""
    [key] = [key for key, run in analysed.runs.items() if "overloaded" in str(run.folder)]
    assert [row["stable"] for row in analysed.rows("stability", key) if row["scope"] == "epoch"] == [False]
    assert [e for e in analysed.told["episodes"] if e["run"] == key]


# ── what was planted ────────────────────────────────────────────────────────────────────────────────────


def of_planted(analysed: Analysed, name: str) -> list[Row]:
    return [row for row in analysed.told[name] if row["run"] == "made/planted"]


def of_clean(analysed: Analysed, name: str) -> list[Row]:
    return [row for row in analysed.told[name] if row["run"].startswith("made/clean")]


@pytest.mark.parametrize("name", ["episodes", "slow_slots", "disturbing_pairs", "leaks", "skewed_threads"])
def test_nothing_is_found_where_nothing_was_planted(analysed: Analysed, name: str) -> None:
    assert of_clean(analysed, name) == []


def test_clean_runs_keep_up(analysed: Analysed) -> None:
    clean = [row["stable"] for row in of_clean(analysed, "stability")]
    assert (
        len(clean) == CLEAN * SHAPE["epochs"] and False not in clean and clean.count(True) > 0.9 * len(clean)
    )


def test_the_overload_is_told_from_when_to_when(analysed: Analysed) -> None:
    """Its peak is what rows waited for, and what they take anyway."""
    truth, [episode] = analysed.planted["overload"], of_planted(analysed, "episodes")
    assert episode["from_s"] == pytest.approx(truth["from_s"], abs=2)
    assert episode["to_s"] == pytest.approx(truth["to_s"], abs=2)
    assert episode["peak_s"] == pytest.approx(truth["waited_s"], abs=1)
    assert episode["task"] == truth["task"] and episode["epoch"] == 2
    verdicts = {row["epoch"]: row["stable"] for row in of_planted(analysed, "stability")}
    assert verdicts[2] is False and False not in {verdicts[1], verdicts[3], verdicts[4]}


def test_the_slow_slot_is_named_with_its_speed(analysed: Analysed) -> None:
    truth, [slow] = analysed.planted["slow_slot"], of_planted(analysed, "slow_slots")
    assert (slow["vm"], slow["slot"]) == (truth["vm"], truth["slot"])
    assert slow["speed"] == pytest.approx(truth["speed"], abs=0.05)
    assert slow["low"] <= truth["speed"] <= slow["high"]


def test_the_pair_that_disturbs_each_other_is_named(analysed: Analysed) -> None:
    pairs = of_planted(analysed, "disturbing_pairs")
    assert sorted(row["task"] for row in pairs) == sorted(analysed.planted["pair"])
    for row in pairs:
        assert {row["task"], row["beside"]} == set(analysed.planted["pair"])
        assert row["factor"] == pytest.approx(1.5, rel=0.05)


def test_the_leak_is_told_with_its_pace(analysed: Analysed) -> None:
    truth, [leak] = analysed.planted["leak"], of_planted(analysed, "leaks")
    assert (leak["vm"], leak["slot"]) == (truth["vm"], truth["slot"])
    assert leak["bytes_per_s"] == pytest.approx(truth["bytes_per_s"], rel=0.2)


def test_the_skewed_thread_of_each_plan_is_named(analysed: Analysed) -> None:
    truth, skewed = analysed.planted["skew"], of_planted(analysed, "skewed_threads")
    assert [row["thread"] for row in skewed] == truth["threads"]
    assert [row["times"] for row in skewed] == pytest.approx(truth["of_plan"], rel=0.05)


def test_the_season_is_found_to_a_hundredth(analysed: Analysed) -> None:
    """Of the run of 1200 s and of those of 500 s: a quarter of each."""
    [planted], clean = of_planted(analysed, "seasons"), of_clean(analysed, "seasons")
    assert planted["period_s"] == pytest.approx(300, rel=0.01)
    assert [row["period_s"] for row in clean] == [pytest.approx(125, rel=0.01)] * CLEAN


def test_what_was_planted_is_in_the_printed_table(analysed: Analysed) -> None:
    lines = {line["what"]: line for line in lines_of(analysed.told)}
    number = analysed.told["runs"].index("made/planted") + 1
    for what, truth in (("  speed, ×", "slow_slot"), ("  held", "leak")):
        where = "{vm}/{slot}".format(**analysed.planted[truth])
        assert where in lines[f"{what}, run {number}"]["remark"]
    assert lines["skewed threads"]["value"] >= len(analysed.planted["skew"]["threads"])
    assert analysed.planted["overload"]["task"] in lines[f"  longest, s, run {number}"]["remark"]
