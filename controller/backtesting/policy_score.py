"""What a policy needed and what it failed to carry. Pure.

slot-seconds    of slots with threads, those that leave until a plan is committed included
short           time in which more is offered than the plan in force carries, and the rows above it
late            rows that waited longer than they may: what is above the plan waits its turn, first come first done
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]

HOUR_S = 3600.0
SHORT_MOST = 0.01  # of the rows, above a plan: a policy that leaves more short is no cheaper one


class ScoreSeries(NamedTuple):
    """Span by span, at its end."""

    at_s: list[float]
    offered_tps: list[float]
    planned_tps: list[float]
    carried_tps: list[float]
    backlog: list[float]


@dataclass
class PolicyScore:
    """Sums over spans of time in which nothing changes. may_wait_s: what rows may wait. keeps: each span, for
    `waits` and the timeline."""

    may_wait_s: float
    keeps: bool = True
    seconds: float = 0.0
    slot_seconds: float = 0.0
    vm_seconds: float = 0.0
    usd: float = 0.0
    offered: float = 0.0
    planned: float = 0.0
    short_s: float = 0.0
    short_rows: float = 0.0
    moves: int = 0
    plans_at_s: list[float] = field(default_factory=list)
    backlog: float = 0.0
    timeline: ScoreSeries = field(default_factory=lambda: ScoreSeries([], [], [], [], []))
    _at_s: list[float] = field(default_factory=lambda: [0.0])
    _came: list[float] = field(default_factory=lambda: [0.0])
    _done: list[float] = field(default_factory=lambda: [0.0])

    def span(self, long_s: float, rows: float, planned_tps: float, carried_tps: float) -> None:
        """So many rows came in so long, under a plan for `planned_tps` that carries `carried_tps`."""
        self.seconds += long_s
        self.offered += rows
        self.planned += planned_tps * long_s
        above = rows - carried_tps * long_s
        if above > 1e-9 * rows:
            self.short_s += long_s
            self.short_rows += above
        done = min(self.backlog + rows, carried_tps * long_s)
        self.backlog += rows - done
        if not self.keeps:
            return
        for column, value in zip(
            self.timeline, (self.seconds, rows / long_s, planned_tps, carried_tps, self.backlog), strict=True
        ):
            column.append(value)
        self._at_s.append(self.seconds)
        self._came.append(self._came[-1] + rows)
        self._done.append(self._done[-1] + done)

    def held(self, long_s: float, slots: int, vms: int, usd_per_hour: float) -> None:
        self.slot_seconds += slots * long_s
        self.vm_seconds += vms * long_s
        self.usd += usd_per_hour * long_s / HOUR_S

    def waits(self) -> tuple[float, float]:
        """(rows that waited longer than they may, the longest wait in s), of those that were done."""
        at_s, came, done = (np.array(column) for column in (self._at_s, self._came, self._done))
        rows = np.diff(came)
        middle = (came[1:] + came[:-1]) / 2
        order = np.flatnonzero(np.diff(done, prepend=-1.0) > 0)  # moments by which more was done than before
        ends_s = np.interp(middle, done[order], at_s[order])
        wait_s = np.maximum(0.0, ends_s - (at_s[1:] + at_s[:-1]) / 2)
        known = middle <= done[-1]
        wait_s = np.where(known, wait_s, at_s[-1] - (at_s[1:] + at_s[:-1]) / 2)
        return float(rows[wait_s > self.may_wait_s].sum()), float(wait_s.max(initial=0.0))

    @property
    def most_in_a_minute(self) -> int:
        times = self.plans_at_s
        return max((sum(a <= b < a + 60 for b in times) for a in times), default=0)

    def row(self, policy: str, static: float, bare: float) -> Row:
        """The policy's line. static, bare: slot-seconds of one plan for the peak, with headroom and without."""
        late, wait_s = self.waits()
        offered = max(self.offered, 1e-9)
        return {
            "policy": policy,
            "slot_seconds": round(self.slot_seconds, 1),
            "of_static": round(self.slot_seconds / static, 4),
            "of_bare": round(self.slot_seconds / bare, 4),
            "short_share": round(self.short_rows / offered, 6),
            "short_tuples": round(self.short_rows, 1),
            "short_s": round(self.short_s, 1),
            "late_share": round(late / offered, 6),
            "late_tuples": round(late, 1),
            "longest_wait_s": round(wait_s, 2),
            "plans": len(self.plans_at_s),
            "plans_in_a_minute_most": self.most_in_a_minute,
            "moves": self.moves,
            "planned_of_offered": round(self.planned / offered, 4),
            "vm_seconds": round(self.vm_seconds, 1),
            "usd": round(self.usd, 6),
        }


def rank_of(row: Row) -> tuple[bool, float, float]:
    """First those that carry enough, by what they needed."""
    fails = row["short_share"] > SHORT_MOST
    return fails, row["short_share"] if fails else 0.0, row["slot_seconds"]
