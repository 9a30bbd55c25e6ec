"""Computes π by Viète's product: a task of floating-point arithmetic (paper 0, section 5.2)."""

from __future__ import annotations

from math import sqrt
from typing import Any

from headgate.topology_runtime.logic import any_thread
from headgate.topology_runtime.tasks.event_number import number_of


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
