"""Series drawn by a seed, that repeat and that do not: some to choose constants by, others to judge them by.

`tuned-NN` and `held-out-NN` are drawn by the same rules and from different seeds. A constant is chosen by the first
and by what `made:all` says; the second are only looked at once it is.

 wave, saw, jump   a sine, a saw or a saw that falls, between two rates
 square            two rates; the higher one for a tenth to three fifths of each period
 profile           four harmonics by chance: a day, squeezed
 drifting          a profile that grows or shrinks to between half and twice as much
 broken            a profile that after more than half of the time is another one
 aperiodic         levels by chance, each for a time by chance

Periods are between 40 and 400 s and no whole seconds; three of four series have noise of up to 15 %.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

RateAt = Callable[[int], float]
Phase = Callable[[float], float]

SEEDS = {"tuned": 20260101, "held-out": 77003}
EACH = 3  # of each kind
SHORTEST_S, LONGEST_S = 40.0, 400.0
LENGTH_S = 1800


def _wave(chance: random.Random) -> Phase:
    return lambda phase: 0.5 + 0.5 * math.sin(2 * math.pi * phase)


def _saw(chance: random.Random) -> Phase:
    return lambda phase: phase


def _jump(chance: random.Random) -> Phase:
    return lambda phase: 1 - phase


def _square(chance: random.Random) -> Phase:
    high = chance.uniform(0.1, 0.6)
    return lambda phase: float(phase < high)


def _profile(chance: random.Random) -> Phase:
    waves = [(chance.gauss(0, 1) / n, chance.random()) for n in range(1, 5)]

    def raw(phase: float) -> float:
        return sum(
            height * math.sin(2 * math.pi * (n * phase + at)) for n, (height, at) in enumerate(waves, 1)
        )

    values = [raw(n / 500) for n in range(500)]
    low, high = min(values), max(values)
    return lambda phase: (raw(phase) - low) / (high - low)


PLAIN = {"wave": _wave, "saw": _saw, "jump": _jump, "square": _square, "profile": _profile}
KINDS = (*PLAIN, "drifting", "broken", "aperiodic")


def names_of(which: str) -> tuple[str, ...]:
    return tuple(f"{which}-{number:02d}" for number in range(1, len(KINDS) * EACH + 1))


def kind_of(name: str) -> str:
    return KINDS[(int(name.rpartition("-")[2]) - 1) % len(KINDS)]


def drawn(name: str) -> RateAt:
    """The rate of one of the series at each second."""
    which, _, number = name.rpartition("-")
    chance = random.Random(SEEDS[which] * 1000 + int(number))
    kind = kind_of(name)
    low = chance.uniform(10, 60)
    high = low * chance.uniform(1.5, 6.0)
    noise = max(0.0, chance.uniform(-0.05, 0.15))
    rates = _aperiodic(chance, low, high) if kind == "aperiodic" else _repeating(chance, kind, low, high)
    noisy = [rate * (1 + noise * chance.uniform(-1, 1)) for rate in rates]
    return lambda second: noisy[second]


def _repeating(chance: random.Random, kind: str, low: float, high: float) -> list[float]:
    period_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** chance.random()
    offset = chance.random()
    shape = PLAIN.get(kind, _profile)(chance)
    rates = [low + (high - low) * shape((second / period_s + offset) % 1) for second in range(LENGTH_S)]
    if kind == "drifting":
        factor = 2 ** chance.uniform(-1, 1)
        rates = [rate * factor ** (second / LENGTH_S) for second, rate in enumerate(rates)]
    if kind == "broken":
        at_s, other = chance.randint(LENGTH_S // 2, LENGTH_S * 5 // 6), _profile(chance)
        other_s = period_s * chance.uniform(0.6, 1.7)
        after = [low + (high - low) * other(second / other_s % 1) for second in range(at_s, LENGTH_S)]
        rates[at_s:] = after
    return rates


def _aperiodic(chance: random.Random, low: float, high: float) -> list[float]:
    rates: list[float] = []
    while len(rates) < LENGTH_S:
        rates += [chance.uniform(low, high)] * chance.randint(15, 150)
    return rates[:LENGTH_S]
