"""The quick quantile and the quick medians are numpy's to the last bit: a verdict must not depend on which."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.analyze.stability import medians
from headgate.topology_runtime.stability.slopes import (
    block_length,
    pair_slopes,
    quantile,
    resampled,
    resampled_slopes,
    theil_sen,
    trend,
)

values = st.lists(st.floats(-1e9, 1e9) | st.integers(-3, 3).map(float), min_size=3, max_size=60)
checked = examples(60)


@checked
@given(values, st.sampled_from([0.0, 0.025, 0.5, 0.975, 1.0]))
def test_a_quantile_is_numpys(given_values: list[float], share: float) -> None:
    array = np.array(given_values)
    assert quantile(np.sort(array), share) == float(np.percentile(array, 100 * share))


@checked
@given(values)
def test_the_median_slope_is_numpys(given_values: list[float]) -> None:
    x, y = np.arange(float(len(given_values))), np.array(given_values)
    slopes = [(b - a) / (j - i) for i, a in enumerate(y) for j, b in enumerate(y) if i < j]
    assert theil_sen(x, y).value == float(np.median(slopes)) == trend(x, y).value


@checked
@given(values, st.integers(1, 4))
def test_medians_of_seconds_are_numpys(given_values: list[float], each: int) -> None:
    array = np.array(given_values)
    seconds = [slice(begin, begin + each) for begin in range(0, len(array) - each + 1, each)]
    assert medians(array, seconds).tolist() == [float(np.median(array[s])) for s in seconds]


@checked
@given(values)
def test_the_slopes_of_resamples_are_those_of_their_points(given_values: list[float]) -> None:
    x, rest = np.arange(float(len(given_values))), np.array(given_values)
    block = block_length(rest)
    slopes = pair_slopes(x, rest[resampled(len(rest), block)])
    assert np.array_equal(resampled_slopes(x, rest, block), slopes)
