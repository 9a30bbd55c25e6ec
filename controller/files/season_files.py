"""Files of seasons: JSON, format `headgate/season/v1`, written by `headgate lab season learn`."""

from __future__ import annotations

import os

import msgspec

from headgate.controller.files.planning_inputs import content_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.rates.learned_season import SCHEMA, LearnedSeason, season_faults
from headgate.topology_runtime.wording import shown

MAX_BYTES = 1024 * 1024
HINT = "learn it again: headgate lab season learn TRACE --output season.json"


def read_season(path: str | os.PathLike[str], topology: str = "") -> LearnedSeason:
    """Raises InvalidInput with every fault of the file, and when it is another topology's."""
    what = f"season {str(path)!r}"
    content, fault = content_of(path, MAX_BYTES)
    if fault is not None:
        raise InvalidInput(f"{what} {fault}", hint=HINT)
    try:
        schema = msgspec.json.decode(content, type=dict).get("schema")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"invalid JSON in {what}, or it is cut off", cause=str(error), hint=HINT
        ) from error
    if schema != SCHEMA:
        raise InvalidInput(
            f"invalid {what}", cause=f"schema: expected {SCHEMA!r}, got {shown(schema)}", hint=HINT
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


def write_season(path: str | os.PathLike[str], season: LearnedSeason) -> None:
    """Whole or not at all. Raises InvalidInput."""
    new = f"{os.fspath(path)}.{os.getpid()}.new"
    try:
        with open(new, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(season), indent=1) + b"\n")
        os.replace(new, path)
    except OSError as error:
        raise InvalidInput(f"season {str(path)!r} cannot be written", cause=error.strerror) from error
