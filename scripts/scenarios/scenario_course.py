"""What was seen of one scenario from outside, and the row that it comes to. Pure; shares no code with the controller.

under-provisioned   rows that came above what the plan in force carries, second by second
late                rows that waited longer than LATE_S
of static           slots held × time, as a share of those of one plan for the peak with headroom, for all of it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

LATE_S = 5.0
HEADROOM = 1.15  # of every plan
CENT = 1e-9

Points = Sequence[tuple[float, float]]  # (s, what holds from then on)


@dataclass
class Raised:
    """An alarm; `over_s` None: it was there to the end."""

    what: str
    at_s: float
    over_s: float | None = None


@dataclass
class Course:
    """came: rows of each second. carried, held: rows/s of the plan in force, slots; from 0 s on. waits: (s, rows).
    plans_s: re-plans. pauses_ms: of moved threads, as the run told them. None: not measured there."""

    seconds: float
    came: list[float]
    carried: list[tuple[float, float]]
    held: list[tuple[float, float]]
    waits: list[tuple[float, float]]
    static_slots: int
    plans_s: list[float] = field(default_factory=list)
    alarms: list[Raised] = field(default_factory=list)
    lost: int | None = None
    pauses_ms: list[float] | None = None
    load: float | None = None  # of the machine, mean
    note: str = ""
    beside: list[dict[str, Any]] = field(default_factory=list)  # what `headgate lab shadow` says of it


def row(scenario: str, where: str, of: Course) -> dict[str, Any]:
    """The line of the table."""
    rows = sum(of.came)
    late = sum(many for wait_s, many in of.waits if wait_s > LATE_S)
    pauses = of.pauses_ms
    return {
        "scenario": scenario,
        "where": where,
        "seconds": round(of.seconds, 1),
        "of_static": round(area(of.held, of.seconds) / (of.static_slots * of.seconds), 3),
        "short_share": round(short_rows(of.came, of.carried) / max(rows, CENT), 5),
        "late_share": round(late / max(rows, CENT), 5),
        "longest_wait_s": round(max((wait_s for wait_s, many in of.waits if many > CENT), default=0.0), 2),
        "plans": len(of.plans_s),
        "most_in_a_minute": most_in_a_minute(of.plans_s),
        "lost": of.lost,
        "pause_p95_ms": percentile(pauses, 0.95) if pauses else None,
        "pause_max_ms": max(pauses) if pauses else None,
        "alarms": "; ".join(told(alarm) for alarm in of.alarms) or "none",
        "load": of.load,
        "note": of.note,
    }


def told(alarm: Raised) -> str:
    over = "not cleared" if alarm.over_s is None else f"cleared {alarm.over_s:.0f} s"
    return f"{alarm.what} {alarm.at_s:.0f} s, {over}"


def note_alarms(known: list[Raised], now: set[str], at_s: float) -> None:
    """Raise and clear what is there now and was not, and the other way round."""
    there = {alarm.what for alarm in known if alarm.over_s is None}
    known += [Raised(what, at_s) for what in sorted(now - there)]
    for alarm in known:
        if alarm.over_s is None and alarm.what not in now:
            alarm.over_s = at_s


def area(points: Points, until_s: float) -> float:
    """The sum over time of what holds from each point to the next."""
    ends = [at_s for at_s, _ in points[1:]] + [until_s]
    return sum(
        value * max(0.0, min(end_s, until_s) - max(0.0, at_s))
        for (at_s, value), end_s in zip(points, ends, strict=True)
    )


def short_rows(came: Sequence[float], carried: Points) -> float:
    """Rows above what is carried; those of a second come evenly in it."""
    short, at = 0.0, 0
    for second, rows in enumerate(came):
        from_s = float(second)
        while from_s < second + 1:
            while at + 1 < len(carried) and carried[at + 1][0] <= from_s:
                at += 1
            next_s = carried[at + 1][0] if at + 1 < len(carried) else second + 1.0
            to_s = min(second + 1.0, next_s)
            short += max(0.0, rows - carried[at][1]) * (to_s - from_s)
            from_s = to_s
    return short


def waits_of(came: Sequence[float], carried: Points, step_s: float = 0.1) -> list[tuple[float, float]]:
    """(how long they wait, how many), of rows that are done in the order in which they came. Those that are not
    done by the end wait until then."""
    waits: list[tuple[float, float]] = []
    queue: list[list[float]] = []  # [came at, rows]
    at = head = 0
    for tick in range(round(len(came) / step_s)):
        now_s = tick * step_s
        while at + 1 < len(carried) and carried[at + 1][0] <= now_s:
            at += 1
        queue.append([now_s, came[int(now_s + CENT)] * step_s])
        able = carried[at][1] * step_s
        while head < len(queue) and able > CENT:
            done = min(able, queue[head][1])
            waits.append((now_s - queue[head][0], done))
            able -= done
            queue[head][1] -= done
            head += queue[head][1] <= CENT
    end_s = len(came)
    return waits + [(end_s - came_s, rows) for came_s, rows in queue[head:] if rows > CENT]


def most_in_a_minute(times_s: Sequence[float]) -> int:
    return max((sum(a <= b < a + 60 for b in times_s) for a in times_s), default=0)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]
