"""Seasons in the run: found, believed, given up; and what a plan does with one."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import numpy as np
import pytest
from analysis_made import DemandRun, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.controller.analyze.demand import best_trough, due, lowered
from headgate.controller.analyze.season_detection import (
    AHEAD_S,
    KEPT_S,
    KNOWN,
    Coming,
    SeasonWatch,
)
from headgate.controller.knowledge.diagnoses import Horizon
from headgate.lab.rate_policies.backtest_inputs import KINDS, SEEDS, SETS, drawn, kind_of, made, names_of
from headgate.topology_runtime.rates.season_learning import Handed, period_of

SHARE = 0.002
TAXIS = Path(__file__).resolve().parents[3] / "shared/data/rates/nyc-taxi-30min.csv"


def wave(period_s: float, seconds: int, low: float = 20.0, high: float = 120.0) -> list[float]:
    middle, swing = (low + high) / 2, (high - low) / 2
    return [middle + swing * math.sin(2 * math.pi * n / period_s) for n in range(seconds)]


def square(period_s: float, seconds: int, low: float = 30.0, high: float = 90.0) -> list[float]:
    return [low if n % period_s < period_s / 2 else high for n in range(seconds)]


def watched(rates: list[float]) -> SeasonWatch:
    """Level and trend say that it goes on as it is."""
    watch = SeasonWatch(SHARE)
    for rate in rates:
        watch.hear(rate, rate)
    return watch


@pytest.mark.parametrize("shape", [wave, square])
@pytest.mark.parametrize("period_s", [41.3, 60.0, 97.7, 240.0])
def test_a_period_is_found_that_is_no_whole_second(period_s: float, shape: type) -> None:
    rates = np.array(shape(period_s, round(3.2 * period_s)))
    assert period_of(rates) == pytest.approx(period_s, rel=0.012)
    chance = random.Random(7)
    noisy = rates * [1 + 0.15 * chance.uniform(-1, 1) for _ in rates]
    assert period_of(noisy) == pytest.approx(period_s, rel=0.025)


@pytest.mark.parametrize(
    "name", ["noise-10", "noise-30", "chance-60", "walk", "steps-by-chance", "ramp-5min"]
)
def test_what_does_not_come_back_is_no_season(name: str) -> None:
    watch = SeasonWatch(SHARE)
    for rate in rates_of(name):
        watch.hear(rate, rate)
        assert watch.coming() is None


def rates_of(name: str) -> list[float]:
    series = made(name)
    at = np.searchsorted([at_s for at_s, _ in series.steps], np.arange(series.seconds), "right") - 1
    return [series.steps[int(n)][1] for n in at]


@pytest.mark.parametrize(("day_s", "days"), [(120, 20), (240, 20), (300, 12)])
def test_the_period_of_recorded_days_is_found_exactly(day_s: int, days: int) -> None:
    """Taxis of a city by the half hour: three days apart are less alike than a week."""
    if not TAXIS.exists():
        pytest.skip(f"{TAXIS} is not there")
    with TAXIS.open() as lines:
        rates = np.array([float(row["value"]) for row in csv.DictReader(lines)])
    seconds = np.arange(day_s * days)
    assert period_of(rates[seconds * 48 // day_s]) == pytest.approx(day_s, abs=0.25)


@pytest.mark.parametrize(("shape", "believed_s"), [(wave, 200), (square, 440)])
def test_it_is_believed_after_three_periods_and_foresees_the_next(shape: type, believed_s: int) -> None:
    """Where it rises by a step, so many rows must have come that they would bear one that is not foreseen."""
    rates = shape(60, 600)
    assert watched(rates[:175]).coming() is None
    coming = watched(rates[:believed_s]).coming()
    assert coming is not None and coming.period_s == pytest.approx(60, abs=0.1)
    then = np.array(rates[believed_s : believed_s + 60])
    assert (coming.rates >= then - 1e-6).all(), "with its margin no second comes above it"
    assert coming.rates.mean() < 1.15 * then.mean(), "and not by being high always"
    assert coming.text == "as every 60 s"


def test_a_season_that_ends_is_given_up_and_has_to_prove_itself_for_longer() -> None:
    watch = watched(square(60, 540))
    assert watch.coming() is not None
    for _ in range(10):  # it would be low now
        watch.hear(90.0, 90.0)
    assert watch.coming() is None, "within seconds"
    again_s = None
    for second, rate in enumerate(square(60, 1500)):
        watch.hear(rate, rate)
        if again_s is None and watch.coming() is not None:
            again_s = second
    assert again_s is not None and again_s >= 4 * 60


def test_a_rise_that_could_not_be_borne_makes_a_season_wait() -> None:
    """A peak of ten times the rest, three seconds of which unforeseen are more than 0.7 % of the rows so far."""
    rates = [200.0 if n % 60 >= 45 else 4.0 for n in range(KEPT_S)]
    watch, believed_s = SeasonWatch(SHARE), None
    for second, rate in enumerate(rates):
        watch.hear(rate, rate)
        if believed_s is None and watch.coming() is not None:
            believed_s = second
    assert believed_s is not None and sum(rates[: believed_s + 1]) * 0.007 >= 3 * 196


Rates = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(Rates, st.integers(1, 8), st.floats(0, 50))
def test_whatever_comes_it_foresees_nothing_beyond_what_was_seen(
    rates: list[float], times: int, chance_tps: float
) -> None:
    watch = SeasonWatch(SHARE)
    for rate in rates * times + square(60, 200):
        watch.hear(rate, rate)
        if (coming := watch.coming(chance_tps)) is not None:
            highest = max(KNOWN * max(rates), KNOWN * 90.0)
            assert np.isfinite(coming.rates).all() and (coming.needs <= highest + 1e-6).all()
            assert len(coming.rates) == min(AHEAD_S, math.floor(coming.period_s))


# ── troughs ─────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1, 100), min_size=2, max_size=60), st.floats(0, 30))
def test_the_best_trough_is_the_best_of_all(needs: list[float], held_s: float) -> None:
    """By trying every begin and end."""
    planned = 110.0
    tried = {
        (a, b): (planned - max(needs[a:b])) * (b - a - held_s) / planned
        for a in range(len(needs))
        for b in range(a + 1, len(needs) + 1)
    }
    best = max(tried.values())
    found = best_trough(np.array(needs), planned, held_s)
    if best <= 0:
        assert found is None
        return
    assert found is not None
    assert found.gain_s == pytest.approx(tried[found.begins_s, found.ends_s])
    assert found.gain_s >= best * (0.9 if found.begins_s == 0 else 1 - 1e-9)


def test_a_trough_is_used_though_a_deeper_one_comes_later() -> None:
    soon = lowered(foreseen((40, 50.0), (10, 100.0), (80, 10.0)), 100.0, QUICK, 0.0)
    assert soon.why == "no more than 52.5 rows/s is needed for 40 s, as every 60 s"


def foreseen(*levels: tuple[int, float]) -> Coming:
    rates = np.concatenate([np.full(long_s, tps) for long_s, tps in levels])
    return Coming(rates, 1.05 * rates, 60.0, False)


QUICK = Horizon(1.0, 0.0)


def test_a_trough_is_gone_into_at_once_where_it_is_long_and_not_where_it_is_short() -> None:
    long = lowered(foreseen((40, 30.0), (20, 100.0)), 100.0, QUICK, 0.0)
    assert (
        long.target_tps == pytest.approx(31.5)
        and long.why == "no more than 31.5 rows/s is needed for 40 s, as every 60 s"
    )
    short = lowered(foreseen((16, 30.0), (44, 100.0)), 100.0, QUICK, 0.0)
    assert not short.why and short.no == "no trough is long and deep enough to be worth it, as every 60 s"


def test_a_deeper_trough_is_waited_for_or_stepped_to() -> None:
    waits = lowered(foreseen((6, 70.0), (50, 20.0), (4, 100.0)), 100.0, QUICK, 0.0)
    assert not waits.why and waits.no == "21.0 rows/s is enough in 6 s, as every 60 s: it is waited for"
    steps_there = lowered(foreseen((20, 60.0), (40, 10.0)), 100.0, QUICK, 0.0)
    assert steps_there.target_tps == pytest.approx(63.0)


def test_a_rise_is_due_as_long_before_as_a_plan_takes() -> None:
    coming = foreseen((4, 30.0), (56, 100.0))
    assert due(coming, 40.0, QUICK, 15.0).in_s is None
    soon = due(coming, 40.0, Horizon(1.0, 5.0, room_tps=60.0), 15.0)
    assert (soon.in_s, soon.goal_tps) == (5, pytest.approx(105.0)), "a VM has to come"
    late = Horizon(1.0, 31.0, room_tps=60.0)
    assert due(foreseen((34, 30.0), (86, 100.0)), 40.0, late, 15.0).in_s is None
    assert due(foreseen((32, 30.0), (88, 100.0)), 40.0, late, 15.0).in_s == 33, (
        "a VM takes longer than is looked at else"
    )


# ── plans ───────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_is_raised_before_a_rise_that_is_known() -> None:
    run = DemandRun(steps((0, 30), (30, 90), period_s=60.0), 0.4).go(900)
    ups = [replan for replan in run.replans if replan.after_tps > replan.before_tps and replan.at_s > 500]
    assert len(ups) == 7
    for replan in ups:
        assert 27 <= replan.at_s % 60 <= 29.5 and replan.offered_tps == 30.0
        assert 90 <= replan.after_tps <= 1.1 * 90
    assert any("a rise to 94.5 rows/s is due in" in text and "as every 60 s" in text for text in run.texts)


def test_a_rate_that_breaks_its_habit_is_followed_as_ever() -> None:
    """Nine periods, then high for good: the plan that was lowered for a trough is raised within 4 s."""
    rates = [(float(n), rate) for n, rate in enumerate(square(60, 615))] + [(615.0, 90.0)]
    changes = [rates[0], *(b for a, b in zip(rates, rates[1:], strict=False) if a[1] != b[1])]
    run = DemandRun(steps(*changes), 0.4).go(720)
    assert [replan for replan in run.replans if 600 < replan.at_s < 615 and replan.after_tps < 60]
    assert run.worst_below_s <= 4
    assert not [replan for replan in run.replans if replan.at_s > 620 and replan.after_tps < 90]


# ── the sets to judge it by ─────────────────────────────────────────────────────────────────────


def test_the_series_that_are_held_out_are_others_of_the_same_kinds() -> None:
    assert set(SEEDS) == {"tuned", "held-out"} and len(names_of("held-out")) >= 20
    assert SETS["held-out"] == names_of("held-out")
    for one, other in zip(names_of("tuned"), names_of("held-out"), strict=True):
        assert kind_of(one) == kind_of(other) in KINDS
        tuned, held_out, again = (
            [rate_at(n) for n in range(50)] for rate_at in map(drawn, (one, other, other))
        )
        assert tuned != held_out == again


def handed(period_s: float, shape: list[float]) -> Handed:
    return Handed(period_s, np.array(shape), 1.02 * np.array(shape))


def test_a_season_that_is_handed_over_meanwhile_is_believed_once_it_foresaw() -> None:
    period_s = 240
    rates = wave(period_s, 2 * period_s)
    watch, plain = SeasonWatch(SHARE), SeasonWatch(SHARE)
    for second, rate in enumerate(rates):
        if second == 90:
            watch.hand(handed(period_s, rates[:period_s]))
            assert watch.coming() is None, "not by its word"
        watch.hear(rate, rate)
        plain.hear(rate, rate)
    coming = watch.coming()
    assert coming is not None and coming.handed and plain.coming() is None


def test_a_season_that_is_wrong_is_not_believed_however_often_it_is_handed_over() -> None:
    rates = wave(240, 720)
    wrong = handed(240, square(97.0, 240))
    watch = SeasonWatch(SHARE)
    for second, rate in enumerate(rates):
        if second % 60 == 30:
            watch.hand(wrong)
        watch.hear(rate, rate)
        coming = watch.coming()
        assert coming is None or not coming.handed


def test_a_season_that_is_believed_stays_when_another_is_handed_over() -> None:
    rates = wave(240, 600)
    watch = SeasonWatch(SHARE, handed(240, rates[:240]))
    for second, rate in enumerate(rates):
        if second == 500:
            watch.hand(handed(240, square(97.0, 240)))
        watch.hear(rate, rate)
        coming = watch.coming()
        assert second < 400 or (coming is not None and coming.handed)
