"""Headroom from measured errors: against statistics of its own, planted errors, and readings that are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from analysis_made import line_topology
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

from headgate.controller.analyze.demand import Offer
from headgate.controller.analyze.headroom import ENOUGH_S, LEAST, RatesAbove, headroom
from headgate.controller.analyze.model_bias import plan_error
from headgate.controller.core.prediction_accounting import Accounts
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, TaskKept, corrected
from headgate.controller.models.task_models import Model, ModelSlot, Point

USUAL, SHARE = 1.15, 0.002
ERRORS = st.lists(st.floats(-0.4, 0.4), max_size=40)
NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])


def calm(usual: float = USUAL, came: float = 1.0) -> RatesAbove:
    """Ten minutes in which so many times the forecast came."""
    found = RatesAbove(usual)
    for _ in range(ENOUGH_S):
        found.hear(100.0, 100.0 * came)
    return found


CALM = calm()


# ── plans that are off ──────────────────────────────────────────────────────────────────────────


@given(ERRORS)
def test_it_is_what_the_next_plan_may_be_off_by_as_a_regression_has_it(errors: list[float]) -> None:
    """The conjugate prior by its textbook formulas (Gelman and others, 3.3), with its own numbers: one plan that was
    exact, a scale of three degrees of freedom."""
    z = stats.norm.ppf(0.95)
    mu0, kappa0, nu0 = 0.0, 1.0, 3.0
    scale0 = (math.log(USUAL) / z) ** 2 / 2 / nu0
    n, mean = len(errors), float(np.mean(errors)) if errors else 0.0
    kappa, nu = kappa0 + n, nu0 + n
    location = (kappa0 * mu0 + n * mean) / kappa
    squares = nu0 * scale0 + float(np.sum((np.array(errors) - mean) ** 2)) + kappa0 * n / kappa * mean**2
    predicted = stats.t(nu, location, math.sqrt(squares / nu * (1 + 1 / kappa)))
    expected = min(math.exp(predicted.mean() + z * predicted.std()), USUAL * math.exp(max([0.0, *errors])))
    found = headroom(errors, CALM, USUAL)
    assert found.models == pytest.approx(expected, abs=6e-5)
    assert found.factor == pytest.approx(min(USUAL**2, max(LEAST, expected)), abs=6e-5)


@pytest.mark.parametrize(
    ("bias", "spread"), [(0.0, 0.0), (0.0, 0.03), (0.05, 0.05), (-0.1, 0.04), (0.1, 0.02)]
)
def test_most_plans_that_come_carry_what_they_are_for(bias: float, spread: float) -> None:
    """Planted errors: of plans after the thirty that were measured, about 95 of 100 are off by no more, as far as the
    bounds let headroom follow."""
    chance = np.random.default_rng(7)
    kept = []
    for _ in range(150):
        drawn = bias + spread * chance.standard_normal(31)
        kept.append(drawn[-1] <= math.log(headroom(drawn[:-1].tolist(), CALM, USUAL).factor) + 1e-12)
    assert np.mean(kept) >= 0.92
    true = math.exp(bias + stats.norm.ppf(0.95) * spread)
    settled = headroom((bias + spread * chance.standard_normal(2000)).tolist(), CALM, USUAL).factor
    assert settled == pytest.approx(min(USUAL**2, max(LEAST, true)), rel=0.01)


@given(st.lists(st.floats(0.0, 0.2), max_size=40), st.floats(0.0, 0.2))
def test_the_more_rows_cost_than_predicted_the_more_is_kept(errors: list[float], more: float) -> None:
    near, far = headroom(errors, CALM, USUAL), headroom([e + more for e in errors], CALM, USUAL)
    assert far.factor >= near.factor - 1e-4
    dearest = max([0.0, *errors])
    once, again = headroom([*errors, dearest], CALM, USUAL), headroom([*errors, dearest + more], CALM, USUAL)
    assert again.factor >= once.factor - 1e-4


@given(st.lists(st.floats(-0.4, 0.0), max_size=40))
def test_rows_that_cost_less_than_predicted_never_ask_for_more_than_usual(errors: list[float]) -> None:
    assert headroom(errors, CALM, USUAL).factor <= USUAL + 1e-4


def test_with_no_evidence_it_is_as_ever_and_plans_that_did_as_predicted_lower_it_one_by_one() -> None:
    assert headroom((), RatesAbove(USUAL), USUAL).factor == USUAL
    assert headroom((), CALM, USUAL).factor == USUAL, "calm rates say nothing of models"
    assert headroom([0.0] * 100, RatesAbove(USUAL), USUAL).factor == USUAL, "nor exact models of rates"
    found = [headroom([0.0] * plans, CALM, USUAL).factor for plans in range(60)]
    assert found == sorted(found, reverse=True) and found[1] < 1.1 and found[-1] == LEAST


@given(ERRORS, st.lists(NOT_FINITE, max_size=5))
def test_what_is_no_error_is_none(errors: list[float], others: list[float]) -> None:
    assert headroom([*others, *errors], CALM, USUAL) == headroom(errors, CALM, USUAL)


@settings(max_examples=40)
@given(
    st.lists(st.floats(), max_size=20),
    st.lists(st.tuples(st.floats(), st.floats()), max_size=20),
    st.floats(1.0, 3.0),
)
def test_whatever_is_measured_it_stays_within_its_bounds(
    errors: list[float], rates: list[tuple[float, float]], usual: float
) -> None:
    heard = RatesAbove(usual)
    for foreseen_tps, came_tps in rates:
        heard.hear(foreseen_tps, came_tps)
    found = headroom(errors, heard, usual)
    assert min(LEAST, usual) - 1e-4 <= found.factor <= usual**2 + 1e-4
    assert 1 / 3 - 1e-4 <= found.band <= 1.0


# ── rates that rise meanwhile ───────────────────────────────────────────────────────────────────

SECONDS = st.lists(st.tuples(st.floats(1, 1000), st.floats(0.5, 1.6)), min_size=1, max_size=60)


@settings(max_examples=20)
@given(SECONDS)
def test_of_what_came_no_more_than_the_share_was_above_it(seconds: list[tuple[float, float]]) -> None:
    """A sum of its own over the same seconds again and again; a step less would not have been enough."""
    heard, rounds = RatesAbove(USUAL), -(-ENOUGH_S // len(seconds))
    for foreseen_tps, ratio in seconds * rounds:
        heard.hear(foreseen_tps, foreseen_tps * ratio)
    foreseen, came = np.array([(tps, tps * ratio) for tps, ratio in seconds]).T
    age_s = np.arange(len(seconds) * rounds)[::-1].reshape(rounds, -1)
    weight = (0.5 ** (age_s / 86400)).sum(axis=0)

    def above(share: float) -> float:
        return float((weight * np.maximum(0, np.minimum(came, USUAL * foreseen) - share * foreseen)).sum())

    found, allowed = heard.least(SHARE), SHARE * float((weight * came).sum())
    assert above(found) <= allowed * (1 + 1e-6)
    assert found == 1.0 or above(found - (USUAL - 1) / 60) > allowed * (1 - 1e-6)


def test_gaps_zeros_and_what_is_no_rate_say_nothing() -> None:
    heard, plain = calm(came=1.05), calm(came=1.05)
    heard.hear(0.0, 0.0)
    for nothing in (math.nan, math.inf, -1.0):
        heard.hear(nothing, 5.0)
        heard.hear(5.0, nothing)
    assert heard.least(SHARE) == plain.least(SHARE) and heard.seconds == plain.seconds + 1


def test_a_follower_keeps_what_a_wavering_rate_asks_for_and_a_calm_one_does_not() -> None:
    """Both rates have the same mean; the second is off its forecast by up to a tenth each few seconds."""
    found = []
    for height in (0.0, 0.1):
        following = RateFollower(line_topology())
        for second in range(1, 900):
            rate_tps = 100 * (1 + height * math.sin(second * 1.3) * (second % 7 == 0))
            following.hear(Offer((rate_tps,) * 10), second * 10**9)
        found.append(following.headroom([0.0] * 60))
    assert found[0].factor == LEAST and found[0].rates == 1.0
    assert found[1].rates > 1.0 and found[1].factor >= found[1].rates


# ── what a plan was off by ──────────────────────────────────────────────────────────────────────

MODELS = {name: Model(name, ModelSlot(), (Point(1, 100.0, 0.9, 0.1),)) for name in ("a", "b")}


def task_kept(name: str, cpu: float, **changes: float) -> TaskKept:
    version = corrected(MODELS[name], 1.0, 1.0, {}).more["corrected"]["of"]
    return replace(TaskKept(name, name, version, 50.0, cpu, 0.8, cpu, 0.8, False, {}), **changes)


def entry_of(*tasks: TaskKept, rate: RateKept | None = None) -> LedgerEntry:
    told = rate or RateKept(50.0, 50.0, 90.0, None, "no")
    return LedgerEntry("", "t", "d", "run", 1, "plan", "", 40.0, told, {}, (), tasks, {})


def test_a_plan_is_off_by_its_dearest_task() -> None:
    assert plan_error(entry_of(task_kept("a", 0.8), task_kept("b", 0.88)), MODELS) == pytest.approx(
        math.log(1.1)
    )
    assert plan_error(entry_of(), MODELS) is None
    assert plan_error(entry_of(task_kept("a", 0.9, time_factor=1.3)), MODELS) is None, "of another model"
    assert plan_error(entry_of(task_kept("a", 0.9, rate_tps=1.0)), MODELS) is None, "of 40 rows"


def test_what_a_plan_was_seen_to_carry_counts_more_than_what_its_rows_cost() -> None:
    dear = task_kept("a", 0.96)
    carried = RateKept(90.0, 90.0, 90.0, None, "carried")
    assert plan_error(entry_of(dear, rate=carried), MODELS) == pytest.approx(0.0, abs=1e-9)
    short = RateKept(90.0, 60.0, 90.0, None, "short")
    assert plan_error(entry_of(dear, rate=short), MODELS) == pytest.approx(math.log(1.5))


def test_errors_of_plans_are_those_of_the_newest_entry_of_each_and_of_the_models_of_now() -> None:
    accounts = Accounts()
    for epoch, cpu in ((1, 0.8), (2, 0.88), (2, 0.96)):
        accounts.keep(replace(entry_of(task_kept("a", cpu)), epoch=epoch))
    assert accounts.errors(MODELS) == pytest.approx([0.0, math.log(1.2)])
    dearer = {**MODELS, "a": corrected(MODELS["a"], 1.2, 1.2, {})}
    assert accounts.errors(dearer) == [], "what was measured of another model says nothing of this one"
    assert len(accounts.errors(MODELS)) == 2
    accounts.keep(replace(entry_of(task_kept("a", 0.84)), epoch=3))
    assert len(accounts.errors(MODELS)) == 3
