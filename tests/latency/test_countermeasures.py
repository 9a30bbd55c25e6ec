"""What a manager does, with buffers that fill as a few lines say: in virtual time, one report a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product
from statistics import mean

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import LatencyConstraint
from headgate.topology_runtime.latency.countermeasures import Acts, Default, PathManager, resized, share_ms
from headgate.topology_runtime.latency.latency_messages import (
    ChannelSeen,
    LatencyReport,
    Pace,
    PathNow,
    ThreadSeen,
)
from headgate.topology_runtime.latency.path_managers import Channels, PathPart, Seen, judged

HERE = Slot("vm", 0)
MS = 1_000_000


@dataclass
class Line:
    """A path of `width` threads a task, all to all, one worker. Rows come to each channel every 1 / rate s; a frame
    costs its receiver `frame_ms` and `row_ms` a row; busy: of each thread."""

    limit_ms: float
    gap_ms: float = 1.0
    tasks: int = 3
    width: int = 1
    rate: float = 1000.0
    way_ms: float = 0.1
    frame_ms: float = 0.2
    row_ms: float = 0.0
    busy: float = 0.1
    rows: int = 256
    paces: dict[tuple[int, int], Pace] = field(default_factory=dict)
    acts: list[Acts] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        w = self.width
        self.steps = tuple(frozenset(range(n * w, n * w + w)) for n in range(self.tasks))
        self.pairs = [p for a, b in pairwise(self.steps) for p in product(sorted(a), sorted(b))]
        slot_of = {thread: HERE for step in self.steps for thread in step}
        channels = tuple(Channels("shuffle", a, b, slot_of) for a, b in pairwise(self.steps))
        constraint = LatencyConstraint(tuple(f"t{n}" for n in range(self.tasks)), self.limit_ms, 5.0)
        edges, default = tuple(range(self.tasks - 1)), Default(self.gap_ms, lambda _: self.rows)
        self.manager = PathManager(
            (constraint,), PathPart(0, self.steps), edges, channels, default, dict.fromkeys(slot_of, True)
        )

    def life_ms(self, pair: tuple[int, int]) -> float:
        """From a buffer's first row until it leaves."""
        pace = self.paces.get(pair)
        gap_ms, rows = (pace.gap_ns / MS, pace.rows) if pace else (self.gap_ms, self.rows)
        apart_ms = 1000 / self.rate
        return max(0.0, min(gap_ms - apart_ms, (rows - 1) * apart_ms))

    def frame_rows(self, pair: tuple[int, int]) -> float:
        return 1 + self.life_ms(pair) * self.rate / 1000

    def latency_ms(self, thread: int) -> float:
        frames = [self.frame_rows(pair) for pair in self.pairs if pair[1] == thread]
        return self.frame_ms + self.row_ms * max(frames) if frames else 0.0

    def true_ms(self) -> float:
        """Of the slowest sequence, half a buffer's life for a row."""
        return max(
            sum(self.life_ms(p) / 2 + self.way_ms + self.latency_ms(p[1]) for p in pairwise(one))
            for one in product(*self.steps)
        )

    def run(self, seconds: int) -> PathNow:
        for _ in range(seconds):
            self.now_s += 1.0
            channels = tuple(
                ChannelSeen(*pair, 10, int(self.life_ms(pair) * MS), int(self.way_ms * MS))
                for pair in self.pairs
            )
            threads = tuple(
                ThreadSeen(thread, int(self.latency_ms(thread) * MS), self.busy)
                for step in self.steps
                for thread in sorted(step)
            )
            self.manager.take(LatencyReport(HERE, 1, 1, channels, threads), self.now_s)
            acts = self.manager.look(self.now_s)
            self.paces |= {(pace.sender, pace.target): pace for pace in acts.paces}
            if acts.paces or acts.chained:
                self.acts.append(acts)
        return self.manager.now()


def test_what_is_met_is_left_alone() -> None:
    line = Line(limit_ms=300.0)
    now = line.run(60)
    assert (now.standing, now.channels, now.shortened, now.lengthened) == (
        "held",
        2,
        0,
        0,
    ) and line.acts == []
    assert now.most_ms == pytest.approx(line.true_ms(), rel=0.01)


def test_large_buffers_are_made_to_leave_in_time_by_one_step() -> None:
    """32 KB of 128-byte rows at 100 rows/s: a buffer takes its two seconds at each of five hops."""
    line = Line(limit_ms=300.0, gap_ms=2000.0, tasks=6, width=4, rate=100.0)
    before_ms = line.true_ms()
    now = line.run(60)
    assert before_ms > 13 * now.most_ms and line.true_ms() <= 300.0 and now.standing == "held"
    assert len(line.acts) == 1 and now.shortened == len(line.pairs)


def test_how_long_until_it_is_met() -> None:
    line = Line(limit_ms=300.0, gap_ms=2000.0, tasks=6, rate=100.0)
    while line.true_ms() > 300.0:
        line.run(1)
        assert line.now_s < 60.0
    assert line.now_s <= 4.0


@given(
    limit_ms=st.floats(20.0, 500.0), gap_ms=st.floats(1.0, 3000.0), tasks=st.integers(2, 6), width=st.integers(1, 3),
    rate=st.floats(1.0, 20000.0), way_ms=st.floats(0.01, 1.0), frame_ms=st.floats(0.01, 1.0), busy=st.floats(0.0, 0.6),
)  # fmt: skip
def test_whatever_buffers_can_do_is_done(
    limit_ms: float,
    gap_ms: float,
    tasks: int,
    width: int,
    rate: float,
    way_ms: float,
    frame_ms: float,
    busy: float,
) -> None:
    line = Line(limit_ms, gap_ms, tasks, width, rate, way_ms, frame_ms, 0.0, busy)
    now = line.run(120)
    assert line.true_ms() <= limit_ms and now.standing == "held", (
        "hops and frames alone take less than the limit"
    )
    before = dict(line.paces)
    line.run(60)
    assert line.paces == before, "it does not swing"


def test_rows_that_do_not_fit_together_make_smaller_frames() -> None:
    """A frame of 256 rows takes its receivers a quarter of a second: the time is not in buffers at first."""
    line = Line(limit_ms=100.0, gap_ms=500.0, rate=2000.0, row_ms=0.4)
    now = line.run(120)
    assert line.true_ms() <= 100.0 and now.standing == "held"


def test_a_slow_task_is_told_and_not_hidden() -> None:
    line = Line(limit_ms=10.0, frame_ms=50.0, busy=0.97, rate=10000.0)
    now = line.run(60)
    assert now.standing == "helpless"
    assert now.text == (
        "101 ms on the slowest way: 1 in buffers, 0 between threads, 50 at 't2' (thread 2, busy 97%)"
    )


def test_threads_that_leave_a_part_of_a_core_are_chained_once_buffers_are_not_it() -> None:
    line = Line(limit_ms=10.0, frame_ms=8.0, busy=0.2, rate=100.0)
    now = line.run(60)
    assert [acts.chained for acts in line.acts if acts.chained] == [((0, 1), (1, 2))] and now.chained == 2
    assert now.standing == "helpless", "and here that does not help either"


def test_no_more_than_nine_tenths_of_a_core_are_chained() -> None:
    line = Line(limit_ms=10.0, frame_ms=8.0, busy=0.31, rate=100.0)
    line.run(60)
    assert [acts.chained for acts in line.acts if acts.chained] == [((0, 1),)]


@st.composite
def slow_paths(draw: st.DrawFn) -> tuple[list[list[int]], dict[int, float], dict[int, bool]]:
    """(threads of each task; how busy each is; those of this worker: may it be behind another)."""
    widths = draw(st.lists(st.sampled_from([1] * 9 + [2]), min_size=2, max_size=7))
    steps, number = [], 0
    for width in widths:
        steps.append(list(range(number, number + width)))
        number += width
    busy = {t: draw(st.sampled_from([0.0, 0.1, 0.3, 0.4, 0.5])) for t in range(number)}
    where = {t: draw(st.sampled_from([True] * 9 + [False, None])) for t in range(number)}
    return steps, busy, {t: behind for t, behind in where.items() if behind is not None}


def series_as_printed(
    steps: list[list[int]], busy: dict[int, float], here: dict[int, bool], chained: set[int]
) -> list[int]:
    """Section 3.5.2: the longest series of tasks of a sequence, here that of the first thread of each task, that may be
    chained; of equals the first."""
    of = [step[0] for step in steps]
    best: list[int] = []
    for first in range(len(of)):
        for last in range(first + 1, len(of)):
            series = of[first : last + 1]
            in_one_process = all(t in here and t not in chained for t in series)
            leaves_a_tenth = sum(busy[t] for t in series) < 0.9
            one_channel_between = all(len(step) == 1 for step in steps[first : last + 1])
            others_have_one_input = all(here.get(t) for t in series[1:])
            if in_one_process and leaves_a_tenth and one_channel_between and others_have_one_input:
                best = max(best, series, key=len)
    return best


@examples(400)
@given(slow_paths())
def test_the_longest_series_is_chained_as_printed(
    path: tuple[list[list[int]], dict[int, float], dict[int, bool]],
) -> None:
    """Channels take long by themselves, those between the first threads longest; so one series after another is
    chained, until there is none."""
    steps, busy, here = path
    slot_of = dict.fromkeys(busy, HERE)
    between = [(frozenset(a), frozenset(b)) for a, b in pairwise(steps)]
    manager = PathManager(
        (LatencyConstraint(tuple(f"t{n}" for n in range(len(steps))), 10.0, 5.0),),
        PathPart(0, tuple(map(frozenset, steps))),
        tuple(range(len(between))),
        tuple(Channels("shuffle", a, b, slot_of) for a, b in between),
        Default(0.0, lambda _: 1),
        here,
    )
    firsts = {step[0] for step in steps}
    seen = tuple(
        ChannelSeen(a, b, 10, 0, (100 + 10 * (a in firsts) + 10 * (b in firsts)) * MS)
        for senders, receivers in between
        for a in sorted(senders)
        for b in sorted(receivers)
    )
    threads = tuple(ThreadSeen(thread, MS, part) for thread, part in busy.items())
    chained: set[int] = set()
    for now_s in range(200):
        manager.take(LatencyReport(HERE, 1, 1, seen, threads), float(now_s))
        if acts := manager.look(float(now_s)).chained:
            expected = series_as_printed(steps, busy, here, chained)
            assert list(acts) == list(pairwise(expected))
            chained |= set(expected)
    assert manager.now().standing == "helpless" and series_as_printed(steps, busy, here, chained) == []


def test_throughput_is_bought_with_the_latency_that_is_allowed() -> None:
    """A busy thread gets larger frames, an idle one does not."""
    busy, idle = Line(limit_ms=300.0, rate=5000.0, busy=0.95), Line(limit_ms=300.0, rate=5000.0)
    now = busy.run(120)
    assert busy.frame_rows((0, 1)) > 100 and now.lengthened == 2 and busy.true_ms() < 300.0
    assert idle.run(120).lengthened == 0
    busy.busy = 0.1
    assert busy.run(60).lengthened == 0, "and back"


def test_what_was_measured_before_a_step_does_not_count_after_it() -> None:
    line = Line(limit_ms=300.0, gap_ms=2000.0, tasks=6, rate=100.0)
    while not line.acts:
        line.run(1)
    late = ChannelSeen(0, 1, 10, 2000 * MS, 0)
    line.manager.take(LatencyReport(HERE, 1, 1, (late,), ()), line.now_s + 0.5)
    line.run(30)
    assert len(line.acts) == 1


def test_the_shares_of_a_limit() -> None:
    """0.8 of 300 ms less 40 for all else, over five hops; never less than a tenth of the limit in all."""
    assert share_ms(300.0, 40.0, 5) == pytest.approx(40.0)
    assert share_ms(300.0, 500.0, 5) == pytest.approx(6.0)


def test_the_papers_equations() -> None:
    """32 KB buffers as 256 rows: Eq. 2 with r = 0.98 and at least a row, Eq. 3 with s = 1.1 and at most ω."""
    assert resized(256, 10.0, 1.0, 256) == int(256 * 0.98**10)
    assert resized(256, 1000.0, 1.0, 256) == 1
    assert resized(256, 4.9, 1.0, 256) == 256, "5 ms are nothing"
    assert resized(256, 20.0, 30.0, 256) == 256, "its sender's task takes longer"
    assert resized(100, 0.0, 0.0, 256) == 110 and resized(250, 0.0, 0.0, 256) == 256
    assert resized(1, 0.0, 0.0, 256) == 2


# ── The slowest and quickest sequence, and the slowest through each channel, against every sequence added
# up

MILLISECONDS = st.floats(0.0, 1000.0)


@st.composite
def paths(
    draw: st.DrawFn,
) -> tuple[list[frozenset[int]], dict[tuple[int, int], Seen], dict[int, float]]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=5))
    numbers = iter(range(100))
    steps = [frozenset(next(numbers) for _ in range(size)) for size in sizes]
    channels = {
        pair: Seen(draw(MILLISECONDS), draw(MILLISECONDS))
        for before, after in pairwise(steps)
        for pair in product(sorted(before), sorted(after))
        if draw(st.integers(0, 3))
    }
    threads = {thread: draw(MILLISECONDS) for step in steps[1:] for thread in step if draw(st.integers(0, 4))}
    return steps, channels, threads


@given(paths())
def test_as_if_each_had_been_added_up(
    case: tuple[list[frozenset[int]], dict[tuple[int, int], Seen], dict[int, float]],
) -> None:
    steps, channels, threads = case
    every: dict[tuple[int, ...], float] = {}
    fixed: dict[tuple[int, ...], float] = {}
    for one in product(*steps):
        pairs = list(pairwise(one))
        if all(pair in channels for pair in pairs):
            worked = sum(threads.get(thread, 0.0) for thread in one[1:])
            every[one] = worked + sum(channels[p].buffer_ms + channels[p].transport_ms for p in pairs)
            fixed[one] = worked + sum(channels[p].transport_ms for p in pairs)
    found = judged(steps, channels, threads)
    if not every:
        assert found is None
        return
    assert found is not None
    assert found.most_ms == pytest.approx(max(every.values()), abs=1e-6)
    assert found.least_ms == pytest.approx(min(every.values()), abs=1e-6)
    assert every[found.slowest] == pytest.approx(found.most_ms, abs=1e-6)
    used = {pair for one in every for pair in pairwise(one)}
    assert found.through.keys() == used
    for pair in used:
        over = [one for one in every if pair in set(pairwise(one))]
        assert found.through[pair] == pytest.approx(max(every[one] for one in over), abs=1e-6)
        assert found.fixed[pair] == pytest.approx(max(fixed[one] for one in over), abs=1e-6)
    expected = 0.0
    for before, after in pairwise(steps):
        here = [pair for pair in used if pair[0] in before and pair[1] in after]
        expected += mean(channels[pair].ms for pair in here)
        expected += mean(threads.get(thread, 0.0) for thread in {target for _, target in here})
    assert found.mean_ms == pytest.approx(expected, abs=1e-6)
