"""Calling a user's function over the rows of a frame so that an exception costs one row, not the frame. Pure
but for the user's code and the pauses between tries.

`out.extend(map(f, rows))` runs at nearly the speed of a bare loop and keeps the results that came before an
exception, so only the row that failed is tried again: three tries in all, then it is a dead letter.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

TRIES = 3
PAUSES_S = (0.01, 0.1)  # before the second and the third try: a service may need a moment
TRACEBACK_MOST = 4000  # characters of a traceback that are kept


@dataclass(frozen=True)
class Failure:
    """A row (its place) that failed for good: the exception in a line, and its traceback."""

    place: int
    error: str
    traceback: str


def failure(place: int, error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error))
    return Failure(place, f"{type(error).__name__}: {error}"[:500], text[-TRACEBACK_MOST:])


def each(
    function: Callable[[Any], Any], rows: Sequence[Any], pause: Callable[[float], None]
) -> tuple[list[Any], list[Failure]]:
    """Results of the rows that went well, in order, and the failures of the others."""
    out: list[Any] = []
    failures: list[Failure] = []
    tries = 0
    while (at := len(out) + len(failures)) < len(rows):
        try:
            out.extend(map(function, islice(rows, at, None) if at else rows))
            stopped = len(out) + len(failures)
            if stopped == len(rows):
                break
            raise RuntimeError("the task raised StopIteration")
        except (Exception, SystemExit) as error:
            stopped = len(out) + len(failures)
            tries = tries + 1 if stopped == at else 1
            if tries >= TRIES:
                failures.append(failure(stopped, error))
                tries = 0
            else:
                pause(PAUSES_S[tries - 1])
    return out, failures


def once(call: Callable[[], Any], pause: Callable[[float], None]) -> tuple[Any, Failure | None]:
    """The result of a call tried three times, or its failure."""
    results, failures = each(lambda _: call(), [None], pause)
    return (None, failures[0]) if failures else (results[0], None)
