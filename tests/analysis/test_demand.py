"""When to plan for what rate: steps, ramps, spikes, flapping, noise, and days of real demand."""

from __future__ import annotations

import csv
import random
from functools import cache
from pathlib import Path

import pytest
from analysis_made import DemandRun, history, needed_for, steps
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.controller.analyze.demand import HEADROOM, planned_for
from headgate.controller.knowledge.diagnoses import Demand, Past
from headgate.topology_runtime.rates.schedule import Schedule

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


@pytest.mark.parametrize("phase_s", [0.0, 0.3, 0.7])
def test_a_step_is_one_plan_within_four_seconds_and_undone_within_twenty(phase_s: float) -> None:
    run = DemandRun(steps((0, 30), (300, 90), (600, 30)), phase_s).go(680)
    up, *downs = run.replans
    down = downs[-1]
    assert 301.5 <= up.at_s <= 304
    assert up.after_tps == pytest.approx(90 * HEADROOM, rel=0.02), "planned for the whole step at once"
    assert len(downs) <= 2 and 609 <= downs[0].at_s <= 620
    assert 30 * HEADROOM <= down.after_tps <= 70, "a step as that came once: it is half ready for another"


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.floats(1.2, 50), st.floats(0.1, 1.0))
@example(0.33, 22.0, 0.69)  # ends within the second after the one it begins in
def test_a_spike_of_a_second_causes_no_plan(phase_s: float, height: float, long_s: float) -> None:
    run = DemandRun(steps((0, 40), (30, 40 * height), (30 + long_s, 40)), phase_s).go(60)
    assert not run.replans


def test_steps_every_half_minute_are_two_plans_a_minute_at_most() -> None:
    """Held high at first, since it comes back; lowered and raised with it once that is known."""
    run = DemandRun(steps((0, 30), (30, 90), period_s=60.0), 0.4).go(900)
    at_s = [replan.at_s for replan in run.replans if replan.at_s < 440 or replan.at_s > 480]
    assert max(sum(a <= b < a + 60 for b in at_s) for a in at_s) <= 2
    assert len([replan for replan in run.replans if 180 < replan.at_s < 240]) <= 2


@pytest.mark.parametrize("seconds", [5, 10, 20, 30, 60, 120])
def test_a_ramp_is_followed_in_few_steps_and_never_exceeded_for_long(seconds: int) -> None:
    ramp = ((10 + t / 2, 30 + 60 * t / 2 / seconds) for t in range(2 * seconds + 1))
    run = DemandRun(steps((0, 30), *ramp)).go(seconds + 60)
    assert run.worst_below_s <= 4
    assert 1 <= len(run.replans) <= 8
    assert run.most_in_a_minute <= 6
    assert 90 <= run.replans[-1].after_tps <= 140


def test_the_demo_day_plans_up_and_down() -> None:
    for phase_s in (0.0, 0.2, 0.6):
        run = DemandRun(day_of(DAY, 33, 166), phase_s).go(120)
        assert 3 <= len(run.replans) <= 12, phase_s
        assert run.worst_below_s <= 5 and run.longest_wait_s <= 2
        assert run.over <= 1.6, "planned for at most that much more than is offered, on average"


@pytest.mark.skipif(not TAXI.exists(), reason=f"{TAXI} is not on this machine")
def test_real_days_of_taxi_demand_plan_up_and_down() -> None:
    for day in range(0, 210, 7):
        values = taxi_values()[48 * day : 48 * day + 48]
        rates = ((2.5 * n, value * 0.006) for n, value in enumerate(values))
        run = DemandRun(steps(*rates, period_s=120.0), random.Random(day).random()).go(120)
        assert run.longest_wait_s <= 5, f"day {day}"
        assert run.downs >= 1, f"day {day}"
        assert 2 <= len(run.replans) <= 12, f"day {day}"


def square(seed: int, most_period_s: float, most_ratio: float) -> tuple[DemandRun, str]:
    chance = random.Random(seed)
    low, period = chance.uniform(5, 50), chance.uniform(8, most_period_s)
    high = low * chance.uniform(1.02, most_ratio)
    first, second = (low, high) if chance.random() < 0.5 else (high, low)
    run = DemandRun(
        steps((0, first), (period / 2, second), period_s=period), chance.random(), chance.uniform(0.3, 2)
    )
    return run.go(240), f"seed {seed}: {first:.1f} ↔ {second:.1f} rows/s every {period:.1f} s"


@pytest.mark.parametrize("most_period_s", [16, 45, 120])
def test_no_square_wave_causes_more_than_two_plans_a_minute_on_average(most_period_s: float) -> None:
    for seed in SEEDS:
        run, text = square(seed, most_period_s, 6)
        assert run.most_in_a_minute <= 5, text
        assert len(run.replans) <= 2 * 4, text


def test_ten_percent_of_noise_causes_few_plans_whatever_was_planned() -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        base, every = chance.uniform(5, 100), chance.choice((0.5, 1, 2.5, 5))
        noisy = [(n * every, base * chance.uniform(0.9, 1.1)) for n in range(int(240 / every))]
        run = DemandRun(steps(*noisy), chance.random()).go(240, base * chance.uniform(0.6, 2))
        assert len(run.replans) <= 4, f"seed {seed}"
        assert not [replan for replan in run.replans if replan.at_s > 150], f"seed {seed}: it goes on"


def spiky(every_s: float) -> Schedule:
    return steps((0, 50), (every_s - 3, 150), period_s=every_s)


def test_known_bursts_are_left_to_the_queue_and_it_says_so() -> None:
    run = DemandRun(spiky(20)).go(400)
    late = [replan for replan in run.replans if replan.at_s > 120]
    assert len(late) <= 1, "a plan for each burst would come too late for it"
    assert run.over <= 1.4
    assert any(
        "bursts to 150 rows/s lately: the queue takes them, rows may wait 5 s" in text for text in run.texts
    )


def test_where_rows_may_hardly_wait_headroom_is_kept_for_bursts() -> None:
    run = DemandRun(spiky(20), queue_s=0.1).go(400)
    assert run.replans[-1].after_tps >= 0.9 * 150 and run.replans[-1].at_s < 60
    assert run.last is not None and "headroom is kept for them" in run.last.text


def test_a_rising_rate_is_planned_ahead_and_a_falling_one_is_not() -> None:
    def rate(now_s: float, up: bool) -> float:
        return 50 * now_s + (1.6 if up else -1.6) * now_s**2 / 2 + (0 if up else 120 * now_s)

    rising = needed_for(history(lambda s: rate(s, True), 60.0), 100.0, OLD)
    assert rising.direction == "up" and rising.target_tps > (50 + 1.6 * 60 + 5) * HEADROOM
    falling = needed_for(history(lambda s: rate(s, False), 60.0), 500.0, OLD)
    assert falling.direction == "down" and falling.rate_tps <= 76
    assert falling.target_tps >= falling.rate_tps * HEADROOM


def at(rate_tps: float, planned_tps: float, past: Past = OLD) -> Demand:
    return needed_for(history(lambda s: rate_tps * s, 60.0), planned_tps, past)


def test_it_says_why_not() -> None:
    found = at(80, 100)
    assert found.direction == "same"
    assert "scale down rejected: 92.0 rows/s needed ≥ 0.85 × 100.0 planned" in found.rejected
    assert "scale up rejected: 80.0 rows/s ≤ 100.0 planned" in found.rejected
    young = at(110, 100, Past(since_plan_s=0.5))
    assert young.direction == "same"
    assert any(
        "110.0 rows/s > 100.0 planned, but the plan is 0.5 s old of 1 s" in no for no in young.rejected
    )
    lately = at(20, 150, Past(50.0, since_down_s=12.0))
    assert any("the plan was lowered 12 s ago, 15 s must pass" in no for no in lately.rejected)
    undone = at(20, 150, Past(50.0, since_up_s=60.0, undone=2))
    assert any("the plan was raised 60 s ago, 65 s must pass" in no for no in undone.rejected)


def test_an_idle_topology_is_lowered_to_a_rate_that_can_be_planned() -> None:
    run = DemandRun(steps((0, 100), (5, 0))).go(900)
    assert run.replans
    assert all(replan.after_tps > 0 for replan in run.replans)
    assert run.replans[-1].after_tps <= 2.0
    assert len(run.replans) <= 6


def test_too_little_history_asks_for_nothing() -> None:
    found = needed_for(history(lambda s: 1000 * s, 1.0), 10.0, OLD)
    assert (found.direction, found.target_tps) == ("same", 10.0)


def test_the_same_seconds_give_the_same_answer_and_evidence_is_plain() -> None:
    assert at(80, 70) == at(80, 70)
    values = at(80, 70).evidence
    assert all(type(value) is float for value in values.values())
    assert "since_up_s" not in values, "infinite ages are left out"


@pytest.mark.parametrize("offered_tps", [10.0, 60.0, 80.0, 99.0, 101.0, 300.0])
def test_what_is_planned_for_a_steady_rate_is_what_is_said_of_it(offered_tps: float) -> None:
    run = DemandRun(steps((0, 100 / HEADROOM), (60, offered_tps))).go(900)
    last = run.replans[-1].after_tps if run.replans else 100.0
    assert last == pytest.approx(planned_for(offered_tps, 100.0), rel=0.03)
