"""Files of seasons: JSON, format `headgate/season/v1`, written by `headgate season learn`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import msgspec

from controller.analyze.season import LONGEST_S, SHORTEST_S, WHOLE_PERIODS
from controller.files.contents import content_of
from controller.knowledge.season_data import SCHEMA, LearnedSeason
from topology_runtime.errors import InvalidInput
from topology_runtime.faults.words import shown

MAX_BYTES = 1024 * 1024
HINT = "learn it again: headgate season learn TRACE --out season.json"


def read_season(path: str | os.PathLike[str], topology: str = "") -> LearnedSeason:
    """Raises InvalidInput with every fault of the file, and when it is another topology's."""
    what = f"season {str(path)!r}"
    content, fault = content_of(path, MAX_BYTES)
    if fault is not None:
        raise InvalidInput(f"{what} {fault}", hint=HINT)
    try:
        schema = msgspec.json.decode(content, type=dict).get("schema")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{what} is no JSON, or cut off", cause=str(error), hint=HINT) from error
    if schema != SCHEMA:
        raise InvalidInput(
            f"{what} is none", cause=f"schema: expected {SCHEMA!r}, got {shown(schema)}", hint=HINT
        )
    try:
        season = msgspec.json.decode(content, type=LearnedSeason)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{what} is incomplete", cause=str(error), hint=HINT) from error
    if faults := list(season_faults(season)):
        raise InvalidInput(f"{what} cannot be used", faults=faults, hint=HINT)
    if topology and season.topology and season.topology != topology:
        raise InvalidInput(
            f"{what} is another topology's",
            cause=f"it was learned from {season.topology!r}, this is {topology!r}",
            hint="learn one from this topology's traces, or of its rates with --topology",
        )
    return season


def season_faults(season: LearnedSeason) -> Iterator[str]:
    """What is wrong with it, whoever made it."""
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


def write_season(path: str | os.PathLike[str], season: LearnedSeason) -> None:
    """Whole or not at all. Raises InvalidInput."""
    new = f"{os.fspath(path)}.{os.getpid()}.new"
    try:
        with open(new, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(season), indent=1) + b"\n")
        os.replace(new, path)
    except OSError as error:
        raise InvalidInput(f"season {str(path)!r} cannot be written", cause=error.strerror) from error
