"""When to plan for what rate: steps, ramps, flapping, noise, and days of real demand."""

from __future__ import annotations

import csv
import random
from functools import cache
from pathlib import Path

import pytest
from analysis_made import DemandRun, history, steps, window_of

from controller.analyze.demand import HEADROOM, demand
from controller.knowledge.diagnoses import Past
from topology_runtime.schedule import NS, Schedule

TAXI = Path(__file__).resolve().parents[3] / "shared/data/rates/nyc-taxi-30min.csv"
OLD = Past(since_plan_s=1e6)
SEEDS = range(25)

# A day of city taxi demand in half hours as shares of its peak (rounded; 2014-07-01)
DAY = (
    39, 29, 23, 17, 14, 10, 9, 7, 8, 8, 9, 16, 24, 40, 50, 57, 65, 74, 71, 73, 69, 64, 63, 67, 69, 68, 66, 71,
    71, 75, 70, 67, 59, 54, 62, 71, 83, 100, 97, 90, 83, 74, 85, 89, 84, 79, 73, 58,
)  # fmt: skip


def day_of(values: tuple[float, ...], trough: float, peak: float) -> Schedule:
    """48 values stretched to trough … peak, in 120 s."""
    low, high = min(values), max(values)
    rates = [trough + (v - low) * (peak - trough) / (high - low) for v in values]
    return steps(*((2.5 * n, rate) for n, rate in enumerate(rates)), period_s=120.0)


@cache
def taxi_values() -> tuple[float, ...]:
    with open(TAXI, newline="") as file:
        return tuple(float(row["value"]) for row in csv.DictReader(file))


def test_a_step_is_decided_once_within_three_seconds_and_undone_within_fifteen() -> None:
    for phase_s in (0.0, 0.3, 0.7):
        for tick_s in (0.25, 0.5, 1.0):
            run = DemandRun(steps((0, 30), (25, 90), (55, 30)), tick_s, phase_s).go(100)
            up, down = run.replans
            assert 25 < up.at_s <= 28.0
            assert up.after_tps == pytest.approx(90 * HEADROOM), "planned for the whole step at once"
            assert 55 < down.at_s <= 70
            assert down.after_tps == pytest.approx(30 * HEADROOM)


def test_steps_every_thirty_seconds_are_all_followed_in_time() -> None:
    run = DemandRun(steps((0, 30), (30, 90), period_s=60.0), 1.0, 0.4).go(330)
    assert len(run.replans) >= 10
    for replan in run.replans:
        assert replan.at_s % 30 <= 15
    assert run.most_in_a_minute <= 2


@pytest.mark.parametrize("seconds", [5, 10, 20, 30, 60, 120])
def test_a_ramp_is_followed_in_few_steps_and_never_exceeded_for_long(seconds: int) -> None:
    ramp = ((10 + t / 2, 30 + 60 * t / 2 / seconds) for t in range(2 * seconds + 1))
    run = DemandRun(steps((0, 30), *ramp), 0.5).go(seconds + 60)
    assert run.worst_below_s <= 5
    assert 2 <= len(run.replans) <= 7
    assert run.most_in_a_minute <= 5
    assert 90 <= run.replans[-1].after_tps <= 200


def test_the_demo_day_plans_up_and_down() -> None:
    for tick_s in (0.25, 0.5, 1.0):
        for phase_s in (0.0, 0.2, 0.6):
            run = DemandRun(day_of(DAY, 33, 166), tick_s, phase_s).go(120)
            assert 4 <= len(run.replans) <= 8, (tick_s, phase_s)
            assert 1 <= run.downs < len(run.replans)
            assert run.worst_below_s <= 5
            assert run.over <= 2, "planned for at most twice what is offered, on average"


@pytest.mark.skipif(not TAXI.exists(), reason=f"{TAXI} is not on this machine")
def test_real_days_of_taxi_demand_plan_up_and_down() -> None:
    counts = []
    for day in range(0, 210, 7):
        values = taxi_values()[48 * day : 48 * day + 48]
        rates = ((2.5 * n, value * 0.006) for n, value in enumerate(values))
        run = DemandRun(steps(*rates, period_s=120.0), 1.0, random.Random(day).random()).go(120)
        assert run.worst_below_s <= 5, f"day {day}"
        assert run.downs >= 1, f"day {day}"
        counts.append(len(run.replans))
    assert min(counts) >= 3
    assert max(counts) <= 8
    assert sum(n >= 4 for n in counts) >= 0.9 * len(counts), counts


def square(seed: int, most_period_s: float, most_ratio: float) -> tuple[Schedule, DemandRun, str]:
    chance = random.Random(seed)
    low, period = chance.uniform(5, 50), chance.uniform(2, most_period_s)
    high = low * chance.uniform(1.02, most_ratio)
    first, second = (low, high) if chance.random() < 0.5 else (high, low)
    wave = steps((0, first), (period / 2, second), period_s=period)
    run = DemandRun(wave, chance.choice((0.25, 0.5, 1.0)), chance.random(), chance.uniform(0.3, 2))
    return wave, run.go(240), f"seed {seed}: {first:.1f} ↔ {second:.1f} t/s every {period:.1f} s"


def test_a_rate_that_flaps_fast_causes_two_plans_a_minute_at_most() -> None:
    for seed in SEEDS:
        _, run, text = square(seed, 16, 6)
        assert run.most_in_a_minute <= 2, text


def test_a_rate_that_flaps_is_held_high_once_it_was_seen_to_come_back() -> None:
    for seed in SEEDS:
        _, run, text = square(seed, 45, 6)
        assert len(run.replans) <= 3, text


def test_a_rate_that_flaps_about_a_threshold_causes_two_plans_at_most() -> None:
    for seed in SEEDS:
        _, run, text = square(seed, 120, 1.6)
        assert len(run.replans) <= 2, text


def test_any_wave_causes_two_plans_a_minute_on_average() -> None:
    for seed in SEEDS:
        _, run, text = square(seed, 120, 6)
        assert len(run.replans) <= 2 * 4 + 1, text
        assert run.most_in_a_minute <= 3, text


def test_ten_percent_of_noise_causes_two_plans_at_most_whatever_was_planned() -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        base, every = chance.uniform(5, 100), chance.choice((0.5, 1, 2.5, 5))
        noisy = [(n * every, base * chance.uniform(0.9, 1.1)) for n in range(int(240 / every))]
        run = DemandRun(steps(*noisy), 0.5, chance.random()).go(240, base * chance.uniform(0.6, 2))
        assert len(run.replans) <= 2, f"seed {seed}"


def test_a_rising_rate_is_planned_ahead_and_a_falling_one_is_not() -> None:
    def stairs(now_s: float, up: bool) -> Schedule:
        return steps(*((n * 2.5, 50 + 8 * n if up else 178 - 8 * n) for n in range(17)))

    rising = demand(window_of(history(lambda s: stairs(40, True).offered(int(s * NS)), 40.0)), 200.0, OLD)
    assert rising.target_tps > (178 + 10) * HEADROOM
    assert rising.target_tps <= 2 * 178 * HEADROOM
    falling = demand(window_of(history(lambda s: stairs(40, False).offered(int(s * NS)), 40.0)), 500.0, OLD)
    assert falling.rate_tps <= 60
    assert falling.target_tps >= falling.rate_tps * HEADROOM


def test_it_says_why_not() -> None:
    found = demand(window_of(history(lambda s: 80 * s, 60.0)), 150.0, OLD)
    assert found.direction == "same"
    assert "scale down rejected: target 80.0 t/s × 1.25 = 100.0 ≥ 0.6 × 150.0" in found.rejected
    assert "scale up rejected: 80.0 t/s ≤ 0.9 × 150.0 planned" in found.rejected
    young = demand(window_of(history(lambda s: 140 * s, 60.0)), 150.0, Past(since_plan_s=4.0))
    assert (young.direction, young.target_tps) == ("same", pytest.approx(140 * HEADROOM))
    assert any("the plan is 4.0 s old of 10 s" in no for no in young.rejected)
    lately = demand(window_of(history(lambda s: 20 * s, 60.0)), 150.0, Past(50.0, since_down_s=51.0))
    assert any("lowered 51 s ago" in no for no in lately.rejected)
    raised = demand(window_of(history(lambda s: 20 * s, 60.0)), 150.0, Past(14.0, since_up_s=15.0))
    assert any("raised 15 s ago" in no for no in raised.rejected)


def test_an_idle_topology_is_lowered_to_a_rate_that_can_be_planned() -> None:
    run = DemandRun(steps((0, 100), (5, 0)), 1.0).go(900)
    assert run.replans
    assert all(replan.after_tps > 0 for replan in run.replans)
    assert run.replans[-1].after_tps <= 1.25
    assert len(run.replans) <= 4


def test_too_little_history_asks_for_nothing() -> None:
    found = demand(window_of(history(lambda s: 1000 * s, 1.0)), 10.0, OLD)
    assert (found.direction, found.target_tps) == ("same", 10.0)


def test_the_same_window_gives_the_same_answer_and_evidence_is_plain() -> None:
    window = window_of(history(lambda s: 80 * s, 60.0))
    assert demand(window, 70.0, OLD) == demand(window, 70.0, OLD)
    values = demand(window, 70.0, OLD).evidence
    assert all(type(value) is float for value in values.values())
    assert "since_up_s" not in values, "infinite ages are left out"
