"""How the rate that a placement carries is closed in on, from verdicts alone."""

from __future__ import annotations

import math

import pytest

from experiments.trial_predictions import CLOSE, SURE, TRIALS, Bracket


@pytest.mark.parametrize("capacity", [70.0, 97.0, 103.0, 118.0])
def test_sure_verdicts_close_the_bracket_round_the_capacity(capacity: float) -> None:
    bracket, trials = Bracket(100.0), 0
    while not bracket.closed:
        bracket.judge(bracket.rate_tps <= capacity, SURE)
        trials += 1
    assert bracket.low <= capacity < bracket.high <= CLOSE * bracket.low
    assert trials <= TRIALS


def test_an_unstable_rate_that_is_not_sure_is_tried_once_more() -> None:
    bracket = Bracket(100.0)
    bracket.judge(True, 1.0)
    second = bracket.rate_tps
    bracket.judge(False, SURE - 0.1)
    assert (bracket.rate_tps, bracket.high, bracket.closed) == (second, math.inf, False)
    bracket.judge(True, 1.0)  # it was a hiccup
    assert bracket.low == second < bracket.rate_tps


@pytest.mark.parametrize("again", [SURE - 0.1, 1.0])
def test_unstable_twice_is_unstable(again: float) -> None:
    bracket = Bracket(100.0)
    bracket.judge(False, SURE - 0.1)
    bracket.judge(False, again)
    assert bracket.high == 100.0 > bracket.rate_tps


def test_a_sure_verdict_is_taken_at_once() -> None:
    bracket = Bracket(100.0)
    bracket.judge(False, SURE)
    assert bracket.high == 100.0 > bracket.rate_tps
