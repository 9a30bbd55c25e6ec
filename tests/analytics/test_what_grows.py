"""What `scripts/experiments/follow_load.py` says of memory and turns that grow, or do not."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.follow_load import slope_h


@pytest.mark.parametrize("slope", [0.0, 360.0])
def test_a_slope_is_told_per_hour_with_an_interval_that_holds_it(slope: float) -> None:
    at_s = np.repeat(np.arange(0.0, 1800.0, 20.0), 15)  # moments of a turn are one moment of the run
    noise = np.random.default_rng(5).normal(0.0, 20.0, len(at_s))
    value, low, high = slope_h(list(at_s), list(2000 + slope * at_s / 3600 + noise))
    assert low <= slope <= high and high - low < 200
    assert value == pytest.approx(slope, abs=50)
    assert (low > 0) == (slope > 0)
