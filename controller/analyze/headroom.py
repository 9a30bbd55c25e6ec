"""How much more than the rate a plan is for, by how far plans and rates of this run were off. Pure.

models  Of each plan that was measured, e = ln(what its rows cost / what was predicted). Before any is, e of the next
        one is taken for normal with mean 0 and `SURE` of all below ln(usual). One plan that was exact counts as seen,
        and half of that variance: with v = (0, e₁ … eₙ), N = n + 1 values of mean m,

            variance = (U² / 2 + Σ (v - m)²) (N + 1) / N²        U = ln(usual) / z
            models   = exp(m + z √variance)                      z: of `SURE`

        which is the prediction of a next observation of unknown mean and variance, with the conjugate prior
        (A. Gelman and others, Bayesian Data Analysis, 3.3; the standard deviation of Student's distribution). It is
        never more than `usual` above the dearest plan: rows that cost less than predicted are no reason to keep more.
rates   The least share above the forecast for which at most `short_share` of all rows came above it by the time that a
        plan takes. Rows above `usual` are left out: no less headroom lets these wait. What was a day ago counts half;
        before `ENOUGH_S` it is `usual`.

Headroom is the greater of both, within `LEAST` and usual². With no evidence it is `usual`. A plan is lowered for less
where it has less headroom: the band below it is as wide as `usual`'s × (headroom - 1) / (usual - 1).

    >>> headroom((), RatesAbove(1.15), 1.15).factor
    1.15
    >>> steady = RatesAbove(1.15)
    >>> for _ in range(600):
    ...     steady.hear(100.0, 101.0)
    >>> round(headroom((0.0,) * 9, steady, 1.15).factor, 3)  # nine plans that did as predicted
    1.033
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

import numpy as np

from headgate.controller.knowledge.diagnoses import Headroom
from headgate.topology_runtime.stability.slopes import Floats

SURE = 0.95  # of plans carry what they are for
LEAST = 1.02
ERROR_MOST = math.log(1.5)  # a model that is further off is corrected (`model_bias.py`)
BAND_LEAST = 1 / 3
ENOUGH_S = 600
HALVED_S = 86_400.0
RATE_MOST_TPS = 1e12
GRAIN = 60  # steps from 1 to usual in which rates are told apart

_Z = NormalDist().inv_cdf(SURE)


class RatesAbove:
    """By how much rates came above what was forecast of them. usual: at least 1."""

    def __init__(self, usual: float) -> None:
        self.usual, self.seconds = usual, 0
        self._shares: Floats = np.linspace(1.0, usual, GRAIN + 1)
        self._above: Floats = np.zeros(GRAIN + 1)
        self._rows = 0.0

    def hear(self, foreseen_tps: float, came_tps: float) -> None:
        """Of one second; what is no rate (NaN, below 0, above `RATE_MOST_TPS`) is not heard."""
        if not (0 <= foreseen_tps <= RATE_MOST_TPS and 0 <= came_tps <= RATE_MOST_TPS):
            return
        kept = 0.5 ** (1 / HALVED_S)
        counted_tps = min(came_tps, self.usual * foreseen_tps)
        self._above = kept * self._above + np.maximum(0.0, counted_tps - self._shares * foreseen_tps)
        self._rows = kept * self._rows + came_tps
        self.seconds += 1

    def least(self, short_share: float) -> float:
        """The least share for which no more than this part of the rows came above."""
        if self.seconds < ENOUGH_S:
            return self.usual
        enough = np.flatnonzero(self._above <= short_share * self._rows)
        return float(self._shares[enough[0]]) if len(enough) else self.usual


def headroom(
    errors: Iterable[float], rates: RatesAbove, usual: float, short_share: float = 0.002
) -> Headroom:
    """errors: of each plan that was measured; those that are not finite are none."""
    found = [min(ERROR_MOST, max(-ERROR_MOST, e)) for e in errors if math.isfinite(e)]
    models, above = _models(found, usual), rates.least(short_share)
    factor = min(usual**2, max(min(LEAST, usual), models, above))
    band = min(1.0, max(BAND_LEAST, (factor - 1) / (usual - 1))) if usual > 1 else 1.0
    return Headroom(
        round(factor, 4), round(band, 4), round(models, 4), round(above, 4), len(found), rates.seconds
    )


def _models(errors: list[float], usual: float) -> float:
    values = [0.0, *errors]
    number, mean = len(values), math.fsum(errors) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    before = (math.log(usual) / _Z) ** 2 / 2
    told = math.exp(mean + _Z * math.sqrt((before + squares) * (number + 1)) / number)
    return min(told, usual * math.exp(max(values)))
