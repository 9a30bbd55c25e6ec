"""How well what was predicted fits what was measured: the figures that scripts tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean


def r2(predicted: Sequence[float], actual: Sequence[float]) -> float | None:
    """1 − SSres/SStot about the line predicted = actual, below 0 when the mean would do better; None for fewer
    than three points, or where all are the same."""
    if len(actual) < 3:
        return None
    middle = mean(actual)
    total = sum((value - middle) ** 2 for value in actual)
    rest = sum((p - a) ** 2 for p, a in zip(predicted, actual, strict=True))
    return 1 - rest / total if total > 0 else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of them do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
