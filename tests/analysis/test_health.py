"""Is the verdict right? Against a queue that is worked out from when each row was offered and when the sink had it.

What is looked at (`Flow.window`) is what a controller is told: positions and queues, up to a second late. What is
right (`Flow.right`) is worked out from the rows' own times alone and shares no code with the product.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from analysis_made import IDLE, START_NS, VM1, block, line_topology, window_of
from msgspec.structs import replace

from headgate.controller.analyze.health import BEHIND_S, HealthWatch, Waiting
from headgate.controller.analyze.stability import stability
from headgate.controller.knowledge.diagnoses import Health
from headgate.controller.knowledge.measured_window import (
    HISTORY_S,
    SERIES_STEP_S,
    Latency,
    LatencySeries,
    MeasuredWindow,
    ProgressSeries,
)
from headgate.controller.monitor.sample_intake import Intake
from headgate.controller.monitor.sample_windows import queues_now

S = 1_000_000_000
SECONDS, FIRST_S = 180, 20  # of a shape; the plan has settled by then
GRACE_S = 6  # after what is right has changed: the looks that a change takes to be sure of, and the reports


@dataclass
class Flow:
    """Rows offered at rate(t), done one after the other at capacity(t) rows/s; at most `flight` are under way. keeps_s:
    that the task keeps each, beside others (keeps: it is a window, not a call); burst: rows come together; chance: 0 …
    of the times that rows take."""

    rate: Callable[[float], float]
    capacity: Callable[[float], float]
    flight: int = 200
    keeps_s: float = 0.05
    burst: int = 1
    chance: float = 0.3
    keeps: bool = False
    came: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    sunk: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(7)
        due = free_s = 0.0
        for step in range(SECONDS * 100):
            at_s = step / 100
            due += self.rate(at_s) / 100
            while due >= self.burst:
                due -= self.burst
                for _ in range(self.burst):
                    n = len(self.came)
                    self.came.append(at_s)
                    self.read.append(max(at_s, self.sunk[n - self.flight] if n >= self.flight else 0.0))
                    begin_s = max(self.read[n], free_s)
                    while self.capacity(begin_s) <= 0:
                        begin_s += 0.05
                    self.begun.append(begin_s)
                    work = random.normal(1, self.chance) if self.chance else 1.0
                    free_s = begin_s + max(0.1, work) / self.capacity(begin_s)
                    self.sunk.append(free_s + self.keeps_s)

    # ── what a controller is told ───────────────────────────────────────────────────────────────

    def window(self, now_s: float) -> tuple[MeasuredWindow, float]:
        ago = np.arange(int(min(now_s, HISTORY_S) / SERIES_STEP_S), -1, -1) * SERIES_STEP_S
        at = now_s - ago
        told = np.floor(at / 0.5 - 0.3) * 0.5 + 0.15  # a report every half second, and its way
        offered, emitted, acked = (
            tuple(float(bisect_right(times, t)) for t in when)
            for times, when in ((self.came, at), (self.read, told), (self.sunk, told))
        )
        seconds = [s for s in range(max(0, int(now_s) - 11), int(now_s) - 1)]
        each = [(s, bisect_right(self.sunk, s), bisect_right(self.sunk, s + 1)) for s in seconds]
        medians = [
            (s + 0.5 - now_s, float(np.median(np.array(self.sunk[a:b]) - self.came[a:b])))
            for s, a, b in each
            if b > a
        ]
        latency = (
            LatencySeries(*(tuple(column) for column in zip(*medians, strict=True))) if medians else None
        )
        queue = float(bisect_right(self.read, now_s - 1) - bisect_right(self.begun, now_s - 1))
        past = min(len(offered) - 1, 20)
        rates = {
            name: (column[-1] - column[-1 - past]) / (past * SERIES_STEP_S) if past else 0.0
            for name, column in (("offered_tps", offered), ("acked_tps", acked))
        }
        series = ProgressSeries(tuple((-ago).tolist()), offered, emitted, acked)
        a, b = bisect_right(self.sunk, now_s - 11), bisect_right(self.sunk, now_s - 1)
        in_task_s = (
            0.01
            if self.keeps
            else float(np.mean(np.array(self.sunk[a:b]) - self.read[a:b]))
            if b > a
            else 0.0
        )
        task = replace(IDLE, rate_in_tps=(b - a) / 10, queue=queue, latency_mean_ms=1000 * in_task_s)
        made = window_of(series, latency, tasks={"work": task}, **rates)
        took = np.array(self.sunk[a:b]) - self.came[a:b] if b > a else np.zeros(1)
        shares = (1000 * float(np.quantile(took, share)) for share in (0.5, 0.95, 0.99))
        told = Latency(float(b - a), 1000 * float(took.mean()), *shares)
        return replace(made, now_ns=START_NS + round(now_s * S), latency=told), queue

    def verdicts(self) -> list[Health]:
        watch, found = HealthWatch(), []
        for now_s in range(2, SECONDS - 20):
            window, queue = self.window(float(now_s))
            rows = int(window.progress.offered[-1] - window.progress.acked[-1])
            found.append(
                watch.look(
                    window, stability(window, now_s + 1.0), Waiting(rows, queue if self.keeps else None)
                )
            )
        return found

    # ── what is right ───────────────────────────────────────────────────────────────────────────

    def waits_s(self, t: float) -> float:
        """How long the oldest row has waited that no task has begun."""
        n = bisect_right(self.begun, t)
        return t - self.came[n] if n < len(self.came) and self.came[n] < t else 0.0

    def waiting(self, t: float) -> int:
        return bisect_right(self.came, t) - bisect_right(self.begun, t)

    def right(self, t: float) -> set[str]:
        """What may be said at t."""
        if t < FIRST_S:
            return {"stable", "unstable", "catching_up", "unknown"}
        wait_s, ahead_s = self.waits_s(t), 5.0
        grows = (self.waiting(t + ahead_s) - self.waiting(t - ahead_s)) / (2 * ahead_s)
        rate = max(self.rate(t), self.capacity(t), 1.0)
        way = 0 if abs(grows) < 0.02 * rate else math.copysign(1, grows)
        if wait_s < 1.0:
            return {"stable", "unstable"} if way > 0 else {"stable"}
        if wait_s < BEHIND_S * 1.2:
            return {"stable", "unstable"} if way > 0 else {"stable", "catching_up", "unstable"}
        return {"catching_up"} if way < 0 else {"unstable"}


def steady(level: float) -> Callable[[float], float]:
    return lambda t: level


def between(begin: float, end: float, inside: float, outside: float) -> Callable[[float], float]:
    return lambda t: inside if begin <= t < end else outside


SHAPES = {
    "steady below": Flow(steady(90), steady(120)),
    "5 % over, for good": Flow(steady(105), steady(100)),
    "a third over, then below": Flow(between(20, 50, 130, 60), steady(100)),
    "a spike": Flow(between(30, 36, 400, 70), steady(100)),
    "an outage": Flow(steady(60), between(30, 60, 0, 100)),
    "no faster than rows come after an outage": Flow(
        steady(80), lambda t: 0.0 if 30 <= t < 60 else 120 if t < 30 else 80, chance=0
    ),
    "a slow service": Flow(steady(80), between(40, 90, 50, 140)),
    "a ramp through what fits": Flow(lambda t: 50 + t * 0.7, steady(110)),
    "waves": Flow(lambda t: 90 + 60 * math.sin(t / 14), steady(105)),
    "rows that a window keeps": Flow(steady(80), steady(120), flight=2000, keeps_s=10.0, keeps=True),
    "a window, and an outage": Flow(steady(60), between(60, 80, 0, 100), 2000, keeps_s=8.0, keeps=True),
    "calls of three seconds": Flow(steady(80), steady(120), flight=2000, keeps_s=3.0),
    "nothing, then bursts": Flow(lambda t: 0.0 if t < 30 else 80.0, steady(110), burst=20),
    "all under way, none held back": Flow(between(20, 50, 150, 60), steady(100), flight=100_000),
    "few rows": Flow(between(30, 80, 4, 1), steady(2), chance=0),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_verdict_is_right_in_98_of_100_looks(name: str) -> None:
    flow = SHAPES[name]
    found = flow.verdicts()
    wrong = []
    for n, health in enumerate(found):
        t = n + 2.0
        may = set().union(*(flow.right(t - ago) for ago in np.arange(0.0, min(GRACE_S, t), 0.5)))
        if health.verdict not in may:
            wrong.append((t, health.words, sorted(may), round(flow.waits_s(t), 1)))
    assert len(wrong) <= 0.02 * len(found), wrong


def test_latencies_of_rows_that_were_behind_are_named_as_such_once_none_waits() -> None:
    """The rows of the last ten seconds are shown beside the verdict, and the last of an outage are among them."""
    flow = SHAPES["an outage"]
    found = list(enumerate(flow.verdicts(), 2))
    late = [
        (s, one) for s, one in found if one.verdict == "stable" and flow.window(s)[0].latency.p99_ms > 2000
    ]
    assert late
    for s, one in late:
        p99_s = flow.window(s)[0].latency.p99_ms / 1000
        assert one.words == f"stable, p99 {p99_s:.0f} s of rows that had waited"
    assert found[-1][1].words == "stable"


@pytest.mark.parametrize("name", ["rows that a window keeps", "calls of three seconds", "steady below"])
def test_latencies_that_are_usual_are_not_named(name: str) -> None:
    assert {one.words for one in SHAPES[name].verdicts() if one.verdict == "stable"} == {"stable"}


def test_few_rows_that_take_long_are_named_though_nothing_waits() -> None:
    """One row in fifty takes twelve seconds: no backlog shows it."""
    flow, watch, words = SHAPES["steady below"], HealthWatch(), []
    for now_s in range(2, 150):
        window, _ = flow.window(float(now_s))
        latency = replace(window.latency, p99_ms=12_000.0) if 60 <= now_s < 70 else window.latency
        window = replace(window, latency=latency)
        words.append(watch.look(window, stability(window, now_s + 1.0), Waiting(8)).words)
    assert set(words[58:68]) == {"stable, but some rows take long: p99 12 s"}
    assert set(words[68:]) == {"stable"}


def test_a_controller_that_begins_anew_knows_since_when_rows_wait_by_what_was_due() -> None:
    """100 rows/s for 40 s, then 1: what is left is as old as the burst, not as the present rate says."""

    def came(at_s: float) -> float:
        return min(at_s, 40.0) * 100 + max(0.0, at_s - 40.0)

    now_s, done = 100.0, 3000.0
    at = (-1.0, -0.5, 0.0)
    positions = tuple(came(now_s + ago) for ago in at)
    window = window_of(ProgressSeries(at, positions, (done,) * 3, (done,) * 3), offered_tps=1.0)
    found = HealthWatch().look(window, stability(window, 100.0), Waiting(1060), lambda ago: came(now_s - ago))
    assert found.backlog_s == pytest.approx(70.0, abs=1.0)


def test_rows_that_all_came_before_the_first_look_have_waited_since_then_and_not_for_half_an_hour() -> None:
    """A source gave all that it has at once, and a sink stands still."""
    at = (-1.0, -0.5, 0.0)
    window = window_of(ProgressSeries(at, (100.0,) * 3, (40.0,) * 3, (40.0,) * 3), offered_tps=0.0)
    found = HealthWatch().look(window, stability(window, 100.0), Waiting(60))
    assert 0 < found.backlog_s <= 2.0


def test_queues_are_plain_numbers_that_every_message_can_hold() -> None:
    made = Intake(line_topology())
    made.expect((VM1,))
    for second in range(4):
        rows = [("score", {"thread": 1, "queue": 7})]
        made.add_block(
            block(sequence=second, wall_ns=START_NS + second * S, threads=rows), START_NS + second * S, 1
        )
    queues = queues_now(made, START_NS + 4 * S)
    assert {type(rows) for rows in queues.values()} == {float} and queues["score"] == pytest.approx(
        7, rel=0.3
    )


def test_what_was_done_since_a_source_was_heard_is_no_backlog() -> None:
    """100 rows/s that take 50 ms, of which a report of 0.6 s ago says what is done."""
    at = tuple(ago / 2 for ago in range(-20, 1))
    offered = tuple(100 * (now_s := 50.0 + ago) for ago in at)
    done = tuple(100 * (50.0 + ago - 0.65) for ago in at)
    window = window_of(ProgressSeries(at, offered, done, done), offered_tps=100.0, acked_tps=100.0)
    found = HealthWatch().look(window, stability(window, now_s), Waiting(5, age_s=0.6))
    assert (found.verdict, found.backlog_rows) == ("stable", 5) and found.backlog_s == pytest.approx(0.05)
    late = HealthWatch().look(window, stability(window, now_s), Waiting(65))
    assert late.backlog_s == pytest.approx(0.65), "silent sources: their rows may wait"
