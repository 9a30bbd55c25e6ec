"""What comes at a source, and how far it is behind: rates, levels, plans and alarms in virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from analysis_made import history, line_topology, needed_for, window_of
from msgspec.structs import replace

from headgate.controller.analyze.demand import HEADROOM, demand, drain_tps, lag_alarm, offer_of, under_cap
from headgate.controller.core.rate_following import RateFollower
from headgate.controller.knowledge.diagnoses import Demand, Past
from headgate.controller.knowledge.measured_window import MeasuredWindow, ProgressSeries
from headgate.controller.knowledge.offered_load import STALE_NS, Lag, PartitionArrivals
from headgate.topology_runtime.wire.messages import SourceStatus

S = 1_000_000_000
OLD = Past(since_plan_s=1e6)


def said(
    at_s: float, arrived: int, emitted: int | None = None, thread: int = 1, oldest_s: float = 0
) -> SourceStatus:
    read = arrived if emitted is None else emitted
    times = {"oldest_ns": int(oldest_s * S), "seen_ns": int(at_s * S)}
    return SourceStatus("in", 0, thread, read, read, 0, 0, 0, arrived=arrived, **times)


def heard(*looks: SourceStatus, late_s: float = 0.0) -> PartitionArrivals:
    known = PartitionArrivals()
    for look in looks:
        known.hear(look, False, look.seen_ns + int(late_s * S))
    return known


def test_the_rate_is_that_of_the_times_at_which_was_counted() -> None:
    """Reports come late, too often, or not at all for a while; none of it looks like another rate."""
    for times in ([0.5 * n for n in range(20)], [0.1, 0.15, 0.2, 0.9, 1.0, 1.1, 2.4], [0, 0.5, 9, 9.5]):
        known = heard(*(said(at, int(100 * at)) for at in times), late_s=0.4)
        assert known.rate_tps == pytest.approx(100, rel=0.02), times


def test_between_two_looks_rows_came_evenly() -> None:
    known = heard(said(1, 100), said(2, 200), said(3, 400))
    assert [known.arrived_at(int(at * S)) for at in (0.5, 1.5, 2.5, 9)] == [100, 150, 300, 400]


def test_a_clock_that_is_far_off_is_not_believed() -> None:
    known = PartitionArrivals()
    for at_s in range(1, 5):
        known.hear(said(1000 + at_s, 50 * at_s), False, at_s * S)
    assert known.rate_tps == pytest.approx(50) and known.looks[-1].at_ns == 4 * S


def test_rows_that_wait_for_a_partition_far_behind_are_not_offered_yet() -> None:
    """More threads would not read them sooner: no lag, and no rate of more than what is read."""
    looks = [replace(said(n, 10_000, 50 * n, oldest_s=0.5), held=True) for n in range(1, 6)]
    known = heard(said(0.5, 10_000, 25, oldest_s=0.5), *looks)
    assert (known.unread, known.oldest_ns, known.arrived) == (0, 0, 250)
    assert known.rate_tps == pytest.approx(50)
    known = heard(*looks, said(6, 10_060, 300, oldest_s=0.5), said(7, 10_080, 350, oldest_s=0.5))
    assert (known.unread, known.oldest_ns) == (9_730, S // 2), "they are, once it may read them"
    assert known.rate_tps == pytest.approx(20), "and did not come at once"


def test_a_leaver_does_not_speak_for_its_successor() -> None:
    known = heard(said(1, 100), said(2, 200, thread=2))
    known.hear(said(3, 120, thread=1), True, 3 * S)
    known.hear(said(4, 150, thread=9), True, 4 * S)  # one that reads again what a lost VM had open
    assert (known.thread, known.arrived) == (2, 200)


def test_what_a_lost_vm_took_along_is_no_negative_rate() -> None:
    known = heard(said(1, 100), said(2, 200), said(3, 150, thread=2), said(4, 250, thread=2))
    assert known.rate_tps == pytest.approx(100) and known.arrived == 250


def test_a_silent_partition_is_not_waited_for_longer() -> None:
    assert STALE_NS == 3 * S


# ── what to plan for ────────────────────────────────────────────────────────────────────────────


def poisson(rate: Callable[[float], float], seconds: float, seed: int) -> list[float]:
    """Arrival times of a stream without memory."""
    chance, at, times = random.Random(seed), 0.0, list[float]()
    while at < seconds:
        at += chance.expovariate(rate(at))
        times.append(at)
    return times


def progress(times: list[float], now_s: float) -> ProgressSeries:
    ordered = sorted(times)
    from bisect import bisect_right

    return history(lambda at: float(bisect_right(ordered, at)), now_s)


def follow(times: list[float], seconds: float, first_tps: float) -> list[tuple[float, float]]:
    """(when, planned rate) of the plans that a stream gives rise to."""
    planned, plans, change_s, up_s, down_s = (
        first_tps * HEADROOM,
        list[tuple[float, float]](),
        -1e9,
        -1e9,
        -1e9,
    )
    following = RateFollower(line_topology())
    for now in range(3, int(seconds)):
        past = Past(now - change_s, now - up_s, now - down_s, sum(now - at < 60 for at, _ in plans))
        offer = offer_of(window_of(progress(times, now)), 0.0)
        following.hear(offer, now * S)
        found = demand(offer, following.forecast, planned, past)
        if found.direction != "same":
            up_s, down_s = (now, down_s) if found.direction == "up" else (up_s, now)
            planned, change_s = found.target_tps, now
            plans.append((now, planned))
    return plans


def test_what_is_behind_may_fall_by_itself_and_ends_no_controller() -> None:
    """A source says less than before, as its service counts again or lost rows: that is no rate."""
    following = RateFollower(line_topology())
    offer = offer_of(window_of(history(lambda at: 1e6 - 500 * at, 30)), 0.0)
    following.hear(offer, 30 * S)
    assert demand(offer, following.forecast, 100.0, OLD).target_tps >= 0


@pytest.mark.parametrize("rate_tps", [5.0, 20.0, 100.0, 400.0])
def test_chance_is_not_followed(rate_tps: float) -> None:
    """A stream of one rate, without memory: a few plans at most in four times two minutes."""
    plans = sum(len(follow(poisson(lambda _: rate_tps, 120, seed), 120, rate_tps)) for seed in range(4))
    assert plans <= 4


def even(*parts: tuple[float, float]) -> list[float]:
    """Arrival times of a sender that keeps each rate until then (rows/s, s)."""
    times, at = list[float](), 0.0
    for rate_tps, until_s in parts:
        while at < until_s:
            times.append(at)
            at += 1 / rate_tps
    return times


@pytest.mark.parametrize("phase", range(20))
def test_a_step_is_followed_at_once_and_whole(phase: int) -> None:
    """Wherever between two looks it comes: from a part of it that was seen, a plan below the rate was made once."""
    step_s = 20 + phase / 20
    plans = follow(even((20, step_s), (100, 40), (50, 100)), 100, 20)
    up = [plan for plan in plans if plan[0] < 40]
    assert step_s < up[0][0] <= step_s + 2.5 and len(up) <= 2
    assert up[-1][1] == pytest.approx(100 * HEADROOM, rel=0.03) and up[-1][0] <= step_s + 4
    down = [plan for plan in plans if plan[0] >= 40]
    assert all(50 * HEADROOM <= tps <= 100 for _, tps in down)


@pytest.mark.parametrize(("low_tps", "high_tps"), [(20.0, 100.0), (50.0, 100.0), (20.0, 400.0)])
def test_a_step_by_chance_is_planned_for_within_five_seconds(low_tps: float, high_tps: float) -> None:
    """Also where the first look at it shows less than comes, which chance makes so, or the time of the look."""
    short = []
    for seed in range(40):
        step_s = 20 + seed / 40
        times = poisson(lambda at, since=step_s: low_tps if at < since else high_tps, 45, seed)  # type: ignore[misc]
        up = [tps for at, tps in follow(times, 40, low_tps) if step_s < at <= step_s + 5]
        if not up or max(up) < high_tps:
            short.append((seed, up))
    assert len(short) <= 1, short


def steady(rate_tps: float, planned_tps: float, waits_tps: float | None) -> Demand:
    given = {} if waits_tps is None else {"waits_tps": waits_tps}
    return needed_for(history(lambda s: rate_tps * s, 60.0), planned_tps, OLD, **given)


@pytest.mark.parametrize("fall_s", [57.2, 58.0, 59.0, 59.4])
def test_a_count_that_falls_is_no_negative_rate(fall_s: float) -> None:
    """A source that begins anew does not know at once what waits outside; the controller ended with an error."""
    came = history(lambda s: 50.0 * s - (3000 if s >= fall_s else 0), 60.0)
    fallen = needed_for(came, 100.0, OLD, waits_tps=0.0)
    assert 0 <= fallen.rate_tps <= 50 and fallen.target_tps >= 0


def test_what_waits_is_planned_for_besides() -> None:
    waits = drain_tps((Lag("in", 6000, 30.0),))
    assert waits == pytest.approx(100.0), "in a minute"
    found = steady(100, 125, waits)
    assert found.direction == "up" and found.target_tps == pytest.approx(100 * HEADROOM + 100)
    assert "100.0 rows/s wait" in found.text
    assert steady(100, found.target_tps, 0.8 * waits).direction == "same", "and no more while it gets less"


def test_a_plan_is_not_lowered_below_what_waits() -> None:
    assert steady(20, 150, 0.0).direction == "down"
    assert steady(20, 150, 110.0).direction == "same"


def test_no_more_is_planned_for_than_a_cap_lets_through() -> None:
    comes = history(lambda s: 100 * s, 60.0)
    found = needed_for(comes, 25.0, OLD, waits_tps=50.0, cap_tps=20.0)
    assert found.direction == "same" and found.target_tps == pytest.approx(20 * HEADROOM)
    assert found.rate_tps == pytest.approx(100) and "100.0 rows/s come, 20 are read at most" in found.text
    lowered = needed_for(comes, 125.0, OLD, waits_tps=50.0, cap_tps=20.0)
    assert lowered.direction == "down" and lowered.target_tps == pytest.approx(20 * HEADROOM)
    read = under_cap(slowly(0.2), (Lag("in", 4800, 48.0),), 20.0)
    assert read.progress.offered == read.progress.emitted, "the topology keeps up with what it is given"
    slow = slowly(0.1)
    assert under_cap(slow, (Lag("in", 4800, 48.0),), 20.0) is slow, "here it is not the cap"
    assert under_cap(slow, (Lag("in", 4800, 48.0),), math.inf) is slow


def slowly(share: float) -> MeasuredWindow:
    """A hundred rows a second come, and this share of them is read."""
    series = history(lambda s: 100 * s, 60.0)
    read = tuple(share * position for position in series.offered)
    return window_of(ProgressSeries(series.at_s, series.offered, read, read))


def test_rows_that_wait_their_turn_are_no_lag() -> None:
    assert drain_tps((Lag("in", 300, 0.4),)) == 0.0
    assert drain_tps(()) == 0.0


# ── the alarm ───────────────────────────────────────────────────────────────────────────────────


def test_a_lag_that_grows_is_an_alarm_until_it_is_gone() -> None:
    window, growing = window_of(history(lambda s: 100 * s, 60.0)), slowly(0.5)
    said = lag_alarm("", (Lag("in", 500, 6.0),), growing)
    assert said.startswith("lag growing: in is 500 rows and 6 s behind")
    assert lag_alarm("", (Lag("in", 500, 6.0),), window) == "", "it does not grow"
    assert lag_alarm("", (Lag("in", 500, 3.0),), growing) == "", "not for so little"
    assert lag_alarm(said, (Lag("in", 400, 3.0),), window) == said, "not gone yet"
    assert lag_alarm(said, (Lag("in", 10, 0.5),), window) == ""
    assert lag_alarm(said, (), window) == ""
