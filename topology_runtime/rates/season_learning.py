"""Which period rates have, and a season learned from the rates of before. Pure.

`period_of` is the only definition of a period: of the rates that a controller hears, of those that `season learn`
reads, and of those that an analysis of traces adds up.

Learned: the first two thirds of the longest series choose the period: its autocorrelation says the shortest, and of
that one and its multiples the one is taken whose profile, made of the first part of these two thirds, forecasts the
rest best. The last third says how well it did. Then the profile is made of everything. Periods are folded after each
was divided by its mean, so that a day with more of everything is the same day.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.learned_season import LONGEST_S, SHORTEST_S, WHOLE_PERIODS, HeldOut
from headgate.topology_runtime.stability.slopes import Floats

KEPT_S = 1800
LOOK_S = 15  # ahead it is tried: a plan that is lowered holds its slots for about so long
ALIKE = 0.6  # a lag at which the rates resemble themselves less is no period
NEARLY = 0.9  # as much as at the best lag
BELIEVED = 0.5  # of the errors of level and trend
FLAT = 0.02  # of the mean: rates that vary less have no season worth a plan
HIGH = 0.95
LEARNED_SHARE = 2 / 3
MULTIPLES = 14  # of the shortest period: a fortnight of days
BETTER = 0.95  # of the error of a shorter period: less is no reason for a longer one

Waited = Callable[[Sequence[int]], Iterable[int]]


class Handed(NamedTuple):
    """A season that was learned elsewhere: what came in each part of a period, of about a second each, in the middle
    and at most."""

    period_s: float
    middle: Floats
    high: Floats


def part_of(at_s: Floats, period_s: float, parts: int) -> NDArray[np.intp]:
    """In which part of a period each moment is."""
    return np.minimum((at_s % period_s * parts / period_s).astype(np.intp), parts - 1)


def laid(handed: Handed, rates: Floats) -> float | None:
    """The second of a period that the first of these rates, of a period at most, fits best; None where none does."""
    middle, number = handed.middle, min(len(rates), len(handed.middle))
    off = rates[:number] - rates[:number].mean()
    if rates.std() < FLAT * rates.mean() or not off.any():
        return None
    parts = len(middle)
    products = np.fft.irfft(np.conj(np.fft.rfft(off, parts)) * np.fft.rfft(middle), parts)
    sums, squares = (np.concatenate(([0.0], np.cumsum(np.tile(middle**power, 2)))) for power in (1, 2))
    sum_of, square_of = (each[number : number + parts] - each[:parts] for each in (sums, squares))
    spread = np.maximum(square_of - sum_of**2 / number, 1e-9 * squares[parts])
    fits = products / np.sqrt(spread * float((off**2).sum()))
    best = int(np.argmax(fits))
    return best * handed.period_s / parts if fits[best] >= ALIKE else None


def period_of(rates: Floats, most_s: float = KEPT_S, bin_s: float = 1.0) -> float | None:
    """In seconds, where two were seen; None where they do not repeat within `most_s`. bin_s: between two rates."""
    least, most = math.ceil(SHORTEST_S / bin_s), min(len(rates) // 2, int(most_s / bin_s))
    alike = correlations(rates, least)
    apart = np.flatnonzero(alike[: most + 1] < ALIKE / 2)
    if not len(apart):
        return None
    first = max(least, int(apart[0]))
    best = float(alike[first : most + 1].max(initial=-1.0))
    if best < ALIKE:
        return None
    near = alike[first : most + 1] >= NEARLY * best
    begins = int(np.argmax(near))
    ends = begins + int(np.argmin(near[begins:])) if not near[begins:].all() else len(near)
    period = float(first + begins + np.argmax(alike[first + begins : first + ends]))
    if period in (first, most):
        return None  # rising still at the end
    return _sharper(alike, period) * bin_s


def _sharper(alike: Floats, period: float) -> float:
    """By its multiples, as far as they can be told: of days, a week apart are more alike than three days."""
    for times in range(2, 17):
        reach = max(2, math.ceil(0.02 * times * period))
        begins, ends = round(times * period) - reach, round(times * period) + reach + 1
        if ends > 3 * len(alike) // 4:
            break
        at = begins + int(np.argmax(alike[begins:ends]))
        if alike[at] >= ALIKE and at not in (begins, ends - 1):
            period = at / times
    return period


def correlations(rates: Floats, least: int = SHORTEST_S) -> Floats:
    """Of the rates with themselves, by lag; of so few that a period of `least` is not seen twice, or of rates that
    hardly vary, that at lag 0 alone."""
    number = len(rates)
    off = rates - rates.mean()
    squares = np.cumsum(off**2)
    if number < 2 * least or squares[-1] <= number * (FLAT * rates.mean()) ** 2:
        return np.ones(1)
    power = np.abs(np.fft.rfft(off, 2 * number)) ** 2
    sums = np.fft.irfft(power)[:number]
    heads, tails = squares[::-1], squares[-1] - np.concatenate(([0.0], squares[:-1]))
    return np.asarray(sums / np.sqrt(np.maximum(heads * tails, 1e-9 * squares[-1] ** 2)))


class Learned(NamedTuple):
    period_s: float
    middle: Floats
    high: Floats
    periods: int
    held_out: HeldOut


def learned_of(series: Sequence[Floats], period_s: float | None, waited: Waited) -> Learned:
    """Of rates, each by the second. period_s: as somebody says. Raises InvalidInput where nothing comes back."""
    longest = max(series, key=len)
    learn_s = int(LEARNED_SHARE * len(longest))
    found_s = period_s or _period(longest[:learn_s], waited)
    if found_s * WHOLE_PERIODS > len(longest):
        raise InvalidInput(
            f"a period of {found_s:g} s cannot be learned from {len(longest)} s",
            cause=f"{WHOLE_PERIODS} whole periods are needed",
            hint="give more data, or a shorter period",
        )
    if not SHORTEST_S <= found_s <= LONGEST_S:
        raise InvalidInput(
            f"a period of {found_s:g} s is invalid for a run",
            cause=f"periods from {SHORTEST_S} to {LONGEST_S} s are predicted: in longer ones the rate changes so "
            "slowly that level and trend follow it",
        )
    held_out = _held_out(longest, learn_s, found_s)
    if held_out.error > BELIEVED * held_out.error_of_level:
        raise InvalidInput(
            f"there is no season in it: the best period is {found_s:g} s",
            cause=f"on the last third it is off by {held_out.error:.1%} of the mean, and what came {LOOK_S} s before "
            f"by {held_out.error_of_level:.1%}: it has to be at most half of that",
        )
    middle, high, periods = _profile(_laid_together(series, longest, found_s), found_s)
    return Learned(found_s, middle, high, periods, held_out)


def _period(rates: Floats, waited: Waited) -> float:
    shortest_s = period_of(rates, LONGEST_S)
    if shortest_s is None:
        raise InvalidInput(
            f"there is no season in {len(rates)} s of rates",
            cause="at no time apart do they resemble themselves, over at least two periods",
            hint="give more data, or a shorter period",
        )
    longest_s = min(LONGEST_S, len(rates) / WHOLE_PERIODS)
    best_s, least, learn_s = shortest_s, math.inf, int(LEARNED_SHARE * len(rates))
    for times in waited(range(1, 1 + max(1, min(MULTIPLES, int(longest_s / shortest_s))))):
        error = _held_out(rates, max(learn_s, math.ceil(times * shortest_s)), times * shortest_s).error
        if error < BETTER * least:
            best_s, least = times * shortest_s, error
    return best_s


def _profile(series: Sequence[tuple[Floats, float]], period_s: float) -> tuple[Floats, Floats, int]:
    """(middle, high, how many periods) of rates, each with the second of a period that it begins in."""
    parts = round(period_s)
    of_part: list[NDArray[np.intp]] = []
    shares: list[Floats] = []
    means, periods = [], 0
    for rates, begins_s in series:
        at_s: Floats = begins_s + np.arange(len(rates), dtype=float)
        for first in range(math.floor((len(rates)) / period_s)):
            whole = slice(round(first * period_s), round((first + 1) * period_s))
            mean_tps = float(rates[whole].mean())
            periods += 1
            if mean_tps <= 0:
                continue
            means.append(mean_tps)
            of_part.append(part_of(at_s[whole], period_s, parts))
            shares.append(rates[whole] / mean_tps)
    if not means:
        return np.zeros(parts), np.zeros(parts), periods
    order = np.argsort(numbers := np.concatenate(of_part), kind="stable")
    by_part = np.split(np.concatenate(shares)[order], np.searchsorted(numbers[order], np.arange(1, parts)))
    typical = float(np.median(means))
    middle = np.array([typical * float(np.median(found) if len(found) else 1.0) for found in by_part])
    high = np.array([typical * float(np.quantile(found, HIGH) if len(found) else 1.0) for found in by_part])
    return middle, np.maximum(high, middle), periods


def _held_out(rates: Floats, learn_s: int, period_s: float) -> HeldOut:
    """How well what is before `learn_s` foresees what is after."""
    middle, high, _ = _profile([(rates[:learn_s], 0.0)], period_s)
    at = np.arange(learn_s, len(rates))
    parts = part_of(at.astype(float), period_s, len(middle))
    before = round(period_s)
    sums = np.concatenate(([0.0], np.cumsum(rates)))
    begins = np.maximum(0, at - before - LOOK_S)  # a period that ended when this was foreseen
    scale = (
        (sums[at - LOOK_S] - sums[begins])
        / np.maximum(1, at - LOOK_S - begins)
        / max(1e-9, float(middle.mean()))
    )
    mean_tps = max(1e-9, float(rates[at].mean()))
    return HeldOut(
        float(len(at)),
        round(float(np.abs(rates[at] - middle[parts] * scale).mean()) / mean_tps, 4),
        round(float(np.abs(rates[at] - rates[at - LOOK_S]).mean()) / mean_tps, 4),
        round(float((rates[at] <= high[parts] * scale + 1e-9).mean()), 4),
    )


def _laid_together(series: Sequence[Floats], longest: Floats, period_s: float) -> list[tuple[Floats, float]]:
    """Each with the second of the period that it begins in: those that fit nowhere are left out."""
    middle, high, _ = _profile([(longest, 0.0)], period_s)
    handed, together = Handed(period_s, middle, high), [(longest, 0.0)]
    for rates in series:
        if rates is not longest and (begins_s := laid(handed, rates[: math.ceil(period_s)])) is not None:
            together.append((rates, begins_s))
    return together
