"""Where a measurement becomes steady: found in its own bins, not guessed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_PART = 0.5  # of the bins: what is not steady by then is no warm-up


def steady_from(values: Sequence[float]) -> int:
    """The bin from which the rest is most alike: the marginal standard error rule (MSER).

    It cuts where the variance of what is left, divided by its number, is least: cutting a slow start
    pays, cutting steady bins costs. 0 for fewer than four bins."""
    best, best_error = 0, float("inf")
    for start in range(int(len(values) * LONGEST_PART) + 1 if len(values) >= 4 else 1):
        rest = values[start:]
        mean = sum(rest) / len(rest)
        error = sum((value - mean) ** 2 for value in rest) / len(rest) ** 2
        if error < best_error * (1 - 1e-9):
            best, best_error = start, error
    return best


def growth(rows: Sequence[int], sizes: Sequence[int]) -> float:
    """Bytes kept per row: the median slope over pairs half the measurement apart, if sizes never stop
    growing; 0 when they do. `rows`: done so far, `sizes`: resident bytes, at the same times."""
    half = len(rows) // 2
    if half < 2 or sizes[-1] <= sizes[-1 - half // 2]:
        return 0.0
    slopes = sorted(
        (sizes[i + half] - sizes[i]) / max(1, rows[i + half] - rows[i]) for i in range(len(rows) - half)
    )
    return slopes[len(slopes) // 2] if slopes[0] > 0 else 0.0
