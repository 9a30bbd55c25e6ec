"""Rates to try policies with: of files, cut at a percentile and scaled, and made ones by name.

A made series is the same each time: its name is its seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headgate.controller.models.task_models import Model, missing_models
from headgate.controller.planning_commands.planning_options import (
    slot_cores_of,
    slot_price,
    topology_and_models,
)
from headgate.controller.replay.ideal_machines import Delays
from headgate.lab.rate_policies.backtest_world import BacktestQuestion
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.offered_rates import Rates
from headgate.topology_runtime.wording import did_you_mean

# ── Series drawn by a seed, that repeat and that do not: some to choose constants by, others to judge them
# by
#
# `tuned-NN` and `held-out-NN` are drawn by the same rules and from different seeds. A constant is chosen by
# the first and by what `made:all` says; the second are only looked at once it is.
#
# wave, saw, jump   a sine, a saw or a saw that falls, between two rates
# square            two rates; the higher one for a tenth to three fifths of each period
# profile           four harmonics by chance: a day, squeezed
# drifting          a profile that grows or shrinks to between half and twice as much
# broken            a profile that after more than half of the time is another one
# aperiodic         levels by chance, each for a time by chance
#
# Periods are between 40 and 400 s and no whole seconds; three of four series have noise of up to 15 %.

RateAt = Callable[[int], float]
Phase = Callable[[float], float]

SEEDS = {"tuned": 20260101, "held-out": 77003}
EACH = 3  # of each kind
SHORTEST_S, LONGEST_S = 40.0, 400.0
LENGTH_S = 1800


def _wave(chance: random.Random) -> Phase:
    return lambda phase: 0.5 + 0.5 * math.sin(2 * math.pi * phase)


def _drawn_saw(chance: random.Random) -> Phase:
    return lambda phase: phase


def _jump(chance: random.Random) -> Phase:
    return lambda phase: 1 - phase


def _drawn_square(chance: random.Random) -> Phase:
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


PLAIN = {"wave": _wave, "saw": _drawn_saw, "jump": _jump, "square": _drawn_square, "profile": _profile}
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


MADE_S = LENGTH_S

Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class RateSeries:
    """`steps` of (s, rows/s) over `seconds`. cut_tps: no rate of it is above, which `cut_share` of the time were."""

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
        return sum(tps * long_s for tps, long_s in self.spans()) / self.seconds

    def spans(self) -> list[tuple[float, float]]:
        """(rows/s, s) of each step."""
        ends = [at_s for at_s, _ in self.steps[1:]] + [self.seconds]
        return [(tps, end - at_s) for (at_s, tps), end in zip(self.steps, ends, strict=True)]

    def cut(self, percentile: float) -> RateSeries:
        """Without what is above this percentile of the time."""
        spans = sorted(self.spans())
        left_s = self.seconds * (1 - percentile / 100)
        while len(spans) > 1 and left_s >= spans[-1][1]:
            left_s -= spans.pop()[1]
        most = spans[-1][0]
        above = sum(long_s for tps, long_s in self.spans() if tps > most)
        steps = tuple((at_s, min(tps, most)) for at_s, tps in self.steps)
        return RateSeries(self.name, steps, self.seconds, most, above / self.seconds)

    def scaled(self, peak_tps: float) -> RateSeries:
        """With this peak."""
        factor = peak_tps / self.peak_tps
        steps = tuple((at_s, tps * factor) for at_s, tps in self.steps)
        return RateSeries(self.name, steps, self.seconds, self.cut_tps * factor, self.cut_share)


def of_rates(name: str, rates: Rates, seconds: float | None, skipped_s: float = 0.0) -> RateSeries:
    """The steps of a rates file: once through, or `seconds` of them (going round if need be), from `skipped_s` on."""
    period_s = rates.period_s or (skipped_s + (seconds or 0.0))
    if not period_s - skipped_s > 0:
        cause = "it is one rate for ever" if not rates.period_s else f"all of it is over after {period_s:g} s"
        hint = "--set take=N" if not rates.period_s else "--set skip=S"
        raise InvalidInput(
            f"{name} has no end" if not rates.period_s else f"{name} is skipped", cause=cause, hint=hint
        )
    until_s = skipped_s + (seconds or period_s - skipped_s)
    steps = []
    for turn in range(math.ceil(until_s / period_s)):
        steps += [(turn * period_s + at_s - skipped_s, tps) for at_s, tps in rates.steps]
    first_tps = next(tps for at_s, tps in reversed(steps) if at_s <= 0)
    kept = tuple(step for step in steps if 0 < step[0] < until_s - skipped_s)
    return RateSeries(name, ((0.0, first_tps), *kept), until_s - skipped_s)


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


# ── What to plan with where nothing runs: a topology, its models, and VMs that may be had ───────────────

VMS, SLOTS = 64, 4


def question_of(options: dict[str, Any]) -> BacktestQuestion:
    """Of the options `topology`, `models`, `enact_s`, `machine_s`. Raises UsageError, InvalidInput."""
    topology, models = topology_and_models(options)
    return question_for(topology, models, Delays(options["enact_s"], options["machine_s"]))


def question_for(
    topology: Topology, models: dict[str, Model], delays: Delays, vms: int = VMS, slots: int = SLOTS
) -> BacktestQuestion:
    """With so many VMs of so many slots each, of the cores that the models were measured in. Raises InvalidInput."""
    if faults := missing_models(topology, models):
        raise InvalidInput(f"topology {topology.name!r} cannot be planned", faults=faults)
    cores = slot_cores_of(topology, models)
    usd = round(slots * slot_price(cores), 9)
    there = tuple(Vm(f"vm{n}", slots, cores, usd_per_hour=usd) for n in range(1, vms + 1))
    return BacktestQuestion(topology, models, there, delays)
