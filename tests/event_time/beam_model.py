"""Which panes a fixed window gives, from what is published of Beam's model (the programming guide, sections on
windowing, watermarks and triggers, and the Dataflow paper): whole histories looked at from outside, window by window.
No code of headgate.

    a row belongs to the window of its time, [n·size, (n + 1)·size)
    before the watermark passes the end of the window, a pane is EARLY; a repeated count trigger fires at every n-th row
    since the last pane, a repeated delay trigger so long after the first row since the last pane
    when the watermark passes the end, the ON_TIME pane is given, new rows or not, if the window has any row
    after that each row gives a LATE pane, until the watermark passes the end and the allowed lateness: then it is
    dropped panes accumulate: each has all rows of the window so far; they are numbered from 0
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LEAST = float("-inf")


@dataclass(frozen=True)
class Arrival:
    """A row: its event time, and the clock when it came."""

    at: float
    clock: float


@dataclass(frozen=True)
class Rules:
    size: float
    lateness: float = 0.0  # allowed
    behind: float = 0.0  # of the watermark, behind the newest row
    early_rows: int = 0
    early_delay: float = 0.0


Pane = tuple[float, float, int, int, str]  # start, end, rows, number, timing


def marks(arrivals: list[Arrival], rules: Rules) -> list[float]:
    """The watermark that each row meets, and at last that at the end of the rows."""
    found, newest = [LEAST], LEAST
    for one in arrivals:
        newest = max(newest, one.at)
        found.append(newest - rules.behind)
    return found


def panes(arrivals: list[Arrival], rules: Rules) -> dict[float, list[Pane]]:
    """start → its panes, in order."""
    starts = sorted({one.at // rules.size * rules.size for one in arrivals})
    return {start: list(_window(start, arrivals, rules)) for start in starts}


def dropped(arrivals: list[Arrival], rules: Rules) -> int:
    return sum(
        mark >= one.at // rules.size * rules.size + rules.size + rules.lateness
        for one, mark in zip(arrivals, marks(arrivals, rules), strict=False)
    )


def _window(start: float, arrivals: list[Arrival], rules: Rules) -> Iterable[Pane]:
    end, met = start + rules.size, marks(arrivals, rules)
    mine = [
        (one, met[number])
        for number, one in enumerate(arrivals)
        if one.at // rules.size * rules.size == start
    ]
    closing = next((number for number, mark in enumerate(met) if mark >= end), None)
    closed_clock = arrivals[closing - 1].clock if closing else float("inf")
    early = [one for one, mark in mine if mark < end]
    late = sum(end <= mark < end + rules.lateness for _, mark in mine)
    number = 0
    for rows in _early_counts(early, rules, closed_clock, arrivals[-1].clock):
        yield start, end, rows, number, "early"
        number += 1
    if early:
        yield start, end, len(early), number, "on time"
        number += 1
    for more in range(late):
        yield start, end, len(early) + more + 1, number + more, "late"


def _early_counts(early: list[Arrival], rules: Rules, closed: float, over: float) -> Iterable[int]:
    """How many rows each early pane has. closed: the clock when the watermark passed the end; over: at the last row."""
    if rules.early_rows:
        yield from range(rules.early_rows, len(early) + 1, rules.early_rows)
    if rules.early_delay:
        place = 0
        while place < len(early):
            due = early[place].clock + rules.early_delay
            if due > min(closed, over):
                return
            place = next((n for n, one in enumerate(early) if one.clock >= due), len(early))
            yield place
