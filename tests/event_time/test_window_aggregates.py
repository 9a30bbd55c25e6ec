"""What windows make of rows: exact where it is said, near where a sketch is, the same in any order."""

from __future__ import annotations

import math
import random
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windows_world import ran, row_of, rows_of

from headgate import windows as w

VALUES = st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e300, 1e300))


def value_of(values: list[Any], aggregate: Any, **params: Any) -> Any:
    """Of one window with these values."""
    rows = [row_of(1, v=value) for value in values]
    (result,) = rows_of(rows, windows=w.tumbling(10), aggregate=aggregate, **params)
    return result["value"]


def merged(values: list[Any], aggregate: Any) -> Any:
    """The same by sessions that a last row joins: values merge."""
    rows = [row_of(number * 20, v=value) for number, value in enumerate(values)]
    bridges = [row_of(number * 10, v=None) for number in range(2 * len(values))]
    random.Random(len(values)).shuffle(bridges)
    (result,) = rows_of([*rows, *bridges], windows=w.session(11), aggregate=aggregate, lateness=1e6)
    return result["value"]


@given(st.lists(VALUES, min_size=1, max_size=12))
def test_sums_and_means_are_exact_and_do_not_depend_on_the_order(values):
    true = sum(map(Fraction, values))
    total = value_of(values, w.sum_of("v"))
    assert total == (float(true) if any(isinstance(v, float) for v in values) else true)
    assert total == value_of(values[::-1], w.sum_of("v")) == merged(values, w.sum_of("v"))
    assert value_of(values, w.mean_of("v")) == merged(values, w.mean_of("v"))


def test_none_is_passed_over_and_a_window_of_nothing_has_no_value():
    values = [None, 3, None, 5]
    several = w.several(
        rows=w.count(), values=w.count("v"), total=w.sum_of("v"), mean=w.mean_of("v"), low=w.min_of("v"),
        high=w.max_of("v"), kinds=w.distinct("v"), median=w.quantile("v"), best=w.top(1, "v"),
    )  # fmt: skip
    assert value_of(values, several) == {
        "rows": 4, "values": 2, "total": 8, "mean": 4.0, "low": 3, "high": 5, "kinds": 2, "median": 3.0,
        "best": [row_of(1, v=5)],
    }  # fmt: skip
    nothing = value_of([None], several)
    assert nothing["total"] is nothing["mean"] is nothing["low"] is nothing["median"] is None
    assert nothing["rows"] == 1 and nothing["kinds"] == 0 and nothing["best"] == []
    assert merged([3, 5, None], w.min_of("v")) == 3


def test_values_that_are_none_of_their_kind_are_dead_letters_and_change_no_window():
    bad = ["x", float("nan"), float("inf"), [1], 1 << 62, Decimal("1.5")]
    rows = [row_of(1, v=1 << 62), *(row_of(1, v=value) for value in bad), row_of(1), row_of(1, v=7.5)]
    every = w.several(kept=w.collect("v"), total=w.sum_of("v"), median=w.quantile("v"))
    result = ran(rows, windows=w.tumbling(10), aggregate=every)
    assert [letter.row.get("v") for letter in result.dead_letters][3:5] == [[1], 1 << 62]
    # … then the row without the field, and 7.5: a Decimal goes with whole numbers, and no float with it
    assert [letter.row.get("v") for letter in result.dead_letters][5:] == [None, 7.5]
    ((kept, total, _),) = [tuple(row["value"].values()) for row in result.rows["keep"]]
    assert kept == [1 << 62, Decimal("1.5")] and total == (1 << 62) + Decimal("1.5")


@pytest.mark.parametrize("error", [0.05, 0.01])
@pytest.mark.parametrize("seed", range(4))
def test_quantiles_are_off_by_their_error_at_most(seed, error):
    rng = random.Random(seed)
    values = [
        [rng.lognormvariate(0, 3) for _ in range(800)],
        [rng.gauss(0, 1e-9) for _ in range(800)],
        [float(rng.randrange(-5, 5)) for _ in range(800)],
        [10 ** rng.uniform(-300, 300) * rng.choice([-1, 1]) for _ in range(800)],
    ][seed]
    shares = [0, 0.01, 0.25, 0.5, 0.9, 0.999, 1]
    found = value_of(values, w.quantile("v", shares, error))
    for share, near in zip(shares, found, strict=True):
        true = sorted(values)[math.floor(share * (len(values) - 1))]
        assert abs(near - true) <= error * abs(true) * 1.000001
    assert found == value_of(sorted(values), w.quantile("v", shares, error))
    some = values[:8]
    assert merged(some, w.quantile("v", 0.5, error)) == value_of(some, w.quantile("v", 0.5, error))


@pytest.mark.parametrize("many", [0, 1, 256, 257, 1_500])
def test_distinct_values_are_near(many):
    values = [f"user {number}" for number in range(many)]
    rows = [row_of(1, v=value) for value in values + values[:100]] or [row_of(1, v=None)]
    (result,) = rows_of(rows, windows=w.tumbling(10), aggregate=w.distinct("v", 0.02))
    assert abs(result["value"] - many) <= (0 if many <= 256 else 4 * 0.02 * many)
    back = rows_of(rows[::-1], windows=w.tumbling(10), aggregate=w.distinct("v", 0.02))
    assert back[0]["value"] == result["value"]


def test_the_standard_error_of_distinct_is_as_said():
    """Over 24 sets of 400 values, one after the other through the same window of other keys."""
    rows = [{"k": f"w{turn}", "t": 1, "v": (turn, number)} for turn in range(24) for number in range(400)]
    found = rows_of(rows, w.EventWindow, windows=w.tumbling(10), aggregate=w.distinct("v", 0.05))
    shares = [row["value"] / 400 - 1 for row in found]
    assert len(shares) == 24
    assert 0.02 < statistics.pstdev(shares, 0.0) < 0.08
    assert abs(statistics.mean(shares)) < 0.025


def test_equal_values_are_one_and_others_are_not():
    same = [1, 1.0, True, (1, 2), (1.0, 2), {"a": 1, "b": 2}, {"b": 2, "a": 1.0}]
    assert value_of(same, w.distinct("v")) == 3
    assert value_of(["1", 1, b"1", None, [1], (1,)], w.distinct("v")) == 5


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), min_size=1, max_size=20), st.integers(1, 5))
def test_the_best_rows_are_the_same_in_any_order(pairs, k):
    rows = [row_of(1, v=value, n=n) for value, n in pairs]
    (found,) = rows_of(rows, windows=w.tumbling(10), aggregate=w.top(k, "v"))
    (back,) = rows_of(rows[::-1], windows=w.tumbling(10), aggregate=w.top(k, "v"))
    assert found["value"] == back["value"]
    assert [row["v"] for row in found["value"]] == sorted((value for value, _ in pairs), reverse=True)[:k]


def dearer(one: Any, other: Any) -> Any:
    return one if one["v"] >= other["v"] else other


def nothing() -> list[Any]:
    return [0, 0]


def put(value: list[Any], row: Any) -> list[Any]:
    return [value[0] + row["v"], value[1] + 1]


def both(value: list[Any], other: list[Any]) -> list[Any]:
    return [value[0] + other[0], value[1] + other[1]]


def mean(value: list[Any]) -> float:
    return float(value[0] / (value[1] - 2))


def cents(row: Any) -> int:
    return round(row["v"] * 100)


def test_aggregates_of_ones_own():
    assert value_of([3, 9, 4], w.reduce(dearer))["v"] == 9
    assert value_of([1.25, 2.5], w.sum_of(cents)) == 375
    own = w.aggregate(nothing, put, both, mean)
    assert value_of([3, 9, 4], own) == 16.0
    rows = [row_of(0, v=1), row_of(12, v=2), row_of(6, v=4)]
    assert rows_of(rows, windows=w.session(7), aggregate=own, lateness=50)[0]["value"] == 7.0


def test_a_result_that_raises_is_a_dead_letter_and_costs_no_other_window():
    """`mean` divides by 0 for two rows."""
    given = [row_of(t, v=t) for t in (1, 2, 11, 12, 13, 21, 35)]
    for windows, more in ((w.tumbling(10), {}), (w.tumbling(10), {"late": 5}), (w.session(5), {})):
        result = ran(given, windows=windows, aggregate=w.aggregate(nothing, put, both, mean), **more)
        assert [row["start"] for row in result.rows["keep"]] == [
            11.0 if "session" in windows else 10.0,
            *((21.0, 35.0) if "session" in windows else (20.0, 30.0)),
        ]
        (letter,) = result.dead_letters
        assert "ZeroDivisionError" in letter.error
        assert result.states == {"timed": {}}
