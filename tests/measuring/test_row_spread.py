"""How much rows differ, from sums over calls (row_spread.py): against rows that were drawn."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest

from headgate.topology_runtime.measuring.row_spread import CALLS_LEAST, MOST, Calls, of_rows, row_spread


def summed(rows_us: Sequence[float], sizes: Sequence[int]) -> Calls:
    """What a meter keeps of rows that came in frames of these sizes."""
    left = iter(rows_us)
    sums = [sum(next(left) for _ in range(size)) for size in sizes]
    squares = sum(took**2 / size for took, size in zip(sums, sizes, strict=True))
    return Calls(sum(sizes), len(sizes), sum(sums), squares)


def of_all(rows: Sequence[float]) -> float:
    return math.sqrt(math.log1p((statistics.pstdev(rows) / statistics.fmean(rows)) ** 2))


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.7, 1.2])
@pytest.mark.parametrize("most", [1, 5, 50])
def test_the_spread_of_single_rows_is_found_whatever_frames_they_came_in(spread: float, most: int) -> None:
    chance = random.Random(most)
    sizes = [chance.randint(1, most) for _ in range(4000)]
    rows = [1000 * chance.lognormvariate(0, spread) for _ in range(sum(sizes))]
    assert row_spread([summed(rows, sizes)]) == pytest.approx(of_all(rows), rel=0.1)


def test_rows_that_are_alike_have_none() -> None:
    sizes = [1, 2, 30] * 100
    assert row_spread([summed([40.0] * sum(sizes), sizes)]) == 0.0


def test_few_calls_and_no_time_say_nothing() -> None:
    few = CALLS_LEAST - 1
    assert row_spread([Calls(few, few, 1000.0, 1e6)]) is None
    assert row_spread([Calls(100, 100, 0.0, 0.0)]) is None
    assert row_spread([]) is None
    assert row_spread([Calls(few, few, 1000.0, 1e6)] * 2) is not None, "two seconds together are enough"
    assert row_spread([Calls(100, 100, 1000.0, 1e12)]) == MOST


def test_one_odd_row_of_thousands_does_not_count_and_one_in_thirty_does() -> None:
    usual, odd, slow = [4000.0] * 60, [4000.0] * 59 + [90_000.0], [4000.0] * 58 + [40_000.0] * 2
    seconds = [summed(rows, [1] * 60) for rows in [odd, *[usual] * 20]]
    assert row_spread(seconds) == 0.0
    assert row_spread([summed(slow, [1] * 60)] * 20) == pytest.approx(of_all(slow), abs=0.001)


def test_rows_together_differ_less() -> None:
    chance = random.Random(1)
    sums = [sum(chance.lognormvariate(0, 0.8) for _ in range(9)) for _ in range(20_000)]
    assert of_rows(0.8, 9) == pytest.approx(of_all(sums), rel=0.05)
    assert of_rows(0.8, 1) == 0.8 and of_rows(0.0, 5) == 0.0
