"""The schedule: how much is due when, and when each position is due, agree."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.schedule import EARLIER_KEPT, NS, Schedule

START = 1_700_000_000 * NS
rates = st.sampled_from([0.0, 0.0, 0.5, 1.0, 7.3, 100.0, 2500.0]) | st.floats(0.01, 5000)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    gaps = draw(st.lists(st.floats(0.05, 50), max_size=5))
    times = [sum(gaps[:n]) for n in range(len(gaps) + 1)]
    steps = tuple((at, draw(rates)) for at in times)
    period = draw(st.sampled_from([0.0, 0.0, times[-1] + 5, times[-1] * 0.6 + 0.1, 3.0]))
    base = draw(st.sampled_from([0.0, 17.0, 3.25]))
    return Schedule(START, steps, period, base)


times_ns = st.integers(-NS, 300 * NS).map(lambda ns: START + ns)


@searching(400)
@given(schedules(), st.integers(0, 300 * NS))
def test_due_positions_were_intended_before_and_no_others(schedule: Schedule, after_ns: int) -> None:
    now_ns = START + after_ns
    due = schedule.due(now_ns)
    next_ns = schedule.intended_ns(due)
    assert next_ns is None or next_ns >= now_ns - 1000
    if due - 1 >= schedule.base:
        last_ns = schedule.intended_ns(due - 1)
        assert last_ns is not None and last_ns <= now_ns + 1000


@searching(300)
@given(schedules(), st.integers(0, 20_000))
def test_a_position_is_due_when_so_many_are_offered(schedule: Schedule, position: int) -> None:
    intended_ns = schedule.intended_ns(position)
    if intended_ns is None:
        assert schedule.offered(START + 10**7 * NS) <= position + 1e-6
    elif position >= schedule.base:
        fastest = max(rate for _, rate in schedule.steps)
        assert schedule.offered(intended_ns) == pytest.approx(position, abs=1e-6 + fastest * 2e-6)


@searching(300)
@given(schedules(), times_ns, st.integers(0, 100 * NS))
def test_the_offer_never_falls_and_grows_by_its_rate(schedule: Schedule, now_ns: int, later_ns: int) -> None:
    before, after = schedule.offered(now_ns), schedule.offered(now_ns + later_ns)
    fastest = max(rate for _, rate in schedule.steps)
    assert -1e-6 <= after - before <= fastest * later_ns / NS + 1e-3
    assert before >= 0 and schedule.rate_at(now_ns) >= 0 and schedule.due(now_ns) >= 0


@searching(200)
@given(schedules(), st.integers(0, 200 * NS))
def test_the_rate_is_the_slope(schedule: Schedule, after_ns: int) -> None:
    now_ns, step_ns = START + after_ns, NS // 1000
    if schedule.rate_at(now_ns) == schedule.rate_at(now_ns + step_ns):
        slope = (schedule.offered(now_ns + step_ns) - schedule.offered(now_ns)) * 1000
        crossed = {schedule.rate_at(now_ns + step_ns * n // 8) for n in range(9)}
        assert len(crossed) > 1 or slope == pytest.approx(schedule.rate_at(now_ns), abs=0.05, rel=1e-3)


@pytest.mark.parametrize(
    "steps", [((0.0, 10.0), (2.0, 30.0)), ((0.0, 5.0), (1.0, 0.0)), ((0.0, 0.0), (3.0, 8.0))]
)
def test_a_period_repeats(steps: Any) -> None:
    schedule = Schedule(START, steps, 4.0)
    a_period = schedule.offered(START + 4 * NS)
    for at_s in (0.0, 0.5, 1.0, 2.5, 3.999):
        at_ns = START + int(at_s * NS)
        for n in (1, 5, 1000):
            later_ns = at_ns + n * 4 * NS
            assert schedule.rate_at(later_ns) == schedule.rate_at(at_ns)
            assert schedule.offered(later_ns) == pytest.approx(schedule.offered(at_ns) + n * a_period)


def test_steps_beyond_the_period_are_never_reached() -> None:
    schedule = Schedule(START, ((0.0, 10.0), (100.0, 99.0)), 50.0)
    assert schedule.offered(START + 50 * NS) == 500
    assert schedule.offered(START + 175 * NS) == 1750
    assert schedule.intended_ns(1750) == START + 175 * NS


def test_a_gap_in_the_offer_is_skipped() -> None:
    schedule = Schedule(START, ((0.0, 10.0), (1.0, 0.0), (5.0, 10.0)))
    assert schedule.due(START + NS) == schedule.due(START + 5 * NS) == 10
    assert [schedule.intended_ns(n) for n in (9, 10, 11)] == [
        START + 900_000_000,
        START + 5 * NS,
        START + 5_100_000_000,
    ]


def test_an_offer_that_stops_has_no_next_position() -> None:
    assert Schedule(START, ((0.0, 10.0), (1.0, 0.0))).intended_ns(10) is None
    assert Schedule(START, ((0.0, 0.0),), 5.0).intended_ns(0) is None


# ── changes ─────────────────────────────────────────────────────────────────────────────────────────


@searching(300)
@given(schedules(), st.lists(st.tuples(st.integers(0, 50 * NS), rates), min_size=1, max_size=6))
def test_a_change_of_rate_is_continuous(schedule: Schedule, changes: list[tuple[int, float]]) -> None:
    """Nothing is offered twice or skipped, and positions from before keep their times."""
    now_ns = START
    for wait_ns, rate in changes:
        now_ns += wait_ns
        before, schedule = schedule, schedule.changed(now_ns, rate)
        assert schedule.offered(now_ns) == pytest.approx(before.offered(now_ns))
        assert schedule.due(now_ns) == before.due(now_ns)
        assert schedule.rate_at(now_ns) == rate
        assert schedule.offered(now_ns + NS) == pytest.approx(before.offered(now_ns) + rate)
        if now_ns > START:
            for earlier_ns in (now_ns - 1, now_ns - min(wait_ns, NS)):
                assert schedule.offered(earlier_ns) <= schedule.offered(now_ns) + 1e-9
        for position in range(
            max(0, math.ceil(before.offered(now_ns)) - 3), math.ceil(before.offered(now_ns))
        ):
            if position >= before.base:
                assert schedule.intended_ns(position) == before.intended_ns(position)


def test_a_worker_whose_clock_is_behind_sees_the_offer_before() -> None:
    schedule = Schedule(START, ((0.0, 10.0),)).changed(START + 10 * NS, 1000.0)
    assert schedule.offered(START + 9 * NS) == 90 and schedule.rate_at(START + 9 * NS) == 10
    assert schedule.due(START + 10 * NS) == 100


def test_only_so_many_changes_are_remembered() -> None:
    schedule = Schedule(START, ((0.0, 10.0),))
    for n in range(1, 50):
        schedule = schedule.changed(START + n * NS, 10.0 + n)
    depth, earlier = 0, schedule.earlier
    while earlier is not None:
        depth, earlier = depth + 1, earlier.earlier
    assert depth == EARLIER_KEPT
    assert len(msgspec.msgpack.encode(schedule)) < 1000


@searching(100)
@given(schedules(), st.integers(1, 100 * NS))
def test_an_ended_offer_stays_where_it_was(schedule: Schedule, after_ns: int) -> None:
    end_ns = START + after_ns
    ended = schedule.ended(end_ns)
    assert ended.offered(end_ns + 99 * NS) == ended.offered(end_ns) == schedule.offered(end_ns)
    assert ended.rate_at(end_ns) == 0.0
    assert ended.intended_ns(ended.due(end_ns) + 1) is None
    changed = ended.changed(end_ns + NS, 50.0)
    assert changed.offered(end_ns + 99 * NS) == pytest.approx(ended.offered(end_ns))


@searching(100)
@given(schedules())
def test_a_schedule_crosses_the_wire(schedule: Schedule) -> None:
    there = schedule.changed(START + NS, 7.0)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(there), type=Schedule)
    assert back == there and back.offered(START + 9 * NS) == there.offered(START + 9 * NS)
