"""What a forecast says against what then comes: on made series whose second half it has not seen, and on any rates."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.controller.analyze.forecast import MEMORY_S, RateForecast
from headgate.controller.backtesting.series import MADE, made

AHEAD_S = 4
COVERED = (
    "noise-10",
    "noise-30",
    "chance-60",
    "day",
    "day-noise",
    "sine-60s",
    "sine-240s",
    "square-60s",
    "saw-60s",
)


def heard(rates: list[float], queue_s: float = 5.0) -> RateForecast:
    forecast = RateForecast(queue_s)
    for rate in rates:
        forecast.hear(rate)
    return forecast


def rates_of(name: str) -> list[float]:
    series = made(name)
    rates, steps = [], list(series.steps)
    for second in range(int(series.seconds)):
        while len(steps) > 1 and steps[1][0] <= second:
            steps.pop(0)
        rates.append(steps[0][1])
    return rates


@pytest.mark.parametrize("name", COVERED)
def test_the_margin_covers_what_then_comes(name: str) -> None:
    """Of the rows of the second half at most one in a hundred comes above forecast and margin made `AHEAD_S` before;
    the margin was learned from the ten minutes before alone. Counted here by itself."""
    rates, forecast = rates_of(name), RateForecast(5.0)
    foreseen, above, came = [0.0] * len(rates), 0.0, 0.0
    for second, rate in enumerate(rates):
        if second >= len(rates) // 2:
            above += max(0.0, rate - foreseen[second - AHEAD_S])
            came += rate
        forecast.hear(rate)
        foreseen[second] = forecast.level_tps + forecast.rise_tps(AHEAD_S) + forecast.margin_tps(AHEAD_S)
    assert above / came <= 0.01


def test_the_margin_is_no_larger_than_it_has_to_be() -> None:
    """A rate without errors has none, noise one within the noise."""
    assert heard([80.0] * 300).margin_tps(AHEAD_S) == 0.0
    noise = heard(rates_of("noise-10")[:600]).margin_tps(AHEAD_S)
    assert 2.0 < noise <= 16.0 + 1e-9


def test_a_trend_is_followed_and_damped() -> None:
    forecast = heard([50.0] * 30 + [50.0 + second for second in range(60)])
    assert forecast.trend == pytest.approx(1.0, rel=0.35)
    rises = [forecast.rise_tps(ahead_s) for ahead_s in (1, 5, 20, 60, 600)]
    assert rises == sorted(rises) and rises[-1] < 10.0, "however far one looks"
    assert heard([110.0 - second for second in range(60)]).rise_tps(20) == 0.0


def test_a_step_is_a_level_and_no_trend() -> None:
    forecast = heard([30.0] * 60 + [90.0] * 2)
    assert forecast.level_tps == pytest.approx(90.0)
    assert forecast.rise_tps(60) < 1.0


def test_a_lone_step_leaves_no_margin_and_a_second_one_does() -> None:
    """Up for a while and down again: nothing says that it comes back, before it has."""
    step = [30.0] * 60 + [90.0] * 40 + [30.0] * 60
    once, twice = heard(step), heard(step + step)
    assert once.margin_tps(AHEAD_S) == 0.0
    assert once.needed(30.0, 1.15, AHEAD_S) == (pytest.approx(34.5), "level")
    assert twice.needed(30.0, 1.15, AHEAD_S).tps > 75.0
    smaller = heard(step + [30.0] * 60 + [40.0] * 40 + [30.0] * 60)
    assert smaller.margin_tps(AHEAD_S) < 10.0, "a step of 10 says nothing of one of 60"


def spikes(every_s: int, long_s: int, seconds: int = 300) -> list[float]:
    return [150.0 if n % every_s >= every_s - long_s else 50.0 for n in range(seconds)]


@pytest.mark.parametrize("long_s", [1, 2, 3])
def test_bursts_are_known_from_the_second_on(long_s: int) -> None:
    rates = spikes(20, long_s)
    assert heard(rates[:21]).bursts.number == 0
    known = heard(rates[:41]).bursts
    assert (known.number, known.peak_tps) == (2, 150.0)
    after = heard(rates + [50.0] * (MEMORY_S + 20))
    assert after.bursts.number == 0, "and forgotten"


def test_what_lasts_is_no_burst() -> None:
    assert heard(spikes(60, 10)).bursts.number == 0
    assert heard(spikes(60, 40)).bursts.number == 0


@pytest.mark.parametrize("queue_s", [0.1, 1.0, 5.0])
def test_what_is_carried_for_bursts_keeps_their_rows_within_the_wait(queue_s: float) -> None:
    """A queue, row by row in steps of 10 ms, that shares no code with the forecast."""
    rates = spikes(20, 3)
    carried = max(heard(rates, queue_s).burst_tps(50.0), 1.15 * 50.0)
    waiting = worst_s = 0.0
    for rate in rates:
        for _ in range(100):
            waiting = max(0.0, waiting + (rate - carried) / 100)
            worst_s = max(worst_s, waiting / carried)
    assert worst_s <= queue_s
    if queue_s < 0.5:
        assert carried > 0.9 * 150.0, "where rows may hardly wait, headroom is kept"


Series = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=80)


@settings(max_examples=60, deadline=None)
@given(Series, st.floats(0.05, 10), st.integers(1, 60))
def test_whatever_comes_it_stays_finite_and_within_what_was_seen(
    rates: list[float], queue_s: float, ahead_s: int
) -> None:
    forecast = heard(rates, queue_s)
    base = min(rates[-2:])
    needed = forecast.needed(base, 1.15, ahead_s)
    assert all(math.isfinite(x) for x in (forecast.level_tps, forecast.trend, needed.tps))
    assert needed.tps >= 1.15 * base
    highest = max(rates)
    assert needed.tps <= max(1.15 * base, base + forecast.level_tps, highest) + 1e-6
    assert forecast.rise_tps(ahead_s) <= forecast.level_tps + 1e-6
    assert forecast.recent_tps <= highest


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.5, 200))
def test_it_is_the_same_at_any_scale(seed: int, factor: float) -> None:
    chance = random.Random(seed)
    rates = [chance.uniform(20, 100) for _ in range(60)]
    one, other = heard(rates), heard([factor * rate for rate in rates])
    assert other.level_tps == pytest.approx(factor * one.level_tps, rel=1e-6)
    assert other.margin_tps(4) == pytest.approx(factor * one.margin_tps(4), rel=1e-6, abs=1e-6)


def test_a_second_costs_no_more_after_an_hour() -> None:
    forecast = heard([50.0] * (2 * MEMORY_S))
    before = forecast.seconds
    for _ in range(MEMORY_S):
        forecast.hear(50.0)
    assert forecast.seconds == before == MEMORY_S


def test_made_series_are_the_same_each_time() -> None:
    assert len(MADE) >= 20
    assert all(made(name).steps == made(name).steps for name in MADE)
