"""I, C, M, T, ω̂ and τ̂ of a performance model (paper 0, section 6)."""

from __future__ import annotations

import pytest
from worlds import chain, model_of

from headgate.controller.knowledge.models import cpu, memory, missing_models, peak, peak_rate, threads_for

BLOB = model_of("blob", (1, 2, 0.07, 0.24), (20, 10, 0.15, 0.26), (50, 30, 0.77, 0.31))


@pytest.mark.parametrize(
    ("threads", "rate"), [(0, 0), (1, 2), (20, 10), (35, 20), (50, 30), (51, 30), (500, 30)]
)
def test_peak_rate_interpolates_and_stays_flat_above(threads, rate):
    assert peak_rate(BLOB, threads) == pytest.approx(rate)


def test_below_the_first_point_rates_rise_from_nothing():
    assert peak_rate(model_of("t", (4, 8, 0.5, 0.5)), 1) == pytest.approx(2)


@pytest.mark.parametrize(
    ("threads", "used"), [(20, 0.15), (35, 0.46), (50, 0.77), (100, 1.54), (101, 1.61), (120, 1.69)]
)
def test_cpu_adds_up_whole_largest_bundles(threads, used):
    assert cpu(BLOB, threads) == pytest.approx(used)


def test_memory_adds_up_too():
    assert memory(BLOB, 70) == pytest.approx(0.31 + 0.26)


def test_cpu_measured_above_a_whole_slot_is_taken_as_it_is():
    assert cpu(model_of("t", (1, 10, 1.02, 0.1)), 1) == 1.02


@pytest.mark.parametrize(
    ("rate", "threads"), [(0, 1), (2, 1), (2.1, 20), (10 * (1 + 1e-12), 20), (10.1, 50), (30, 50), (31, None)]
)
def test_threads_for_takes_measured_counts_only(rate, threads):
    assert threads_for(BLOB, rate) == threads


def test_peak_of_a_falling_curve_is_its_best_point():
    assert peak(model_of("file", (1, 60000, 0.58, 0.12), (2, 50000, 0.52, 0.03))) == (60000, 1)


def test_peak_of_a_flat_curve_takes_the_fewest_threads():
    assert peak(model_of("t", (1, 5, 0.1, 0.1), (2, 9, 0.2, 0.1), (8, 9, 0.4, 0.1))) == (9, 2)


def test_missing_models_name_the_task_and_the_nearest_model():
    faults = missing_models(chain("blob", "tabel", ends=True), {"blob": BLOB, "table": BLOB})
    assert faults == ["task 'tabel': no model 'tabel'; did you mean 'table'?"]
