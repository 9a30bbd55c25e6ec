"""What is learned of models and VMs from predicted and measured: against statistics of its own, and many draws."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.controller.analyze.bias import (
    MOST,
    PRIOR_RUNS,
    SPREAD,
    LearnedFactor,
    biases,
    learned,
    slow_vms,
)
from headgate.controller.knowledge.prediction_ledger import LedgerEntry, RateKept, TaskKept

LOGS = st.lists(st.floats(-1.2, 1.2), min_size=1, max_size=12)


def of(logs: Sequence[float]) -> LearnedFactor:
    """One plan in each of as many runs."""
    return learned({f"run{n}": [log] for n, log in enumerate(logs)})


def task(vms: dict[str, tuple[float, float]], name: str = "work", **changes: Any) -> TaskKept:
    cpu, predicted = sum(use[0] for use in vms.values()), sum(use[1] for use in vms.values())
    return replace(TaskKept(name, name, "v", 100.0, cpu, predicted, 0.5, 0.5, False, vms), **changes)


def entry(run: str, *tasks: TaskKept, epoch: int = 1, seconds: float = 40.0) -> LedgerEntry:
    rate = RateKept(100.0, 100.0, 100.0, None, "carried")
    return LedgerEntry("", "t", "d", run, epoch, f"plan{epoch}", "", seconds, rate, {}, (), tasks, {})


# ── the estimator ───────────────────────────────────────────────────────────────────────────────


@given(LOGS)
def test_it_is_the_mean_with_what_may_be_chance_taken_off(logs: list[float]) -> None:
    """Worked out again with `statistics`: draws of the prior beside those that were seen."""
    found, n = of(logs), len(logs)
    mean = statistics.fmean(logs)
    around = statistics.pvariance(logs) * n  # squares about their own mean
    variance = (PRIOR_RUNS * (0.05**2 + 0.053**2) + around) / (PRIOR_RUNS + n - 1)
    chance = variance / n
    expected = mean - chance / mean if mean**2 > chance else 0.0
    assert math.log(found.factor) == pytest.approx(expected, abs=1e-9)
    assert found.error == pytest.approx(math.sqrt(chance)) and found.runs == n
    assert abs(math.log(found.factor)) <= abs(mean) + 1e-12, "it never goes beyond what was seen"


def test_a_few_per_cent_in_one_run_are_nothing_and_a_factor_of_three_stays_one() -> None:
    assert of([0.05]).factor == 1.0 and not of([0.05]).off
    assert of([0.05] * 40).factor == pytest.approx(math.exp(0.05), rel=0.01), (
        "in forty runs they are something"
    )
    assert not of([0.05] * 40).off, "but nothing to correct"
    for factor in (0.3, 3.0):
        assert of([math.log(factor)]).factor == pytest.approx(factor, rel=0.02) and of([math.log(factor)]).off
    assert of([math.log(1.3)]).off is False and of([math.log(1.4)] * 6).off is True


def test_over_many_worlds_it_errs_less_than_the_plain_mean_where_models_are_nearly_right() -> None:
    """Where they are far off it errs no more; and its spread is the one that the worlds were made with."""
    chance = np.random.default_rng(5)
    for true, runs in ((0.0, 1), (0.0, 5), (0.03, 3), (0.5, 1), (1.1, 5)):
        draws = true + SPREAD * chance.standard_normal((2000, runs))
        shrunk = np.array([math.log(of(row.tolist()).factor) for row in draws])
        plain = draws.mean(axis=1)
        rms, rms_plain = (math.sqrt(np.mean((x - true) ** 2)) for x in (shrunk, plain))
        assert rms <= (0.9 if abs(true) < 0.05 else 1.05) * rms_plain, (true, runs)
    wild = [of(row.tolist()).spread for row in 0.2 * chance.standard_normal((300, 40))]
    assert statistics.fmean(wild) == pytest.approx(0.2, rel=0.15)


def test_it_is_rarely_sure_of_what_is_not() -> None:
    """Models that are exactly at the border are called off in at most one world of forty."""
    chance = np.random.default_rng(6)
    draws = math.log(1.25) + SPREAD * chance.standard_normal((4000, 1))
    assert np.mean([of(row.tolist()).off for row in draws]) <= 0.03


def test_factors_are_bounded_and_say_so() -> None:
    for log in (4.0, -4.0):
        found = of([log])
        assert found.bounded and abs(math.log(found.factor)) == pytest.approx(math.log(MOST))
    assert not of([1.0]).bounded


def test_plans_of_one_run_are_one_observation() -> None:
    assert learned({"a": [0.4] * 20}).error == learned({"a": [0.4]}).error
    assert learned({"a": [0.4] * 20}).plans == 20


# ── of models and VMs ───────────────────────────────────────────────────────────────────────────


def test_a_model_is_judged_by_what_its_rows_cost_in_all_its_tasks() -> None:
    entries = [
        entry("a", task({"vm1": (3.0, 1.0)}, model="m"), task({"vm1": (1.5, 0.5)}, "other", model="m")),
        entry("b", task({"vm1": (0.9, 0.3)}, model="m")),
    ]
    (bias,) = biases(entries).values()
    assert (bias.model, bias.version, bias.by_time) == ("m", "v", False)
    assert bias.cost.raw == pytest.approx(3.0) and bias.cost.runs == 2 and len(bias.plans) == 2


def test_less_cpu_than_is_said_makes_no_task_quicker_whose_threads_are_busy() -> None:
    """A task that sleeps, of a model that says it computes: its rate is right."""
    sleeps = task({"vm1": (0.05, 1.0)}, busy=0.5, predicted_busy=0.5)
    (bias,) = biases([entry("a", sleeps)]).values()
    assert bias.cost.factor == 1.0
    quick = task({"vm1": (0.3, 1.0)}, busy=0.15, predicted_busy=0.5)
    (bias,) = biases([entry("a", quick)]).values()
    assert bias.cost.raw == pytest.approx(0.3)
    unknown = task({"vm1": (0.3, 1.0)}, busy=0.0, predicted_busy=0.05)
    assert biases([entry("a", unknown)]) == {}


def test_where_threads_are_full_first_time_counts() -> None:
    (bias,) = biases([entry("a", task({}, busy=0.9, predicted_busy=0.3, waits=True))]).values()
    assert bias.by_time and bias.cost.raw == pytest.approx(3.0) and bias.cpu is None


def test_what_a_corrected_model_did_speaks_of_the_one_it_comes_from() -> None:
    """Twice as dear as a model that was corrected by 1.5: three times as the first one says."""
    (bias,) = biases([entry("a", task({"vm1": (2.0, 1.0)}, time_factor=1.5, cpu_factor=1.5))]).values()
    assert bias.cost.raw == pytest.approx(3.0)


def test_a_correction_that_made_rows_dear_is_judged_by_what_it_led_to() -> None:
    """Rows that come seldom are quick; those of the plan that this led to are nearly as slow as was said."""
    seldom = entry("a", task({"vm1": (0.5, 1.0)}, busy=0.2, predicted_busy=0.4))
    often = task({"vm1": (1.8, 1.0)}, busy=0.9, predicted_busy=0.5, time_factor=0.5, cpu_factor=0.5)
    (bias,) = biases([seldom, entry("a", often, epoch=2)]).values()
    assert bias.cost.raw == pytest.approx(0.9) and bias.cost.off_from(0.5) and not bias.cost.off


def test_little_says_nothing() -> None:
    assert biases([entry("a", task({"vm1": (0.05, 0.01)}))]) == {}
    assert biases([entry("a", task({"vm1": (3.0, 1.0)}, rate_tps=2.0))]) == {}, "80 rows"


def test_a_slow_vm_is_told_from_a_wrong_model() -> None:
    slow = [entry("a", task({"vm1": (1.0, 1.0), "vm2": (2.0, 1.0), "vm3": (1.02, 1.0)}))]
    (vm,) = slow_vms(slow)
    assert vm == "vm2" and slow_vms(slow)[vm].factor == pytest.approx(2.0, rel=0.02)
    (bias,) = biases(slow, slow_vms(slow)).values()
    assert bias.cost.factor == 1.0, "the model is right"
    wrong = [entry("a", task({"vm1": (3.0, 1.0), "vm2": (3.1, 1.0)}))]
    assert slow_vms(wrong) == {}


def test_a_vm_that_runs_what_models_say_is_not_slow_because_another_is_quick() -> None:
    assert slow_vms([entry("a", task({"vm1": (0.5, 1.0), "vm2": (1.0, 1.0)}))]) == {}


def test_a_vm_is_not_slow_for_having_the_rows_of_a_wrong_model() -> None:
    """Of the rows that are on both, none is dearer there."""
    wrong = task({"vm1": (0.3, 0.1), "vm2": (2.7, 0.9)}, "wrong")
    right = task({"vm1": (0.9, 0.9), "vm2": (0.1, 0.1)}, "right")
    assert slow_vms([entry("a", wrong, right)]) == {}
