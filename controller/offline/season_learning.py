"""A season from rates of before: which period, what comes within it, and how well that foresaw what was held out. Pure.

The first two thirds of the longest series choose the period: its autocorrelation says the shortest, and of that one
and its multiples the one is taken whose profile, made of the first part of these two thirds, foresees the rest best.
The last third says how well it did. Then the profile is made of everything. Periods are folded after each was divided
by its mean, so that a day with more of everything is the same day.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from headgate.controller.analyze.season import (
    BELIEVED,
    LONGEST_S,
    LOOK_S,
    SHORTEST_S,
    WHOLE_PERIODS,
    Handed,
    laid,
    part_of,
    period_of,
)  # fmt: skip
from headgate.controller.knowledge.season_data import HeldOut
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.stability.slopes import Floats

HIGH = 0.95
LEARNED_SHARE = 2 / 3
MULTIPLES = 14  # of the shortest period: a fortnight of days
BETTER = 0.95  # of the error of a shorter period: less is no reason for a longer one

Waited = Callable[[Sequence[int]], Iterable[int]]


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
            hint="give more data, or --period",
        )
    if not SHORTEST_S <= found_s <= LONGEST_S:
        raise InvalidInput(
            f"a period of {found_s:g} s is none for a run",
            cause=f"periods from {SHORTEST_S} to {LONGEST_S} s are foreseen: in longer ones the rate changes so slowly "
            "that level and trend follow it",
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
    shortest_s = period_of(rates, min(LONGEST_S, len(rates) // WHOLE_PERIODS))
    if shortest_s is None:
        raise InvalidInput(
            f"there is no season in {len(rates)} s of rates",
            cause=f"at no time apart do they resemble themselves, over at least {WHOLE_PERIODS} periods",
            hint="give more data, or --period",
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
    shares: list[list[float]] = [[] for _ in range(parts)]
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
            for part, share in zip(
                part_of(at_s[whole], period_s, parts), rates[whole] / mean_tps, strict=True
            ):
                shares[part].append(float(share))
    typical = float(np.median(means)) if means else 0.0
    middle = np.array([typical * float(np.median(found or [1.0])) for found in shares])
    high = np.array([typical * float(np.quantile(found or [1.0], HIGH)) for found in shares])
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
