"""A season that was learned from what was offered before, as runs are given it. Pure data.

middle, high: the rate that came in each part of a period, in the middle of all periods and at most in 95 of 100.
"""

from __future__ import annotations

import msgspec

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
