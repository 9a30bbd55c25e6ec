"""Rates to try policies with: of files, cut at a percentile and scaled, and made ones by name.

A made series is the same each time: its name is its seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from headgate.controller.backtesting.drawn import LENGTH_S, SEEDS, RateAt, drawn, names_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import did_you_mean
from headgate.topology_runtime.rates import Rates

MADE_S = LENGTH_S

Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class RateSeries:
    """`steps` of (s, tuples/s) over `seconds`. cut_tps: no rate of it is above, which `cut_share` of the time were."""

    name: str
    steps: Steps
    seconds: float
    cut_tps: float = math.inf
    cut_share: float = 0.0

    @property
    def peak_tps(self) -> float:
        return max(tps for _, tps in self.steps)

    @property
    def mean_tps(self) -> float:
        return sum(tps * long_s for tps, long_s in self._spans()) / self.seconds

    def _spans(self) -> list[tuple[float, float]]:
        ends = [at_s for at_s, _ in self.steps[1:]] + [self.seconds]
        return [(tps, end - at_s) for (at_s, tps), end in zip(self.steps, ends, strict=True)]

    def cut(self, percentile: float) -> RateSeries:
        """Without what is above this percentile of the time."""
        spans = sorted(self._spans())
        left_s = self.seconds * (1 - percentile / 100)
        while len(spans) > 1 and left_s >= spans[-1][1]:
            left_s -= spans.pop()[1]
        most = spans[-1][0]
        above = sum(long_s for tps, long_s in self._spans() if tps > most)
        steps = tuple((at_s, min(tps, most)) for at_s, tps in self.steps)
        return RateSeries(self.name, steps, self.seconds, most, above / self.seconds)

    def scaled(self, peak_tps: float) -> RateSeries:
        """With this peak."""
        factor = peak_tps / self.peak_tps
        steps = tuple((at_s, tps * factor) for at_s, tps in self.steps)
        return RateSeries(self.name, steps, self.seconds, self.cut_tps * factor, self.cut_share)


def of_rates(name: str, rates: Rates, seconds: float | None) -> RateSeries:
    """The steps of a rates file: once through, or the first `seconds` of them (going round if need be)."""
    period_s = rates.period_s or (seconds or 0.0)
    if not period_s:
        raise InvalidInput(f"{name} has no end", cause="it is one rate for ever", hint="--seconds N")
    long_s = seconds or period_s
    steps = []
    for turn in range(math.ceil(long_s / period_s)):
        steps += [(turn * period_s + at_s, tps) for at_s, tps in rates.steps]
    return RateSeries(name, tuple(step for step in steps if step[0] < long_s), long_s)


# ── made ones ───────────────────────────────────────────────────────────────────────────────────


def made(name: str) -> RateSeries:
    """The made series of this name. Raises InvalidInput when there is none."""
    if name in DRAWN:
        rate_at = drawn(name)
    elif name in MADE:
        rate_at = MADE[name](random.Random(name))
    else:
        hint = f"there are {', '.join((*MADE, *SETS))}, tuned-01, held-out-01, …"
        raise InvalidInput(
            f"there is no made series {name!r}{did_you_mean(name, (*MADE, *SETS, *DRAWN))}", hint=hint
        )
    rates = [max(0.0, rate_at(second)) for second in range(MADE_S)]
    steps = [(0.0, rates[0])]
    steps += [(float(n), after) for n, (before, after) in enumerate(pairwise(rates), 1) if after != before]
    return RateSeries(name, tuple(steps), float(MADE_S))


Maker = Callable[[random.Random], RateAt]


def _steps(*changes: tuple[int, float]) -> Maker:
    def rate_at(second: int) -> float:
        return next(tps for at_s, tps in reversed(changes) if at_s <= second)

    return lambda _: rate_at


def _line(*knots: tuple[float, float]) -> Maker:
    def rate_at(second: int) -> float:
        if second >= knots[-1][0]:
            return knots[-1][1]
        (a_s, a), (b_s, b) = next(pair for pair in pairwise(knots) if pair[1][0] > second)
        return a + (b - a) * (second - a_s) / (b_s - a_s)

    return lambda _: rate_at


def _square(low: float, high: float, period_s: int) -> Maker:
    return lambda _: lambda second: low if second % period_s < period_s / 2 else high


def _sine(low: float, high: float, period_s: int) -> Maker:
    middle, swing = (low + high) / 2, (high - low) / 2
    return lambda _: lambda second: middle + swing * math.sin(2 * math.pi * second / period_s)


def _saw(low: float, high: float, period_s: int, falls: bool = False) -> Maker:
    def rate_at(second: int) -> float:
        share = second % period_s / period_s
        return low + (high - low) * (1 - share if falls else share)

    return lambda _: rate_at


def _spikes(base: Maker, high: float, every_s: int, long_s: int) -> Maker:
    def make(chance: random.Random) -> RateAt:
        below = base(chance)
        return lambda second: high if second % every_s >= every_s - long_s else below(second)

    return make


def _noise(base: Maker, share: float) -> Maker:
    def make(chance: random.Random) -> RateAt:
        below = base(chance)
        noise = [1 + share * chance.uniform(-1, 1) for _ in range(MADE_S)]
        return lambda second: below(second) * noise[second]

    return make


def _counts(mean: float) -> Maker:
    """Rows that come by chance, counted by the second."""

    def make(chance: random.Random) -> RateAt:
        rates, at_s = [0.0] * MADE_S, chance.expovariate(mean)
        while at_s < MADE_S:
            rates[int(at_s)] += 1
            at_s += chance.expovariate(mean)
        return lambda second: rates[second]

    return make


def _walk(start: float, step: float, most: float) -> Maker:
    """A rate that goes up and down by chance, by shares of itself."""

    def make(chance: random.Random) -> RateAt:
        rates = [start]
        while len(rates) < MADE_S:
            rates.append(min(most, max(5.0, rates[-1] * math.exp(chance.gauss(0, step)))))
        return lambda second: rates[second]

    return make


def _levels(levels: tuple[float, ...], shortest_s: int, longest_s: int) -> Maker:
    """Levels by chance, each for a time by chance."""

    def make(chance: random.Random) -> RateAt:
        rates: list[float] = []
        while len(rates) < MADE_S:
            rates += [chance.choice(levels)] * chance.randint(shortest_s, longest_s)
        return lambda second: rates[second]

    return make


def _day(second: int) -> float:
    """Of ten minutes, with a smaller peak in the morning."""
    turn = 2 * math.pi * second / 600
    return 60 + 40 * math.sin(turn) + 15 * math.sin(2 * turn + 1)


MADE: dict[str, Maker] = {
    "step-up": _steps((0, 30), (600, 90)),
    "step-down": _steps((0, 90), (600, 30)),
    "steps": _steps((0, 30), (400, 90), (800, 30), (1100, 120), (1500, 40)),
    "steps-by-chance": _levels((25, 50, 75, 110, 150), 20, 120),
    "ramp-1min": _line((0, 30), (600, 30), (660, 90), (1200, 90), (1260, 30)),
    "ramp-5min": _line((0, 20), (300, 20), (600, 120), (1200, 120), (1500, 20)),
    "square-20s": _square(30, 90, 20),
    "square-60s": _square(30, 90, 60),
    "square-120s": _square(30, 90, 120),
    "square-300s": _square(30, 90, 300),
    "square-600s": _square(30, 90, 600),
    "spikes-30-80-every-20s": _spikes(_square(30, 80, 60), 150, 20, 3),
    "spikes-30-80-every-60s": _spikes(_square(30, 80, 240), 150, 60, 3),
    "spike-1s": _spikes(_steps((0, 50)), 150, 40, 1),
    "sine-60s": _sine(20, 120, 60),
    "sine-120s": _sine(20, 120, 120),
    "sine-240s": _sine(20, 120, 240),
    "sine-600s": _sine(20, 120, 600),
    "saw-60s": _saw(20, 120, 60),
    "saw-120s": _saw(20, 120, 120),
    "saw-300s": _saw(20, 120, 300),
    "saw-back-120s": _saw(20, 120, 120, falls=True),
    "saw-back-300s": _saw(20, 120, 300, falls=True),
    "noise-10": _noise(_steps((0, 80)), 0.1),
    "noise-30": _noise(_steps((0, 80)), 0.3),
    "chance-60": _counts(60),
    "walk": _walk(60, 0.02, 200),
    "day": lambda _: _day,
    "day-noise": _noise(lambda _: _day, 0.1),
}
FEW = (
    "steps-by-chance", "ramp-1min", "square-120s", "spikes-30-80-every-20s", "sine-120s", "saw-300s", "noise-30",
    "day-noise",
)  # fmt: skip
SETS = {"all": tuple(MADE), "few": FEW, **{which: names_of(which) for which in SEEDS}}
DRAWN = frozenset(name for which in SEEDS for name in names_of(which))
