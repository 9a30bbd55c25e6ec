"""What is wrong with a season that is handed over, whoever made it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headgate.controller.analyze.season import LONGEST_S, SHORTEST_S, WHOLE_PERIODS
from headgate.controller.knowledge.season_data import LearnedSeason


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
