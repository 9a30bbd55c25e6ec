"""Computes π by Viète's product: a task of floating-point arithmetic (paper 0, section 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log10, pi, sqrt
from time import thread_time_ns
from typing import Any, TypeVar

from headgate.topology_runtime.api.logic import any_thread
from headgate.topology_runtime.tasks.ready_made import number_of


@any_thread
class Pi:
    """For each row evaluates `terms` terms of the product `repeats` times and gives {id, pi}. 15 terms
    alone take less than a microsecond; so many repeats take about as long as the paper's task did (105
    rows/s on one core)."""

    def __init__(self, terms: int = 15, repeats: int = 12_000) -> None:
        if terms < 1 or repeats < 1:
            raise ValueError("terms and repeats: at least 1")
        self._terms = terms
        self._repeats = repeats

    def __call__(self, row: Any) -> dict[str, float]:
        value = 0.0
        for _ in range(self._repeats):
            value = viete(self._terms)
        return {"id": number_of(row), "pi": value}


def viete(terms: int) -> float:
    """2/π = √2/2 · √(2+√2)/2 · √(2+√(2+√2))/2 …; each term makes the error four times smaller."""
    root, product = 0.0, 1.0
    for _ in range(terms):
        root = sqrt(2.0 + root)
        product *= root / 2.0
    return 2.0 / product


# ── A task that computes: for trying out plans ──────────────────────────────────────────────────────────

Row = TypeVar("Row")


@any_thread
class Spin:
    """Burns `cpu_ms` of CPU time per row, then gives the row on."""

    def __init__(self, cpu_ms: float = 1.0) -> None:
        self._ns = int(cpu_ms * 1e6)

    def __call__(self, row: Row) -> Row:
        until_ns = thread_time_ns() + self._ns
        while thread_time_ns() < until_ns:
            pass
        return row


# ── How unusual an event's numbers are: a little real arithmetic that costs CPU ─────────────────────────

SPAN = 8.0  # standard deviations beyond which nothing is left of a normal distribution
NOT_SCORED = frozenset({"id", "time_ms", "event_id", "event_time_ms"})


@any_thread
class Score:
    """Adds `score`: the mean surprise, −log₁₀ of the probability of a larger one, of the row's numbers
    if their powers of ten were half-normal. `steps` points of Simpson's rule are shared among a row's
    numbers, so that every row costs about the same CPU (10,000: 1 to 2 ms)."""

    def __init__(self, steps: int = 10_000) -> None:
        self._steps = steps

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        numbers = [v for k, v in row.items() if type(v) in (int, float) and k not in NOT_SCORED]
        return {**row, "score": self.surprise(numbers)}

    def surprise(self, numbers: Iterable[float]) -> float:
        """0 for no numbers."""
        sizes = [log10(1.0 + abs(number)) for number in numbers]
        if not sizes:
            return 0.0
        steps = max(2, self._steps // len(sizes) // 2 * 2)
        return sum(-log10(max(1e-300, 2.0 * tail(size / 2.0, steps))) for size in sizes) / len(sizes)


def tail(z: float, steps: int) -> float:
    """P(Z > z) of a normal Z by Simpson's rule with an even number of steps."""
    h = SPAN / steps
    odd = sum([exp(-0.5 * t * t) for t in [z + i * h for i in range(1, steps, 2)]])
    even = sum([exp(-0.5 * t * t) for t in [z + i * h for i in range(2, steps, 2)]])
    ends = exp(-0.5 * z * z) + exp(-0.5 * (z + SPAN) ** 2)
    return h / 3.0 * (ends + 4.0 * odd + 2.0 * even) / sqrt(2.0 * pi)


# ── Says how much an event matters ──────────────────────────────────────────────────────────────────────

HIGH, MEDIUM = 100.0, 40.0


def tag(row: dict[str, Any]) -> dict[str, Any]:
    """Adds `level`: high, medium or low by score × weight; unknown when one of them is missing."""
    score, weight = row.get("score"), row.get("weight")
    if score is None or weight is None:
        return {**row, "level": "unknown"}
    risk = score * weight
    return {**row, "level": "high" if risk >= HIGH else "medium" if risk >= MEDIUM else "low"}
