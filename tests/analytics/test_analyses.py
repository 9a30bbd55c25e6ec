"""The arithmetic of the analyses, where no engine is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.controller.analyze.season_detection import SeasonWatch
from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.model_data import model_of
from headgate.dashboards.analytics.analyses import latency_analyses as latency
from headgate.dashboards.analytics.analyses import prediction_analyses as refit
from headgate.dashboards.analytics.analyses import prediction_analyses as residuals
from headgate.dashboards.analytics.analyses import rate_seasons as seasons
from headgate.dashboards.analytics.analyses import replan_analyses as replans
from headgate.dashboards.analytics.analyses.latency_analyses import FINE_PER_DOUBLING, Stretch, stretches
from headgate.dashboards.analytics.analyses.load_analyses import judged, marks_of
from headgate.dashboards.analytics.analyses.rate_seasons import full_bins
from headgate.dashboards.analytics.analyses.slot_analyses import fitted
from headgate.dashboards.analytics.analyze_command import report_of
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.result_tables import TABLES
from headgate.dashboards.analytics.storage.trace_runs import run_of
from headgate.topology_runtime.rates.season_learning import period_of
from headgate.topology_runtime.stability.memory_growth import leak_of, longest_life


def test_r2_is_one_minus_the_residual_squares_over_the_total():
    actual, predicted = np.array([1.0, 2.0, 4.0, 7.0]), np.array([1.5, 2.0, 3.0, 7.0])
    found = residuals.r2(4, actual.sum(), (actual**2).sum(), ((actual - predicted) ** 2).sum())
    assert found == pytest.approx(1 - 1.25 / ((actual - actual.mean()) ** 2).sum())


@pytest.mark.parametrize("sums", [(0, 0, 0, 0), (1, 5, 25, 0), (3, 6, 12, 1)])
def test_r2_of_one_point_or_of_equal_ones_is_undefined(sums):
    assert residuals.r2(*sums) is None


def test_quantiles_of_a_histogram_err_by_less_than_a_bin():
    values = np.sort(np.random.default_rng(1).lognormal(-3, 1, 20_000))
    buckets, counts = np.unique(np.floor(np.log2(values) * FINE_PER_DOUBLING).astype(int), return_counts=True)
    bins = list(zip(buckets.tolist(), counts.tolist(), strict=True))
    for share in (0.5, 0.95, 0.99):
        assert latency.quantile(bins, share, values[-1]) == pytest.approx(
            np.quantile(values, share), rel=0.02
        )
    assert latency.quantile(bins, 1.0, values[-1]) == values[-1]


def test_nothing_has_no_quantile():
    assert latency.quantile([], 0.5, None) is None


def test_the_coarse_histogram_holds_all_tuples():
    bins = [(-40, 1.0), (-39, 2.0), (-33, 4.0), (5, 8.0)]
    assert sum(each.tuples for each in latency.coarse(bins)) == 15.0
    assert all(each.from_s < each.to_s for each in latency.coarse(bins))


def wave(bins, period, noise=0.0, trend=0.0):
    at = np.arange(bins)
    chance = np.random.default_rng(3).standard_normal(bins)
    return 100 + 30 * np.sin(2 * np.pi * at / period) + trend * at + noise * chance


@pytest.mark.parametrize(
    ("period", "noise", "trend"), [(24, 0.0, 0.0), (24, 5.0, 0.0), (50, 2.0, 0.3), (60, 8.0, -0.1)]
)
def test_the_period_of_a_wave_is_found(period, noise, trend):
    season, _ = seasons.judged("demo/one", wave(300, period, noise, trend), 10.0, 0.0)
    assert season.period_s == pytest.approx(10.0 * period, rel=0.05)
    assert season.strength > 0.5


@pytest.mark.parametrize(
    "values",
    [np.full(200, 7.0), np.random.default_rng(5).standard_normal(400), np.arange(200.0), np.zeros(200)],
)
def test_no_period_is_made_up(values):
    season, _ = seasons.judged("demo/one", values, 10.0, 0.0)
    assert (season.period_s, season.strength) == (None, None)


def test_a_season_beats_the_last_value_on_the_end_it_has_not_seen():
    season, rows = seasons.judged("demo/one", wave(400, 40, noise=2.0), 10.0, 0.0)
    assert season.period_s == pytest.approx(400, rel=0.05)
    assert season.mae_tps < 0.5 * season.naive_mae_tps
    assert season.power_share > 0.8
    kinds = {row.kind: row for row in rows}
    assert set(kinds) == {"actual", "fitted", "forecast"}
    assert all(row.low_tps <= row.rate_tps <= row.high_tps for row in rows if row.kind != "actual")


def test_the_hold_out_is_not_seen_by_the_forecast():
    values = wave(400, 40)
    changed = np.concatenate([values[:320], np.full(80, 1.0)])
    fitted = [
        [r.rate_tps for r in seasons.judged("r", v, 1.0, 0.0)[1] if r.kind == "fitted"]
        for v in (values, changed)
    ]
    assert fitted[0] == fitted[1]


def test_a_forecast_goes_on_with_the_drift_of_a_period():
    ahead = seasons.extended(np.array([1.0, 5.0, 3.0, 7.0]), 2, 4)
    assert ahead.tolist() == [5.0, 9.0, 7.0, 11.0]


def test_without_a_period_the_last_value_goes_on():
    assert seasons.extended(np.array([3.0, 4.0]), None, 2).tolist() == [4.0, 4.0]


def test_a_forecast_is_never_below_zero():
    assert seasons.extended(np.array([10.0, 9.0, 2.0, 1.0]), 2, 2).min() == 0.0


def test_an_epoch_written_twice_is_that_of_a_plan_which_waited_for_vms():
    assert replans.epochs_of([1, 2, 3, 4, 4, 6, 7]) == [1, 2, 3, 4, 5, 6, 7]


def test_silence_is_the_longest_stretch_without_output_of_a_task_that_had_some():
    seconds = {
        "parse": {-1: 5} | {s: 5 for s in range(10) if s not in (2, 3, 4)},
        "new": {9: 1},  # had none before
    }
    assert replans.silent_s(seconds) == 3.0
    assert replans.silent_s({"new": {9: 1}}) is None


def point(threads, rate):
    row = {"run": "demo/one", "vm": "vm1", "task": "parse", "threads": float(threads), "windows": 4}
    return row | {
        "rate_tps": rate,
        "low_tps": rate - 2,
        "high_tps": rate + 2,
        "cpu": 0.8,  # of the slot, by its process
        "memory_bytes": 34e6,  # of the worker's process
    }


def test_a_refitted_model_can_be_imported(tmp_path):
    points = [point(1, 50.0), point(2, 90.0), point(2, 94.0)]
    data = refit.model_of("parse", points, (0.12, 5e8), ["demo/one"], bare=33e6)
    model, faults = model_of(data)
    assert faults == []
    assert [(p.threads, p.rate_tps, p.spread.rate_tps) for p in model.points] == [
        (1, 50.0, 2.0),
        (2, 92.0, 2.0),
    ]
    assert [p.memory for p in model.points] == [1e6 / 5e8] * 2, (
        "without the bare worker, as models are measured"
    )
    assert [p.cpu for p in model.points] == [0.8] * 2
    assert data["refitted_from"] == ["demo/one"]
    (tmp_path / "parse.json").write_text(json.dumps(data))
    assert list(read_models(tmp_path)) == ["parse"]


def test_every_result_table_says_what_its_rows_are():
    assert all(kind.__doc__ for kind in TABLES.values())


def test_why_there_is_no_report_is_said_in_full(tmp_path, capsys):
    (tmp_path / "analysis.json").write_text('{"schema": "headgate/analysis/v9"}')
    report_of(place(tmp_path))
    said = capsys.readouterr().err
    assert said.startswith("no report:") and "headgate/analysis/v9" in said and "None" not in said


# ── What is found in series and cells that are made for it, without Spark ───────────────────────────────

SEED = 11
Values = np.ndarray[Any, Any]


def noise(size: int, spread: float = 0.05) -> Values:
    return 1 + spread * np.random.default_rng(SEED).standard_normal(size)


# ── episodes ────────────────────────────────────────────────────────────────────────────────────────────


def seconds_of(high_s: Values) -> list[Stretch]:
    return stretches(np.arange(float(len(high_s))), high_s, 1.0)


def test_latency_that_only_scatters_is_no_episode() -> None:
    assert seconds_of(0.3 * noise(600, 0.15)) == []
    assert seconds_of(np.full(600, 0.3)) == []
    assert seconds_of(np.full(3, 9.0)) == [], "of three seconds nobody knows what is usual"


def test_a_rise_and_fall_is_told_from_when_to_when() -> None:
    high_s = 0.3 * noise(600)
    high_s[200:300] += np.minimum(np.arange(100), np.arange(100)[::-1]) * 0.12
    [found] = seconds_of(high_s)
    assert found.from_s == pytest.approx(200, abs=2) and found.to_s == pytest.approx(300, abs=2)
    assert found.usual_s == pytest.approx(0.3, rel=0.1)


def test_a_run_that_is_slow_for_most_of_its_life_has_one_all_the_same() -> None:
    high_s = 0.3 * noise(600)
    high_s[100:] += 0.1 * np.arange(500)
    [found] = seconds_of(high_s)
    assert found.from_s == pytest.approx(100, abs=3) and found.to_s == 600


def test_a_stretch_without_rows_is_as_old_as_the_row_that_ends_it() -> None:
    at_s = np.array([*range(100), *range(130, 200)], float)
    high_s = 0.3 * noise(len(at_s))
    high_s[100:106] = [30.3, 24.0, 18.0, 12.0, 6.0, 2.0]
    [found] = stretches(at_s, high_s, 1.0)
    assert found.from_s == pytest.approx(100, abs=2) and found.to_s == pytest.approx(136, abs=1)


def test_a_hiccup_is_not_told_and_two_near_ones_are_one() -> None:
    high_s = 0.3 * noise(600)
    high_s[50:52] = 3.0
    for begin in (200, 207):
        high_s[begin : begin + 4] = 3.0
    [found] = seconds_of(high_s)
    assert (found.from_s, found.to_s) == (200, 211)
    high_s[211:219], high_s[219:224] = 0.5, 3.0  # not slow, but not quiet either
    assert [(each.from_s, each.to_s) for each in seconds_of(high_s)] == [(200, 224)]


# ── leaks ───────────────────────────────────────────────────────────────────────────────────────────────


def points(memory: Values, each_s: float = 10.0) -> list[tuple[float, float, float]]:
    return [(n * each_s, float(value), 0.5) for n, value in enumerate(memory)]


def test_memory_that_grows_steadily_is_a_leak_with_its_pace() -> None:
    found = leak_of(points(0.05 * noise(48, 0.01) + 0.0002 * np.arange(48)))
    assert found is not None and found.value == pytest.approx(0.00002, rel=0.1)
    assert found.low <= 0.00002 <= found.high


@pytest.mark.parametrize(
    "memory",
    [
        0.05 * noise(48, 0.03),
        0.05 + 0.02 * (1 - np.exp(-np.arange(48) / 4)),  # it warms up
        0.05 + 0.0006 * np.minimum(np.arange(48), 30) * noise(48, 0.01),  # it warms up slowly
        0.05 + 0.02 * (np.arange(48) > 20),  # a step
        0.05 + 0.004 * np.sin(np.arange(48) / 8),  # with the rate
        0.05 + 0.02 * np.interp(np.arange(48), (0, 16, 32, 47), (0.0, 1.0, 0.2, 1.2)),  # up, down and up
        0.05 + 0.0002 * np.arange(8),  # too few
    ],
)
def test_memory_that_grows_otherwise_is_none(memory: Values) -> None:
    assert leak_of(points(memory)) is None


def test_a_process_that_is_begun_anew_is_another_life() -> None:
    memory = points(np.concatenate([0.05 + 0.001 * np.arange(20), 0.05 + 0.001 * np.arange(28)]))
    assert longest_life(memory) == memory[20:]


# ── slots and pairs ─────────────────────────────────────────────────────────────────────────────────────


def cells(speed: dict[int, float], pair: float, slope: float = 0.0) -> list[dict[str, Any]]:
    """Two tasks in four slots, alone and together, at several rates, with noise of a hundredth."""
    chance, found = np.random.default_rng(SEED), []
    for epoch in range(4):
        for slot in range(4):
            for task, cost_s in (("a", 1e-3), ("b", 4e-3)):
                beside = ["b" if task == "a" else "a"] if (slot + epoch) % 2 else []
                rate = 50.0 * (1 + epoch)
                log = np.log(cost_s) - np.log(speed.get(slot, 1.0)) + slope * np.log(rate / 50)
                log += np.log(pair) * bool(beside) * (task == "a") + 0.01 * chance.standard_normal()
                found.append({
                    "run": "r", "task": task, "place": ("vm1", slot), "beside": beside, "cost": log,
                    "rate": np.log(rate), "scatter": 0.05, "windows": 20,
                })  # fmt: skip
    return found


def test_a_slow_slot_and_a_pair_are_told_apart() -> None:
    slots, pairs = fitted("r", cells({2: 0.7}, 1.4))
    assert [slot.slot for slot in slots if slot.slow] == [2]
    assert slots[0].speed == pytest.approx(0.7, abs=0.03) and slots[0].low < slots[0].speed < slots[0].high
    assert [(pair.task, pair.beside) for pair in pairs if pair.disturbs] == [("a", "b")]
    assert pairs[0].factor == pytest.approx(1.4, rel=0.03)


def test_nothing_is_slow_or_disturbed_where_rows_only_cost_more_at_low_rates() -> None:
    slots, pairs = fitted("r", cells({}, 1.0, slope=-0.3))
    assert len(slots) == 4 and not any(slot.slow for slot in slots)
    assert len(pairs) == 2 and not any(pair.disturbs for pair in pairs)


def test_what_a_run_cannot_tell_apart_has_no_row() -> None:
    """b is only where a is, always the same slot: is it the slot, or a?"""
    known = [cell for cell in cells({}, 1.0) if cell["task"] == "a"]
    lone = [
        {**cell, "task": "b", "place": ("vm1", 9), "beside": ["a"]} for cell in known if cell["place"][1] == 1
    ]
    slots, pairs = fitted("r", [*known, *lone])
    assert {slot.slot for slot in slots} == {0, 1, 2, 3}
    assert {(pair.task, pair.beside) for pair in pairs} == {("a", "b")}


# ── seasons ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("period", [12.5, 37.3, 60.0])
def test_a_period_between_two_bins_is_found(period: float) -> None:
    at = np.arange(400)
    values = 100 + 20 * np.sin(2 * np.pi * at / period) + 5 * np.sin(4 * np.pi * at / period + 1) + noise(400)
    assert period_of(values, 4000.0, 10.0) == pytest.approx(10.0 * period, rel=0.01)


AT = np.arange(1500)
CHANCE = np.random.default_rng(5)
SERIES = {
    "wave": wave(1500, 60),
    "square": np.where(AT % 60 < 30, 30.0, 90.0),
    "peaks": np.where(AT % 97 < 8, 200.0, 40.0),
    "slope": 20 + AT % 300 * 0.3,
    "noise": 100 + 20 * CHANCE.standard_normal(1500),
    "walk": 200 + np.cumsum(CHANCE.standard_normal(1500)),
    "more noise than wave": wave(1500, 90, noise=30.0),
    "a wave of one part in a hundred": 100 + np.sin(2 * np.pi * AT / 60),
}


@pytest.mark.parametrize("name", SERIES)
def test_an_analysis_finds_the_season_that_a_controller_hears(name: str) -> None:
    rates = SERIES[name]
    watch = SeasonWatch(0.002)
    for rate in rates:
        watch.hear(float(rate), float(rate))
    coming = watch.coming()
    heard = None if coming is None else coming.period_s
    season, _ = seasons.judged("demo/one", rates, 1.0, 0.0)
    assert (season.period_s is None) == (heard is None)
    if heard is not None:
        assert season.period_s == pytest.approx(heard, rel=0.01)
    of = seasons.SeasonOf("demo", "traces/demo/one", "2027-01-15T08:00:00Z", "0.1.0")
    data = seasons.season_data(rates, 1.0, of)
    assert data is None or data["period_s"] == pytest.approx(heard, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "kept"), [([2, 5, 5, 1], [5, 5]), ([5, 5, 4, 5], [5, 5, 4, 5]), ([], [])]
)
def test_what_the_ends_of_a_run_cut_short_is_no_rate(seconds: list[int], kept: list[int]) -> None:
    assert [each["n"] for each in full_bins([{"n": n} for n in seconds])] == kept


# ── Steps of a run that was led up a stair of rates: what of it needs no engine ─────────────────────────


def test_a_latency_that_grows_by_more_than_the_limit_is_not_stable() -> None:
    assert judged([(n, 0.2 + 0.05 * n) for n in range(6)]) == (pytest.approx(0.05), False)
    assert judged([(n, 0.2 + 0.01 * (n % 2)) for n in range(6)])[1] is True


def test_two_seconds_are_too_short_to_tell() -> None:
    assert judged([(n, 0.2) for n in range(2)]) == (None, None)
    assert judged([]) == (None, None)


def written(folder: Path, text: str) -> tuple[list[object], list[object]]:
    (folder / "steps.json").write_text(text)
    marks, left = marks_of(run_of(place(folder), {}))
    return list(marks), list(left)


def test_a_run_without_steps_has_none(tmp_path: Path) -> None:
    assert marks_of(run_of(place(tmp_path), {})) == ([], [])


def test_steps_are_numbered_in_their_order(tmp_path: Path) -> None:
    steps = [{"from_s": 10, "to_s": 15, "offered_tps": 50}, {"from_s": 15, "to_s": 20, "offered_tps": 60}]
    marks, left = written(tmp_path, json.dumps({"schema": "headgate/steps/v1", "steps": steps}))
    assert [mark[1:] for mark in marks] == [(0, 10, 15, 50), (1, 15, 20, 60)]  # type: ignore[index]
    assert left == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": "headgate/steps/v9", "steps": []}', '{"schema": "headgate/steps/v1"}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1}]}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1, "to_s": 2, "offered_tps": "many"}]}',
     '{"schema": "headgate/steps/v1", "steps": [{"from_s": 1, "to_s": NaN, "offered_tps": 3}]}'],
)  # fmt: skip
def test_a_file_that_is_none_is_listed_and_not_fatal(tmp_path: Path, text: str) -> None:
    marks, left = written(tmp_path, text)
    assert marks == []
    assert [(row.kind, row.file.endswith("steps.json")) for row in left] == [("foreign", True)]  # type: ignore[attr-defined]
