"""The arithmetic of the analyses, where no Spark is needed."""

import json

import numpy as np
import pytest

from headgate.controller.files.model_files import read_models
from headgate.controller.knowledge.model_data import model_of
from headgate.dashboards.analytics.aggregates import FINE_PER_DOUBLING
from headgate.dashboards.analytics.analyses import latency, refit, replans, residuals, seasons
from headgate.dashboards.analytics.analyze_cli import report_of
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.results import TABLES


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
    found, strength = seasons.period_of(wave(300, period, noise, trend))
    assert found == pytest.approx(period, rel=0.05)
    assert strength > 0.5


@pytest.mark.parametrize(
    "values",
    [np.full(200, 7.0), np.random.default_rng(5).standard_normal(400), np.arange(200.0), np.zeros(200)],
)
def test_no_period_is_made_up(values):
    assert seasons.period_of(values) == (None, None)


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
