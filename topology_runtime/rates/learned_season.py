"""A season that was learned from the rates of before, as runs are given it: `headgate/season/v1`. Pure data.

middle, high: the rate that came in each part of a period, in the middle of all periods and at most in 95 of 100.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

SHORTEST_S, LONGEST_S = 30, 3600  # of a period: its troughs are shorter than a plan takes to be committed
WHOLE_PERIODS = 3  # make a season that is handed over
SCHEMA = "headgate/season/v1"


class HeldOut(msgspec.Struct, frozen=True):
    """How well the first two thirds foresaw the last one: how far it was off on average, and how far what came 15 s
    before was, both as shares of the mean rate; and the share of the seconds in which no more came than `high`."""

    seconds: float
    error: float
    error_of_level: float
    covered: float


class LearnedFrom(msgspec.Struct, frozen=True):
    """Where it is from. sources: files and traces. seconds: of all of them."""

    sources: tuple[str, ...]
    seconds: float
    periods: int
    time: str
    version: str
    held_out: HeldOut


class LearnedSeason(msgspec.Struct, frozen=True):
    """topology: whose rates they were; empty: nobody said."""

    schema: str
    topology: str
    period_s: float
    middle: tuple[float, ...]
    high: tuple[float, ...]
    learned: LearnedFrom


def season_faults(season: LearnedSeason) -> Iterator[str]:
    """Each in words."""
    period_s, parts, learned = season.period_s, len(season.middle), season.learned
    if not (math.isfinite(period_s) and SHORTEST_S <= period_s <= LONGEST_S):
        yield f"period_s: expected {SHORTEST_S} to {LONGEST_S} s, got {period_s:g}"
        return
    if parts != round(period_s) or len(season.high) != parts:
        yield f"middle, high: expected {round(period_s)} values each, got {parts} and {len(season.high)}"
        return
    if not all(math.isfinite(tps) and tps >= 0 for tps in (*season.middle, *season.high)):
        yield "middle, high: a rate is negative or no number"
    elif max(season.middle) <= 0 or any(a > b for a, b in zip(season.middle, season.high, strict=True)):
        yield "middle, high: nothing is offered, or there is less in high than in middle"
    if not learned.seconds >= WHOLE_PERIODS * period_s or learned.periods < WHOLE_PERIODS:
        yield (
            f"learned: {learned.seconds:g} s do not support a period of {period_s:g} s, "
            f"{WHOLE_PERIODS} whole ones are needed"
        )
