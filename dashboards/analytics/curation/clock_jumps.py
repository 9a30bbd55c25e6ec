"""Which segments of a run were written by a clock that had jumped. Pure.

A run is one stretch of time: segments follow each other without long gaps, begin after the run did, and
those of one writer begin in the order in which they were written. What does not fit to the most is out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median

SECOND_US = 1_000_000
GAP_S = 6 * 3600  # without any sample; a controller that was down for longer is another run
SKEW_S = 60  # clocks of VMs may differ by so much
TIMES_LONGER = 10  # than the usual segment, and longer than the gap: its clock jumped while it was open
ORDERED = re.compile(r"^(\d+)-(\d+)\.parquet$")  # life of the writer, number

Span = tuple[int, int]  # times of the first and the last row, µs
ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def us_of(time: datetime) -> int:
    """Since 1970; a time without a zone is UTC."""
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int((known - ZERO) / timedelta(microseconds=1))


def outside(spans: Sequence[Span], started_us: int | None) -> dict[int, str]:
    """Index → why, of the segments whose times lie far from the rest of the run."""
    if not spans:
        return {}
    usual_us = median(end - begin for begin, end in spans)
    gap_us = max(GAP_S * SECOND_US, 3 * usual_us)
    found: dict[int, str] = {}
    for n, (begin, end) in enumerate(spans):
        if end - begin > max(gap_us, TIMES_LONGER * usual_us):
            found[n] = f"its clock jumped: its times span {_words(end - begin)}"
    groups = _groups(spans, [n for n in range(len(spans)) if n not in found], gap_us)
    if not groups:
        return found

    def weight(group: list[int]) -> tuple[int, float]:
        near = -abs(spans[group[0]][0] - started_us) if started_us is not None else 0.0
        return len(group), near

    most = max(groups, key=weight)
    if len(groups) > 1 and started_us is not None:
        inside = [g for g in groups if abs(spans[g[0]][0] - started_us) <= gap_us]
        most = max(inside, key=weight) if inside else most
    low, high = min(spans[n][0] for n in most), max(spans[n][1] for n in most)
    for group in groups:
        for n in group if group is not most else ():
            away = low - spans[n][1] if spans[n][1] < low else spans[n][0] - high
            side = "before" if spans[n][1] < low else "after"
            found[n] = f"its clock jumped: its times are {_words(away)} {side} the rest of the run"
    return found | _early(spans, most, started_us)


def _early(spans: Sequence[Span], group: list[int], started_us: int | None) -> dict[int, str]:
    """Those that begin before the run did; none when the most do: then it is the run's own clock."""
    if started_us is None:
        return {}
    early = [n for n in group if spans[n][0] < started_us - SKEW_S * SECOND_US]
    if 2 * len(early) > len(group):
        return {}
    return {
        n: f"its clock jumped: it begins {_words(started_us - spans[n][0])} before the run" for n in early
    }


def backwards(names: Sequence[str], spans: Sequence[Span]) -> dict[int, str]:
    """Index → why, of the segments of one table that begin before one written earlier: as few as possible."""
    lives: dict[str, list[tuple[int, int]]] = {}
    for n, name in enumerate(names):
        if match := ORDERED.match(name):
            lives.setdefault(match[1], []).append((int(match[2]), n))
    found: dict[int, str] = {}
    for members in lives.values():
        order = [n for _, n in sorted(members)]
        kept = _rising([spans[n][0] for n in order])
        for at, n in enumerate(order):
            if at not in kept:
                found[n] = "its clock ran backwards: it begins out of the order in which it was written"
    return found


def _rising(begins: Sequence[int]) -> set[int]:
    """The longest subsequence that never falls by more than the skew (patience sorting, Fredman 1975)."""
    tops: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for n, begin in enumerate(begins):
        pile = bisect_right(tops, begin + SKEW_S * SECOND_US)
        before.append(at[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(begin)
            at.append(n)
        elif begin <= tops[pile]:
            tops[pile], at[pile] = begin, n
    kept, n = set(), at[-1] if at else -1
    while n >= 0:
        kept.add(n)
        n = before[n]
    return kept


def _groups(spans: Sequence[Span], members: Sequence[int], gap_us: float) -> list[list[int]]:
    """Members in order of time, cut where nothing is for longer than the gap."""
    groups: list[list[int]] = []
    reach = 0
    for n in sorted(members, key=lambda n: spans[n]):
        if not groups or spans[n][0] - reach > gap_us:
            groups.append([])
            reach = spans[n][1]
        groups[-1].append(n)
        reach = max(reach, spans[n][1])
    return groups


def _words(us: float) -> str:
    seconds = us / SECOND_US
    for unit, size in (("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
