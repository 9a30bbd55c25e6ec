"""Is it well? The trend of `stability`, how much waits, and whether that grows or falls. Pure.

A trend alone says too little: after an outage nothing grows any more, and every row is a minute old. So three things
are looked at: the trend (which sees 2 % overload long before a second waits), the level (for how long rows wait to be
read, or before a task) and the direction (offered against done). Rows that a task itself keeps, in an open window or a
call, do not wait: they count in the backlog and not in the level.

 stable       nothing waits for long, and nothing grows
 catching_up  rows wait, and fewer each second
 unstable     rows wait or their number grows, and it does not fall
 unknown      samples are missing, or the plan has not settled and nothing waits

Each is kept until it is surely over: a level is left at half of where it was entered, after `CALM` turns.

The latency that stands beside it is of rows of the last seconds. Where that says more than the verdict (the last rows
of an outage, or a few that take long while the others flow), the words name it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headgate.controller.knowledge.diagnoses import Health, Stability, Verdict
from headgate.controller.knowledge.measured_window import SERIES_STEP_S, MeasuredWindow
from headgate.controller.knowledge.offered_load import Lag
from headgate.topology_runtime.stability.slopes import Floats

BEHIND_S, LEFT_S = 2.0, 1.0  # rows wait for so long: it is behind; less: no more
CALM = 3  # turns
SPANS_S = (6, 12, 24)  # the shortest that is sure says whether the backlog grows
SURE, LEAST = 2.0, 0.01  # standard errors, and of the rate
FEW = 0.1  # of the rows in a task wait before it
MARKS = 4096
EARLIER_S = 1800  # what came before is looked up so far back
LATE_TIMES = 3.0  # what 99 of 100 rows usually take at most: they take long now
USUAL_LEAST, USUAL_MOST = 5, 60  # looks that say what is usual; long for so many, it is the usual
HALTED = "unstable, threads stand still"
NS = 1_000_000_000


class Waiting(NamedTuple):
    """rows: offered and not done, of all sources, as they said age_s ago; queued: of these, at the input rate, before
    tasks, where tasks keep rows (None: none does)."""

    rows: int
    queued: float | None = None
    age_s: float = 0.0


class HealthWatch:
    """Of one run, looked at once a turn."""

    def __init__(self) -> None:
        self.now = Health("unknown", 0, 0.0, None, "nothing has been measured yet")
        self._offered: list[tuple[int, float]] = []  # when, how many
        self._waiting: deque[float] = deque(maxlen=SPANS_S[-1] + 1)  # rows, of each turn
        self._calm = 0
        self._usual: deque[float] = deque(
            maxlen=USUAL_MOST
        )  # p99 in s of each look at which nothing was late
        self._late = 0  # looks in a row at which it was
        self._behind_ns: int | None = None  # when rows waited last

    def look(
        self,
        window: MeasuredWindow,
        trend: Stability,
        waiting: Waiting,
        came: Callable[[float], float] | None = None,
        lags: Sequence[Lag] = (),
        halted: bool = False,
    ) -> Health:
        """came: seconds ago → positions offered by then, for what is older than this watch; halted: an alarm says
        that something stands still."""
        rows, queued, age_s = waiting
        series = window.progress
        if not series.at_s:
            return self.now
        worst_s = max((lag.seconds for lag in lags), default=0.0)
        self._note(window, came)
        since_s = self._since_s(window, series.acked[-1]) if rows else 0.0
        backlog_s = max(since_s, worst_s) if rows else 0.0
        held_back = series.offered[-1] - series.emitted[-1]
        present = series.offered[-1] - series.acked[-1] if queued is None else held_back + queued
        self._waiting.append(present)
        rate_tps = max(window.offered_tps, window.acked_tps)
        net_tps = net(_by_second(window), rate_tps)
        if queued is not None and net_tps >= 0:
            net_tps = net(np.array(self._waiting), rate_tps)
        waits_s = max(0.0, backlog_s - _work_s(window))
        if queued is not None:
            waits_s = min(self._waits_s(window, queued), waits_s)
        waits_s = max(waits_s, worst_s)
        verdict = self._verdict(window, trend, waits_s, net_tps, halted)
        left_s = present / -net_tps if verdict == "catching_up" and net_tps < 0 else None
        words = HALTED if halted and verdict == "unstable" else _words(verdict, waits_s, left_s, trend)
        words += self._said_of_latency(window, verdict, queued is not None)
        evidence = trend.text.removeprefix(f"{trend.verdict}: ")
        oldest_s = max(since_s - age_s, worst_s, 0.0) if rows else 0.0
        self.now = Health(verdict, rows, oldest_s, left_s, words, f"{words}; {evidence}")
        return self.now

    def _verdict(
        self, window: MeasuredWindow, trend: Stability, waits_s: float, net_tps: float, halted: bool
    ) -> Verdict:
        if not window.is_complete:
            return "unknown"
        before = self.now.verdict
        was_behind = before == "catching_up" or (before == "unstable" and self._calm < CALM)
        self._calm = self._calm + 1 if waits_s < LEFT_S else 0
        behind = waits_s >= BEHIND_S or (was_behind and self._calm < CALM)
        if halted or (behind and net_tps >= 0 and waits_s >= LEFT_S):
            return "unstable"
        if behind:
            return "catching_up" if net_tps < 0 or before == "catching_up" else "unstable"
        if trend.verdict == "unstable" and net_tps < 0:
            return "stable"
        return trend.verdict

    def _said_of_latency(self, window: MeasuredWindow, verdict: Verdict, keeps: bool) -> str:
        """What rows took lately, where a verdict alone would hide it. keeps: rows may rest in tasks for long, so nobody
        knows what is usual before it was seen."""
        p99_s = window.latency.p99_ms / 1000
        if verdict in ("catching_up", "unstable"):
            self._behind_ns = window.now_ns
        if verdict != "stable" or not window.latency.rows:
            return ""
        known = len(self._usual) >= USUAL_LEAST
        usual_s = float(np.median(self._usual)) if known else np.inf if keeps else _work_s(window)
        if p99_s < max(BEHIND_S, LATE_TIMES * usual_s):
            self._usual.append(p99_s)
            self._late = 0
            return ""
        self._late += 1
        if self._late >= USUAL_MOST:
            self._usual.clear()
            self._usual.extend([p99_s] * USUAL_LEAST)
        since_s = np.inf if self._behind_ns is None else (window.now_ns - self._behind_ns) / NS
        waited = since_s <= p99_s + window.seconds
        return (
            f", p99 {span(p99_s)} of rows that had waited"
            if waited
            else f", but some rows take long: p99 {span(p99_s)}"
        )

    def _note(self, window: MeasuredWindow, came: Callable[[float], float] | None) -> None:
        """Know when how many rows had been offered."""
        series = window.progress
        at_ns = window.now_ns + round(series.at_s[-1] * NS)
        if self._offered and (series.offered[-1] < self._offered[-1][1] or at_ns < self._offered[-1][0]):
            self._offered.clear()  # positions are counted anew
        if not self._offered:
            agos = [-ago for ago in range(EARLIER_S, 0, -1) if came is not None and -ago < series.at_s[0]]
            earlier = [(float(at_s), came(-at_s)) for at_s in agos] if came is not None else []
            known = [*earlier, *zip(series.at_s, series.offered, strict=True)]
            self._offered = [(window.now_ns + round(at_s * NS), rows) for at_s, rows in known]
        elif at_ns > self._offered[-1][0]:
            self._offered.append((at_ns, series.offered[-1]))
        if len(self._offered) > MARKS:
            self._offered = self._offered[::2]

    def _since_s(self, window: MeasuredWindow, position: float) -> float:
        """How long ago the row after this position was offered; 0 where there is none."""
        if window.progress.offered[-1] - position < 1.0:
            return 0.0
        place = bisect_right(self._offered, position, key=lambda mark: mark[1])
        if place == 0:  # before anything is known
            from_ns, before = self._offered[0]
            tps = window.offered_tps  # 0: nothing says that they came earlier
            older_s = min((before - position) / tps, EARLIER_S) if tps > 0 else 0.0
            return float((window.now_ns - from_ns) / NS + older_s)
        at = self._offered[place - 1], self._offered[min(place, len(self._offered) - 1)]
        (from_ns, before), (to_ns, after) = at
        share = (position - before) / (after - before) if after > before else 0.0
        return float((window.now_ns - from_ns - share * (to_ns - from_ns)) / NS)

    def _waits_s(self, window: MeasuredWindow, queued: float) -> float:
        """For how long rows wait: to be read, and then before tasks."""
        series = window.progress
        held_s = self._since_s(window, series.emitted[-1])
        done_tps = max(series.lately(what, SPANS_S[0]) or 0.0 for what in ("emitted", "acked"))
        return held_s + (queued / done_tps if done_tps > 0 else np.inf if queued >= 1 else 0.0)


def _work_s(window: MeasuredWindow) -> float:
    """How long a row is worked on, at most: in every task, one after the other. Where hardly any wait before a task,
    all its latency: calls that wait for a service overlap, and busy time says less."""
    found = 0.0
    for task in window.tasks.values():
        if task.rate_in_tps > 0:
            busy_s, all_s = task.busy_share * task.threads / task.rate_in_tps, task.latency_mean_ms / 1000
            found += max(busy_s, all_s if task.queue <= FEW * task.rate_in_tps * all_s else 0.0)
    return found


def queued_of(queues: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """Rows that wait before tasks, as rows of the input; rates: task → rows of it per row of the input."""
    return sum(rows / rates[name] for name, rows in queues.items() if rates.get(name, 0.0) > 0)


def _by_second(window: MeasuredWindow) -> Floats:
    """Rows that are not done, mean of each second."""
    series, each = window.progress, round(1 / SERIES_STEP_S)
    backlog = np.array(series.offered) - np.array(series.acked)
    seconds: Floats = backlog[len(backlog) % each :].reshape(-1, each).mean(axis=1)
    return seconds


def net(seconds: Floats, rate_tps: float) -> float:
    """Rows/s that what waits (one value a second) grows by (< 0: falls by) now; 0 where that is not sure."""
    for span in SPANS_S:
        if len(seconds) <= span:
            return 0.0
        steps = np.diff(seconds[-span - 1 :])
        found = float(steps.mean())
        if abs(found) > max(LEAST * rate_tps, SURE * float(steps.std()) / span**0.5):
            return found
    return 0.0


def _words(verdict: Verdict, waits_s: float, left_s: float | None, trend: Stability) -> str:
    if verdict == "unknown":
        return trend.text
    behind = f"{span(waits_s)} behind" if waits_s >= LEFT_S else ""
    if verdict == "catching_up":
        soon = "nearly caught up" if not behind or left_s is None else f"caught up in about {span(left_s)}"
        return ", ".join(part for part in ("catching up", behind, soon) if part)
    if verdict == "unstable" and behind:
        return f"unstable, {behind} and not catching up"
    return verdict


def span(seconds: float) -> str:
    """`41 s`, `2 min`, `3 h`."""
    if not np.isfinite(seconds):
        return "a long time"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
